"""The default, dynamic=None: a size that has changed is a symbol. What is learnt of a call, and what runs then."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import distcompile as dc
from compiler_core.config import config
from compiler_core.errors import RecompileLimitError
from distcompile import Tensor, _dynamo, compiler
from tests.compiler_core.capture.sizes.sized_runs import captures
from tests.programs.harness import everything, run


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    return dc.compile(function, backend="aot_eager", **options)


def counts(function: Any, calls: list[tuple[Tensor, ...]]) -> list[int]:
    """The captures after each call."""
    return [(function(*args), captures(function))[1] for args in calls]


def test_all_that_changes_in_a_call_is_learnt_from_it() -> None:
    def joined(batch: dict[str, Tensor], more: list[Tensor], n: int) -> Tensor:
        return batch["x"] * more[0] + more[1].t() * n

    function = compiled(joined)
    for rows in (4, 5, 6, 9):
        x, y, z = dc.randn(rows, 3), dc.randn(rows, 3), dc.randn(3, rows)
        dc.testing.assert_close(function({"x": x}, [y, z], rows), x * y + z.t() * rows)
    assert captures(function) == 2


def test_one_tensor_given_twice_teaches_as_two_do() -> None:
    """Keys and values begin as one tensor, and grow: each has sizes of its own from the second call on."""

    def grown(keys: Tensor, layers: list[Tensor]) -> list[Tensor]:
        return [dc.cat([one, one[:, :1]], 1) for one in (keys, *layers)]

    function, keys = compiled(grown), dc.zeros(2, 3)
    layers = [keys, keys]
    for size in (4, 5, 6, 7):
        keys, *layers = function(keys, layers)
        assert [tuple(one.shape) for one in (keys, *layers)] == [(2, size)] * 3
    assert captures(function) == 2


@pytest.mark.parametrize("other", [None, 7, "y", [dc.ones(3)]], ids=str)
def test_what_is_no_tensor_in_the_place_of_one_teaches_nothing(other: Any) -> None:
    function = compiled(lambda x, y: x * 2 + (y if isinstance(y, Tensor) else 1))
    x = dc.ones(4)
    assert dc.equal(function(x, x), dc.full((4,), 3.0))
    for n in (4, 5, 6):
        assert dc.equal(function(dc.ones(n), other), dc.full((n,), 3.0))
    assert captures(function) == 3


def test_strides_that_follow_from_sizes_are_learnt_with_them() -> None:
    function = compiled(lambda x, y: x.t() + y)
    assert counts(function, [(dc.ones(4, n + 1)[:, 1:], dc.ones(n, 4)) for n in (3, 5, 7)]) == [1, 2, 2]


def test_another_number_of_dims_is_another_tensor() -> None:
    function = compiled(lambda x: x * 2)
    assert counts(function, [(dc.ones(*shape),) for shape in ((4,), (4, 3), (5,), (4, 3), (6,))]) == [1, 2, 3, 3, 3]


OF_ONE_PLACE = {  # tensors of several meanings there: what is learnt of one says nothing wrong of another, as in torch
    "shapes": ([(dc.ones(*shape),) for shape in ((8, 3), (9, 3), (3, 64), (4, 64), (7, 5))], [1, 2, 3, 3, 3]),
    "ndims": (
        [(dc.ones(*shape),) for shape in ((8, 3), (9, 3), (2, 5, 4), (3, 7, 4), (5,), (6,), (8, 4))],
        [1, 2, 3, 3, 4, 4, 5],
    ),
    "dtypes": ([(dc.ones(n, 3, dtype=dc.float64 if n % 2 else dc.float32),) for n in range(4, 9)], [1, 2, 3, 3, 3]),
    "strides": ([(dc.ones(3, n).t() if n % 2 else dc.ones(n, 3),) for n in range(4, 9)], [1, 2, 3, 3, 3]),
    "gradients": ([(dc.ones(n, 3, requires_grad=n % 2 == 0),) for n in range(4, 9)], [1, 2, 3, 3, 3]),
}


@pytest.mark.parametrize("name", OF_ONE_PLACE)
def test_one_place_may_have_tensors_of_several_meanings(name: str) -> None:
    def weighed(x: Tensor) -> Tensor:
        return (x * x.shape[0]).sum(-1)

    calls, found = OF_ONE_PLACE[name]
    function = compiled(weighed)
    for args in calls:
        dc.testing.assert_close(function(*args), weighed(*args))
    assert counts(compiled(weighed), calls) == found


def test_instances_of_a_module_share_what_is_learnt() -> None:
    def applied(module: Any, x: Tensor) -> Tensor:
        return module(x) * x.shape[0]

    function, modules = compiled(applied), [dc.nn.Linear(width, 2) for width in (3, 4, 5)]
    for rows in range(4, 12):
        module, x = modules[rows % 3], dc.randn(rows, 3 + rows % 3)
        dc.testing.assert_close(function(module, x), applied(module, x))
    assert captures(function) <= 2 * len(modules)


def test_a_break_that_constant_sizes_meet_too_costs_no_capture() -> None:
    def breaks(x: Tensor) -> Tensor:
        y = x * 2
        time.sleep(0)
        return y + y.shape[0]

    assert counts(compiled(breaks), [(dc.ones(n),) for n in (4, 5, 6, 7)]) == [2, 4, 4, 4]


def compiled_for(function: Any) -> list[str]:
    return [sizes for entry in function.explain().entries for sizes in entry.made.values()]


def test_what_was_compiled_with_constants_is_what_runs() -> None:
    """A round's last batch is smaller: whole ones run as they did before there was one."""
    function = compiled(lambda x: x * 2)
    for n in (8, 8, 5, 8, 8, 5, 8):
        function(dc.ones(n))
    assert compiled_for(function) == ["args[0].shape[0] = 5"]
    function(dc.ones(6))
    assert compiled_for(function) == ["args[0].shape[0] = 5", "args[0].shape[0] = 6"]


def test_past_the_limit_sizes_are_compiled_when_they_have_come_often() -> None:
    function = compiled(lambda x: x * 2)
    with config.patch(size_instances=2), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for n in (4, 5, 6, *[7] * 7, 6, 8, 5):
            assert dc.equal(function(dc.ones(n)), dc.full((n,), 2.0))
        assert len(compiled_for(function)) == 2
        function(dc.ones(7))
    assert compiled_for(function) == [f"args[0].shape[0] = {n}" for n in (5, 6, 7)]
    assert [str(one.message).split(". ")[0] for one in said] == ["lambda_1 was compiled for 2 sets of sizes"]
    assert captures(function) == 2


@pytest.mark.parametrize("options", [{"fullgraph": True}, {"dynamic": True}], ids=["fullgraph", "dynamic"])
@pytest.mark.filterwarnings("error")
def test_they_are_compiled_when_they_come_if_that_is_asked_for(options: dict[str, Any]) -> None:
    function = compiled(lambda x: x * 2, **options)
    with config.patch(size_instances=2):
        for n in range(3, 9):
            function(dc.ones(n))
    assert len(compiled_for(function)) == 6 - ("fullgraph" in options)


def test_nothing_is_compiled_where_the_stance_is_frozen() -> None:
    function = compiled(lambda x: x * 2)
    function(dc.ones(4)), function(dc.ones(5))
    with compiler.set_stance("frozen"):
        assert dc.equal(function(dc.ones(6)), dc.full((6,), 2.0))
    with compiler.set_stance("fail_on_recompile"):
        function(dc.ones(6))  # fits what was captured
        with pytest.raises(RecompileLimitError):
            function(dc.ones(6, dtype=dc.float64))
    assert compiled_for(function) == ["args[0].shape[0] = 5", "args[0].shape[0] = 6"]


@pytest.mark.filterwarnings("error")
def test_an_error_that_holds_a_tensor_is_raised_at_every_size() -> None:
    class Refused(Exception):
        def __str__(self) -> str:
            raise AssertionError("nobody asked")

    def refuses(x: Tensor) -> None:
        raise Refused(x * 2, x.shape[0])

    for dynamic in (None, True):
        function = compiled(refuses, dynamic=dynamic)
        for n in (4, 5, 6):
            with pytest.raises(Refused) as raised:
                function(dc.ones(n))
            assert dc.equal(raised.value.args[0], dc.full((n,), 2.0))
            assert raised.value.args[1] == n


class Holder:
    def __init__(self, rows: Any) -> None:
        self.rows = rows


@_dynamo.allow_in_graph
def reads(x: Any, held: Holder) -> Any:
    return x * len(str(held.rows))


@pytest.mark.filterwarnings("error")
def test_sizes_that_cannot_be_symbols_are_constants_again_unsaid() -> None:
    function = compiled(lambda x: reads(x, Holder(x.shape[0])))
    for n in (4, 5, 12, 100):
        assert dc.equal(function(dc.ones(n)), dc.full((n,), float(len(str(n)))))
    assert captures(function) == 4


def test_why_it_was_captured_again_is_told() -> None:
    function = compiled(lambda x: x * 2 if x.shape[0] < 10 else x)
    for n in (4, 5, 12):
        function(dc.ones(n, 3))
    assert function.explain().recompiles == ("args[0].shape == (4, 3)", "args[0].shape[0] < 10")


PROGRAMS = {name.partition(".")[2]: entry for name, entry in everything().items() if name.startswith("sizes_met.")}
ASKING = {  # for the numbers: each size is a capture
    *("a_function_with_its_own_gradient", "a_while_over_halves", "branches", "generators", "in_texts"),
    *("kept_between_calls", "keys_of_a_dict", "loops_over_rows", "made_of_sizes", "numpys_functions", "the_history"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_captured_a_bounded_number_of_times(name: str) -> None:
    """Eight calls of seven sizes: with constants, with a symbol, with 1, with 0, and on the other side of an `if`."""
    made: list[Any] = []

    def kept(function: Any) -> Any:
        made.append(dc.compile(function, backend="eager"))
        return made[-1]

    run(PROGRAMS[name], dc, kept)
    assert all(len(function._state.root.entries) <= (8 if name in ASKING else 5) for function in made)
