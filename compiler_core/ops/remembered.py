"""Calls that are remembered: one like a call before goes straight to the op, or composite, that that one came to.

In: a function over values that computes by one composite, or one op, of its own operands, after looking at what they
are: shapes, dtypes, numbers, never elements, and nothing else that may change. Out: the same function.
What a call came to is learned by looking (`learn`), not told: a call that did more than one thing, or gave another
result than that thing's, is not remembered. Who interprets the first operand looks a call up, by its class's
`__recall__`; for others all is as it was.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeVar

from compiler_core.ops.registry import Telling

F = TypeVar("F", bound=Callable[..., Any])
LIMIT = 1 << 12  # calls that are remembered of one function; programs seldom have a hundred


@dataclass(slots=True, eq=False)
class Plan:
    """What a call comes to. is_op: else it is a composite. pick: the operands, of the arguments that are tensors and,
    behind them, None; None: they are these. run: what computes its arrays, once there were some."""

    is_op: bool
    what: Any
    pick: Callable[[Any], Sequence[Any]] | None
    attrs: dict[str, Any]
    run: Callable[..., Any] | None = None


# by what the arguments are. None: it comes to nothing that is one thing; False: so it was at first, when definitions
# may have been made
Plans = dict[tuple[Any, ...], "Plan | bool | None"]
_lock = threading.RLock()


def remembered(function: F) -> F:
    """`function`, remembering what its calls came to."""
    known: Plans = {}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        recall = getattr(type(args[0]), "__recall__", None) if args else None
        return function(*args, **kwargs) if recall is None else recall(known, function, args, kwargs)

    call.__remembers__ = True  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def learn(known: Plans, key: tuple[Any, ...], function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """The call's result; what it came to is known from now on."""
    told: list[tuple[bool, Any, tuple[Any, ...], dict[str, Any], Any]] = []
    before = Telling.here.told
    with _lock:
        Telling.count += 1
    Telling.here.told = told
    try:
        result = function(*args, **kwargs)
    finally:
        Telling.here.told = before
        with _lock:
            Telling.count -= 1
    if before is not None:
        before += told
    if len(known) >= LIMIT:
        known.clear()
    plan = _plan(told, result, (*args, *kwargs.values()))
    known[key] = plan if plan is not None or key in known else False
    return result


def _plan(told: list[Any], result: Any, arguments: tuple[Any, ...]) -> Plan | None:
    if len(told) != 1 or told[0][4] is not result:
        return None
    is_op, what, operands, attrs, _ = told[0]
    if is_op and (what.shares or what.alias is not None or what.random or what.effect):
        return None
    given = [argument for argument in arguments if hasattr(type(argument), "__recall__")]
    own = {id(one): place for place, one in reversed(list(enumerate(given)))}
    places = [-1 if operand is None else own.get(id(operand), -2) for operand in operands]
    if -2 in places:
        return None
    is_all = len(operands) == len(given) and all(one is operand for one, operand in zip(given, operands))
    return Plan(is_op, what, None if is_all else _picking(places), attrs)


def _picking(places: list[int]) -> Callable[[Any], Sequence[Any]]:
    if len(places) > 1:
        return itemgetter(*places)
    return lambda items: [items[place] for place in places]
