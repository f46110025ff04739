"""What a function of the program's that runs as it is may reach: no size or number of the call's among it.

In: its arguments. Out: the tensors in them (`tensors_in`); `require_none_held`, which raises Break where an object in
them holds a symbol, for native code would read that in silence.
Method: containers, attributes, closures, defaults and partial functions are walked, each once; globals, classes,
modules of Python and what tensors hold are not.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from compiler_core.bytecode.semantics import Break
from compiler_core.capture.numbers.symbols import is_symbol
from compiler_core.tensor.tensor import Tensor

_CLOSED = (type, ModuleType, CodeType, FrameType, str, bytes, int, float, complex, type(None))
_MOST = 100_000  # objects


def require_none_held(what: str, *roots: Any) -> None:
    """Raise Break if a symbol is reached from one of these, or too much to tell."""
    for count, value in enumerate(_reached(roots)):
        if is_symbol(value) or count == _MOST:
            raise Break(f"{what} runs as it is, and is given an object that holds numbers of the call")


def tensors_in(*roots: Any) -> list[Tensor]:
    """Every tensor that is reached."""
    return [value for value in _reached(roots) if isinstance(value, Tensor)]


def _reached(roots: tuple[Any, ...]) -> Iterator[Any]:
    seen: dict[int, Any] = {}  # kept, so that an id stays that of one object
    todo = list(roots)
    while todo:
        value = todo.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        yield value
        if is_symbol(value) or isinstance(value, (Tensor, *_CLOSED)):
            continue
        if isinstance(value, FunctionType):
            todo += [value.__closure__, value.__defaults__, value.__kwdefaults__, vars(value)]
        else:
            todo += gc.get_referents(value)
