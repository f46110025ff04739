"""The catalogue of errors that modules, optimizers, data loading, files and the installation raise.

In: facts. Out: exceptions laid out like the core's (`compiler_core/errors.py`): what, where, expected, got, remedy.
Each class is also the built-in exception that torch raises in the same place, so code that catches torch's still works.
Errors of DDP and parity stand in `distcompile/ddp` and `distcompile/parity`. Every class here is raised by a test.
"""

from __future__ import annotations

import pickle

from compiler_core.errors import ArgumentError as ArgumentError  # the core raises it too
from compiler_core.errors import DistCompileError
from compiler_core.errors import RandomCallError as RandomCallError


class InstallationError(DistCompileError, ImportError):
    """The four import packages come from more than one place: one shadows another."""


class MissingExtraError(DistCompileError, ImportError):
    """Something asked for needs a package of an extra that is not installed."""


class RegistrationTypeError(DistCompileError, TypeError):
    """A parameter, buffer, child module or hook of the wrong type."""


class RegistrationNameError(DistCompileError, KeyError):
    """A name that a parameter, buffer or child module cannot have."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError prints the repr


class RegistrationOrderError(DistCompileError, AttributeError):
    """Something was registered before `Module.__init__`, or a path names no such module, parameter or buffer."""


class NonLeafParameterError(DistCompileError, ValueError):
    """A parameter that is the result of a recorded operation."""


class HookError(DistCompileError, RuntimeError):
    """A hook returned something that its kind of hook must not return."""


class StateDictError(DistCompileError, RuntimeError):
    """A state dict that does not fit the module or the optimizer."""


class OptimizerStateError(StateDictError, ValueError):
    """A state dict that does not fit the optimizer."""


class NoInitialRateError(OptimizerStateError, KeyError):
    """A scheduler that goes on from an epoch, of an optimizer that does not know its first rates."""

    __str__ = Exception.__str__


class AssertedArgumentError(ArgumentError, AssertionError):
    """An argument that torch checks by `assert`."""


class GradcheckError(DistCompileError, RuntimeError):
    """A gradient that finite differences contradict, or that is not one."""


class MutationContextError(DistCompileError, AssertionError):
    """A backward outside of the `allow_mutation_on_saved_tensors` block in which it was recorded."""


class GradientNormError(DistCompileError, RuntimeError):
    """The total gradient norm is not finite, under `error_if_nonfinite=True`."""


class CheckpointError(DistCompileError, ValueError, RuntimeError):
    """A checkpoint file that is not ours or not whole, or an object that a checkpoint cannot hold."""


class CheckpointWriteError(CheckpointError, OSError):
    """A checkpoint file that the system would not take to its end: the disk is full, or a limit is reached."""

    def __init__(self, what: str, *, errno: int, remedy: str) -> None:
        super().__init__(what, remedy=remedy)
        self.errno = errno


class WeightsOnlyError(CheckpointError, pickle.UnpicklingError):
    """A file that asks for more than tensors and containers: it names classes or functions that are not allowed."""


class NoCheckpointError(CheckpointError, pickle.UnpicklingError):
    """A file in which there is no pickle of torch.save's, nor tensors in safetensors' format."""


class EmptyFileError(NoCheckpointError, EOFError):
    """A file without a byte. An EOFError, as torch's."""


class DataLoaderError(DistCompileError, RuntimeError):
    """A data set, sampler or loader used against its contract."""


class LengthError(DataLoaderError, TypeError):
    """A data set has no length, so neither has its loader. A TypeError, as of `len` itself."""


class BatchTypeError(DataLoaderError, TypeError):
    """Samples of this type cannot be batched."""


class OperatorError(DistCompileError, RuntimeError):
    """An operator of the program's that cannot be called as it was, or whose function did not what its schema says."""


class NoKernelError(OperatorError, NotImplementedError):
    """An operator without a function for the device of its arguments."""


class OperatorCheckError(DistCompileError):
    """`opcheck` found that an operator is registered wrongly."""


class PackageError(DistCompileError, ValueError, RuntimeError):
    """A package that cannot be made or loaded: it is none, damaged, of a newer format, or for another machine."""


class NotSupportedError(DistCompileError, NotImplementedError):
    """A name that torch has and that distcompile does not offer yet."""


class SharedObjectError(NotSupportedError, OSError):
    """Operators of a shared object. An OSError, as torch's is where it cannot be loaded: callers go on without."""


class NoGPUError(NotSupportedError, AssertionError):
    """Something of a GPU was asked for. An AssertionError too, as torch raises without CUDA."""
