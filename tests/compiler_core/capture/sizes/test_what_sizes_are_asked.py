"""What a function asks of sizes: guards where the answer counts, constants where a number is needed."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from sized_runs import arguments, captures, check, same

import distcompile as dc
from compiler_core.config import config
from compiler_core.errors import GraphBreak
from compiler_core.log import DistCompileWarning
from distcompile import Tensor


def test_the_guards_tell_what_was_assumed() -> None:
    compiled: Any = dc.compile(lambda x, y: x + y, backend="aot_eager", dynamic=True)
    compiled(dc.ones(3, 4), dc.ones(3, 4))
    guards = compiled.explain().entries[0].guards
    for text in ("args[0].ndim == 2", "2 <= args[0].shape[0]", "args[0].shape[0] == args[1].shape[0]"):
        assert text in guards
    assert "args[0].stride() is that of rows" in guards


def test_the_report_tells_for_which_sizes_it_was_compiled() -> None:
    compiled: Any = dc.compile(lambda x: x * 2, backend="aot_eager", dynamic=True)
    for n in (3, 5, 3):
        compiled(dc.ones(n))
    text = str(compiled.explain())
    assert text.count("compiled for args[0].shape[0] = ") == 2
    assert "compiled for args[0].shape[0] = 5" in text


def test_another_number_of_dims_dtype_or_layout_is_captured_again() -> None:
    def double(x: Tensor) -> Tensor:
        return x * 2

    compiled: Any = dc.compile(double, backend="aot_eager", dynamic=True)
    for x in (dc.ones(3, 4), dc.ones(3), dc.ones(3, 4, dtype=dc.float64), dc.ones(4, 3).t(), dc.ones(6, 5)):
        same(compiled(x), double(x), str(x.shape))
    assert captures(compiled) == 4


def test_a_branch_on_a_size() -> None:
    def branch(x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] > 4 else x + 1

    assert check(branch, lambda n: arguments([(n, 3)])) >= 2


def test_a_loop_over_a_size() -> None:
    def add(x: Tensor) -> Tensor:
        for i in range(x.shape[0]):
            x = x + i
        return x

    assert check(add, lambda n: arguments([(n, 3)])) == 5


def test_a_size_in_the_result() -> None:
    check(lambda x: (x * 2, x.shape[0]), lambda n: arguments([(n, 3)]))


def test_an_error_of_the_program_is_its_own() -> None:
    def few(x: Tensor) -> Tensor:
        if x.shape[0] > 8:
            raise ValueError(f"{x.shape[0]} are too many")
        return x + 1

    compiled: Any = dc.compile(few, backend="aot_eager", dynamic=True)
    same(compiled(dc.ones(3)), few(dc.ones(3)), "three")
    for n in (9, 10):
        with pytest.raises(ValueError, match=f"{n} are too many"):
            compiled(dc.ones(n))
    same(compiled(dc.ones(4)), few(dc.ones(4)), "four")


def test_a_break_that_has_nothing_to_do_with_sizes() -> None:
    """The first call finds out that constants break as well; later ones keep their symbols."""
    said: list[float] = []

    def show(x: Tensor) -> Tensor:
        y = x * 2
        said.append(y.sum().item())
        return y + 1

    compiled: Any = dc.compile(show, backend="aot_eager", dynamic=True)
    for n in (2, 3, 4, 5, 6):
        same(compiled(dc.ones(n)), dc.ones(n) * 3, f"at size {n}")
    assert said == [4, 6, 8, 10, 12]
    assert captures(compiled) == 3  # both parts, the first of them of constants before


def test_what_a_capture_did_before_it_was_taken_back_is_done_once() -> None:
    log: list[Any] = []

    def note(x: Tensor) -> Tensor:
        log.append(1)
        y = x * 2
        log.append(y.tolist())
        return y

    compiled: Any = dc.compile(note, backend="aot_eager", dynamic=True)
    compiled(dc.ones(2))
    assert log == [1, [2.0, 2.0]]


def test_fullgraph_refuses_a_break_and_nothing_has_happened() -> None:
    log: list[int] = []

    def note(x: Tensor) -> list[float]:
        log.append(1)
        found: list[float] = (x * 2).tolist()
        return found

    compiled: Any = dc.compile(note, backend="aot_eager", dynamic=True, fullgraph=True)
    with pytest.raises(GraphBreak):
        compiled(dc.ones(3))
    assert log == []


def test_a_thread_sees_sizes_while_another_captures() -> None:
    """The stand-in for a tensor's sizes is shown to the trace alone."""
    x, seen = dc.ones(3, 4), []

    def look() -> None:
        seen.append((tuple(x.shape), x.stride(), type(x.shape[0])))

    def watched(x: Tensor) -> Tensor:
        y = x * 2
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        return y

    dc.compile(watched, backend="aot_eager", dynamic=True)(x)
    assert seen[0] == ((3, 4), (4, 1), int)
    assert type(x._cell).__name__ == "Cell"


def test_few_sizes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    with config.patch(size_instances=2):
        assert check(lambda x: x + 1, lambda n: arguments([(n,)]), (2, 3, 4, 2, 3, 4)) == 1


def test_no_warning_where_sizes_are_symbols(recwarn: pytest.WarningsRecorder) -> None:
    check(lambda x: x + 1, lambda n: arguments([(n,)]))
    assert not [w for w in recwarn if issubclass(w.category, DistCompileWarning)]


def test_a_size_that_was_seen_to_change_is_a_symbol_from_then_on() -> None:
    def double(x: Tensor, y: Tensor) -> Tensor:
        return x * 2 + y

    with config.patch(automatic_dynamic_shapes=True):
        for dynamic, most in ((None, 2), (False, 4)):
            compiled: Any = dc.compile(double, backend="aot_eager", dynamic=dynamic)
            for n in (3, 5, 7, 9):
                same(compiled(dc.ones(n, 4), dc.ones(4)), dc.ones(n, 4) * 3, f"{n} rows")
            assert captures(compiled) == most
    assert "args[0].shape[1] == 4" in explained_guards(double)


def explained_guards(function: Any) -> tuple[str, ...]:
    """Of what is captured once a second size was seen."""
    with config.patch(automatic_dynamic_shapes=True):
        compiled: Any = dc.compile(function, backend="aot_eager")
        compiled(dc.ones(3, 4), dc.ones(4))
        compiled(dc.ones(5, 4), dc.ones(4))
    guards: tuple[str, ...] = compiled.explain().entries[1].guards
    return guards


def test_dims_that_change_one_after_the_other() -> None:
    compiled: Any = dc.compile(lambda x: x * 2, backend="aot_eager")
    with config.patch(automatic_dynamic_shapes=True):
        for shape in ((2, 3), (4, 3), (5, 3), (5, 6), (7, 8), (1, 8), (9, 9)):
            same(compiled(dc.ones(*shape)), dc.ones(*shape) * 2, str(shape))
    assert captures(compiled) == 4  # constants, rows, both, and one row


def test_tensors_on_arrays_of_numpys() -> None:
    def write(x: Tensor) -> Tensor:
        x.add_(1)
        return x * 2

    compiled: Any = dc.compile(write, backend="aot_eager", dynamic=True)
    for n in (2, 5, 3):
        array = np.zeros((n, 3), np.float32)
        same(compiled(dc.from_numpy(array)), dc.full((n, 3), 2.0), f"{n} rows")
        assert array.tolist() == [[1.0] * 3] * n
    assert captures(compiled) == 1


def test_hooks_on_what_is_computed() -> None:
    def hooked(x: Tensor) -> Tensor:
        y = x * 2
        y.register_hook(lambda g: g * 3)
        return y * y

    assert check(hooked, lambda n: arguments([(n, 3)])) == 1


def test_arguments_that_get_another_shape() -> None:
    def turn(x: Tensor) -> Tensor:
        return x.t_() * 2

    assert check(turn, lambda n: [dc.randn(n, 3)]) == 1
