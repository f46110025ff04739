"""What frames of the machine look like from outside: tracebacks, lines, lifetimes, callers of native code, refusals."""

from __future__ import annotations

import collections
import gc
import inspect
import sys
import traceback
import warnings
import weakref
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import bytecode_oracle as oracle

from compiler_core.bytecode.binding import make_frame
from compiler_core.bytecode.generators import InterpretedGenerator
from compiler_core.bytecode.kept import _tables as kept_tables
from compiler_core.bytecode.machine import Machine
from compiler_core.bytecode.native import NativeSemantics
from compiler_core.bytecode.program import program_of, programs
from compiler_core.bytecode.semantics import Break


def fails(x: int) -> Any:
    values = [1, 2]
    return (
        values[0] + values[x]  #
    )


def calls_what_fails() -> Any:
    return fails(7)


def user_lines(error: BaseException) -> list[str]:
    text = "".join(traceback.format_exception(error)).splitlines()
    return text[next(i for i, line in enumerate(text) if "in calls_what_fails" in line) :]


def test_a_traceback_that_leaves_is_cpythons_with_its_carets() -> None:
    with pytest.raises(IndexError) as ours:
        oracle.interpret(calls_what_fails)
    with pytest.raises(IndexError) as theirs:
        calls_what_fails()
    assert user_lines(ours.value) == user_lines(theirs.value)


class Held:
    def __init__(self) -> None:
        try:
            raise ValueError
        except ValueError:
            pass


def makes_and_drops() -> Any:
    made = Held()
    seen = weakref.ref(made)
    made = None  # type: ignore[assignment]
    return seen() is None


def raises_and_drops() -> Any:
    made = Held()
    seen = weakref.ref(made)
    try:
        [made][1]
    except IndexError as error:
        made = error.__traceback__
    del made
    return seen() is None


def drops_generator() -> Any:
    def body(held: Held) -> Any:
        yield held

    made = Held()
    seen = weakref.ref(made)
    generator = body(made)
    next(generator)
    del made, generator
    return seen() is None


@pytest.mark.parametrize("function", [makes_and_drops, raises_and_drops, drops_generator], ids=lambda f: f.__name__)
def test_objects_die_when_they_would(function: Any) -> None:
    gc.disable()
    try:
        assert function()
        assert oracle.interpret(function)
    finally:
        gc.enable()


def warns() -> None:
    warnings.warn("from here", stacklevel=1)


def names_a_tuple() -> Any:
    return collections.namedtuple("P", "x")


def test_native_code_sees_the_users_module_and_line() -> None:
    machine = Machine(NativeSemantics())
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        machine.run([make_frame(warns, (), {})])
    (warning,) = seen
    assert (warning.filename, warning.lineno) == (__file__, warns.__code__.co_firstlineno + 1)
    assert machine.run([make_frame(names_a_tuple, (), {})]).__module__ == __name__


def compiles_text() -> Any:
    namespace: dict[str, Any] = {}
    exec("def f(x: int): pass", namespace)
    return namespace["f"].__annotations__, eval("namespace is not None", None), eval("x + 1", None, {"x": 1})


def test_text_is_compiled_by_the_users_future_imports() -> None:
    assert oracle.interpret(compiles_text) == compiles_text() == ({"x": "int"}, True, 2)


def asks_for_frame() -> Any:
    return sys._getframe()


def asks_by_inspect() -> Any:
    return inspect.currentframe()


async def is_async() -> None:
    pass


def catches_groups() -> Any:
    found = None
    try:
        raise ExceptionGroup("g", [ValueError()])
    except* ValueError as group:
        found = len(group.exceptions)
    return found


def calls_what_is_refused() -> Any:
    made = is_async()
    made.close()
    return type(made).__name__, catches_groups()


def test_functions_that_cannot_be_interpreted_are_called() -> None:
    assert program_of(catches_groups.__code__).refusal() == "a function with except*"
    assert program_of(calls_what_is_refused.__code__).refusal() == ""
    assert oracle.interpret(calls_what_is_refused) == ("coroutine", 1)


@pytest.mark.parametrize("function", [is_async, catches_groups], ids=lambda f: f.__name__)
def test_what_cannot_be_interpreted_breaks_where_it_stands(function: Any) -> None:
    machine = Machine(NativeSemantics(inline=True))
    frames = [make_frame(function, (), {})]
    with pytest.raises(Break):
        machine.run(frames)
    assert frames
    assert machine.location().startswith(f"{__file__}:")


def test_the_location_is_the_users_line() -> None:
    machine = Machine(NativeSemantics(inline=True))
    with pytest.raises(Break):
        machine.run([make_frame(catches_groups, (), {})])
    assert machine.location().startswith(f"{__file__}:")
    assert machine.location() > f"{__file__}:{catches_groups.__code__.co_firstlineno}"


def asks(number: int) -> Any:
    unused = number + 1  # noqa: F841  read from outside
    frame = asks_for_frame() if number else asks_by_inspect()
    above = frame.f_back
    return frame.f_code.co_name, above.f_code.co_name, above.f_locals["unused"], above.f_globals is globals()


def names_callers() -> Any:
    return [sys._getframe(depth).f_code.co_name for depth in range(2)], [f.function for f in inspect.stack()[:2]]


def calls_by_name() -> Any:
    return names_callers()


def test_real_frames_stand_for_the_machines() -> None:
    for function, args in ((asks, (0,)), (asks, (1,)), (calls_by_name, ())):
        made = Machine(NativeSemantics(inline=True)).run([make_frame(function, args, {})])
        expected = function(*args)
        assert made == expected


def test_what_is_kept_for_code_goes_with_it() -> None:
    scope: dict[str, Any] = {"warnings": warnings}
    exec(
        "def f(n):\n    try:\n        raise ValueError(max(n, 2))\n    except ValueError as e:\n        return e.args",
        scope,
    )
    gone = weakref.ref(scope["f"].__code__)
    assert Machine(NativeSemantics()).run([make_frame(scope["f"], (1,), {})]) == (2,)
    key = id(scope["f"].__code__)
    assert key in programs
    scope.clear()
    gc.collect()
    assert gone() is None
    assert not any(key in kept for kept in kept_tables)


def counts() -> Any:
    yield 1
    yield 2


def test_generators_of_the_machine_are_generators() -> None:
    made = oracle.interpret(counts)
    assert isinstance(made, InterpretedGenerator)
    assert isinstance(made, collections.abc.Generator)
    assert inspect.getgeneratorstate(made) == inspect.GEN_CREATED
    assert next(made) == 1
    assert inspect.getgeneratorstate(made) == inspect.GEN_SUSPENDED
    assert made.gi_frame.f_code.co_name == "counts"
    assert list(made) == [2]
    assert inspect.getgeneratorstate(made) == inspect.GEN_CLOSED
    assert repr(made).startswith("<generator object counts at 0x")
