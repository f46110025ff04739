"""Programs that run alike with torch and with distcompile, and what is seen of one while it runs.

In: `@program` functions `name(torch, compile)`: generators that define what they need, compile some of it, call that
several times and yield what is to be compared. `torch` is either package; `compile` is that package's, or none.
Out: `run` gives a list of frozen `observe`d values: types, numbers, gradients, which objects are the same, text
printed, and exceptions; `difference` says where two such lists differ.
Invariants: what is yielded is frozen at once, so later writes do not show in it; an object that was seen before is told
by its number, so identity is compared too. Exceptions of the package are told by the builtin they derive from, and
their message is not compared with torch's.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import importlib
import io
import pkgutil
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

LIBRARIES = ("distcompile", "compiler_core", "collectives", "torch")
DTYPES = (
    *("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"),
    *("complex64", "complex128"),
)
BASES = (object, BaseException, Exception)
Program = Callable[[Any, Callable[..., Any]], Iterator[Any]]


@dataclass(frozen=True)
class Entry:
    """run: the program. codegen: in the run with C++ too, which draws what eager code draws."""

    name: str
    run: Program
    codegen: bool = False


REGISTRY: dict[str, Entry] = {}


def program(run: Program | None = None, *, codegen: bool = False) -> Any:
    """Enter a program: its name is the module's last part and the function's."""
    if run is None:
        return functools.partial(program, codegen=codegen)
    name = f"{run.__module__.rpartition('.')[2]}.{run.__name__}"
    assert name not in REGISTRY, f"two programs are called {name}"
    REGISTRY[name] = Entry(name, run, codegen)
    return run


def everything() -> dict[str, Entry]:
    """All programs, by name: every module of this folder is loaded."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if not module.name.startswith("test_") and module.name != "judge":
            importlib.import_module(f"tests.programs.{module.name}")
    return dict(sorted(REGISTRY.items()))


@dataclass(frozen=True)
class Raised:
    """An exception that a program caught, as `attempt` gives it."""

    error: BaseException


def attempt(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """fn's result, or what it raised."""
    try:
        return fn(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - whichever it is, is the observation
        return Raised(error)


def leaf_tensor(torch: Any, values: Any) -> Any:
    """A tensor that takes gradients."""
    return torch.tensor(values, requires_grad=True)


class Kinds(frozenset[str]):
    """Names of an exception's class; of a package's own one, of its bases too: two with one in common agree."""


class Seen:
    """Objects that were observed, kept alive so that none gets another's id."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.kept: list[Any] = []
        self.numbers: dict[int, int] = {}

    def number(self, value: Any) -> int | None:
        """The number it had before, or None: it is new, and gets the next."""
        if id(value) in self.numbers:
            return self.numbers[id(value)]
        self.numbers[id(value)] = len(self.kept)
        self.kept.append(value)
        return None

    def dtype(self, value: Any) -> str:
        return next((name for name in DTYPES if getattr(self.torch, name) == value), str(value))

    def observe(self, value: Any) -> Any:
        """`value`, frozen: nested tuples of strings, numbers and arrays."""
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes, slice, range)):
            return plain(value)
        if isinstance(value, self.torch.Tensor):
            return self.tensor(value)
        if isinstance(value, self.torch.dtype):
            return ("dtype", self.dtype(value))
        if isinstance(value, (enum.Enum, type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)):
            return (type(value).__name__, getattr(value, "__name__", None) or str(value))
        if isinstance(value, (Raised, BaseException)):
            return self.exception(value.error if isinstance(value, Raised) else value)
        if isinstance(value, np.ndarray):
            return ("ndarray", str(value.dtype), value.copy())
        if isinstance(value, np.generic):
            return (type(value).__name__, np.asarray(value))
        if isinstance(value, tuple):
            return (type(value).__name__, *map(self.observe, value))
        return self.container(value)

    def container(self, value: Any) -> Any:
        """What can be changed: told in full each time, with its number if it was seen before."""
        known = self.number(value)
        name = type(value).__name__
        if known is not None:
            name = f"{name} #{known}"
        if isinstance(value, (set, frozenset)):
            return (name, *sorted(map(repr, value)))
        if isinstance(value, Mapping):
            return (name, *((self.observe(k), self.observe(v)) for k, v in value.items()))
        if isinstance(value, list) or hasattr(value, "popleft"):
            return (name, *map(self.observe, value))
        if isinstance(value, self.torch.nn.Module):
            return (name, *((k, self.observe(p)) for k, p in value.state_dict(keep_vars=True).items()))
        if not type(value).__module__.startswith("tests."):
            return (name,)
        return (name, *((k, self.observe(v)) for k, v in sorted(getattr(value, "__dict__", {}).items())))

    def tensor(self, value: Any) -> Any:
        known = self.number(value)
        head = (type(value).__name__, None if known is None else f"#{known}", self.dtype(value.dtype))
        leaf = bool(value.is_leaf)
        grad = self.observe(value.grad) if leaf and value.requires_grad else None
        return (*head, tuple(map(int, value.shape)), bool(value.requires_grad), leaf, numbers(self.torch, value), grad)

    def exception(self, error: BaseException) -> Any:
        library = type(error).__module__.partition(".")[0] in LIBRARIES
        kinds = type(error).__mro__ if library else (type(error),)
        own = not library and not isinstance(error, (RuntimeError, TypeError, IndexError, ValueError))
        return ("raised", Kinds(k.__name__ for k in kinds if k not in BASES), str(error) if own else "")


def plain(value: Any) -> Any:
    return (type(value).__name__, float(value)) if type(value).__name__ == "Number" else value


def numbers(torch: Any, value: Any) -> np.ndarray[Any, Any]:
    value = value.detach()
    if value.dtype in (torch.bfloat16, torch.float16):
        value = value.to(torch.float32)
    return np.array(value.numpy())


def run(entry: Entry, torch: Any, compile: Callable[..., Any]) -> list[Any]:
    """What one run of the program shows, in order. An exception that leaves it ends the list."""
    seen, text, found = Seen(torch), io.StringIO(), []
    torch.manual_seed(7)
    np.random.seed(7)
    with contextlib.redirect_stdout(text):
        try:
            for value in entry.run(torch, compile):
                found.append(seen.observe(value))
                printed = text.getvalue()
                if printed:
                    found.append(("printed", printed))
                    text.seek(0)
                    text.truncate()
        except Exception as error:  # noqa: BLE001 - whatever leaves the program is told
            found.append(("left", *seen.exception(error)[1:], str(error)))
    torch.set_grad_enabled(True)
    return found


def difference(mine: Any, other: Any, *, place: str = "") -> str:
    """Where the first difference of two observations is, and what; "" if there is none."""
    if isinstance(mine, np.ndarray) and isinstance(other, np.ndarray):
        return difference_of_arrays(mine, other, place)
    if isinstance(mine, (tuple, list)) and isinstance(other, (tuple, list)):
        if len(mine) != len(other):
            return f"{place}: {len(mine)} parts, not {len(other)}: {brief(mine)} against {brief(other)}"
        pairs = enumerate(zip(mine, other))
        return next((d for k, (a, b) in pairs if (d := difference(a, b, place=f"{place}[{k}]"))), "")
    if type(mine) is not type(other):
        return f"{place}: {brief(mine)} against {brief(other)}"
    if isinstance(mine, float):
        same = bool(np.isclose(mine, other, rtol=1e-4, atol=1e-6, equal_nan=True))
    elif isinstance(mine, Kinds):
        same = bool(mine & other)
    else:
        same = mine == other
    return "" if same else f"{place}: {brief(mine)} against {brief(other)}"


def difference_of_arrays(mine: np.ndarray[Any, Any], other: np.ndarray[Any, Any], place: str) -> str:
    if mine.shape != other.shape:
        return f"{place}: shape {mine.shape} against {other.shape}"
    near = np.allclose(mine, other, rtol=1e-4, atol=1e-5, equal_nan=True)
    return "" if near else f"{place}: {brief(mine)} against {brief(other)}"


def brief(value: Any) -> str:
    text = repr(value).replace("\n", " ")
    return text if len(text) < 300 else text[:300] + " ..."
