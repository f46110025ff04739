"""Calls that are remembered: one like a call before goes straight to the op, or composite, that that one came to.

In: a function over values that computes by one composite, or by ops, of its own operands, after looking at what they
are: shapes, dtypes, numbers, never elements, and nothing else that may change. Out: the same function.
What a call came to is learned by looking (`learn`), not told: the one op or composite, or the ops one after another. A
call that did something else besides, or gave another result than the last thing's, is not remembered. Who interprets
the first operand (of a sequence of operands: its first) looks a call up, by its class's `__recall__`; for others all is
as it was.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from operator import is_, itemgetter
from typing import Any, TypeVar

import numpy as np

from compiler_core.ops.registry import Array, Op, Telling
from compiler_core.records import dataclass

F = TypeVar("F", bound=Callable[..., Any])
MOST_STEPS = 24  # of a call
LARGEST = 1024  # elements of an array that is kept with a call, if it does not repeat one number
LIMIT = 1 << 12  # calls that are remembered of one function; programs seldom have a hundred


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One of the ops, or composites, of a call. operands: by number, the call's tensors first, then what steps gave; or
    an array; or None, where a composite has none. plan: of one that makes a new array of tensors, as if a call was it.
    pick: the operands of all these values, where none is an array or None.
    """

    is_op: bool
    what: Any
    operands: tuple[int | Array | None, ...]
    attrs: dict[str, Any]
    plan: Plan | None = None
    pick: Callable[[list[Any]], Sequence[Any]] | None = None


@dataclass(slots=True, eq=False)
class Plan:
    """What a call comes to. is_op: else it is a composite. pick: the operands, of the arguments that are tensors and,
    behind them, None; None: they are these. run: what computes its arrays, once there were some.

    steps: the ops, or composites, of a call that comes to several; `what` is the last. all_ops: they are ops. shaped:
    the number of the value of which the result is another shape, by `attrs`; -1: of none.
    definition: that of a composite, for where the arrays are; known with `run`. order: that of the result's dims, where
    it is not row-major. is_turned: the order is known of operands that are not row-major. Of arrays of the lone device,
    back: the gradients, made again. gone: by the operands that gradients go to, and those that are views of much
    memory, what stands for those of which a node lets go, None for others, and for the result. freed: what stands for
    all that a node saved, once it is freed. fixed: of an op that has constants, these, and None elsewhere.
    """

    is_op: bool
    what: Any
    pick: Callable[[Any], Sequence[Any]] | None
    attrs: dict[str, Any]
    run: Callable[..., Any] | None = None
    steps: tuple[Step, ...] = ()
    all_ops: bool = True
    definition: Any = None
    order: tuple[int, ...] = ()
    is_turned: bool = False
    back: Any = None
    freed: tuple[Any, Any] | None = None
    fixed: tuple[Array | None, ...] = ()
    gone: dict[tuple[int, ...], tuple[list[Any] | None, Any]] = field(default_factory=dict)
    shaped: int = -1


# by what the arguments are. None: it comes to nothing that is one thing; False: so it was at first, when definitions
# may have been made
Plans = dict[tuple[Any, ...], "Plan | bool | None"]
_lock = threading.RLock()


def remembered(function: F) -> F:
    """`function`, remembering what its calls came to."""
    known: Plans = {}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        first = args[0] if args else None
        if (type(first) is list or type(first) is tuple) and first:
            first = first[0]
        recall = getattr(type(first), "__recall__", None)
        return function(*args, **kwargs) if recall is None else recall(known, function, args, kwargs)

    call.__remembers__ = True  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def learn(
    known: Plans,
    key: tuple[Any, ...],
    function: Callable[..., Any],
    args: Any,
    kwargs: Any,
    is_laid: Callable[[Any, Any], bool] = is_,
    lying: Callable[[Any], tuple[int, ...] | None] | None = None,
) -> Any:
    """The call's result; what it came to is known from now on. is_laid: whether a result is what the last thing made,
    but for the order in which it lies. lying: of a call whose operands are not all row-major, in which order the dims
    of a new value lie, () if they are; None: in none."""
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
    is_last = bool(told) and (told[-1][4] is result or is_laid(told[-1][4], result))
    plan = _plan(told, (*args, *kwargs.values())) if is_last else None
    if plan is not None and lying is not None:
        is_own = not plan.steps or told[-1][4] is result  # else who makes the steps again does not lay the last one out
        plan = _turned(plan, [lying(one[4]) for one in told[:-1]] + [lying(result)]) if is_own else None
    known[key] = plan if plan is not None or key in known else False
    return result


def _plan(told: list[Any], arguments: tuple[Any, ...]) -> Plan | None:
    given = list(tensors(arguments))
    if len(told) != 1:
        return _program(told, given)
    is_op, what, operands, attrs, _ = told[0]
    if is_op and _is_more(what):
        return None
    own = {id(one): place for place, one in reversed(list(enumerate(given)))}
    places = [-1 if operand is None else own.get(id(operand), -2) for operand in operands]
    if -2 in places:
        return _program(told, given)
    is_all = len(operands) == len(given) and all(one is operand for one, operand in zip(given, operands))
    return Plan(is_op, what, None if is_all else _picking(places), attrs)


def _turned(plan: Plan, orders: Sequence[tuple[int, ...] | None]) -> Plan | None:
    """The plan of operands that are not all row-major, whose things gave values in these orders."""
    for made, order in zip([step.plan for step in plan.steps] or [plan], orders):
        if made is not None:
            if order is None:
                return None
            made.order, made.is_turned = order, True
    plan.order = orders[-1] or ()
    return None if orders[-1] is None else plan


def key_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], Any]:
    """A call's arguments but `rng`, where that is the last and has a key to draw by; (the key, the stream), or ()."""
    rng, values = kwargs.get("rng"), (*args, *kwargs.values())
    is_last = type(rng) is tuple and type(rng[0]) is np.ndarray and values[-1] is rng
    return (values[:-1], rng) if is_last else (values, ())


def tensors(arguments: Iterable[Any]) -> Iterator[Any]:
    """The tensors among arguments, also in lists and tuples, in order, and the keys by which is drawn."""
    for argument in arguments:
        if type(argument) is list or type(argument) is tuple:
            yield from tensors(argument)
        elif hasattr(type(argument), "__recall__") or (type(argument) is np.ndarray and argument.dtype == np.uint64):
            yield argument


def _is_more(op: Op) -> bool:
    """Whether an op does more than to make a new array."""
    return bool(op.shares or op.alias is not None or op.random or op.effect)


def _program(told: list[Any], given: list[Any]) -> Plan | None:
    """Ops and composites one after another; views may stand among them, but a result is new, or another shape of what
    is."""
    made = _made_last(told)
    if len(told) > MOST_STEPS or made is None or (made[0] and _is_more(made[1])):
        return None
    numbers = {id(one): number for number, one in reversed(list(enumerate(given)))}
    steps = []
    for number, (is_op, what, operands, attrs, result) in enumerate(told, len(given)):
        places = [None if one is None and not is_op else numbers.get(id(one), _constant(one)) for one in operands]
        if what is None or (is_op and (what.random or what.effect)) or any(place is False for place in places):
            return None
        is_new = not (is_op and _is_more(what)) and any(type(place) is int for place in places)
        fixed = tuple([place if isinstance(place, np.ndarray) else None for place in places])
        fixed = fixed if any(one is not None for one in fixed) else ()
        plan = Plan(is_op, what, None, attrs, fixed=fixed) if is_new and (is_op or not fixed) else None
        steps.append(Step(is_op, what, tuple(places), attrs, plan, _taking(places)))
        numbers[id(result)] = number
    all_ops, shaped = all(step.is_op for step in steps), -1 if made is told[-1] else numbers[id(made[4])]
    return Plan(True, told[-1][1], None, told[-1][3] if shaped >= 0 else {}, None, tuple(steps), all_ops, shaped=shaped)


def _made_last(told: list[Any]) -> Any:
    """The last thing, or that of whose result it is another shape; None where that was given."""
    made = {id(one[4]): one for one in told}
    last = told[-1] if told else None
    while last is not None and last[0] and last[1].name == "reshape":
        last = made.get(id(last[2][0]))
    return last


def _constant(value: Any) -> Array | bool:
    """An array that the function made of numbers, if it may be kept; else False."""
    return value if type(value) is np.ndarray and (value.size <= LARGEST or not any(value.strides)) else False


def _taking(places: Sequence[Any]) -> Callable[[list[Any]], Sequence[Any]] | None:
    """What takes a step's operands out of the values so far."""
    if not places or any(type(place) is not int for place in places):
        return None
    return itemgetter(*places) if len(places) > 1 else itemgetter(slice(places[0], places[0] + 1))


def _picking(places: list[int]) -> Callable[[Any], Sequence[Any]]:
    if len(places) > 1:
        return itemgetter(*places)
    return lambda items: [items[place] for place in places]
