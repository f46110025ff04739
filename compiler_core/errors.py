"""The catalogue of errors: one class per kind of mistake, each saying what, where, what was expected, what to do.

In: facts. Out: exceptions whose text is laid out the same way everywhere. Every class here is raised by a test.
Errors of collectives, launcher and DDP live in their own packages and follow the same layout.
"""

from __future__ import annotations

import threading

from compiler_core.location import user_call


class DistCompileError(Exception):
    """Base of the compiler core's errors.

    what: one sentence on what went wrong. where: the user's file and line, if known.
    expected, got: the two sides of the mismatch. remedy: what the user can do.
    An `is_of_call` error finds the line and the user's call with its arguments by itself, unless told `where`.
    """

    is_of_call = False  # whether arguments of a call are what is wrong

    def __init__(self, what: str, *, where: str = "", expected: str = "", got: str = "", remedy: str = "") -> None:
        where, call = user_call() if self.is_of_call and not where else (where, "")
        self.what, self.where, self.expected, self.got, self.remedy = what, where, expected, got, remedy
        rows = (("at", where), ("in", call), ("expected", expected), ("got", got), ("what to do", remedy))
        super().__init__("\n".join([what, *(f"  {label}: {text}" for label, text in rows if text)]))


class DTypeError(DistCompileError, TypeError, RuntimeError):
    """An element type that does not exist here, or does not fit the operation. A RuntimeError too, as in torch."""

    is_of_call = True


class NoKernelError(DTypeError, NotImplementedError):
    """A function that is not computed of this element type. A NotImplementedError, as torch's of kernels that lack."""


class UnsuitableDTypeError(DTypeError, ValueError):
    """An element type that the function makes nothing of. A ValueError, as torch.signal's."""


class ArgumentTypeError(DistCompileError, TypeError):
    """An argument of a type that the function does not take."""

    is_of_call = True


class NotCallableError(ArgumentTypeError, AssertionError):
    """What compile() was given cannot be called."""


class OverlapError(DistCompileError, RuntimeError):
    """Memory that would be written while it is read, or of which several elements are one place."""

    is_of_call = True


class TypeNameError(DistCompileError, ValueError):
    """The name of a tensor type that does not exist."""

    is_of_call = True


class ShapeError(DistCompileError, ValueError, RuntimeError):
    """Shapes that do not fit the operation or each other. A RuntimeError too, as in torch."""

    is_of_call = True


class IndexError_(DistCompileError, IndexError, RuntimeError):
    """An index outside its dimension, or of a kind that indexing does not take. A RuntimeError too: torch has both."""

    is_of_call = True


class RankError(ShapeError, NotImplementedError):
    """A number of dims that the function is not computed for. A NotImplementedError, as torch's."""


class EmptyReductionError(ShapeError, IndexError_):
    """The greatest or least of nothing. A ShapeError, and an IndexError as in torch."""


class IndexTypeError(DTypeError, IndexError_):
    """What stands in an index is of a type that indexes nothing."""


class DivisionByZeroError(DistCompileError, ZeroDivisionError, RuntimeError):
    """A whole number divided by zero. A RuntimeError too, as in torch."""

    is_of_call = True


class DomainError(DistCompileError, ValueError, RuntimeError):
    """An element of a tensor for which the function is not defined."""

    is_of_call = True


class NumberRangeError(DistCompileError, OverflowError, ValueError, RuntimeError):
    """A number that the dtype it is to be stored in does not hold. torch has one of the three bases, by the place."""

    is_of_call = True


class RandomStateError(DistCompileError, ValueError, RuntimeError):
    """A seed or a state that is none of this kind of random generator."""

    is_of_call = True


class ArgumentError(DistCompileError, ValueError, RuntimeError):
    """An argument outside its range, or arguments that exclude each other: torch raises one or the other."""

    is_of_call = True


class OpDefinitionError(DistCompileError):
    """An op registered without all its rules; raised at import."""


class DeviceError(DistCompileError, RuntimeError):
    """A device that does not exist on this machine, or that is not supported yet."""


class NoCudaError(DeviceError, AssertionError):
    """CUDA was asked for where there is none. An AssertionError, as torch's where it was built without it."""


class DeviceTypeError(DeviceError, TypeError):
    """NumPy was handed a tensor of a device: its data is not in the host's memory."""


class CudaMemoryError(DeviceError, MemoryError):
    """A CUDA device has not the memory that was asked for. torch's name of it is cuda.OutOfMemoryError."""


class NoDataError(DeviceError, NotImplementedError):
    """The data of a tensor of device "meta" was asked for: it has none."""


class BatchError(DistCompileError, RuntimeError):
    """What vmap cannot do: read the data of a value that stands for a batch, write one into a tensor for all."""


class RandomCallError(DistCompileError, RuntimeError):
    """A draw where vmap was told that there is none, or a word of it that is none of vmap's."""


class AutocastError(DistCompileError, RuntimeError):
    """A function that autocast does not take on a GPU."""


class AutogradError(DistCompileError, RuntimeError):
    """backward() on something that has no gradient, a freed tape, or a saved value changed in place."""


class LinAlgError(DistCompileError, RuntimeError):
    """A matrix that the routine cannot do: singular, not positive definite, or an iteration that does not converge."""

    is_of_call = True


class LayoutError(DistCompileError, NotImplementedError):
    """A function that is not there for tensors of this layout: sparse ones. A NotImplementedError, as in torch."""

    is_of_call = True


class SparseError(DistCompileError, RuntimeError):
    """A sparse tensor whose parts do not fit each other, or of which something was asked that it does not have."""

    is_of_call = True


class SparseTypeError(SparseError, TypeError):
    """A sparse tensor where only dense ones can be: NumPy has none, and none is assigned to by an index."""


class GraphError(DistCompileError):
    """A graph (or loop IR) text that does not parse, or a graph that breaks an invariant."""


class BranchError(DistCompileError, RuntimeError):
    """Functions given to torch.cond, map, scan or while_loop whose results do not match. A RuntimeError, as torch's."""

    is_of_call = True


class UnknownSizeError(GraphError, RuntimeError):
    """The value of a size that only the data decides was asked for in capture. A RuntimeError, as torch's."""


class ClosedSizesError(GraphError):
    """A question about sizes that nothing decides, after the capture that could have assumed an answer."""


class ConstraintViolationError(DistCompileError, RuntimeError):
    """A size that the program marked as dynamic is none: it is out of range, or the code is right for one number."""


class GraphBreak(DistCompileError):
    """Python needed the data of a traced value; `where` is the user's line. An error only under fullgraph=True.

    Code that is traced may catch it; capture counts those that were made, so that none goes unnoticed.
    """

    _made = threading.local()

    def __init__(self, what: str, *, where: str = "", expected: str = "", got: str = "", remedy: str = "") -> None:
        super().__init__(what, where=where, expected=expected, got=got, remedy=remedy)
        GraphBreak._made.count = GraphBreak.made() + 1

    @staticmethod
    def made() -> int:
        """How many were made in this thread."""
        return getattr(GraphBreak._made, "count", 0)

    @staticmethod
    def forget(made: int) -> None:
        """There were so many: those since then ended a trace that nothing is kept of, and something else is done."""
        GraphBreak._made.count = made


class CannotExport(DistCompileError, RuntimeError):
    """A call that is one graph, but not a program from tensors to tensors that stands alone."""


class GraphSeam(GraphBreak):
    """A graph ends here by design, and another begins behind what runs in between, which is no Python of the program's:
    no break, and no error under fullgraph=True."""


class RecompileLimitError(DistCompileError):
    """More distinct guard keys than `recompile_limit`, under fullgraph=True."""


class FenceError(DistCompileError):
    """A value that was on its way was lost: computing it failed half way."""


class BackendError(DistCompileError):
    """A backend that does not exist, or that failed on a graph.

    step, graph: in which step of the compiler, of which graph, if it was in one. kept: the graph as captured. script:
    the file that shows it, where DISTCOMPILE_REPRO asked for one.
    """

    step = graph = script = ""
    kept: object = None

    def in_step(self, step: str, graph: str) -> None:
        """It left a step of the compiler; the innermost counts."""
        if not self.step:
            self.step, self.graph = step, graph
            self.add_note(f"  in step {step!r} of graph {graph}")


class CompilationError(BackendError, RuntimeError):
    """A step of the compiler failed by an error that is not in this catalogue: `__cause__`. A RuntimeError, as torch's.

    step, graph: in which; node: what was being compiled, if that is known.
    """

    def __init__(self, what: str, *, step: str, graph: str, node: str = "", where: str = "", remedy: str = "") -> None:
        self.step, self.graph, self.node = step, graph, node
        super().__init__(what, where=where, got=node, remedy=remedy)


class TakenNameError(BackendError, AssertionError):
    """A backend was given a name that another has. An AssertionError too, as torch's."""


class MissingPackageError(BackendError, ImportError):
    """An optional package that a backend needs is not installed, or does not import. An ImportError too."""


class LoweringError(BackendError):
    """A graph node that the lowering or the code generator cannot express."""


class NoComplexError(LoweringError):
    """A kernel of a code generator that has no complex numbers would compute with them."""


class CompilerNotFoundError(BackendError):
    """No C++ compiler on this machine."""


class CompilerFailedError(BackendError):
    """The C++ compiler rejected generated code; the text holds its first lines and the source's path."""


class CacheError(BackendError):
    """Compiled code can be stored nowhere, or what was stored is lost or cannot be loaded."""


class ConfigError(DistCompileError, ValueError):
    """A knob that does not exist, or a value that it does not take."""


# What generated code tests while it runs is a text; one that begins with a key and "!" is an error of that class.
_TESTED: dict[str, type[DistCompileError]] = {
    "division": DivisionByZeroError,
    "value": DomainError,
    "linalg": LinAlgError,
    "autograd": AutogradError,
    "shape": ShapeError,
}
# What a graph raises that met values which it cannot take.
DATA_ERRORS: tuple[type[DistCompileError], ...] = (IndexError_, *_TESTED.values())


def check_message(error: str, message: str) -> str:
    """The text of a test whose failure is an error of kind `error`, a key of _TESTED."""
    assert error in _TESTED, error
    return f"{error}!{message}"


def failed_check(message: str, where: str = "", remedy: str = "") -> DistCompileError:
    """The error of a failed test, from its text: IndexError_, with that remedy, unless `check_message` made it."""
    kind, mark, text = message.partition("!")
    known = _TESTED.get(kind) if mark else None
    return known(text, where=where) if known else IndexError_(message, where=where, remedy=remedy)
