"""A place out of range is refused by compiled code as by eager code, also where what is read or written is the same
whatever the place: dims of one element, repeated rows, constants."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import distcompile as dc

Call = Callable[[dc.Tensor, dc.Tensor], dc.Tensor]  # of places, and a row
CALLS: dict[str, Call] = {
    "index": lambda i, w: w[i] * 2,
    "index beside": lambda i, w: w[i, i * 0],
    "index of a product": lambda i, w: (w * 2)[i].relu(),
    "index of a view": lambda i, w: (w.reshape(1, 1, 5) + 1)[0, i],
    "index_select": lambda i, w: w.index_select(0, i).sum(0),
    "embedding": lambda i, w: dc.nn.functional.embedding(i, w).sum(-1),
    "take": lambda i, w: dc.take(w[:, 0], i),
    "gather": lambda i, w: w.gather(0, i[:, None]).exp(),
    "repeated rows": lambda i, w: w.expand(4, 5)[i],
    "repeated sums": lambda i, w: (w + dc.zeros(4, 1))[i],
    "a constant": lambda i, w: dc.ones(4, 5)[i] + w,
    "a reduction": lambda i, w: w[i].argmax(-1),
    "scatter_add": lambda i, w: dc.zeros(1, 5).scatter_add(0, i[:, None].expand(3, 5), w.expand(3, 5)),
    "index_add": lambda i, w: dc.zeros(1, 5).index_add(0, i, w.expand(3, 5)),
    "index_put": lambda i, w: dc.zeros_like(w).index_put((i,), dc.tensor(1.0), accumulate=True),
    "cross_entropy": lambda i, w: dc.nn.functional.cross_entropy(w[:, :1].expand(3, 1), i),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_place_out_of_range_is_refused(call: Call) -> None:
    row = dc.arange(5.0)[None] - 2
    compiled = dc.compile(call)
    for _ in range(2):
        good = dc.tensor([0, 0, 0])
        assert dc.equal(compiled(good, row), call(good, row))
        for place in (9, -9, 1 << 40):
            with pytest.raises(IndexError):
                compiled(dc.tensor([0, place, 0]), row)


def test_a_branch_that_is_not_taken_asks_for_nothing() -> None:
    row, places = dc.arange(5.0)[None], dc.tensor([0, 7, -3])
    compiled = dc.compile(lambda i, w: dc.where((i == 0)[:, None], w[i.clamp(0, 0)], -1.0))
    assert compiled(places, row).tolist() == [[0.0, 1.0, 2.0, 3.0, 4.0], [-1.0] * 5, [-1.0] * 5]


def test_loops_of_a_row_over_one_axis_each_tell_their_own_checks() -> None:
    """Each declares its flags: of one name they were one variable, declared twice."""

    def call(x: dc.Tensor, y: dc.Tensor, i: dc.Tensor) -> dc.Tensor:
        loss = dc.nn.functional.binary_cross_entropy(y, (y > 0.5).float(), reduction="none")
        x = x + (loss.flip(0) + x.sum(1, keepdim=True)) * 0.1
        picked = dc.where((i > 0)[:, None], y[i - 1], loss[0])
        return dc.cat([x + picked * 0.1, picked.sum().expand(1, 2)])

    compiled = dc.compile(call)
    x, y, i = dc.tensor([[1.0, 2.0], [3.0, 4.0]]), dc.tensor([[0.25, 0.5], [0.75, 1.0]]), dc.tensor([1, 0])
    assert dc.allclose(compiled(x, y, i), call(x, y, i))
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        compiled(x, y + 1, i)
    with pytest.raises(IndexError):
        compiled(x, y, i + 5)
