"""What becomes of the result of a frame that a semantics method entered, where it is not the method's answer itself.

In: `Frame.completion`, a key of `COMPLETIONS`, with `Frame.pending`, and the result. Out: the method's answer, or
another `Enter`. `RECOVERIES` has the same for a frame that raised: an answer in its place, or `UNHANDLED`. Semantics
may add entries of their own. Two keys are the machine's: of an innermost frame, what it is to be given when it goes on.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from compiler_core.bytecode.frame import Enter, Frame
from compiler_core.bytecode.semantics import STOP

if TYPE_CHECKING:
    from compiler_core.bytecode.machine import Machine

ARRIVED = "ARRIVED"  # pending: (completion, its pending, the value that arrived), where the completion broke
THROW = "THROW"  # pending: (exception to raise here,)
UNHANDLED = object()


def instance(machine: Machine, frame: Frame, value: Any, made: Any) -> Any:
    """`__init__` of `made` returned."""
    if value is not None:
        raise TypeError(f"__init__() should return None, not '{type(value).__name__}'")
    return made


def construct(machine: Machine, frame: Frame, value: Any, cls: type, args: Any, kwargs: Any) -> Any:
    """`__new__` of `cls` returned: `__init__` is next."""
    if not isinstance(value, cls):
        return value
    answer = machine.semantics.call(type(value).__init__, (value, *args), kwargs)
    if type(answer) is Enter:
        return Enter(answer.frame, "INSTANCE", (value,))
    return value


def truth(machine: Machine, frame: Frame, value: Any) -> Any:
    """`__bool__` returned."""
    if type(value) is not bool:
        raise TypeError(f"__bool__ should return bool, returned {type(value).__name__}")
    return value


def length(machine: Machine, frame: Frame, value: Any) -> Any:
    """`__len__` returned, asked for as a truth."""
    return bool(range(value)) if value >= 0 else bool(Length(value))


class Length:
    """Something whose `__len__` returned an impossible value, to have CPython say so."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __len__(self) -> int:
        return self.value  # type: ignore[no-any-return]


def truth_of(machine: Machine, frame: Frame, value: Any) -> Any:
    """A comparison or `__contains__` returned `value`, of which the truth is wanted."""
    return machine.semantics.truth(value)


def attribute_of(machine: Machine, frame: Frame, value: Any, name: str) -> Any:
    """What stands for `super` returned `value`, of which an attribute is wanted."""
    return machine.semantics.load_attr(value, name)


def chained(machine: Machine, frame: Frame, value: Any, then: str, pending: Any, last: str, last_pending: Any) -> Any:
    """Two completions, one after the other."""
    if then:
        value = COMPLETIONS[then](machine, frame, value, *pending)
        if type(value) is Enter:
            return chain(value, last, last_pending)
    return COMPLETIONS[last](machine, frame, value, *last_pending)


def chain(entered: Enter, last: str, pending: tuple[Any, ...] = ()) -> Enter:
    """The same, with another completion after its own."""
    return Enter(entered.frame, "CHAINED", (entered.then, entered.pending, last, pending))


def entered(machine: Machine, frame: Frame, value: Any, leave: Any) -> Any:
    """`__enter__` returned; leave: the bound `__exit__`."""
    return leave, value


def iterator(machine: Machine, frame: Frame, value: Any) -> Any:
    """`__iter__` returned."""
    if not hasattr(type(value), "__next__"):
        raise TypeError(f"iter() returned non-iterator of type '{type(value).__name__}'")
    return value


def given(machine: Machine, frame: Frame, value: Any, answer: Any) -> Any:
    """The answer was known before."""
    return answer


COMPLETIONS: dict[str, Callable[..., Any]] = {
    "INSTANCE": instance,
    "CONSTRUCT": construct,
    "TRUTH": truth,
    "LENGTH": length,
    "TRUTH_OF": truth_of,
    "ATTRIBUTE_OF": attribute_of,
    "CHAINED": chained,
    "ENTERED": entered,
    "ITERATOR": iterator,
    "GIVEN": given,
    "DEFAULT": lambda machine, frame, value, default: value,
    "GETATTR": lambda machine, frame, value, owner, name: value,
    "DROPPED": lambda machine, frame, value: None,
}


def default(machine: Machine, frame: Frame, error: BaseException, otherwise: Any) -> Any:
    """next(iterator, otherwise) where the iterator ended."""
    return otherwise if isinstance(error, StopIteration) else UNHANDLED


def stopped(machine: Machine, frame: Frame, error: BaseException) -> Any:
    return STOP if isinstance(error, StopIteration) else UNHANDLED


def getattr_instead(machine: Machine, frame: Frame, error: BaseException, owner: Any, name: str) -> Any:
    """A property or `__getattribute__` raised AttributeError: `__getattr__` has its say."""
    fallback = getattr(type(owner), "__getattr__", None)
    if not isinstance(error, AttributeError) or fallback is None:
        return UNHANDLED
    return machine.semantics.call(fallback, (owner, name), {})


def dropped(machine: Machine, frame: Frame, error: BaseException) -> Any:
    """A generator that nobody holds any more ended; what else it raises is reported, as CPython does, and ignored."""
    if not isinstance(error, (GeneratorExit, StopIteration)):
        traceback.print_exception(error)


RECOVERIES: dict[str, Callable[..., Any]] = {"DEFAULT": default, "GETATTR": getattr_instead, "DROPPED": dropped}
