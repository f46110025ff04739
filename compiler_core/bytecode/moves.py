"""Instructions that only move values between variables, stack and containers under construction, and jumps.

In: the machine, its innermost frame, the instruction's argument. Out: None where that frame goes on, else `SWITCH` or
`LEAVE` (see machine.py). Each handler leaves `frame.next` at the instruction to run next, and raises before it changes
anything. `MOVES[canonical opcode] = handler`; what the argument is says `program.argument`.
Source: Python/ceval.c, Python/bytecodes.c.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CellType
from typing import TYPE_CHECKING, Any

from compiler_core.bytecode.frame import NULL, UNSET, Enter, Frame
from compiler_core.bytecode.generators import InterpretedGenerator
from compiler_core.bytecode.semantics import Break

if TYPE_CHECKING:
    from compiler_core.bytecode.machine import Machine

Handler = Callable[["Machine", Frame, Any], int | None]
SWITCH = 1  # another frame is the innermost one
LEAVE = 2  # as well, and the exception under handling is another one, or the outermost frame is done
MOVES: dict[str, Handler] = {}


def move(*names: str) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        MOVES.update(dict.fromkeys(names, handler))
        return handler

    return register


def nothing(machine: Machine, frame: Frame, arg: Any) -> None:
    frame.next += 1


def refuse(machine: Machine, frame: Frame, reason: str) -> None:
    raise Break(reason)


# the stack


@move("POP_TOP")
def pop_top(machine: Machine, frame: Frame, arg: Any) -> int | None:
    """Of a generator that nobody else holds (a loop was left), its body runs to its end: `finally` and `with`."""
    value = frame.stack.pop()
    if type(value) is InterpretedGenerator and sys.getrefcount(value) == 2 and value.is_droppable():
        entered = value.resume_raising(GeneratorExit())
        assert entered is not None
        return machine.enter(frame, Enter(entered, "DROPPED"))
    frame.next += 1
    return None


@move("END_SEND")
def end_send(machine: Machine, frame: Frame, arg: Any) -> None:
    del frame.stack[-2]
    frame.next += 1


@move("PUSH_NULL")
def push_null(machine: Machine, frame: Frame, arg: Any) -> None:
    frame.stack.append(NULL)
    frame.next += 1


@move("COPY")
def copy(machine: Machine, frame: Frame, depth: int) -> None:
    frame.stack.append(frame.stack[-depth])
    frame.next += 1


@move("SWAP")
def swap(machine: Machine, frame: Frame, depth: int) -> None:
    stack = frame.stack
    stack[-1], stack[-depth] = stack[-depth], stack[-1]
    frame.next += 1


@move("LOAD_CONST")
def load_const(machine: Machine, frame: Frame, value: Any) -> None:
    frame.stack.append(value)
    frame.next += 1


@move("LOAD_ASSERTION_ERROR")
def load_assertion_error(machine: Machine, frame: Frame, arg: Any) -> None:
    frame.stack.append(AssertionError)
    frame.next += 1


@move("LOAD_BUILD_CLASS")
def load_build_class(machine: Machine, frame: Frame, arg: Any) -> None:
    frame.stack.append(frame.builtins["__build_class__"])
    frame.next += 1


# variables


@move("STORE_FAST")
def store_fast(machine: Machine, frame: Frame, slot: int) -> None:
    frame.locals[slot] = frame.stack.pop()
    frame.next += 1


@move("STORE_FAST_STORE_FAST")
def store_fast_store_fast(machine: Machine, frame: Frame, slots: tuple[int, int]) -> None:
    frame.locals[slots[0]] = frame.stack.pop()
    frame.locals[slots[1]] = frame.stack.pop()
    frame.next += 1


@move("DELETE_FAST")
def delete_fast(machine: Machine, frame: Frame, slot: int) -> None:
    if frame.locals[slot] is UNSET:
        raise machine.unbound(frame, slot)
    frame.locals[slot] = UNSET
    frame.next += 1


@move("LOAD_FAST_AND_CLEAR")
def load_fast_and_clear(machine: Machine, frame: Frame, slot: int) -> None:
    frame.stack.append(frame.locals[slot])
    frame.locals[slot] = UNSET
    frame.next += 1


@move("LOAD_RAW")
def load_raw(machine: Machine, frame: Frame, slot: int) -> None:
    """The cell itself, for the closure of a function to be made."""
    frame.stack.append(frame.locals[slot])
    frame.next += 1


@move("MAKE_CELL")
def make_cell(machine: Machine, frame: Frame, slot: int) -> None:
    value = frame.locals[slot]
    frame.locals[slot] = CellType() if value is UNSET else CellType(value)
    frame.next += 1


@move("COPY_FREE_VARS")
def copy_free_vars(machine: Machine, frame: Frame, count: int) -> None:
    function: Any = frame.function
    frame.locals[-count:] = function.__closure__
    frame.next += 1


@move("LOAD_LOCALS")
def load_locals(machine: Machine, frame: Frame, arg: Any) -> None:
    frame.stack.append(frame.namespace)
    frame.next += 1


@move("SETUP_ANNOTATIONS")
def setup_annotations(machine: Machine, frame: Frame, arg: Any) -> None:
    if frame.namespace is not None:
        frame.namespace.setdefault("__annotations__", {})
    frame.next += 1


# fresh containers


def last(stack: list[Any], count: int) -> list[Any]:
    """The topmost `count` values."""
    return stack[-count:] if count else []


def taken(stack: list[Any], count: int) -> list[Any]:
    """The topmost `count` values, which leave the stack."""
    if not count:
        return []
    values = stack[-count:]
    del stack[-count:]
    return values


@move("BUILD_TUPLE")
def build_tuple(machine: Machine, frame: Frame, count: int) -> None:
    frame.stack.append(tuple(taken(frame.stack, count)))
    frame.next += 1


@move("BUILD_LIST")
def build_list(machine: Machine, frame: Frame, count: int) -> None:
    frame.stack.append(taken(frame.stack, count))
    frame.next += 1


@move("BUILD_SET")
def build_set(machine: Machine, frame: Frame, count: int) -> None:
    keys = [machine.semantics.as_key(key) for key in last(frame.stack, count)]
    taken(frame.stack, count)
    frame.stack.append(set(keys))
    frame.next += 1


@move("BUILD_MAP")
def build_map(machine: Machine, frame: Frame, count: int) -> None:
    keys = [machine.semantics.as_key(key) for key in last(frame.stack, 2 * count)[::2]]
    frame.stack.append(dict(zip(keys, taken(frame.stack, 2 * count)[1::2])))
    frame.next += 1


@move("BUILD_CONST_KEY_MAP")
def build_const_key_map(machine: Machine, frame: Frame, count: int) -> None:
    keys = frame.stack.pop()
    frame.stack.append(dict(zip(keys, taken(frame.stack, count))))
    frame.next += 1


@move("BUILD_SLICE")
def build_slice(machine: Machine, frame: Frame, count: int) -> None:
    frame.stack.append(slice(*taken(frame.stack, count)))
    frame.next += 1


@move("LIST_TO_TUPLE")
def list_to_tuple(machine: Machine, frame: Frame, arg: Any) -> None:
    frame.stack[-1] = machine.semantics.as_tuple(frame.stack[-1])
    frame.next += 1


@move("LIST_APPEND")
def list_append(machine: Machine, frame: Frame, depth: int) -> None:
    machine.semantics.collect(frame.stack[-1 - depth], "append", frame.stack[-1])
    frame.stack.pop()
    frame.next += 1


@move("SET_ADD")
def set_add(machine: Machine, frame: Frame, depth: int) -> None:
    machine.semantics.collect(frame.stack[-1 - depth], "add", frame.stack[-1])
    frame.stack.pop()
    frame.next += 1


@move("MAP_ADD")
def map_add(machine: Machine, frame: Frame, depth: int) -> None:
    machine.semantics.collect(frame.stack[-2 - depth], "__setitem__", frame.stack[-2], frame.stack[-1])
    del frame.stack[-2:]
    frame.next += 1


# jumps


@move("GO_TO")
def jump(machine: Machine, frame: Frame, target: int) -> None:
    frame.next = target


@move("POP_JUMP_IF_NONE")
def pop_jump_if_none(machine: Machine, frame: Frame, target: int) -> None:
    frame.next = target if frame.stack.pop() is None else frame.next + 1


@move("POP_JUMP_IF_NOT_NONE")
def pop_jump_if_not_none(machine: Machine, frame: Frame, target: int) -> None:
    frame.next = target if frame.stack.pop() is not None else frame.next + 1


# leaving the frame


@move("RETURN_VALUE")
def return_value(machine: Machine, frame: Frame, arg: Any) -> int:
    return machine.finish(frame, frame.stack[-1])


@move("RETURN_CONST")
def return_const(machine: Machine, frame: Frame, value: Any) -> int:
    return machine.finish(frame, value)


@move("YIELD_VALUE")
def yield_value(machine: Machine, frame: Frame, arg: Any) -> int:
    value = frame.stack.pop()
    frame.next += 1
    return machine.suspend(frame, value)


@move("RETURN_GENERATOR")
def return_generator(machine: Machine, frame: Frame, arg: Any) -> int:
    return machine.make_generator(frame)


# exceptions


@move("PUSH_EXC_INFO")
def push_exc_info(machine: Machine, frame: Frame, arg: Any) -> int:
    error = frame.stack.pop()
    frame.stack += [frame.handled[-1] if frame.handled else None, error]
    frame.handled.append(error)
    frame.next += 1
    return LEAVE


@move("POP_EXCEPT")
def pop_except(machine: Machine, frame: Frame, arg: Any) -> int:
    frame.stack.pop()
    frame.handled.pop()
    frame.next += 1
    return LEAVE


@move("RERAISE")
def reraise(machine: Machine, frame: Frame, arg: Any) -> int:
    return machine.throw(frame.stack[-1], new=False)


@move("RAISE_VARARGS")
def raise_varargs(machine: Machine, frame: Frame, count: int) -> int:
    if count == 2:
        machine.semantics.chain(frame.stack[-2], frame.stack[-1])
        raise frame.stack[-2] from frame.stack[-1]
    if count == 1:
        raise frame.stack[-1]
    return machine.throw(machine.to_reraise(), new=False)
