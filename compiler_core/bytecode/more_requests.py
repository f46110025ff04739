"""Requests beside those for variables, attributes and items: operators, iteration, calls, functions, `with`, `match`.

See requests.py for what a reader is, and when it may look at the stack.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

from compiler_core.bytecode.binding import make_frame
from compiler_core.bytecode.completions import chain
from compiler_core.bytecode.equivalents import spread
from compiler_core.bytecode.frame import NULL, Enter, Frame
from compiler_core.bytecode.generators import InterpretedGenerator
from compiler_core.bytecode.intrinsics import INTRINSICS
from compiler_core.bytecode.requests import (
    Ended,
    advance_or_leave,
    asks,
    drop,
    jump_if,
    jump_or_pop,
    push_all,
    push_not,
    push_reversed,
    sent,
)
from compiler_core.bytecode.versions import NULL_ABOVE

if TYPE_CHECKING:
    from compiler_core.bytecode.machine import Machine


# operators


@asks("BINARY_OP", pops=2)
def binary_op(machine: Machine, frame: Frame, op: str) -> Any:
    return machine.semantics.binary(op, frame.stack[-2], frame.stack[-1])


@asks("INPLACE_OP", pops=2)
def inplace_op(machine: Machine, frame: Frame, op: str) -> Any:
    return machine.semantics.in_place(op, frame.stack[-2], frame.stack[-1])


@asks("UNARY_NEGATIVE", "UNARY_POSITIVE", "UNARY_INVERT", pops=1)
def unary(machine: Machine, frame: Frame, op: str) -> Any:
    return machine.semantics.unary(op, frame.stack[-1])


@asks("COMPARE_OP", pops=2)
def compare_op(machine: Machine, frame: Frame, op: str) -> Any:
    return machine.semantics.compare(op, frame.stack[-2], frame.stack[-1])


@asks("COMPARE_AS_BOOL", pops=2)
def compare_as_bool(machine: Machine, frame: Frame, op: str) -> Any:
    value = machine.semantics.compare(op, frame.stack[-2], frame.stack[-1])
    if type(value) is Enter:
        return chain(value, "TRUTH_OF")
    return value if type(value) is bool else machine.semantics.truth(value)


@asks("CONTAINS_OP", pops=2)
def contains_op(machine: Machine, frame: Frame, inverted: int) -> Any:
    return machine.semantics.contains(frame.stack[-2], frame.stack[-1])


@asks("CONTAINS_NOT", pops=2, finish=push_not)
def contains_not(machine: Machine, frame: Frame, inverted: int) -> Any:
    return machine.semantics.contains(frame.stack[-2], frame.stack[-1])


@asks("IS_OP", pops=2)
def is_op(machine: Machine, frame: Frame, inverted: int) -> Any:
    return machine.semantics.is_same(frame.stack[-2], frame.stack[-1]) is not bool(inverted)


def truth(machine: Machine, frame: Frame, arg: Any) -> Any:
    value = frame.stack[-1]
    return value if value is True or value is False else machine.semantics.truth(value)


asks("UNARY_NOT", pops=1, finish=push_not)(truth)
asks("TO_BOOL", pops=1)(truth)
asks("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", pops=1, finish=jump_if)(truth)
asks("JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP", finish=jump_or_pop)(truth)


# iteration


@asks("GET_ITER", pops=1)
def get_iter(machine: Machine, frame: Frame, arg: Any) -> Any:
    return machine.semantics.iterate(frame.stack[-1])


@asks("GET_YIELD_FROM_ITER", pops=1)
def get_yield_from_iter(machine: Machine, frame: Frame, arg: Any) -> Any:
    value = frame.stack[-1]
    return value if isinstance(value, InterpretedGenerator) else machine.semantics.iterate(value)


@asks("FOR_ITER", finish=advance_or_leave)
def for_iter(machine: Machine, frame: Frame, arg: Any) -> Any:
    return machine.semantics.advance(frame.stack[-1])


@asks("SEND", pops=1, finish=sent)
def send(machine: Machine, frame: Frame, arg: Any) -> Any:
    receiver, value = frame.stack[-2:]
    try:
        if value is None:
            return machine.semantics.call(next, (receiver,), {})
        return machine.semantics.call(receiver.send, (value,), {})
    except StopIteration as stop:
        return Ended(stop.value)


@asks("UNPACK_SEQUENCE", pops=1, finish=push_reversed)
def unpack_sequence(machine: Machine, frame: Frame, count: int) -> Any:
    return machine.semantics.unpack(frame.stack[-1], count, -1)


@asks("UNPACK_EX", pops=1, finish=push_reversed)
def unpack_ex(machine: Machine, frame: Frame, counts: int) -> Any:
    return machine.semantics.unpack(frame.stack[-1], counts & 0xFF, counts >> 8)


@asks("GET_LEN")
def get_len(machine: Machine, frame: Frame, arg: Any) -> Any:
    return machine.semantics.call(len, (frame.stack[-1],), {})


@asks("LIST_EXTEND", "SET_UPDATE", pops=1, finish=drop)
def extend(machine: Machine, frame: Frame, depth: int) -> Any:
    return machine.semantics.extend(frame.stack[-1 - depth], frame.stack[-1])


@asks("DICT_UPDATE", pops=1, finish=drop)
def dict_update(machine: Machine, frame: Frame, depth: int) -> Any:
    return machine.semantics.merge(frame.stack[-1 - depth], frame.stack[-1], None)


@asks("DICT_MERGE", pops=1, finish=drop)
def dict_merge(machine: Machine, frame: Frame, depth: int) -> Any:
    stack = frame.stack
    function = stack[-depth - (4 if NULL_ABOVE else 3)]  # the one that CALL_FUNCTION_EX will call
    return machine.semantics.merge(stack[-1 - depth], stack[-1], function)


# calls


def called(machine: Machine, frame: Frame, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if function is BUILD_CLASS:
        return machine.semantics.build_class(frame, args[0], args[1:], kwargs)
    return machine.semantics.call(function, args, kwargs)


BUILD_CLASS = builtins.__build_class__


@asks("CALL", pops=lambda arg: arg[0] + 2)
def call(machine: Machine, frame: Frame, arg: tuple[int, tuple[str, ...]]) -> Any:
    count, names = arg
    function, args = operands(frame.stack[-count - 2 :])
    if not names:
        return called(machine, frame, function, args, {})
    split = len(args) - len(names)
    return called(machine, frame, function, args[:split], dict(zip(names, args[split:])))


@asks("CALL_KW", pops=lambda count: count + 3)
def call_kw(machine: Machine, frame: Frame, count: int) -> Any:
    """3.13: the names of keyword arguments are on the stack."""
    names = frame.stack[-1]
    function, args = operands(frame.stack[-count - 3 : -1])
    split = len(args) - len(names)
    return called(machine, frame, function, args[:split], dict(zip(names, args[split:])))


def operands(values: list[Any]) -> tuple[Any, tuple[Any, ...]]:
    """The callable and its arguments: [NULL, callable, *args] or [callable, first argument, *args]; from 3.13 on
    [callable, NULL, *args]."""
    if values[0] is NULL:
        return values[1], tuple(values[2:])
    if values[1] is NULL:
        return values[0], tuple(values[2:])
    return values[0], tuple(values[1:])


@asks("CALL_FUNCTION_EX", pops=lambda flags: 3 + (flags & 1))
def call_function_ex(machine: Machine, frame: Frame, flags: int) -> Any:
    values = frame.stack[-3 - (flags & 1) :]
    function = values[0] if NULL_ABOVE else values[1]
    args, kwargs = values[2], (values[3] if flags & 1 else {})
    if type(args) is tuple:
        parts = tuple(machine.semantics.unpack(args, len(args), -1))  # each is read
        return called(machine, frame, function, parts, kwargs)
    if isinstance(args, InterpretedGenerator):
        return Enter(make_frame(spread, (function, args, kwargs), {}))
    items: list[Any] = []
    try:
        answer = machine.semantics.extend(items, args)
    except TypeError:
        if hasattr(args, "__iter__") or hasattr(args, "__getitem__"):
            raise
        function(*args, **kwargs)  # raises what CPython says of arguments that are not iterable
        raise
    if type(answer) is Enter:
        return Enter(make_frame(spread, (function, args, kwargs), {}))
    return called(machine, frame, function, tuple(items), kwargs)


ATTRIBUTES = {1: "__defaults__", 2: "__kwdefaults__", 4: "__annotations__", 8: "__closure__"}


@asks("MAKE_FUNCTION", pops=lambda flags: 1 + len(flags))
def make_function(machine: Machine, frame: Frame, flags: tuple[int, ...]) -> Any:
    """flags: which attributes lie below the code, the topmost first."""
    stack = frame.stack
    parts = {ATTRIBUTES[flag]: stack[-2 - index] for index, flag in enumerate(flags)}
    notes = parts.get("__annotations__")
    if isinstance(notes, tuple):
        parts["__annotations__"] = dict(zip(notes[::2], notes[1::2]))
    return machine.semantics.make_function(frame, stack[-1], parts)


@asks("IMPORT_NAME", pops=2)
def import_name(machine: Machine, frame: Frame, name: str) -> Any:
    level, names = frame.stack[-2:]
    return machine.semantics.import_name(frame, name, names, level)


@asks("IMPORT_FROM")
def import_from(machine: Machine, frame: Frame, name: str) -> Any:
    return machine.semantics.import_from(frame.stack[-1], name)


@asks("CALL_INTRINSIC_1", pops=1)
def call_intrinsic_1(machine: Machine, frame: Frame, name: str) -> Any:
    return INTRINSICS[name](machine, frame, frame.stack[-1])


@asks("CALL_INTRINSIC_2", pops=2)
def call_intrinsic_2(machine: Machine, frame: Frame, name: str) -> Any:
    return INTRINSICS[name](machine, frame, *frame.stack[-2:])


# strings


@asks("BUILD_STRING", pops=lambda count: count)
def build_string(machine: Machine, frame: Frame, count: int) -> Any:
    return machine.semantics.join(frame.stack[len(frame.stack) - count :])


CONVERSIONS = ("", "s", "r", "a")


@asks("FORMAT_VALUE", pops=lambda flags: 2 if flags & 4 else 1)
def format_value(machine: Machine, frame: Frame, flags: int) -> Any:
    value, spec = frame.stack[-2:] if flags & 4 else (frame.stack[-1], "")
    return machine.semantics.format(value, CONVERSIONS[flags & 3], spec)


@asks("CONVERT_VALUE", pops=1)
def convert_value(machine: Machine, frame: Frame, conversion: int) -> Any:
    return machine.semantics.format(frame.stack[-1], CONVERSIONS[conversion], "")


@asks("FORMAT_SIMPLE", pops=1)
def format_simple(machine: Machine, frame: Frame, arg: Any) -> Any:
    value = frame.stack[-1]
    return value if type(value) is str else machine.semantics.format(value, "", "")


@asks("FORMAT_WITH_SPEC", pops=2)
def format_with_spec(machine: Machine, frame: Frame, arg: Any) -> Any:
    return machine.semantics.format(frame.stack[-2], "", frame.stack[-1])


# with, except, match


@asks("BEFORE_WITH", pops=1, finish=push_all)
def before_with(machine: Machine, frame: Frame, arg: Any) -> Any:
    return machine.semantics.enter_with(frame.stack[-1])


@asks("WITH_EXCEPT_START")
def with_except_start(machine: Machine, frame: Frame, arg: Any) -> Any:
    leave, error = frame.stack[-4], frame.stack[-1]
    return machine.semantics.call(leave, (type(error), error, error.__traceback__), {})


@asks("CHECK_EXC_MATCH", pops=1)
def check_exc_match(machine: Machine, frame: Frame, arg: Any) -> Any:
    return machine.semantics.match_exception(frame.stack[-2], frame.stack[-1])


@asks("MATCH_MAPPING")
def match_mapping(machine: Machine, frame: Frame, arg: Any) -> Any:
    return machine.semantics.match_mapping(frame.stack[-1])


@asks("MATCH_SEQUENCE")
def match_sequence(machine: Machine, frame: Frame, arg: Any) -> Any:
    return machine.semantics.match_sequence(frame.stack[-1])


@asks("MATCH_KEYS")
def match_keys(machine: Machine, frame: Frame, arg: Any) -> Any:
    return machine.semantics.match_keys(frame.stack[-2], frame.stack[-1])


@asks("MATCH_CLASS", pops=3)
def match_class(machine: Machine, frame: Frame, count: int) -> Any:
    value, cls, names = frame.stack[-3:]
    return machine.semantics.match_class(value, cls, count, names)
