"""Names: of values in a graph's code, each once; and of torch's functions.

In: candidates ("layer1.0.conv", "sum"); functions. Out: names that Python takes, none twice: `layer1_0_conv`, `sum_1`
(a builtin's own name is not taken); "torch.nn.functional.relu".
"""

from __future__ import annotations

import builtins
import keyword
import math
import re
from functools import cache
from pkgutil import iter_modules
from types import FunctionType
from typing import Any

_NUMBERED = re.compile(r"([a-zA-Z_0-9]*?)(?:_(\d+))?$")
_TAKEN: dict[str, Any] = {
    **{name: object() for name in keyword.kwlist}, **vars(builtins),
    "inf": math.inf, "nan": math.nan, "NoneType": type(None), "torch": object(), "device": object(),
}  # fmt: skip
_SPACES = ("", "nn.functional", "linalg", "fft", "special")


class Namespace:
    """Names in use, and what each stands for."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._counts: dict[str, int] = {}
        self._names: dict[int, tuple[Any, str]] = {}  # by id of the object, which is kept

    def create_name(self, candidate: str, obj: Any) -> str:
        """The name of `obj`, of before if it has one; a new one, near to `candidate`, for None."""
        if obj is not None and id(obj) in self._names:
            return self._names[id(obj)][1]
        candidate = re.sub(r"[^0-9a-zA-Z_]+", "_", candidate) or "_unnamed"
        if candidate[0].isdigit():
            candidate = f"_{candidate}"
        base, digits = _NUMBERED.match(candidate).group(1, 2)  # type: ignore[union-attr]
        number = int(digits or 0)
        if digits is None or candidate in self._used:
            number = self._counts.get(base, 0)
            if _TAKEN.get(candidate, obj) is not obj:
                number += 1
                candidate = f"{base}_{number}"
        while candidate in self._used:
            number += 1
            candidate = f"{base}_{number}"
        self._used.add(candidate)
        self._counts[base] = number
        if obj is not None:
            self.associate_name_with_obj(candidate, obj)
        return candidate

    def associate_name_with_obj(self, name: str, obj: Any) -> None:
        """`obj` has this name from now on."""
        self._names[id(obj)] = obj, name


def snake_case(name: str) -> str:
    """LayerNorm -> layer_norm."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


@cache
def _names_in_torch() -> dict[int, str]:
    """id of a function -> its full name, the shortest."""
    import distcompile

    found: dict[int, str] = {}
    for space in _SPACES:
        module: Any = distcompile
        for part in space.split(".") if space else ():
            module = getattr(module, part)
        files = {file.name for file in iter_modules(getattr(module, "__path__", ()))}  # which need not be loaded
        for name in module.__all__:
            value = vars(module).get(name) if name in files else getattr(module, name, None)
            if isinstance(value, FunctionType):
                found.setdefault(id(value), f"torch.{space}.{name}" if space else f"torch.{name}")
    return found


def name_in_torch(function: Any) -> str | None:
    """ "torch.relu"; None for what is no function of torch's."""
    if not isinstance(function, FunctionType):
        return None
    name = function.__name__
    import distcompile

    if vars(distcompile).get(name) is function:  # what a program has used is there
        return f"torch.{name}"
    return _names_in_torch().get(id(function))
