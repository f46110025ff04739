"""Functions that hold what is captured, or what a program gave: whoever runs them natively would not see it read.

In: a callable. Out: whether it is the program's; whether a function of ours encloses something of the segment's.
"""

from __future__ import annotations

import functools
from types import FunctionType, MethodType
from typing import Any

from compiler_core.breaking import UNBROKEN
from compiler_core.capture.guards.kinds import CONTAINERS, in_cell
from compiler_core.capture.guards.module_protocol import is_module, unwrapped
from compiler_core.capture.numbers.symbols import is_symbol
from compiler_core.capture.outside import Lazy
from compiler_core.capture.segment import CaptureSegment
from compiler_core.location import is_ours


def is_program(value: Any) -> bool:
    """Whether a function or method of the program's, compiled or not, or what calls one."""
    value = unwrapped(value)
    if isinstance(value, FunctionType):
        return not is_ours(value.__code__.co_filename)
    if isinstance(value, MethodType):  # `__func__` may be a compiled function
        return is_program(value.__func__)
    return isinstance(value, functools.partial) and is_program(value.func)


def _calls(segment: CaptureSegment, value: Any) -> bool:
    """Whether what a variable of a function of ours holds is called, and then runs the program's code, or reads its
    parameters: a module, or a function that encloses one (`vmap(grad(model))`)."""
    if isinstance(value, functools.partial):
        value = value.func
    if is_program(value) or is_module(value) or (isinstance(value, MethodType) and is_module(value.__self__)):
        return True
    return isinstance(value, FunctionType) and value.__code__ in UNBROKEN and encloses(segment, value)


def encloses(segment: CaptureSegment, function: FunctionType) -> bool:
    """Whether variables of the code around a function of ours are captured, or the program's: it is a comprehension,
    say, of code that is entered."""
    for cell in function.__closure__ or ():
        value = in_cell(cell)
        if segment.outside.find(cell) is not None or type(value) is Lazy or is_symbol(value) or _calls(segment, value):
            return True
        if type(value) in CONTAINERS and segment.outside.has(value):
            return True
    return False
