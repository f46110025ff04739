"""Code written with NumPy under capture: what is part of the graph, what breaks it, memory, guards, mixed code."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as torch
from compiler_core.config import config
from compiler_core.errors import GraphBreak

Array = np.ndarray[Any, np.dtype[Any]]


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def whole(function: Callable[..., Any]) -> Any:
    """Compiled in one graph, or an error."""
    return torch.compile(function, backend="eager", fullgraph=True)


def same(got: Any, expected: Any) -> None:
    assert type(got) is type(expected)
    if isinstance(expected, (tuple, list)):
        assert len(got) == len(expected)
        for one, other in zip(got, expected):
            same(one, other)
    elif isinstance(expected, (np.ndarray, np.generic)):
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(got, expected, rtol=1e-6)
    else:
        assert got == expected


def check(function: Callable[..., Any], *arrays: Any, calls: int = 3) -> Any:
    """Compiled in one graph: results, and what is written, equal NumPy's at every call."""
    compiled = whole(function)
    for call in range(calls):
        mine = [a + call if isinstance(a, np.ndarray) and a.dtype != bool else a for a in arrays]
        theirs = [a.copy() if isinstance(a, np.ndarray) else a for a in mine]
        same(compiled(*mine), function(*theirs))
        same(mine, theirs)
    return compiled


# ---- what is given back


def test_arrays_and_numbers_are_those_of_numpy() -> None:
    check(lambda x: (x * 2, x.sum(), x[0, 0], x > 0, x.argmax(), (x.astype(np.float32), [x.mean(0)])), normal(3, 4))


def test_a_result_has_memory_of_its_own() -> None:
    compiled = whole(lambda x: (x.copy(), np.array(x), x + 0))
    x = normal(3)
    for _ in range(2):
        results = compiled(x)
        assert all(r.flags.writeable and not np.shares_memory(r, x) for r in results)
        for k, result in enumerate(results):
            result[:] = k
        assert [r[0] for r in results] == [0, 1, 2]


def test_large_results_are_not_copied_and_stay_what_they_are() -> None:
    """The memory that compiled code lends is lent to nobody else while the result is held, or a view of it."""
    compiled = torch.compile(lambda x: (x * 2, x + 1), fullgraph=True)
    kept = []
    for call in range(12):
        x = np.full((100, 100), float(call))
        double, more = compiled(x)
        double[0] = -1
        kept.append((double, more[1:] if call % 2 else more))
        del double, more
    for call, (double, more) in enumerate(kept):
        assert (double[1:] == 2 * call).all()
        assert (double[0] == -1).all()
        assert (more == call + 1).all()


def test_a_view_of_an_argument_is_one_again() -> None:
    compiled = whole(lambda x: (x, x[1:], x.T, x.reshape(-1)))
    for _ in range(2):
        x = normal(3, 4)
        itself, part, turned, line = compiled(x)
        assert itself is x
        line[:] = 7
        assert all((array == 7).all() for array in (part, turned, x))


def test_results_that_share_memory_share_it_again() -> None:
    def function(x: Array) -> tuple[Array, Array]:
        y = x * 2
        return y, y[::2]

    compiled = whole(function)
    for _ in range(3):
        y, part = compiled(normal(4))
        part[:] = 9
        assert y[0] == y[2] == 9 != y[1]


# ---- writes


def test_writes_reach_the_callers_array() -> None:
    def function(x: Array, y: Array) -> None:
        x[0] = y[1]
        row = x[2]
        row += 10
        x.T[1] *= 2
        np.multiply(y, 3, out=y)
        y.sort()

    check(function, normal(3, 4), normal(3, 4, seed=1))


def test_an_array_keeps_its_identity_through_writes() -> None:
    x = normal(4)
    compiled = whole(lambda a: np.add(a, 1, out=a))
    for _ in range(2):
        before = x.copy()
        assert compiled(x) is x
        same(x, before + 1)


def test_a_read_only_array_is_not_written() -> None:
    def function(x: Array) -> None:
        x[0] = 1

    x = normal(3)
    x.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        torch.compile(function, backend="eager")(x)


def test_one_array_given_twice() -> None:
    def function(x: Array, y: Array) -> Array:
        x += 1
        return y * 2

    compiled = torch.compile(function, backend="eager")
    for x, y in ((normal(3), normal(3, seed=1)), (normal(3),) * 2, (normal(3), normal(3, seed=2))):
        mine = x.copy()
        theirs = mine if y is x else y.copy()
        same(compiled(x, y), function(mine, theirs))
        same(x, mine)


def test_arrays_that_overlap_are_not_captured_together() -> None:
    def function(x: Array, y: Array) -> Array:
        x[0] = 5
        return y + x[:-1]

    compiled = torch.compile(function, backend="eager")
    for overlapping in (False, True, False, True):
        mine, theirs = normal(4), normal(4)
        same(
            compiled(mine, mine[:3] if overlapping else normal(3)),
            function(theirs, theirs[:3] if overlapping else normal(3)),
        )
        same(mine, theirs)


def test_a_transposed_argument() -> None:
    compiled = whole(lambda x: (x.reshape(-1), x.strides, x @ x.T, x[:, ::-1]))
    for x in (normal(3, 4), normal(4, 3).T, normal(6, 4)[::2], normal(3, 4)[::-1]):
        same(compiled(x), (x.reshape(-1), x.strides, x @ x.T, x[:, ::-1]))


# ---- guards


def test_content_is_data_and_dtype_and_shape_are_guarded() -> None:
    compiled = whole(lambda x: x * 2 + x.shape[0])
    for x in (normal(3), normal(3, seed=1), normal(4), normal(3).astype(np.float32), np.arange(3)):
        same(compiled(x), x * 2 + x.shape[0])
    assert len(compiled.explain().entries) == 4


def test_arrays_in_globals_closures_and_objects_are_inputs() -> None:
    w, held = normal(3), [normal(3, seed=1), {"bias": normal(3, seed=2)}]

    class Model:
        def __init__(self) -> None:
            self.scale = normal(3, seed=3)

        def __call__(self, x: Array) -> Array:
            return x * w + held[0] * self.scale + held[1]["bias"] + TABLE[:3]

    model = Model()
    compiled = whole(lambda x: model(x))
    for call in range(3):
        same(compiled(np.ones(3)), model(np.ones(3)))
        for array in (w, held[0], held[1]["bias"], model.scale, TABLE):
            array[call] += 1
    assert len(compiled.explain().entries) == 1
    model.scale = normal(3, seed=9)
    same(compiled(np.ones(3)), model(np.ones(3)))


TABLE = np.arange(5.0)


def test_numbers_of_numpys_are_constants() -> None:
    compiled = whole(lambda x, n: x * n)
    for n in (np.float32(2), np.float64(2), np.float64(3), 3):
        same(compiled(normal(3).astype(np.float32), n), normal(3).astype(np.float32) * n)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32", "bool"])
def test_numbers_that_change_are_inputs(dtype: str) -> None:
    """Python's stay weak, NumPy's do not."""
    compiled = whole(lambda x, n, s, t: (x * n, n - x, x / n + s, x * s, s * 2, s, x + t, t - x * t, n + 1))
    x = np.ones(3, dtype) if dtype == "bool" else (normal(3) * 3).astype(dtype)
    for call in range(8):
        n, s, t = call + 1, np.float32(call + 0.5), call + 0.25
        arguments = (x, n, s, t)
        same(compiled(*arguments), (x * n, n - x, x / n + s, x * s, s * 2, s, x + t, t - x * t, n + 1))
    assert len(compiled.explain().entries) <= (5 if dtype in ("int32", "bool") else 4) + (3 if dtype == "int32" else 0)


@pytest.mark.parametrize("dtype", ["int32", "int64", "bool", "float32", "float64"])
def test_numbers_of_numpys_that_change_are_as_pythons_beside_a_tensor(dtype: str) -> None:
    """NumPy's float64 took an int32 tensor to float64, from the second call on."""

    def scaled(x: torch.Tensor, s: np.float64, n: np.int64) -> Any:
        return x * s, s * x, x + s, s - x * 1, x / s, x * n, n + x, x * np.sqrt(s)

    def summed(x: torch.Tensor, s: np.float64, n: np.int64) -> Any:
        total = x * 1.0
        total += s
        total *= n
        return total

    x = torch.ones(3).to(getattr(torch, dtype))
    for program in (scaled, summed):
        compiled = whole(program)
        for call in range(4):
            given = x, np.float64(call + 0.25), np.int64(call + 2)
            for mine, eager in zip(leaves(compiled(*given)), leaves(program(*given)), strict=True):
                torch.testing.assert_close(mine, eager)  # the dtype, too
        assert len(compiled.explain().entries) <= 3


def leaves(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


# ---- what looks like an array


def test_it_looks_like_an_array() -> None:
    def function(x: Array) -> Any:
        s = x.sum()
        return (
            isinstance(x, np.ndarray), isinstance(s, np.float64), isinstance(s, float), isinstance(s, np.ndarray),
            type(x) is np.ndarray, type(s) is np.float64, x.dtype == np.float64, x.ndim, x.size, len(x),
            x.dtype.name, np.issubdtype(x.dtype, np.floating), hasattr(x, "shape"), hasattr(x, "nothing"),
            np.isscalar(3), np.result_type(x, np.float32), np.finfo(x.dtype).eps, np.iinfo(np.int8).max,
        )  # fmt: skip

    check(function, normal(3, 4))


def test_iteration_and_unpacking() -> None:
    def function(x: Array) -> Any:
        a, b = x
        return [row.sum() for row in x], a + b, list(zip(x[0], x[1])), list(enumerate(x[:, 0])), sum(x), max(3, 2)

    check(function, normal(2, 3))


def test_made_arrays_are_written_and_read_like_any() -> None:
    def function(x: Array) -> Any:
        n = int(np.ceil(np.sqrt(x.shape[0])))
        grid = np.zeros((n, n))
        for k, i in enumerate(np.arange(n)):
            grid[i, k] = x[int(i)]
        order = np.array([2, 0, 1])
        mask = np.arange(len(x)) % 2 == 0
        return grid, x[order], x[mask], x[np.nonzero(mask)], np.array([x[0], 1.0, x[1] * 2]), np.array([x, x]), n

    check(function, normal(5))


def test_scalars_cannot_be_written_and_are_copies() -> None:
    def function(x: Array) -> Any:
        first = x[0]
        x[0] = x[1]
        x[1] = first
        first += 1
        return x, first

    check(function, normal(3))

    def writes(x: Array) -> None:
        x.sum()[0] = 1

    with pytest.raises(TypeError, match="does not support item assignment"):
        whole(writes)(normal(3))


def test_errors_are_numpys() -> None:
    def in_place(x: Array) -> Array:
        x += 0.5
        return x

    for function, error in (
        (in_place, TypeError),
        (lambda x: x.reshape(5), ValueError),
        (lambda x: x.sum(axis=3), np.exceptions.AxisError),
        (lambda x: x + np.zeros(4), ValueError),
        (lambda x: x[5], IndexError),
        (lambda x: x[0.5], IndexError),
        (lambda x: x.nothing, AttributeError),
        (lambda x: x ** np.int64(-1) if False else x**-1, ValueError),
        (lambda x: np.concatenate([x, x[None]]), ValueError),
        (lambda x: x.astype(np.uint8) + 300, OverflowError),
        (lambda x: np.clip(x.astype(np.uint8), 300, None), OverflowError),
        (lambda x: x > 1j if False else np.sort(x, axis=2), np.exceptions.AxisError),
        (lambda x: np.linalg.inv(x[None]), np.linalg.LinAlgError),
        (lambda x: {x: 1}, TypeError),
    ):
        with pytest.raises(error):
            function(np.arange(3))
        with pytest.raises(error):
            torch.compile(function, backend="eager")(np.arange(3))


# ---- breaks


def breaking() -> dict[str, Callable[[Array], Any]]:
    """Functions that break the graph, by what the break says."""
    return {
        "np.unique": lambda x: np.unique(x) + 1,
        "np.nonzero": lambda x: np.nonzero(x)[0] + 1,
        "np.where": lambda x: np.where(x > 0)[0] + 1,
        "mask": lambda x: x[x > 0] + 1,
        "float": lambda x: float(x.sum()) + x,
        "item": lambda x: x[0].item() + x,
        "tolist": lambda x: [v + 1 for v in x.tolist()],
        "bool": lambda x: x + 1 if x.sum() > 0 else x - 1,
        "np.apply_along_axis": lambda x: np.apply_along_axis(np.sort, 0, x) * 2,
        "ndarray.tofile|ndarray.ctypes|ndarray.flags": lambda x: x * 2 if x.flags.owndata else x,
        "formatted": lambda x: (x * 2, f"{x}"),
        "dtype object": lambda x: x * 2 + np.array([1, "a"], dtype=object)[0],
        "cython_function": lambda x: x + np.random.default_rng(0).standard_normal(3),
        "bool..": lambda x: np.allclose(x, x + 1e-12) or np.array_equal(x, x[::-1]),
        "np.greater": lambda x: (x * 1j > 0) & True,
        "np.bincount": lambda x: np.bincount(abs(x).astype(int)) * 2,
    }


@pytest.mark.parametrize("name", breaking())
def test_the_rest_breaks_the_graph_and_is_right(name: str) -> None:
    function = breaking()[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(function, backend="eager")
        for call in range(3):
            same(compiled(normal(3, seed=call)), function(normal(3, seed=call)))
        if name != "dtype object":
            with pytest.raises(GraphBreak, match=name):
                whole(function)(normal(3))


def test_a_copy_that_stands_for_a_view_is_not_written_nor_read_late() -> None:
    def writes(x: Array) -> Array:
        x = x * 1
        x[::-1][0] = 5
        return x

    def reads(x: Array) -> Array:
        x = x * 1
        back = x[::-1]
        x[0] = 7
        return back + 1

    def row(x: Array) -> Array:
        x = x.reshape(2, 2) * 1
        best = x[np.argmax(x[:, 0])]
        best[0] = 3
        return x

    for function in (writes, reads, row):
        same(torch.compile(function, backend="eager")(normal(4)), function(normal(4)))
        with pytest.raises(GraphBreak, match="not traced"):
            whole(function)(normal(4))


class Running:
    """What keeps state in every way."""

    def __init__(self) -> None:
        self.mean, self.history, self.table, self.last = np.zeros(3), [], {}, None

    def __call__(self, x: Array) -> Array:
        new = 0.9 * self.mean + 0.1 * x
        self.mean = new
        self.history.append(x.sum())
        self.table["view"] = new[1:]
        self.table["given"] = x
        self.last = [new, {"max": x.max()}]
        return self.mean * 2


def test_state_that_outlives_the_call() -> None:
    """Kept arrays are real ones, with the sharing that they have in NumPy, at the call that is captured and later."""
    states = []
    for wrap in (whole, lambda function: function):
        model = Running()
        compiled = wrap(model.__call__)
        seen = []
        for call in range(4):
            x = normal(3, seed=call)
            seen.append(compiled(x))
            assert model.table["given"] is x
            assert np.shares_memory(model.table["view"], model.mean)
            assert model.last[0] is model.mean
        states.append([seen, model.mean, model.history, model.table["view"], model.last])
    same(*states)


def test_state_is_real_after_an_error() -> None:
    kept: dict[str, Any] = {}

    def function(x: Array) -> Array:
        kept["double"] = x * 2
        raise KeyError("mine")

    for call in range(2):
        with pytest.raises(KeyError, match="mine"):
            torch.compile(function, backend="eager")(normal(3, seed=call))
        same(kept["double"], normal(3, seed=call) * 2)


def test_prints_in_between(capsys: pytest.CaptureFixture[str]) -> None:
    def function(x: Array) -> Array:
        y = x * 2
        print("sum", round(float(y.sum()), 3))
        z = y[1:]
        z += 1
        print(z)
        return y

    compiled = torch.compile(function, backend="eager")
    for call in range(3):
        mine = compiled(normal(3, seed=call))
        told = capsys.readouterr().out
        same(mine, function(normal(3, seed=call)))
        assert told == capsys.readouterr().out


def test_the_knob_keeps_numpy_out_of_graphs() -> None:
    def function(x: Array) -> Array:
        return np.maximum(x, 0) * 2

    with config.patch(trace_numpy=False):
        same(torch.compile(function, backend="eager")(normal(3)), function(normal(3)))
        with pytest.raises(GraphBreak):
            whole(function)(normal(3))


@pytest.mark.parametrize(
    "array",
    [np.array(["a", "bc", ""]), np.array([1, "x", None], dtype=object), np.ma.array([1.0, 2, 3], mask=[0, 1, 0])],
    ids=["text", "objects", "masked"],
)
def test_arrays_that_no_graph_takes(array: Any) -> None:
    def functions() -> list[Callable[[Any, Array], Any]]:
        return [
            lambda a, x: (x * 2, a, a[0], len(a)),
            lambda a, x: (x * 2, bool(len(a)), a.shape, str(a)),
            lambda a, x: (x * 2, (a == a[0]).sum(), np.size(a)),
        ]

    for function in functions():
        compiled = torch.compile(function, backend="eager")
        for call in range(2):
            x = normal(3, seed=call)
            assert str(compiled(array, x)) == str(function(array, x))
