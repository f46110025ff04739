"""What iteration and unbind give at once is what slices and reshapes give one by one: values and memory; and what is
stacked again of it."""

from __future__ import annotations

import numpy as np
import pytest

import distcompile as dc
from compiler_core.errors import ShapeError
from compiler_core.tensor.observed import observed
from compiler_core.tensor.pieces import pieces


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("turned", [False, True])
def test_pieces_are_windows_on_the_tensor(dim: int, turned: bool) -> None:
    x = dc.arange(24).reshape(2, 3, 4)
    x = x.permute(2, 0, 1) if turned else x
    found = pieces(x, dim)
    assert found is not None
    assert len(found) == x.shape[dim]
    for k, piece in enumerate(found):
        one = x.select(dim, k)
        assert dc.equal(piece, one)
        assert (piece.stride(), piece.storage_offset()) == (one.stride(), one.storage_offset())
        assert piece._base is one._base
    found[1].add_(100)
    assert dc.equal(found[1], x.select(dim, 1))
    x.zero_()
    assert not any(piece.any() for piece in found)


def test_pieces_of_one_dim_are_numbers_that_follow_it() -> None:
    x = dc.arange(3)
    first, *_ = x
    x[0] = 9
    assert (first.item(), first.shape) == (9, ())


def test_with_gradients_the_ops_are_asked() -> None:
    x = dc.arange(3.0, requires_grad=True)
    assert pieces(x, 0) is None
    first, *_ = x
    (first * 2).backward()
    np.testing.assert_array_equal(x.grad.numpy(), [2, 0, 0])
    with dc.no_grad():
        assert pieces(x, 0) is not None


def test_tangents_go_along_and_observers_see_ops() -> None:
    x = dc.arange(6.0).reshape(3, 2)
    with dc.autograd.forward_ad.dual_level():
        dual = dc.autograd.forward_ad.make_dual(x, 10 * x)
        for k, piece in enumerate(dual):
            assert dc.equal(dc.autograd.forward_ad.unpack_dual(piece).tangent, 10 * x[k])
    seen: list[str] = []
    with observed(lambda op, arrays, attrs, result: seen.append(op.name)):
        x.unbind(0)
    assert seen == ["slice", "reshape"] * 3


def test_whole_numbers_wrap_around() -> None:
    most = 2**63 - 1
    x = dc.tensor([most, -most - 1, 5])
    assert (x + 1).tolist() == [-most - 1, -most, 6]
    assert (x - 1).tolist() == [most - 1, most, 4]
    assert (dc.tensor(most) * 2).item() == -2
    assert (dc.tensor(7) + 2**62).dtype is dc.int64


def test_numbers_are_stacked() -> None:
    x, y = dc.tensor(2.0, requires_grad=True), dc.tensor(3.0, requires_grad=True)
    made = dc.stack([x, y, x])
    (made * dc.tensor([1.0, 10.0, 100.0])).sum().backward()
    assert (made.tolist(), x.grad.item(), y.grad.item()) == ([2, 3, 2], 101, 10)
    assert dc.stack(list(dc.arange(4))).tolist() == [0, 1, 2, 3]
    assert dc.stack([dc.ones(2), dc.ones(2, dtype=dc.float64)]).dtype is dc.float64
    with pytest.raises(ShapeError):
        dc.stack([dc.ones(2), dc.ones(3)])
