"""In-place methods: what torch refuses is refused, what it allows gives the same values and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler_core import dtype as dt
from compiler_core.errors import AutogradError, DTypeError, ShapeError
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.making import creation

X = np.arange(1.0, 7.0).reshape(2, 3)


def leaf(array: Any = X) -> Any:
    return creation.tensor(np.asarray(array, np.float64), requires_grad=True)


@pytest.mark.parametrize("take", [lambda x: x, lambda x: x[0], lambda x: x.reshape(-1), lambda x: x.T])
def test_a_leaf_that_requires_a_gradient_is_not_written_to(take: Any) -> None:
    with pytest.raises(AutogradError, match="written to in place"):
        take(leaf()).add_(1.0)


def test_a_leaf_may_be_written_to_without_gradients_and_all_see_it() -> None:
    x = leaf()
    row = x[0]
    with no_grad():
        x.mul_(2.0)
    assert row.tolist() == [2.0, 4.0, 6.0]
    assert x.requires_grad
    assert x.is_leaf


def test_a_changed_saved_value_is_an_error_at_backward() -> None:
    x = leaf()
    y = x * 1.0
    z = y.exp()  # its gradient needs its own output
    z.add_(1.0)
    with pytest.raises(AutogradError, match=r"changed in place.*exp is at version 1, was saved at 0"):
        z.sum().backward()


def test_a_changed_operand_is_an_error_only_for_the_gradient_that_needs_it() -> None:
    x = leaf()
    scale = creation.tensor([2.0, 2.0, 2.0], dtype=dt.float64)
    kept = creation.tensor(X)
    y = x * scale
    z = kept * x
    kept.add_(1.0)
    y.sum().backward()
    with pytest.raises(AutogradError, match="changed in place"):
        z.sum().backward()


def test_a_write_through_a_view_counts_for_what_the_base_saved() -> None:
    x = leaf()
    base = x * 1.0
    y = base * base
    base[0].zero_()
    with pytest.raises(AutogradError, match="changed in place"):
        y.sum().backward()


def test_an_in_place_method_keeps_the_value_it_replaces() -> None:
    w = leaf()
    y = leaf() * 1.0
    y.mul_(w)
    y.sum().backward()
    assert w.grad is not None
    np.testing.assert_array_equal(w.grad.numpy(), X)  # the old y


def test_expanded_tensors_are_not_written_to() -> None:
    with pytest.raises(ShapeError, match="expanded"):
        creation.tensor([1.0, 2.0]).expand(3, 2).add_(1.0)
    same = creation.tensor([1.0, 2.0])
    same.expand(1, 2).add_(1.0)  # nothing is repeated
    assert same.tolist() == [2.0, 3.0]


def test_shape_and_kind_of_dtype_must_stay() -> None:
    with pytest.raises(ShapeError, match="change the shape"):
        creation.zeros(3).add_(creation.zeros(2, 3))
    with pytest.raises(DTypeError, match="higher kind"):
        creation.arange(3).mul_(0.5)
    narrow = creation.zeros(2, dtype=dt.float16).add_(creation.ones(2, dtype=dt.float64))
    assert narrow.dtype is dt.float16


def test_pieces_of_a_split_may_be_written_to_where_no_gradient_flows() -> None:
    base = leaf().detach() * 1.0
    left, right = base.split([1, 2], dim=1)
    left.mul_(10.0)
    right.zero_()
    np.testing.assert_array_equal(base.numpy(), np.array([[10.0, 0, 0], [40.0, 0, 0]]))
    for taken in ((leaf() * 1.0).split([1, 2], dim=1), (leaf() * 1.0).chunk(3, 1), (leaf() * 1.0).unbind(1)):
        with pytest.raises(RuntimeError, match="returns multiple views"):
            taken[0].mul_(10.0)


def test_data_shares_the_cell_and_has_no_history() -> None:
    x = leaf()
    x.data.add_(1.0)
    np.testing.assert_array_equal(x.detach().numpy(), X + 1)
    other = creation.zeros(4)
    x.data = other
    assert x.shape == (4,)
    assert x.requires_grad
    other.add_(3.0)
    assert x.tolist() == [3.0] * 4


def test_a_view_made_without_gradients_takes_no_write_that_has_one() -> None:
    base = leaf() * 1.0
    with no_grad():
        row = base[0]
    assert not row.requires_grad
    with pytest.raises(AutogradError, match=r"no_grad\(\)"):
        row.mul_(leaf([1.0, 2.0, 3.0]))


def test_a_stale_view_derives_itself_again_through_a_chain() -> None:
    base = creation.tensor(X)
    chain = base.T[1:].reshape(4)  # not dense: reshape copies, as in torch
    view = base.reshape(3, 2)[1:].unsqueeze(0)
    base.mul_(2.0)
    np.testing.assert_array_equal(view.numpy()[0], (2 * X).reshape(3, 2)[1:])
    np.testing.assert_array_equal(chain.numpy(), X.T[1:].reshape(4))


def test_writing_to_a_view_of_a_view_of_a_view() -> None:
    base = creation.zeros(2, 3, 4)
    base[1].transpose(0, 1)[::2][1].fill_(7.0)
    expected = np.zeros((2, 3, 4))
    expected[1].T[::2][1] = 7.0
    np.testing.assert_array_equal(base.numpy(), expected)


def test_detach_in_place_and_requires_grad() -> None:
    y = leaf() * 2.0
    assert y.detach_().is_leaf
    assert not y.requires_grad
    with pytest.raises(AutogradError, match="leaf tensors"):
        (leaf() * 2.0).requires_grad_(False)
    with pytest.raises(AutogradError, match="floating point and complex"):
        creation.arange(3).requires_grad_()


def test_methods_that_turn_the_handle_into_its_view() -> None:
    base = creation.tensor(X)
    y = base[0]
    y.unsqueeze_(0).t_()
    assert y.shape == (3, 1)
    y.zero_()
    assert base[0].tolist() == [0.0, 0.0, 0.0]


def test_a_diagonal_is_a_view() -> None:
    base = creation.zeros(3, 4)
    base.diagonal(1).fill_(2.0)
    base.diagonal().copy_(creation.tensor([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(base.numpy(), np.diag([1.0, 2.0, 3.0, 0.0])[:3] + 2.0 * np.eye(3, 4, 1))


def test_draws_in_place() -> None:
    x = creation.empty(5000, dtype=dt.float64).exponential_(2.0)
    assert x.min().item() >= 0.0
    assert abs(x.mean().item() - 0.5) < 0.03


def test_retained_gradients_follow_the_tensor_through_a_write() -> None:
    y = leaf() * 2.0
    y.retain_grad()
    y.mul_(3.0)
    y.sum().backward()
    assert y.grad is not None
    assert y.grad.tolist() == np.ones_like(X).tolist()


SET_ITEMS = {
    "int": (lambda v: 1, (3,)),
    "slice": (lambda v: (slice(None), slice(1, None)), (2, 2)),
    "none": (lambda v: (None, 0), (1, 3)),
    "ellipsis": (lambda v: (..., 0), (2,)),
    "step": (lambda v: (slice(None), slice(None, None, 2)), (2, 2)),
    "list": (lambda v: [1, 0], (2, 3)),
    "array": (lambda v: v([[0, 1], [1, 1]]), (2, 2, 3)),
    "pair": (lambda v: (v([0, 1]), v([2, 0])), (2,)),
    "column": (lambda v: (slice(None), v([2, 0])), (2, 2)),
    "mask": (lambda v: v([[True, False, True], [False, True, True]]), (4,)),
    "row mask": (lambda v: v([False, True]), (1, 3)),
    "negative": (lambda v: (-1, v([-1, -2])), (2,)),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", SET_ITEMS)
@pytest.mark.parametrize("through_view", [False, True])
def test_assignment_by_index_has_torch_s_values_and_gradients(name: str, through_view: bool) -> None:
    torch = pytest.importorskip("torch")
    index, shape = SET_ITEMS[name]
    values = np.linspace(2.0, 3.0, int(np.prod(shape))).reshape(shape)
    if name == "array":
        values = np.broadcast_to(values[:, :1], shape)  # a place that is written twice gets the same value
        values = np.broadcast_to(values[:1], shape)

    def run(tensor: Any, vector: Any) -> list[Any]:
        x, v = tensor(X), tensor(values)
        x.requires_grad_(), v.requires_grad_()
        y = x * 2.0
        (y.reshape(-1).reshape(2, 3) if through_view else y)[index(vector)] = v * 3.0
        (y * y).sum().backward()
        return [np.asarray(a.detach()) for a in (y, x.grad, v.grad)]

    expected = run(lambda a: torch.tensor(np.asarray(a)), torch.tensor)
    got = run(lambda a: creation.tensor(np.asarray(a)), creation.tensor)
    for k, (a, b) in enumerate(zip(expected, got, strict=True)):
        if name == "array" and k == 2:  # torch gives every writer of a place the whole gradient, ours the last
            continue
        np.testing.assert_allclose(b, a, rtol=1e-12)


@pytest.mark.torch
def test_a_mask_takes_one_value() -> None:
    torch = pytest.importorskip("torch")

    def run(tensor: Any) -> list[Any]:
        x, v = tensor(X), tensor(np.array(5.0))
        x.requires_grad_(), v.requires_grad_()
        y = x * 2.0
        y[y > 6.0] = v
        y[tensor(np.array([True, False]))] = -1.0
        (y * y).sum().backward()
        return [np.asarray(a.detach()) for a in (y, x.grad, v.grad)]

    for a, b in zip(run(torch.tensor), run(creation.tensor), strict=True):
        np.testing.assert_allclose(b, a)


IN_PLACE = {
    "add_": (2.0,), "sub_": (0.5,), "mul_": (1.5,), "div_": (3.0,), "pow_": (2,), "remainder_": (0.7,),
    "neg_": (), "abs_": (), "exp_": (), "log_": (), "sin_": (), "cos_": (), "tanh_": (), "sigmoid_": (), "sqrt_": (),
    "rsqrt_": (), "reciprocal_": (), "floor_": (), "ceil_": (), "round_": (), "square_": (), "erf_": (), "log1p_": (),
    "clamp_": (0.5, 3.5), "clamp_min_": (2.5,), "clamp_max_": (2.5,), "relu_": (), "tril_": (), "triu_": (),
    "cumsum_": (1,), "cumprod_": (0,), "exp2_": (), "log2_": (),
    "log10_": (), "erfc_": (), "tan_": (), "sinh_": (), "cosh_": (), "frac_": (), "fmod_": (0.7,),
    "fill_diagonal_": (9.0,),
    "zero_": (), "fill_": (4.0,), "nan_to_num_": (), "sign_": (), "trunc_": (), "expm1_": (),
}  # fmt: skip


@pytest.mark.torch
@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_method_equals_torch_s(name: str) -> None:
    torch = pytest.importorskip("torch")

    def run(tensor: Any) -> list[Any]:
        x = tensor(X + 0.25)
        x.requires_grad_()
        y = x * 1.0
        assert getattr(y, name)(*IN_PLACE[name]) is y
        y.sum().backward()
        return [np.asarray(y.detach()), np.asarray(x.grad)]

    for a, b in zip(run(torch.tensor), run(creation.tensor), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-15)


def test_shifts_in_place() -> None:
    x = creation.tensor([0, 1, 2, 3])
    y = x
    y <<= 3
    y >>= 1
    assert x.tolist() == [0, 4, 8, 12]
