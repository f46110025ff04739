"""Programs of a line or two, run on torch, on this package, and on it compiled: is it the same, to the kind of error?

In: a program's text, statements separated by ";", the last an expression. `m` is the framework, F its nn.functional, nn
its nn; x() makes float64 [0.5, -1.25, 3, 0]; C, BIG, Z are numbers that a smaller dtype does not hold. Out: an
`Outcome` on each side, and what differs.
Results are compared as numbers of their dtype: equal in 16-bit floats and whole numbers, to a few last places in wider
floats (a program may ask for fewer). Of an error the class counts: torch's is among the bases of ours.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

import distcompile as dc

PLACES = {"float32": 4e-7, "float64": 2e-15, "complex64": 4e-7, "complex128": 2e-15}
GLOBALS = {"np": np, "math": math, "operator": operator, "C": 0.1 + 1e-12, "BIG": 2**60 + 3, "Z": 0.1 + 0.3j}


class Outcome(NamedTuple):
    """What a program gave: parts, each (dtype, shape, numbers) or a plain object; or the error."""

    parts: tuple[Any, ...] = ()
    error: BaseException | None = None

    def __str__(self) -> str:
        return f"{type(self.error).__name__}: {str(self.error)[:160]}" if self.error else " ".join(map(str, self.parts))


def program(text: str, module: Any, *arguments: str) -> Callable[..., Any]:
    """The program as a function of these names."""
    *lines, last = [line.strip() for line in text.split(";") if line.strip()]
    body = "\n".join(f"    {line}" for line in [*lines, f"return {last}"])
    names: dict[str, Any] = {
        **GLOBALS,
        "m": module,
        "F": module.nn.functional,
        "nn": module.nn,
        "x": lambda: module.tensor([0.5, -1.25, 3.0, 0.0], dtype=module.float64),
    }
    exec(compile(f"def program({', '.join(arguments)}):\n{body}\n", f"<{text}>", "exec"), names)
    return names["program"]  # type: ignore[no-any-return]


def outcome(function: Callable[[], Any]) -> Outcome:
    """What a call gives."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return Outcome(tuple(_part(one) for one in _flat(function())))
        except Exception as error:  # noqa: BLE001 - the error is what is compared
            return Outcome(error=error)


def _flat(result: Any) -> list[Any]:
    return [y for x in result for y in _flat(x)] if isinstance(result, (list, tuple)) else [result]


def _part(one: Any) -> Any:
    if not isinstance(one, (torch.Tensor, dc.Tensor)):
        return str(one).rpartition(".")[2] if type(one).__name__.lower() == "dtype" else one
    name = str(one.dtype).rpartition(".")[2]
    values = one.detach()
    if isinstance(one, torch.Tensor):
        values = values.resolve_conj().resolve_neg()
    if name in ("bfloat16", "float16"):
        values = values.double()
    return name, tuple(one.shape), np.asarray(values.numpy())


def difference(mine: Outcome, theirs: Outcome, scale: float = 1.0) -> str | None:
    """What differs, if anything. scale: by how much the last places may differ more."""
    if mine.error is not None or theirs.error is not None:
        if theirs.error is None:
            return f"raises {mine}"
        if mine.error is None:
            return f"gives {mine}; torch raises {theirs}"
        named = any(
            base.__name__.strip("_") == type(theirs.error).__name__.strip("_") for base in type(mine.error).__mro__
        )
        return None if named else f"raises {mine}; torch {theirs}"
    if len(mine.parts) != len(theirs.parts):
        return f"{len(mine.parts)} results for {len(theirs.parts)}"
    return next((bad for a, b in zip(mine.parts, theirs.parts) if (bad := _differs(a, b, scale))), None)


def _differs(a: Any, b: Any, scale: float) -> str | None:
    if not (isinstance(a, tuple) and isinstance(b, tuple) and len(b) == 3 and isinstance(b[2], np.ndarray)):
        same = type(a) is type(b) and (a == b or (a != a and b != b))
        near = isinstance(a, (float, complex)) and isinstance(b, (float, complex)) and np.isclose(a, b, 1e-6 * scale, 0)
        return None if same or near else f"{a!r} for {b!r}"
    if a[:2] != b[:2]:
        return f"{a[0]}{list(a[1])} for {b[0]}{list(b[1])}"
    places = PLACES.get(b[0], 0.0) * scale
    if np.array_equal(a[2], b[2], equal_nan=a[2].dtype.kind in "fc"):
        return None
    with np.errstate(all="ignore"):
        near = bool(places) and bool(np.allclose(a[2], b[2], places, 0, equal_nan=True))
    return None if near else f"{a[2].tolist()} for {b[2].tolist()}"


def verdict(text: str, scale: float = 1.0) -> list[str]:
    """What is wrong with a program, eager and compiled; nothing: it is torch's."""
    theirs = outcome(program(text, torch))
    eager = difference(outcome(program(text, dc)), theirs, scale)
    compiled = difference(outcome(lambda: dc.compile(program(text, dc))()), theirs, scale)
    return [f"{how}: {bad}" for how, bad in (("eager", eager), ("compiled", compiled)) if bad]


def verdict_of_numbers(text: str, name: str, values: Sequence[Any], scale: float = 1.0) -> list[str]:
    """The same of a program that is compiled once, its number `name` another at every call."""
    function, found = dc.compile(program(text, dc, name)), []
    for value in values:
        theirs = outcome(lambda: program(text, torch, name)(value))  # noqa: B023 - called at once
        bad = difference(outcome(lambda: function(value)), theirs, scale)  # noqa: B023
        found += [f"{name}={value!r} ({type(value).__name__}): {bad}"] if bad else []
    return found
