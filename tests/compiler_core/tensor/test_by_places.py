"""Indices that NumPy reads and writes at once: what torch gives, and what memory, versions and histories say of it."""

from __future__ import annotations

import random
from typing import Any

import pytest

import distcompile as dc


def place(lib: Any, rng: random.Random, size: int, *, wrong: bool = False) -> Any:
    shape = rng.choice([(3,), (1,), (2, 3)])
    count = shape[0] * (shape[1] if len(shape) == 2 else 1)
    most = size + wrong
    return lib.tensor([rng.randrange(-most, most) if most else 0 for _ in range(count)]).reshape(shape)


def part(lib: Any, rng: random.Random, size: int) -> Any:
    kind = rng.randrange(6)
    if kind == 0:
        return slice(None)
    if kind == 1:
        start = rng.randrange(-size - 1, size + 2)
        return slice(start, None, rng.choice([None, 1, 2])) if start < size else slice(0, start)
    if kind == 2:
        return rng.randrange(-size, size)
    return place(lib, rng, size, wrong=rng.random() < 0.05)


def index_of(lib: Any, rng: random.Random, shape: tuple[int, ...]) -> Any:
    if rng.random() < 0.2:
        ndim = rng.randrange(1, len(shape) + 1)
        count = 1
        for n in shape[:ndim]:
            count *= n
        return lib.tensor([rng.random() < 0.5 for _ in range(count)]).reshape(shape[:ndim])
    parts = tuple(part(lib, rng, n) for n in shape[: rng.randrange(1, len(shape) + 1)])
    return parts[0] if len(parts) == 1 and rng.random() < 0.5 else parts


def outcome(lib: Any, seed: int) -> Any:
    """Numbers, strides and version of a read and of a write by a random index, or the kind of error."""
    rng = random.Random(seed)
    shape = tuple(rng.choice([1, 2, 3, 4]) for _ in range(rng.choice([1, 2, 3])))
    count = 1
    for n in shape:
        count *= n
    dtype = rng.choice(["float32", "float64", "int64", "int32", "bool", "uint8"])
    x = lib.arange(count).reshape(shape).to(getattr(lib, dtype)).clone()
    if rng.random() < 0.2:
        x = x.transpose(0, -1)
    index = index_of(lib, rng, tuple(x.shape))
    try:
        found = x[index]
    except IndexError:
        return "IndexError"
    told = [(found.tolist(), tuple(found.shape), not x.is_contiguous() or found.is_contiguous())]
    shown = x.view(-1) if rng.random() < 0.3 and x.is_contiguous() else x
    kept = x.clone() if rng.random() < 0.5 else x
    value: Any = rng.choice([0, 3, 1.5]) if dtype.startswith("f") else rng.choice([0, 1])
    if rng.random() < 0.6:
        value = (lib.arange(found.numel()).reshape(found.shape) + 1).to(x.dtype)
        value = value[..., :1] if rng.random() < 0.2 and value.ndim else value
    x[index] = value
    return told, x.tolist(), shown.tolist(), kept.tolist(), x._version > 0


@pytest.mark.parametrize("part", range(10))
def test_reads_and_writes_are_torchs(part: int) -> None:
    torch = pytest.importorskip("torch")
    for seed in range(part * 400, part * 400 + 400):
        assert outcome(torch, seed) == outcome(dc, seed), seed


def test_what_others_see_follows_or_stays() -> None:
    x = dc.arange(6.0)
    view, value, copy = x[2:], x._read(), x.clone()
    x[dc.tensor([2, -1])] = dc.tensor([7.0, 8.0])
    assert x.tolist() == [0, 1, 7, 3, 4, 8]
    assert view.tolist() == [7, 3, 4, 8]
    assert value.tolist() == copy.tolist() == [0, 1, 2, 3, 4, 5]
    shared = x.numpy()
    x[x > 3] = 0
    x[0] = 9
    assert shared.tolist() == x.tolist() == [9, 1, 0, 3, 0, 0]


def test_a_write_that_is_wrong_changes_nothing() -> None:
    x = dc.arange(6.0)
    for index, value in (
        (dc.tensor([0, 9]), 1.0),
        (dc.tensor([0, 1]), dc.ones(3)),
        (dc.ones(5) > 0, 1.0),
        ((0, 0), 1.0),
    ):
        with pytest.raises((IndexError, ValueError)):
            x[index] = value
    assert x.tolist() == [0, 1, 2, 3, 4, 5]


def test_histories_are_kept() -> None:
    w = dc.arange(4.0).requires_grad_()
    x = w * 2
    x[dc.tensor([1])] = 5.0
    x[0] = 1.0
    x[w > 2] = w[:1]
    x[dc.tensor([0, 2])].sum().backward()
    assert w.grad.tolist() == [0.0, 0.0, 2.0, 0.0]
    y = dc.zeros(3)
    y[dc.tensor([0])] = w[:1] * 3
    assert y.grad_fn is not None
    squares = dc.arange(3.0).requires_grad_().square()
    product = squares * squares.exp()
    squares[0] = 1.0
    with pytest.raises(RuntimeError, match="changed in place"):
        product.sum().backward()


def test_what_is_read_lies_as_an_index_of_several_dims_does() -> None:
    torch = pytest.importorskip("torch")
    for lib in (torch, dc):
        index = lib.tensor([[0, 1, 2], [2, 1, 0]]).T
        assert lib.zeros(4, 3, 2)[index].stride() == (6, 18, 2, 1)
        assert lib.zeros(4)[index].stride() == (1, 3)


def test_limits_keep_the_sign_of_zero() -> None:
    torch = pytest.importorskip("torch")
    for low, high in ((0, None), (None, -0.0), (0, 1), (-1, 0), (0.0, 0.0)):
        theirs, ours = ((1 / lib.tensor([-0.0, 0.0, -0.0, 0.0]).clamp(low, high)).tolist() for lib in (torch, dc))
        assert theirs == ours, (low, high)


def test_numbers_that_no_whole_number_reaches() -> None:
    x = dc.tensor([-1, 0, 5])
    for number in (2**63, 2**64 - 1):
        assert (x > number).tolist() == dc.gt(x, number).tolist()
        assert (x == number).tolist() == dc.eq(x, number).tolist()
        assert (number > x).tolist() == dc.lt(x, number).tolist()
