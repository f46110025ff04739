"""What a loss closes over: `lambda output, x: cross_entropy(output, y)` holds its targets itself.

In: a loss, and the module that is checked. Out: whether it holds tensors or arrays of its own; a loss of the joined
batch, which computes this rank's part. Method: whatever the loss refers to is looked at, by the garbage collector's
own list: cells, defaults, `partial`s, attributes of objects, and the globals that its code names.
Nobody can tell targets, of which each rank has its own, from weights, which all share: so no part is joined. The model
runs on the joined batch, its output is cut into the ranks' rows, and each rank's loss is of its own rows.
"""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from compiler_core.tensor.tensor import Tensor
from distcompile.nn.module import Module
from distcompile.parity.errors import ParityTargetError
from distcompile.utils import _pytree as pytree

_LIBRARIES = ("distcompile", "compiler_core", "numpy")
LOOKED_AT = 20_000  # objects; a loss that holds more of them is taken to hold tensors
REMEDY = "pass what it closes over as inputs of the module: loss(output, x, targets)"


def closes_over_tensors(loss: Callable[..., Any], module: Module) -> bool:
    """Whether `loss` holds tensors or arrays. Raises ParityTargetError if it holds those of the module itself."""
    parameters = {id(parameter) for parameter in module.parameters()}
    found = False
    for count, thing in enumerate(_held(loss)):
        if thing is module or id(thing) in parameters:
            raise ParityTargetError(
                "the loss closes over the module that is checked, of which copies are run",
                got="a parameter of it, or the module itself, in what the loss holds",
                remedy="let the module's forward compute that term, and return it",
            )
        found |= isinstance(thing, (Tensor, np.ndarray)) or count == LOOKED_AT
        if count == LOOKED_AT:
            break
    return found


def _held(loss: object) -> Iterator[object]:
    """Everything that can be reached from `loss`, itself first, nearest first."""
    seen, row = {id(loss)}, [loss, inspect.getattr_static(loss, "__call__", None)]
    while row:
        following: list[object] = []
        for thing in row:
            yield thing
            for held in () if isinstance(thing, (Tensor, np.ndarray)) else _referents(thing):
                if id(held) not in seen and not isinstance(held, (type, ModuleType, CodeType)):
                    seen.add(id(held))
                    following.append(held)
        row = following


def _referents(thing: object) -> list[object]:
    """What `thing` refers to; of a function, only those globals that its code names. A library's holds no targets."""
    if not isinstance(thing, FunctionType):
        return gc.get_referents(thing)
    if (thing.__module__ or "").partition(".")[0] in _LIBRARIES:
        return []
    held = [referent for referent in gc.get_referents(thing) if referent is not thing.__globals__]
    return held + [thing.__globals__[name] for name in _names(thing.__code__) if name in thing.__globals__]


def _names(code: CodeType) -> set[str]:
    inner = (_names(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*inner)


class CannotCutError(Exception):
    """The module's output has no rows that could be told apart by rank."""


def of_own_rows(loss: Callable[..., Any], inputs: tuple[Any, ...], rows: tuple[int, int], total: int) -> Any:
    """`loss` of the joined batch's output: this rank's. inputs: its own. rows: from where to where its rows are.

    Raises CannotCutError as it runs, if the output has another number of rows.
    """

    def cut(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if value.ndim == 0 or value.shape[0] != total:
            raise CannotCutError
        return value[rows[0] : rows[1]]

    return lambda output, *_: loss(pytree.tree_map(cut, output), *inputs)
