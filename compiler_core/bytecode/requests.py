"""Instructions that ask the semantics, and what becomes of the answers.

In: an instruction. Out: a `Request`, which `ask` carries out in three steps: `read` asks (operands stay on the stack,
so that a Break leaves the frame as it was); `pops` operands leave; `finish` does with the answer what the instruction
does, at once, or when the frame has returned that an `Enter` named. Finishers ask nothing and cannot fail.
`REQUESTS[canonical opcode] = (read, pops, finish)`; pops may depend on the argument; `program` makes Requests of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from compiler_core.bytecode.completions import chain
from compiler_core.bytecode.frame import NULL, UNSET, Enter, Frame
from compiler_core.bytecode.semantics import STOP
from compiler_core.bytecode.versions import AFTER_LOOP, NULL_ABOVE, SEND_KEEPS_RECEIVER
from compiler_core.records import dataclass

if TYPE_CHECKING:
    from compiler_core.bytecode.machine import Machine

Read = Callable[["Machine", Frame, Any], Any]
Finish = Callable[[Frame, Any, Any], None]


@dataclass(frozen=True, slots=True)
class Request:
    read: Read
    arg: Any
    pops: int
    finish: Finish
    detail: Any  # of finish: where to jump to


REQUESTS: dict[str, tuple[Read, int | Callable[[Any], int], Finish]] = {}


def ask(machine: Machine, frame: Frame, request: Request) -> int | None:
    value = request.read(machine, frame, request.arg)
    if request.pops:
        del frame.stack[-request.pops :]
    if type(value) is Enter:
        return machine.enter(frame, value)
    request.finish(frame, value, request.detail)
    return None


# what becomes of the answer


def push(frame: Frame, value: Any, detail: Any) -> None:
    frame.stack.append(value)
    frame.next += 1


def drop(frame: Frame, value: Any, detail: Any) -> None:
    frame.next += 1


def push_callable(frame: Frame, value: Any, detail: Any) -> None:
    """With the empty slot that a call expects beside it."""
    frame.stack += [value, NULL] if NULL_ABOVE else [NULL, value]
    frame.next += 1


def push_all(frame: Frame, values: Any, detail: Any) -> None:
    frame.stack += values
    frame.next += 1


def push_reversed(frame: Frame, values: Any, detail: Any) -> None:
    frame.stack += values[::-1]
    frame.next += 1


def push_not(frame: Frame, value: Any, detail: Any) -> None:
    frame.stack.append(not value)
    frame.next += 1


def jump_if(frame: Frame, value: Any, detail: tuple[bool, int]) -> None:
    when, target = detail
    frame.next = target if value is when else frame.next + 1


def jump_or_pop(frame: Frame, value: Any, detail: tuple[bool, int]) -> None:
    when, target = detail
    if value is when:
        frame.next = target
    else:
        frame.stack.pop()
        frame.next += 1


def advance_or_leave(frame: Frame, value: Any, target: int) -> None:
    if value is STOP:
        frame.stack.pop()
        frame.next = target + AFTER_LOOP
    else:
        frame.stack.append(value)
        frame.next += 1


@dataclass(frozen=True, slots=True)
class Ended:
    """The answer of SEND where the delegate returned."""

    value: Any


def sent(frame: Frame, value: Any, target: int) -> None:
    """What the delegate of a `yield from` yielded; or it ended."""
    if type(value) is Ended:
        if not SEND_KEEPS_RECEIVER:
            frame.stack.pop()
        frame.stack.append(value.value)
        frame.next = target
    else:
        frame.stack.append(value)
        frame.next += 1


def absorb_stop(frame: Frame, value: Any, request: Request) -> bool:
    """Whether the instruction expects the end of what it entered (`value`: its StopIteration's); if so it is done."""
    if request.finish is advance_or_leave:
        advance_or_leave(frame, STOP, request.detail)
    elif request.finish is sent:
        sent(frame, Ended(value), request.detail)
    else:
        return False
    return True


def asks(*names: str, pops: int | Callable[[Any], int] = 0, finish: Finish = push) -> Callable[[Read], Read]:
    def register(read: Read) -> Read:
        REQUESTS.update(dict.fromkeys(names, (read, pops, finish)))
        return read

    return register


# variables


def load_fast(machine: Machine, frame: Frame, slot: int) -> None:
    if frame.locals[slot] is UNSET:
        raise machine.unbound(frame, slot)
    frame.stack.append(machine.semantics.load_fast(frame, slot))
    frame.next += 1


def load_fast_load_fast(machine: Machine, frame: Frame, slots: tuple[int, int]) -> None:
    for slot in slots:
        if frame.locals[slot] is UNSET:
            raise machine.unbound(frame, slot)
    frame.stack += [machine.semantics.load_fast(frame, slot) for slot in slots]
    frame.next += 1


def store_fast_load_fast(machine: Machine, frame: Frame, slots: tuple[int, int]) -> None:
    store, load = slots
    stack, variables = frame.stack, frame.locals
    if store == load:  # what is loaded was stored just now
        variables[store] = stack[-1]
        frame.next += 1
        return
    if variables[load] is UNSET:
        raise machine.unbound(frame, load)
    value = machine.semantics.load_fast(frame, load)
    variables[store], stack[-1] = stack[-1], value
    frame.next += 1


def load_global(machine: Machine, frame: Frame, name: str) -> None:
    frame.stack.append(machine.semantics.load_global(frame, name))
    frame.next += 1


# requests that no Enter can answer, carried out without `ask`
DIRECT: dict[str, Callable[[Machine, Frame, Any], int | None]] = {
    "LOAD_FAST": load_fast,
    "LOAD_FAST_LOAD_FAST": load_fast_load_fast,
    "STORE_FAST_LOAD_FAST": store_fast_load_fast,
    "LOAD_GLOBAL": load_global,
}


@asks("LOAD_DEREF")
def load_deref(machine: Machine, frame: Frame, slot: int) -> Any:
    if is_empty(frame.locals[slot]):
        with contextlib.suppress(ValueError):
            machine.semantics.load_cell(frame, slot)  # it may want to know
        raise machine.unbound(frame, slot)
    return machine.semantics.load_cell(frame, slot)


def is_empty(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return True
    return False


@asks("STORE_DEREF", pops=1, finish=drop)
def store_deref(machine: Machine, frame: Frame, slot: int) -> Any:
    return machine.semantics.store_cell(frame, slot, frame.stack[-1])


@asks("DELETE_DEREF", finish=drop)
def delete_deref(machine: Machine, frame: Frame, slot: int) -> Any:
    if is_empty(frame.locals[slot]):
        raise machine.unbound(frame, slot)
    return machine.semantics.delete_cell(frame, slot)


@asks("LOAD_NAME_OR_DEREF")
def load_name_or_deref(machine: Machine, frame: Frame, arg: tuple[int, str]) -> Any:
    """A free variable in a class body, where the namespace goes first."""
    slot, name = arg
    if frame.namespace is not None and name in frame.namespace:
        return frame.namespace[name]
    return load_deref(machine, frame, slot)


@asks("LOAD_FROM_DICT_OR_DEREF", pops=1)
def load_from_dict_or_deref(machine: Machine, frame: Frame, arg: tuple[int, str]) -> Any:
    slot, name = arg
    if name in frame.stack[-1]:
        return frame.stack[-1][name]
    return load_deref(machine, frame, slot)


@asks("LOAD_FROM_DICT_OR_GLOBALS", pops=1)
def load_from_dict_or_globals(machine: Machine, frame: Frame, name: str) -> Any:
    if name in frame.stack[-1]:
        return frame.stack[-1][name]
    return machine.semantics.load_global(frame, name)


@asks("STORE_GLOBAL", pops=1, finish=drop)
def store_global(machine: Machine, frame: Frame, name: str) -> Any:
    return machine.semantics.store_global(frame, name, frame.stack[-1])


@asks("DELETE_GLOBAL", finish=drop)
def delete_global(machine: Machine, frame: Frame, name: str) -> Any:
    return machine.semantics.delete_global(frame, name)


@asks("LOAD_NAME")
def load_name(machine: Machine, frame: Frame, name: str) -> Any:
    return machine.semantics.load_name(frame, name)


@asks("STORE_NAME", pops=1, finish=drop)
def store_name(machine: Machine, frame: Frame, name: str) -> Any:
    return machine.semantics.store_name(frame, name, frame.stack[-1])


@asks("DELETE_NAME", finish=drop)
def delete_name(machine: Machine, frame: Frame, name: str) -> Any:
    return machine.semantics.delete_name(frame, name)


# attributes and items


@asks("LOAD_ATTR", pops=1)
def load_attr(machine: Machine, frame: Frame, name: str) -> Any:
    return machine.semantics.load_attr(frame.stack[-1], name)


@asks("LOAD_SUPER_ATTR", pops=3)
def load_super_attr(machine: Machine, frame: Frame, arg: tuple[str, bool]) -> Any:
    """super().name or super(cls, self_).name."""
    name, is_given = arg
    found, cls, self_ = frame.stack[-3:]
    if found is super and isinstance(cls, type):
        return machine.semantics.load_super_attr(cls, self_, name)
    made = machine.semantics.call(found, (cls, self_) if is_given else (), {})
    if type(made) is Enter:
        return chain(made, "ATTRIBUTE_OF", (name,))
    return machine.semantics.load_attr(made, name)


@asks("STORE_ATTR", pops=2, finish=drop)
def store_attr(machine: Machine, frame: Frame, name: str) -> Any:
    return machine.semantics.store_attr(frame.stack[-1], name, frame.stack[-2])


@asks("DELETE_ATTR", pops=1, finish=drop)
def delete_attr(machine: Machine, frame: Frame, name: str) -> Any:
    return machine.semantics.delete_attr(frame.stack[-1], name)


@asks("BINARY_SUBSCR", pops=2)
def binary_subscr(machine: Machine, frame: Frame, arg: Any) -> Any:
    return machine.semantics.get_item(frame.stack[-2], frame.stack[-1])


@asks("BINARY_SLICE", pops=3)
def binary_slice(machine: Machine, frame: Frame, arg: Any) -> Any:
    owner, start, stop = frame.stack[-3:]
    return machine.semantics.get_item(owner, slice(start, stop))


@asks("STORE_SUBSCR", pops=3, finish=drop)
def store_subscr(machine: Machine, frame: Frame, arg: Any) -> Any:
    value, owner, key = frame.stack[-3:]
    return machine.semantics.store_item(owner, key, value)


@asks("STORE_SLICE", pops=4, finish=drop)
def store_slice(machine: Machine, frame: Frame, arg: Any) -> Any:
    value, owner, start, stop = frame.stack[-4:]
    return machine.semantics.store_item(owner, slice(start, stop), value)


@asks("DELETE_SUBSCR", pops=2, finish=drop)
def delete_subscr(machine: Machine, frame: Frame, arg: Any) -> Any:
    return machine.semantics.delete_item(frame.stack[-2], frame.stack[-1])
