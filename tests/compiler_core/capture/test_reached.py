"""Functions that only uncompiled code calls, compiled by themselves: counted, equal, errors as they are, no leaks.

`outside` is kept out of graphs: what is called from inside it is reached.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import subprocess
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from reached_programs import SEEN, compiled, double, entries, mark, needs_frames, outside, x

import distcompile as dc
from compiler_core import log
from compiler_core.capture.compiled.reached import NESTED, RAISES
from compiler_core.config import config
from distcompile import Tensor, compiler, nn
from distcompile._dynamo import explain


@pytest.fixture(autouse=True)
def _clear() -> None:
    SEEN.clear()


@pytest.fixture
def hook() -> Iterator[Callable[[], int | None]]:
    """The evaluation of frames that is installed, before and after."""
    get = ctypes.pythonapi._PyInterpreterState_GetEvalFrameFunc
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    current = ctypes.pythonapi.PyInterpreterState_Get
    current.restype = ctypes.c_void_p
    before = get(current())
    yield lambda: get(current())  # type: ignore[no-any-return]
    assert get(current()) == before


# -- reached, and counted


@needs_frames
@pytest.mark.parametrize(
    "call",
    [
        lambda x: outside(double, x),
        lambda x: outside(functools.partial(double), x),
        lambda x: outside(lambda t: next(map(double, t)), (x,)),
        lambda x: outside(functools.reduce, lambda a, b: double(a) + b, [x, x]),
        lambda x: outside(max, [x, x + 1], key=lambda t: double(t).sum().item()),
        lambda x: outside(decorated, x),
        lambda x: outside(Callable_(), x),
        lambda x: outside(Callable_().method, x),
    ],
    ids=["function", "partial", "map", "reduce", "key", "decorator", "object", "method"],
)
def test_they_are_compiled(call: Any, hook: Any) -> None:
    run, before = compiled(call), hook()
    for n in range(3):
        SEEN.clear()
        with config.patch(frame_evaluation=False):
            expected = call(x() + n)
        SEEN.clear()
        assert run(x() + n).tolist() == expected.tolist()
        assert set(SEEN) == {"outside", "captured"}  # also later: a replay says what the capture said
    assert len(entries(run)) == 1
    assert hook() == before


def plainly(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@plainly
@dc.no_grad()
def decorated(x: Tensor) -> Tensor:
    return double(x)


class Callable_:
    def __call__(self, x: Tensor) -> Tensor:
        return double(x)

    def method(self, x: Tensor) -> Tensor:
        return double(x)


@needs_frames
def test_closures_made_anew_fit_what_was_compiled() -> None:
    def step(x: Tensor, scale: Tensor, names: dict[str, int]) -> Any:
        def inner(t: Tensor, *more: Tensor, keep: bool = False, **rest: Tensor) -> Any:
            nonlocal kept
            mark()
            kept = t
            names["calls"] = names.get("calls", 0) + 1
            return t * scale + sum(more) + sum(rest.values()) + int(keep)

        kept = x
        result = outside(inner, x, x, x, keep=True, other=scale)
        return result, kept is x

    run = compiled(step)
    for n in range(1, 4):
        names: dict[str, int] = {}
        result, same = run(x(1.0), x(float(n)), names)
        assert (result.tolist(), same, names) == ([n + 2.0 + n + 1], True, {"calls": 1})
    assert entries(run) == {"inner": 1}
    assert "plain" not in SEEN


@needs_frames
def test_each_module_has_its_own() -> None:
    class Layer(nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.linear, self.factor = nn.Linear(2, 2), factor

        def forward(self, x: Tensor) -> Tensor:
            mark()
            return self.linear(x) * self.factor

    layers = [Layer(float(n)) for n in range(12)]  # more than the recompile limit
    run = compiled(lambda x: outside(lambda t: [layer(t) for layer in layers], [x][0]))
    for _ in range(3):
        SEEN.clear()
        results = run(x())
        assert "plain" not in SEEN
    with config.patch(frame_evaluation=False):
        assert [t.tolist() for t in results] == [layer(x()).tolist() for layer in layers]


class Stack(list):  # type: ignore[type-arg]
    pushed = 0

    def push(self, x: Tensor) -> Stack:
        mark()
        self.pushed += 1
        self.append(x * 2)
        return self


@needs_frames
def test_what_they_change_is_changed() -> None:
    run, stack = compiled(lambda x: outside(stack.push, x)), Stack()
    for n in range(1, 4):
        assert run(x(float(n))) is stack
        assert (stack.pushed, [t.tolist() for t in stack]) == (n, [[2.0 * k] for k in range(1, n + 1)])
    assert SEEN == ["outside", "captured"] * 3


@needs_frames
def test_gradients_are_the_same() -> None:
    weight = nn.Parameter(x(1.0, 3.0))
    run = compiled(lambda x: outside(lambda t: functools.reduce(lambda a, b: a * b * weight, [t, t, t]), x).sum())
    for _ in range(2):
        weight.grad = None
        run(x()).backward()
        assert weight.grad is not None
        assert weight.grad.tolist() == [2.0, 48.0]


@needs_frames
def test_what_they_reach_in_turn() -> None:
    def inner(x: Tensor) -> Tensor:
        mark()
        return outside(lambda t: double(t) + 1, x) * 2

    run = compiled(lambda x: outside(inner, x) + 1)
    for _ in range(2):
        SEEN.clear()
        assert run(x()).tolist() == [7.0, 11.0]
        assert SEEN == ["outside", "captured", "outside", "captured"]
    assert entries(run) == {"inner": 2, "lambda": 1}
    found = explain(lambda x: outside(inner, x) + 1)(x())
    assert (found.graph_count, found.graph_break_count, found.op_count) == (3, 2, 4)
    assert "reached from uncompiled code: inner: 2 compiled, 1 graph breaks" in str(run.explain())


@needs_frames
def test_a_call_that_runs_eager_as_a_whole() -> None:
    def reads_frame(x: Tensor) -> Tensor:
        assert sys._getframe().f_code.co_name == "reads_frame"
        return double(x)

    run = compiled(reads_frame)
    with pytest.warns(log.DistCompileWarning, match="runs eager"):
        assert run(x()).tolist() == run(x()).tolist() == [2.0, 4.0]
    assert SEEN == ["captured", "captured"]
    assert entries(run) == {"double": 1}


@needs_frames
def test_disable_that_is_not_recursive_reaches_through_c() -> None:
    shallow = compiler.disable(lambda xs: list(map(double, xs)), recursive=False)
    deep = compiler.disable(lambda xs: list(map(double, xs)))
    for _ in range(2):
        assert [t.tolist() for t in shallow([x(), x()])] == [[2.0, 4.0]] * 2
    assert SEEN == ["captured"] * 4
    SEEN.clear()
    run = compiled(lambda x: outside(lambda t: deep([t]), x)[0])
    assert run(x()).tolist() == [2.0, 4.0]
    assert SEEN == ["outside", "plain"]


# -- errors


def fails(x: Tensor) -> Tensor:
    mark()
    y = x * 2
    if len(x.shape) == 1:
        raise KeyError("told")
    return y


def entries_of(error: BaseException) -> list[tuple[str, int | None]]:
    own = [e for e in traceback.extract_tb(error.__traceback__) if e.filename == __file__]
    return [(entry.name, entry.lineno) for entry in own]


def handled(t: Tensor) -> Any:
    try:
        raise ValueError("first")
    except ValueError:
        return list(map(fails, [t]))


@needs_frames
def test_errors_pass_through() -> None:
    run = compiled(lambda x: outside(handled, x))
    with pytest.raises(KeyError, match="told") as expected:
        run._function(x())
    for _ in range(3):
        with pytest.raises(KeyError, match="told") as found:
            run(x())
        assert isinstance(found.value.__context__, ValueError)
        assert entries_of(found.value)[-2:] == entries_of(expected.value)[-2:]
        shown = [entry.filename for entry in traceback.extract_tb(found.value.__traceback__)]
        assert not any(name.endswith(("/reached.py", "/reflection.py")) for name in shown)
    assert sys.exc_info() == (None, None, None)


@needs_frames
def test_errors_are_caught_by_who_called() -> None:
    @compiler.disallow_in_graph
    def kept_out(t: Tensor) -> Tensor:
        try:
            return next(map(fails, [t]))
        except KeyError:
            return double(t)

    run = compiled(lambda x: kept_out(x) + 1)
    for n in range(RAISES + 2):
        SEEN.clear()
        assert run(x()).tolist() == [3.0, 5.0]
        assert tuple(SEEN) == ("captured" if n < RAISES else "plain", "captured")


# -- recursion, threads, memory


def descend(x: Tensor, depth: int) -> Tensor:
    return outside(descend, x, depth - 1) + 1 if depth else x


def descend_plainly(x: Tensor, depth: int) -> Tensor:
    return descend_plainly(x, depth - 1) if depth else double(x)


@needs_frames
def test_recursion() -> None:
    run = compiled(lambda x, n: outside(descend, x, n))
    assert run(x(0.0), 3 * NESTED).tolist() == run(x(0.0), 3 * NESTED).tolist() == [3.0 * NESTED]
    deep = compiled(compiler.disallow_in_graph(lambda x, n: descend_plainly(x, n)))
    assert deep(x(1.0), 400).tolist() == [2.0]

    def endless(t: Tensor) -> Tensor:
        return endless(t)

    with pytest.raises(RecursionError):
        compiled(lambda x: outside(endless, x))(x())


@needs_frames
def test_threads(hook: Any) -> None:
    run = compiled(lambda x: outside(lambda t: list(map(double, [t] * 20)), x))
    run(x())
    SEEN.clear()
    wrong: list[Any] = []
    start = threading.Barrier(4)

    def work(n: int) -> None:
        start.wait()
        for _ in range(20):
            results = [t.tolist() for t in run(x() + n)]
            if results != [[2.0 * (n + 1), 2.0 * (n + 2)]] * 20:
                wrong.append(results)
            if next(map(double, [x(float(n))])).tolist() != [2.0 * n]:
                wrong.append("plain")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert SEEN.count("captured") == 4 * 20 * 20  # all in regions
    assert SEEN.count("plain") == 4 * 20  # none outside of them


@needs_frames
def test_a_thread_begun_in_a_region_is_not_in_it() -> None:
    def begin(t: Tensor) -> Tensor:
        thread = threading.Thread(target=double, args=(t,))
        thread.start()
        thread.join(60)
        return double(t)

    run = compiled(compiler.disallow_in_graph(begin))
    assert run(x()).tolist() == [2.0, 4.0]
    assert SEEN == ["plain", "captured"]


@needs_frames
def test_a_thousand_calls_leave_nothing_behind() -> None:
    def maybe(t: Tensor, fail: bool) -> Any:
        if fail:
            raise KeyError(t)
        return t * 2

    def both(t: Tensor, *rest: Any, extra: Any) -> Any:
        try:
            maybe(t, True)
        except KeyError:
            return maybe(t, False), rest, extra

    run = compiled(lambda x: outside(both, x, object_, extra=object_))
    object_ = object()

    def calls(count: int) -> tuple[int, int]:
        for _ in range(count):
            given = x()
            run(given)
        alive = weakref.ref(given)
        del given
        gc.collect()
        assert alive() is None
        return len(gc.get_objects()), sys.getrefcount(object_)

    calls(50)
    objects, references = calls(50)
    more, more_references = calls(1000)
    assert more_references == references
    assert more - objects < 100


@needs_frames
def test_a_region_before_its_judge_is_given_is_an_error() -> None:
    program = "from compiler_core.runtime.frames import frame_evaluation; frame_evaluation().run(None, print, (), {})"
    run = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert "prepare(judge) comes before run()" in run.stderr
