"""How a call is captured: entered frame by frame, run as it is under the trace, or not at all (a graph break).

In: a function. Out: `how(function) -> Entered | Native | Breaks(reason)`, by the file that its code is from and by what
`distcompile.compiler` was told about it. Our own tensor code runs natively, for it records itself; modules, optimizers
and what calls the user's functions are entered, as the user's code is. Of Python's library, what speaks to the system
breaks the graph; so does what of ours speaks to other ranks, to files or to the system, or keeps state.
"""

from __future__ import annotations

import inspect
import os
import sysconfig
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

from compiler_core.bytecode.program import LOOKS_AT_FRAMES, program_of
from compiler_core.records import dataclass

_ROOT = Path(__file__).resolve().parents[2]
_STDLIB = sysconfig.get_paths()["stdlib"] + os.sep
_SITE = tuple(os.path.join(_STDLIB, name) for name in ("site-packages", "dist-packages"))

# of ours, entered like a user's code: they hold Python state, or call what the user gave them
ENTERED = tuple(
    str(_ROOT / part)
    for part in (
        "distcompile/amp/grad_scaler.py",
        "distcompile/autograd/functional.py",
        "distcompile/data/",
        "distcompile/demo",
        "distcompile/export/module.py",
        "distcompile/distributions/",
        "distcompile/nn/",
        "distcompile/optim/",
        "distcompile/utils/_pytree",
        "distcompile/utils/checkpoint.py",
        "distcompile/ddp/ddp.py",
        "distcompile/surface/determinism.py",
        "distcompile/surface/derivatives.py",
        "distcompile/surface/loops.py",
        "distcompile/parity/case.py",
        "distcompile/distributed/functional_collectives.py",
        "distcompile/distributed/traced.py",
        "distcompile/distributed/nn/functional.py",
        "distcompile/func.py",
        "distcompile/library/calls.py",
        "distcompile/library/kernels.py",
        "compiler_core/capture/polyfills",
        "compiler_core/bytecode/equivalents.py",
        "compiler_core/tensor/autograd/function_apply.py",
        "compiler_core/tensor/autograd/handles.py",
        "compiler_core/numpy_trace/wrap.py",
        "compiler_core/trees.py",
    )
)
# of these, what calls the user's functions and holds nothing back from them: no context, no transform of tensors
CALLERS = tuple(str(_ROOT / part) for part in ("distcompile/nn/", "distcompile/optim/", "distcompile/ddp/ddp.py"))
# of these, run natively all the same
NATIVE = tuple(
    str(_ROOT / part)
    for part in (
        "distcompile/nn/functional",
        "distcompile/nn/versions.py",
        "distcompile/nn/init.py",
        "distcompile/nn/utils/rnn.py",
        "distcompile/nn/parameter.py",
        "distcompile/optim/update_rules/traced.py",
    )
)
OURS = tuple(f"{_ROOT / package}{os.sep}" for package in ("compiler_core", "distcompile", "collectives", "launch"))
# of ours, what records itself, or only answers. What is neither here nor entered ends the graph, so that a new module
# need not be remembered: collectives and the handles on them, files, streams
RECORDING = tuple(
    str(_ROOT / part)
    for part in (
        "compiler_core/",
        "distcompile/_C.py",
        "distcompile/__config__.py",
        "distcompile/__init__.py",
        "distcompile/_dynamo/__init__.py",
        "distcompile/_dynamo/decorators.py",
        "distcompile/surface/absent.py",
        "distcompile/accelerator.py",
        "distcompile/amp/",
        "distcompile/as_torch/",
        "distcompile/surface/asking.py",
        "distcompile/autograd/",
        "distcompile/backends.py",
        "distcompile/compiler.py",
        "distcompile/cpu/",
        "distcompile/cuda/__init__.py",
        "distcompile/cuda/amp.py",
        "distcompile/cuda/devices.py",
        "distcompile/ddp/modes.py",
        "distcompile/distributed/recorded.py",
        "distcompile/errors.py",
        "distcompile/export/exported_program.py",
        "distcompile/export/running.py",
        "distcompile/fft.py",
        "distcompile/surface/flat.py",
        "distcompile/surface/foreach.py",
        "distcompile/functional.py",
        "distcompile/jit/",
        "distcompile/surface/found.py",
        "distcompile/library/",
        "distcompile/surface/limits.py",
        "distcompile/linalg.py",
        "distcompile/surface/mapping.py",
        "distcompile/masked.py",
        "distcompile/mps.py",
        "distcompile/mtia.py",
        "distcompile/surface/names.py",
        "distcompile/onnx/state.py",
        "distcompile/overrides.py",
        "distcompile/profiler/",
        "distcompile/random.py",
        "distcompile/surface/rare.py",
        "distcompile/return_types.py",
        "distcompile/signal/",
        "distcompile/special.py",
        "distcompile/storage.py",
        "distcompile/surface/symbols.py",
        "distcompile/testing.py",
        "distcompile/surface/threads.py",
        "distcompile/surface/torch_version.py",
        "distcompile/types.py",
        "distcompile/utils/__init__.py",
        "distcompile/utils/selective_checkpoint.py",
        "distcompile/version.py",
        "distcompile/xpu.py",
    )
)
# of these, what keeps the functions of the program's that it is given, and calls them later
KEEPING = (str(_ROOT / "compiler_core/tensor/autograd/hooks.py"),)
TALKING = tuple(str(_ROOT / part) for part in ("collectives/", "distcompile/distributed/", "distcompile/futures.py"))
# files of Python's library whose functions speak to the system, keep state of their own, or look at the stack
SYSTEM = frozenset(
    {
        *("logging", "warnings", "threading", "subprocess", "multiprocessing", "concurrent", "asyncio", "socket"),
        *("ssl", "http", "urllib", "tempfile", "shutil", "random", "inspect", "traceback", "importlib", "pdb", "bdb"),
        *("unittest", "ctypes", "signal", "selectors", "queue", "sched", "linecache", "tokenize", "pickle", "gc"),
        *("os", "io", "_pyio", "pathlib", "glob", "secrets", "uuid", "time", "timeit", "cProfile", "contextvars"),
        *("weakref", "getpass", "platform", "sysconfig", "tracemalloc", "codecs", "locale", "gettext", "readline"),
    }
)
# of the files that break the graph, what only reads: entered all the same
READING = frozenset(
    {
        *("get_rank", "get_world_size", "is_initialized", "has_peers", "not_in", "group_or_default", "_current"),
        "_Names.WORLD",
        "P2POp.__init__",
        *("getenv", "_Environ.__getitem__", "_createenviron.<locals>.encode", "_createenviron.<locals>.decode"),
        *("Signature.parameters", "Signature.return_annotation"),
        *(f"Parameter.{name}" for name in ("name", "kind", "default", "annotation")),
    }
)


@dataclass(frozen=True, slots=True)
class Entered:
    """Its frames are run by the machine."""


@dataclass(frozen=True, slots=True)
class Native:
    """It runs as it is, under the trace."""


@dataclass(frozen=True, slots=True)
class Breaks:
    """It is not captured. reason: a sentence. looks: it may look at its callers' variables. is_seam: by design."""

    reason: str
    remedy: str = ""
    looks: bool = False
    is_seam: bool = False


@dataclass(frozen=True, slots=True)
class Constant:
    """It is called while capturing, and what it gives is a constant."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """`by` is captured in its place."""

    by: Any


How = Entered | Native | Breaks | Constant | Replaced
LOOKING = frozenset({"inspect", "traceback"})  # of these, those whose functions look at frames
ENTER, RUN = Entered(), Native()


@cache
def how_file(filename: str) -> How:
    """By the file that code is from."""
    if filename.startswith(NATIVE):
        return RUN
    if filename.startswith(ENTERED):
        return ENTER
    if filename.startswith(RECORDING):
        return RUN
    if filename.startswith(TALKING):
        return Breaks("a function is called that talks to other ranks, or waits for them")
    if filename.startswith(OURS):
        return Breaks(f"a function of {'.'.join(Path(filename).relative_to(_ROOT).with_suffix('').parts)} is called")
    if filename.startswith(_STDLIB) and not filename.startswith(_SITE):
        module = filename[len(_STDLIB) :].split(os.sep)[0].removesuffix(".py")
        if module in SYSTEM:
            return Breaks(f"a function of Python's module {module!r} is called", looks=module in LOOKING)
    elif filename.startswith("<frozen ") and not filename.startswith("<frozen distcompile"):
        module = filename.removeprefix("<frozen ").removesuffix(">").split(".")[0]
        if module in SYSTEM:
            return Breaks(f"a function of Python's module {module!r} is called", looks=module in LOOKING)
    return ENTER


# packages whose functions of tensors are not worth a graph of their own
_LIBRARIES = frozenset({"numpy", "scipy", "pandas", "matplotlib", "mpi4py", "tqdm", "_pytest", "pytest", "pluggy"})


@cache
def is_library_file(filename: str) -> bool:
    """Whether code is from Python's library, or from one of the packages that compute without tensors of ours."""
    if not filename.startswith(_STDLIB):
        return False
    site = next((site for site in _SITE if filename.startswith(site)), None)
    return site is None or filename[len(site) + 1 :].split(os.sep)[0] in _LIBRARIES


_SAID: dict[int, tuple[Any, How]] = {}  # what distcompile.compiler was told, by id of the function


def say(function: Any, how: How) -> None:
    """`function` shall be captured so, whatever file it is from."""
    _SAID[id(function)] = (function, how)


def unsay(function: Any) -> None:
    """Forget what was said of `function`."""
    _SAID.pop(id(function), None)


def how(function: FunctionType) -> How:
    """How a Python function is captured."""
    told = said(function)
    if told is not None:
        return told
    reason = function.__dict__.get("__graph_break__")
    if reason is not None:
        return Breaks(*reason)
    found = how_file(function.__code__.co_filename)
    if isinstance(found, Breaks) and function.__qualname__ in READING:
        return ENTER
    if found is RUN and function.__code__.co_flags & inspect.CO_GENERATOR:
        return ENTER  # what it yields in between may run the user's code: a context manager's body
    if found is RUN and _decorates_a_users(function):
        found = ENTER  # as a decorated function: what the user's code in it does is seen
    refusal = program_of(function.__code__).refusal() if found is ENTER else ""
    return Breaks(f"{refusal} is called", looks=refusal == LOOKS_AT_FRAMES) if refusal else found


def _decorates_a_users(function: FunctionType) -> bool:
    """Whether a function of ours is what a decorator (no_grad, custom_fwd) made of a function that is entered."""
    inner = function.__dict__.get("__wrapped__")
    return isinstance(inner, FunctionType) and how(inner) is ENTER


def keeps_out_a_caller(function: FunctionType) -> bool:
    """Whether a function that ends graphs is around one that calls the user's functions, as LBFGS asks for losses."""
    inner = function.__dict__.get("__wrapped__")
    if "__graph_break__" not in function.__dict__ or not isinstance(inner, FunctionType):
        return False
    return inner.__code__.co_filename.startswith(CALLERS)


def keeps(function: FunctionType) -> bool:
    """Whether a function that runs natively calls none of the functions that it is given."""
    return function.__code__.co_filename.startswith(KEEPING)


def said(function: Any) -> How | None:
    """What was said of a callable, if anything."""
    found = _SAID.get(id(function))
    return None if found is None else found[1]
