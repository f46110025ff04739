"""Where a segment starts: the frame of a call, or the frames that a graph break left.

In: a function and its arguments, or frames. Out: frames whose variables are `Lazy`: each is guarded when it is read.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Hashable
from types import CellType, FunctionType, MethodType
from typing import Any

from compiler_core.bytecode.frame import UNSET, Enter, Frame, Marker
from compiler_core.bytecode.instructions import variable_names
from compiler_core.capture import policy
from compiler_core.capture.compiled.reached import Carried
from compiler_core.capture.guards.kinds import in_cell
from compiler_core.capture.guards.module_protocol import is_module, unwrapped
from compiler_core.capture.guards.sources import Argument, Bound, CellContents, Item, Source
from compiler_core.capture.lessons import Memory
from compiler_core.capture.liveness import live_at
from compiler_core.capture.numbers.symbols import is_symbol
from compiler_core.capture.outside import Lazy, Outside
from compiler_core.capture.segment import CaptureSegment
from compiler_core.capture.tracing.parts import Parts

LONGEST = 64  # lists of numbers that a step gives
FUNCTION, OWNER = "the compiled function", "self"


def start_call(parts: Parts, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any, *, lasting: bool) -> Any:
    """What `parts.call` answers of the compiled function: a result, or Enter of its frame. lasting: whether that
    lives as long as what is compiled for it."""
    segment = parts.segment
    order = f"tuple(kwargs) == {tuple(kwargs)}" if kwargs else "not kwargs"  # **kwargs keeps the caller's order
    segment.code.require(f"len(args) == {len(args)}", f"{len(args)} positional arguments")
    segment.code.require(order, f"keyword arguments {', '.join(kwargs) or 'none'}")
    function = unwrapped(function)
    given: list[Any] = [Lazy(Argument(f"args[{i}]", f"args[{i}]"), value) for i, value in enumerate(args)]
    named = {key: Lazy(Argument(f"kwargs[{key!r}]", key), value) for key, value in kwargs.items()}
    target, owner = function, None
    if isinstance(function, MethodType):
        target, owner = function.__func__, function.__self__
    elif is_module(function):
        target, owner = type(function).__call__, function
    if owner is not None:
        _know(segment, owner, OWNER, lasting)
        if owner is function:
            parts.classes.looked_up(type(owner), "__call__")  # which is guarded
        given.insert(0, owner)
    if type(function) is Carried:
        target = args[0]
        segment.outside.load(Argument("args[0]", target.__name__), target)
        return _entered(parts, target, tuple(given[1:]), named)
    if type(target) is FunctionType and policy.how(target) is policy.ENTER:
        _know(segment, target, target.__name__, lasting)
        return _entered(parts, target, tuple(given), named)
    _know(segment, function, FUNCTION, lasting)
    loaded = [_loaded(segment, value) for value in given]
    return parts.call(target, tuple(loaded), {key: _loaded(segment, value) for key, value in named.items()})


def _entered(parts: Parts, function: FunctionType, args: tuple[Any, ...], kwargs: Any) -> Enter:
    frame = parts.entering.enter(function, args, kwargs)
    _load_shared(parts.segment, frame)
    return Enter(frame)


def start_frames(segment: CaptureSegment, frames: list[Frame]) -> None:
    """Sources for all that the frames hold, where a graph break left them: `args` are these frames."""
    for i, frame in enumerate(frames):
        base = f"args[{i}]"
        names = variable_names(frame.code)
        for slot, value in enumerate(frame.locals):
            if not isinstance(value, Marker):
                source = Argument(f"{base}.locals[{slot}]", names[slot])
                given = _given(segment, source, value)  # a generator's frame may outlive the segment
                frame.locals[slot] = given if frame.generator is None else _loaded(segment, given)
        for place, value in enumerate(frame.stack):
            frame.stack[place] = segment.outside.load(Argument(f"{base}.stack[{place}]", f"operand {place}"), value)
        for place, error in enumerate(frame.handled):
            segment.outside.load(Argument(f"{base}.handled[{place}]", "the exception under handling"), error)
        frame.pending = tuple(
            _of_pending(segment, f"{base}.pending[{place}]", value) for place, value in enumerate(frame.pending)
        )
        if frame.generator is not None:
            segment.outside.load(Argument(f"{base}.generator", "a generator"), frame.generator)
            segment.record.generators.append(frame.generator)
        if frame.namespace is not None:
            segment.outside.load(Argument(f"{base}.namespace", "a namespace"), frame.namespace)


def changing_numbers(frames: list[Frame], memory: Memory) -> tuple[Source, ...]:
    """Where frames hold numbers that change from call to call, for the segment that goes on with them."""
    found: list[Source] = []
    for i, frame in enumerate(frames):
        for name, slot, value in zip(variable_names(frame.code), itertools.count(), frame.locals):
            source = Argument(f"args[{i}].locals[{slot}]", name)
            if is_symbol(value) or (type(value) is Lazy and memory.is_dynamic(value.source)):
                found.append(source)
            elif isinstance(value, CellType) and is_symbol(in_cell(value)):
                found.append(CellContents(source, name))
        found += [_operand(i, k) for k, value in enumerate(frame.stack) if is_symbol(value)]
    return tuple(found)


def _operand(frame: int, place: int) -> Argument:
    return Argument(f"args[{frame}].stack[{place}]", f"operand {place}")


def after_step(changing: tuple[Source, ...], frames: list[Frame], before: list[Any]) -> list[Source]:
    """`changing`, after an instruction by itself; and the numbers with a fraction that it has given.

    before: what was on the innermost frame's stack.
    """
    stack, inner = frames[-1].stack, len(frames) - 1
    gone = [_operand(inner, k) for k, value in enumerate(before) if k >= len(stack) or stack[k] is not value]
    found = [source for source in changing if source not in gone]
    if stack and not any(stack[-1] is value for value in before):
        top = _operand(inner, len(stack) - 1)
        if type(stack[-1]) is float:
            found.append(top)
        elif type(stack[-1]) in (list, tuple) and len(stack[-1]) <= LONGEST:
            found += [Item(top, k) for k, value in enumerate(stack[-1]) if type(value) is float]
    return found


def key_of_frames(frames: list[Frame]) -> Hashable:
    """What makes the place that frames are at: where each stands, and which values there are."""
    return tuple(
        (
            frame.code,
            id(frame.globals),
            frame.next,
            frame.completion,
            frame.keyword_names,
            tuple(isinstance(value, Marker) for value in frame.stack),
            tuple(value is UNSET for value in frame.locals),
            len(frame.handled),
            len(frame.pending),
            frame.generator is None,
        )
        for frame in frames
    )


def drop_dead(frames: list[Frame]) -> None:
    """Forget variables that nothing reads any more."""
    for frame in frames:
        if frame.namespace is None:
            live = live_at(frame.code, frame.next)
            for slot, value in enumerate(frame.locals):
                if slot not in live and not isinstance(value, CellType):
                    frame.locals[slot] = UNSET


def without_sources(frames: list[Frame]) -> None:
    """Variables that nobody has read are their plain values again."""
    for frame in frames:
        for slot, value in enumerate(frame.locals):
            if type(value) is Lazy:
                frame.locals[slot] = value.value


def _know(segment: CaptureSegment, thing: Any, text: str, lasting: bool) -> None:
    """The compiled function itself, or its owner: the very object at every call."""
    if segment.outside.find(thing) is None:
        if lasting:
            segment.code.guards.lasting.add(id(thing))
        segment.outside.things[id(thing)] = Outside(thing, Bound(thing, text), True)
        if type(thing) is FunctionType:
            segment.outside.guard_code(Bound(thing, text), thing)
        if is_module(thing):
            segment.modules.visit(thing, text)


def _loaded(segment: CaptureSegment, value: Any) -> Any:
    return segment.outside.load(value.source, value.value) if type(value) is Lazy else value


def _load_shared(segment: CaptureSegment, frame: Frame) -> None:
    """Arguments that closures share, that *args and **kwargs collect, or a generator keeps, are read now."""
    code = frame.code
    generates = code.co_flags & inspect.CO_GENERATOR
    for slot in range(code.co_argcount + code.co_kwonlyargcount):
        if generates or code.co_varnames[slot] in code.co_cellvars:
            frame.locals[slot] = _loaded(segment, frame.locals[slot])
    slot = code.co_argcount + code.co_kwonlyargcount
    if code.co_flags & inspect.CO_VARARGS:
        frame.locals[slot] = tuple(_loaded(segment, value) for value in frame.locals[slot])
        slot += 1
    if code.co_flags & inspect.CO_VARKEYWORDS:
        frame.locals[slot] = {key: _loaded(segment, value) for key, value in frame.locals[slot].items()}


def _given(segment: CaptureSegment, source: Argument, value: Any) -> Any:
    if isinstance(value, CellType):
        segment.outside.identify_cell(source, value, fixed=False)
        return value
    return Lazy(source, value)


def _of_pending(segment: CaptureSegment, code: str, value: Any) -> Any:
    """A value that a completion waits with; it may be a tuple of such."""
    if type(value) is tuple:
        return tuple(_of_pending(segment, f"{code}[{i}]", item) for i, item in enumerate(value))
    return segment.outside.load(Argument(code, "a value of the instruction"), value)
