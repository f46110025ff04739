"""x[index], its functional assignment, and torch's index functions; NumPy or torch is the judge of each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from against_torch import assert_gradients, assert_values
from traced_calls import trace

import distcompile as dc
from compiler_core.errors import GraphBreak, IndexError_, ShapeError
from compiler_core.ops import functional as F

pytestmark = pytest.mark.torch
X = np.random.default_rng(2).standard_normal((4, 5, 3)).astype(np.float32)
ROWS, COLUMNS = np.array([3, 0, 0]), np.array([1, -1, 4])

BASIC: dict[str, Any] = {
    "int": 2,
    "negative": (-1, 0),
    "slice": slice(1, 3),
    "open": (slice(None), slice(2, None)),
    "step": (slice(None, None, 2), slice(1, None, 3)),
    "empty": slice(3, 1),
    "clipped": slice(-100, 100),
    "none": (None, 1, None),
    "ellipsis": (..., 0),
    "middle": (1, ..., None, slice(0, 2)),
    "whole": ...,
}
ADVANCED: dict[str, Any] = {
    "rows": ROWS,
    "list": [0, 2],
    "matrix": np.array([[0, 1], [3, 3]]),
    "pair": (ROWS, COLUMNS),
    "broadcast": (ROWS[:, None], COLUMNS),
    "last": (..., np.array([2, 0])),
    "middle": (slice(None), COLUMNS),
    "split": (ROWS, slice(None), np.array([0, 1, 2])),
    "with_int": (0, slice(None), np.array([0, 1])),
    "with_none": (ROWS, None),
    "with_slice": (slice(1, 4), COLUMNS, slice(0, 2)),
    "scalar": np.array(2),
}
REVERSED: dict[str, Any] = {
    "reversed": slice(None, None, -1),
    "reversed_part": (slice(3, 0, -2), slice(None, None, -1)),
}


def spelt_for_torch(index: Any) -> Any:
    import torch

    entries = index if isinstance(index, tuple) else (index,)
    converted = tuple(torch.as_tensor(e) if isinstance(e, np.ndarray) else e for e in entries)
    return converted if isinstance(index, tuple) else converted[0]


def call_with(index: Any) -> Any:
    return lambda lib, x: lib.getitem(x, index if lib is F else spelt_for_torch(index))


@pytest.mark.parametrize("name", [*BASIC, *ADVANCED])
def test_getitem_is_torchs(name: str) -> None:
    index = {**BASIC, **ADVANCED}[name]
    assert_values(call_with(index), [X])
    if name != "empty":
        assert_gradients(call_with(index), [X])


@pytest.mark.parametrize("name", REVERSED)
def test_negative_steps_are_numpys(name: str) -> None:
    np.testing.assert_array_equal(F.getitem(X, REVERSED[name]), X[REVERSED[name]])


def test_a_basic_index_is_at_most_a_slice_and_a_reshape() -> None:
    ops = [c.op.name for c in trace(lambda F, x: F.getitem(x, (1, slice(1, 3))), [X]).calls]
    assert ops == ["slice", "reshape"]
    assert trace(lambda F, x: F.getitem(x, ...), [X]).calls == ()
    assert [c.op.name for c in trace(lambda F, x, i: F.getitem(x, i), [X, ROWS]).calls].count("take") == 1


@pytest.mark.parametrize("name", [*BASIC, *ADVANCED, *REVERSED])
def test_setitem_is_numpys(name: str) -> None:
    index = {**BASIC, **ADVANCED, **REVERSED}[name]
    if name == "with_int":
        index = (0, slice(None), np.array([0, 1]))
    expected = X.copy()
    part = F.getitem(X, index)
    if name == "with_int":  # torch's shape of the part, which NumPy transposes
        expected[0][:, [0, 1]] = -part
    else:
        expected[index] = -part
    before = X.copy()
    np.testing.assert_array_equal(F.setitem(X, index, -part), expected)
    np.testing.assert_array_equal(X, before)


def test_setitem_broadcasts_and_casts_the_value() -> None:
    expected = X.copy()
    expected[1:3, :, 0] = 7
    np.testing.assert_array_equal(F.setitem(X, (slice(1, 3), slice(None), 0), 7), expected)
    expected[:, [0, 2]] = np.arange(3)
    np.testing.assert_array_equal(F.setitem(expected.copy(), (slice(None), [0, 2]), np.arange(3)), expected)
    np.testing.assert_array_equal(F.setitem(X, 0, X[None, 1]), np.concatenate([X[1:2], X[1:]]))


def test_accumulating_adds_repeated_places() -> None:
    expected = X.copy()
    np.add.at(expected, (ROWS, COLUMNS), 1.0)
    np.testing.assert_array_equal(F.index_put(X, (ROWS, COLUMNS), 1.0, accumulate=True), expected)


def test_setitem_has_gradients() -> None:
    """Of base where it stays, of value where it goes: against differences of a linear function."""
    from compiler_core.aot.joint import make_joint
    from compiler_core.graph.interpret import interpret

    x, v, w = (np.random.default_rng(k).standard_normal((4, 3)) for k in range(3))
    for index in (slice(1, 3), (slice(None, None, 2), 1), (np.array([3, 1]),)):
        part = F.getitem(x, index)
        value = v.ravel()[: part.size].reshape(part.shape)
        joint = make_joint(trace(lambda F, a, b, index=index: F.setitem(a, index, b), [x, value]), [True, True])
        _, dx, dv = interpret(joint.graph, [x, value, w])
        np.testing.assert_array_equal(dv, F.getitem(w, index))
        np.testing.assert_array_equal(dx, F.setitem(w, index, 0.0))


def test_masks_select_in_eager_and_break_a_graph() -> None:
    np.testing.assert_array_equal(F.getitem(X, X > 0), X[X > 0])
    np.testing.assert_array_equal(F.masked_select(X, X[0] > 0), X[np.broadcast_to(X[0] > 0, X.shape)])
    np.testing.assert_array_equal(F.setitem(X, X > 0, 0.0), np.minimum(X, 0.0))
    with pytest.raises(GraphBreak):
        trace(lambda F, x: F.getitem(x, F.gt(x, 0)), [X])


@pytest.mark.parametrize("index", [4, -5, (0, 0, 0, 0), (..., ...), np.array([4]), np.array([0.5])])
def test_bad_indices_are_errors(index: Any) -> None:
    with pytest.raises(IndexError_):
        F.getitem(X, index)


def test_a_bad_index_among_several_is_found() -> None:
    """The row number 3 * 5 + 5 exists; the pair (3, 5) does not."""
    with pytest.raises(IndexError_):
        F.getitem(X, (np.array([2]), np.array([5])))


def test_values_that_do_not_fit_are_errors() -> None:
    with pytest.raises(ShapeError):
        F.setitem(X, 0, np.zeros(7, np.float32))


G = np.random.default_rng(4).integers(0, 3, (2, 5, 3))


def test_gather_scatter_and_kin() -> None:
    source = np.random.default_rng(6).standard_normal(G.shape).astype(np.float32)
    for call in (
        lambda F, x, i, s: F.gather(x, 0, i),
        lambda F, x, i, s: F.scatter_add(x, 0, i, s),
        lambda F, x, i, s: F.take_along_dim(x, i, 0),
        lambda F, x, i, s: F.index_select(x, 1, F.getitem(i, (0, slice(None), 0))),
        lambda F, x, i, s: F.index_add(x, 2, F.getitem(i, (0, 0)), x, alpha=2),
    ):
        assert_values(call, [X, G, source])
        assert_gradients(call, [X, G, source])


def test_nothing_gathered_is_a_tensor_of_its_own() -> None:
    x = dc.empty(0)
    assert F.gather(x, 0, dc.empty(0, dtype=dc.int64)) is not x


def test_scatter_puts_values_and_scalars() -> None:
    place = np.array([[0, 2, 1]])
    assert_values(lambda F, x, i: F.scatter(F.select(x, 0, 0), 0, i, -1.0), [X, place])
    assert_gradients(lambda F, x, i, s: F.scatter(F.select(x, 0, 0), 0, i, s), [X, place, X[1, :1]])
    assert_gradients(lambda F, x, i, s: F.index_copy(F.select(x, 0, 0), 0, i, s), [X, place[0], X[1, :3]])
