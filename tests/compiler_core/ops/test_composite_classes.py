"""Functions of class indices against torch: cross entropy, nll, embedding, one-hot; and what their backward is."""

from __future__ import annotations

import numpy as np
import pytest
from against_torch import assert_gradients, assert_values
from traced_calls import trace

from compiler_core.aot.joint import make_joint
from compiler_core.errors import DTypeError, IndexError_, ShapeError
from compiler_core.graph.interpret import interpret
from compiler_core.ops import functional as F

pytestmark = pytest.mark.torch
RNG = np.random.default_rng(5)
LOGITS = RNG.standard_normal((6, 5)).astype(np.float32)
TARGET = np.array([0, 4, -100, 2, 2, -100])
WEIGHT = RNG.uniform(0.5, 2.0, 5).astype(np.float32)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy(reduction: str, smoothing: float, weighted: bool) -> None:
    def call(F, x, t, w):
        weight = F.detach(w) if weighted else None
        return F.cross_entropy(x, t, weight, ignore_index=-100, reduction=reduction, label_smoothing=smoothing)

    assert_values(call, [LOGITS, TARGET, WEIGHT])
    assert_gradients(call, [LOGITS, TARGET, WEIGHT])


def test_cross_entropy_ignores_a_class_that_exists() -> None:
    assert_gradients(lambda F, x, t: F.cross_entropy(x, t, ignore_index=2), [LOGITS, np.abs(TARGET) % 5])


def test_cross_entropy_over_positions_and_of_one_sample() -> None:
    logits = RNG.standard_normal((2, 5, 3, 4)).astype(np.float32)
    assert_gradients(lambda F, x, t: F.cross_entropy(x, t), [logits, RNG.integers(0, 5, (2, 3, 4))])
    assert_gradients(lambda F, x, t: F.cross_entropy(x, t), [LOGITS[0], np.array(3)])


def test_cross_entropy_of_large_and_masked_logits_is_finite() -> None:
    logits = LOGITS * 1e4
    logits[:, 1] = -np.inf
    call = lambda F, x, t: F.cross_entropy(x, t)  # noqa: E731
    assert_values(call, [logits, np.array([0, 4, 2, 2, 3, 0])])
    assert_gradients(call, [logits, np.array([0, 4, 2, 2, 3, 0])])


def test_cross_entropy_of_nothing_but_ignored_targets_is_nan() -> None:
    assert np.isnan(F.cross_entropy(LOGITS, np.full(6, -100)))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_nll_loss(reduction: str) -> None:
    def call(F, x, t, w):
        return F.nll_loss(F.log_softmax(x, 1), t, F.detach(w), reduction=reduction)

    assert_values(call, [LOGITS, TARGET, WEIGHT])
    assert_gradients(call, [LOGITS, TARGET, WEIGHT])


def test_a_target_outside_the_classes_is_an_error() -> None:
    for bad in (5, -1):
        with pytest.raises(IndexError_):
            F.cross_entropy(LOGITS, np.array([0, 1, 2, 3, 4, bad]))


def test_targets_of_the_wrong_kind_or_shape_are_errors() -> None:
    with pytest.raises(ShapeError):
        F.cross_entropy(LOGITS, TARGET[:4])
    with pytest.raises(DTypeError):
        F.nll_loss(LOGITS, LOGITS[:, 0])
    with pytest.raises(ShapeError):
        F.cross_entropy(LOGITS, TARGET, reduction="median")


def test_cross_entropy_and_its_backward_scatter_nothing() -> None:
    """Selection by comparison: the joint graph is pointwise work and row reductions only."""
    forward = trace(lambda F, x, t: F.cross_entropy(x, t), [LOGITS, TARGET])
    joint = make_joint(forward, [True, False])
    used = {call.op.name for call in joint.graph.calls}
    assert not used & {"gather", "scatter_add", "scatter", "take", "index_add"}


def test_cross_entropy_in_bfloat16_is_computed_in_float32() -> None:
    import ml_dtypes

    narrow = LOGITS.astype(ml_dtypes.bfloat16)
    loss = F.cross_entropy(narrow, TARGET)
    assert loss.dtype == narrow.dtype
    assert float(loss) == float(F.cross_entropy(narrow.astype(np.float32), TARGET).astype(ml_dtypes.bfloat16))


def test_embedding() -> None:
    table, index = RNG.standard_normal((7, 3)).astype(np.float32), np.array([[1, 6, 1], [0, 0, 2]])
    for padding in (None, 0, -1):
        call = lambda F, w, i, padding=padding: F.embedding(i, w, padding_idx=padding)  # noqa: E731
        assert_values(call, [table, index])
        assert_gradients(call, [table, index])


def test_embedding_backward_adds_rows_once() -> None:
    table, index = RNG.standard_normal((7, 3)), np.array([[1, 6, 1], [0, 0, 2]])
    joint = make_joint(trace(lambda F, w, i: F.embedding(i, w), [table, index]), [True, False])
    assert [c.op.name for c in joint.graph.calls].count("index_add") == 1
    gradient = interpret(joint.graph, [table, index, np.ones((2, 3, 3))])[-1]
    np.testing.assert_array_equal(gradient[:, 0], [2, 2, 1, 0, 0, 0, 1])


def test_embedding_refuses_floats_and_rows_that_are_not_there() -> None:
    with pytest.raises(DTypeError):
        F.embedding(np.array([0.0]), LOGITS)
    with pytest.raises(IndexError_):
        F.embedding(np.array([6]), LOGITS)


def test_one_hot() -> None:
    assert_values(lambda F, t: F.one_hot(t, 5), [np.array([[1, 4], [0, 0]])])
    with pytest.raises(DTypeError):
        F.one_hot(LOGITS, 5)
