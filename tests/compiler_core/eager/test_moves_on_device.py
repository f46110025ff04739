"""Copies, `cat`, `roll` and rows by an index on a device, made again by native code, against NumPy: operands with gaps,
repeats and offsets, of any dtype, on memory that was freed and handed out again; what is known of an index."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import distcompile as dc
from compiler_core import cuda
from compiler_core.eager.device import known_places
from compiler_core.errors import AutogradError, IndexError_
from compiler_core.ops.on_device import COPY
from compiler_core.ops.registry import OPS, run_eager
from compiler_core.runtime.cuda import replay
from compiler_core.runtime.cuda.again import library
from tests.fake_cupy import on_fake_device

DTYPES = [
    np.dtype(t) for t in (np.bool_, np.uint8, np.float16, ml_dtypes.bfloat16, np.float32, np.int64, np.complex128)
]
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda x: x,
    "turned": lambda x: x.transpose(2, 0, 3, 1),
    "last two": lambda x: x.swapaxes(-1, -2),
    "windows": lambda x: x.reshape(4, 3, 2, 2, 2, 8).transpose(0, 2, 4, 1, 3, 5),
    "an odd offset": lambda x: x.reshape(-1)[1:-2],
    "every second": lambda x: x[:, 1::2, :, ::3],
    "a part of each row": lambda x: x[..., 2:6],
    "one of a dim": lambda x: x[:, 3:4, 1:2],
    "one number": lambda x: x[1, 2, 1, 3],
    "nothing": lambda x: x[:, 2:2],
    "many dims": lambda x: x.reshape(2, 2, 2, 3, 2, 2, 2, 2, 2).transpose(8, 6, 4, 2, 0, 7, 5, 3, 1),
}
EVERY = pytest.mark.parametrize("layout", LAYOUTS)


@pytest.fixture(autouse=True)
def device() -> Iterator[Any]:
    with on_fake_device(devices=1) as module:
        yield module


def repeats() -> int:
    found = library()
    assert found is not None
    return found.repeats()


def drawn(seed: int, dtype: Any) -> Any:
    return np.random.default_rng(seed).integers(0, 100, size=(4, 6, 4, 8)).astype(dtype)


@EVERY
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_copies(layout: str, dtype: Any) -> None:
    for seed in range(5):
        here = drawn(seed, dtype)
        there = cuda.put(here, 0)
        made = COPY.get()(LAYOUTS[layout](there))
        assert made.flags.c_contiguous
        assert cuda.fetch(made).tobytes() == LAYOUTS[layout](here).tobytes()
        assert cuda.fetch(there).tobytes() == here.tobytes()


def test_copies_of_what_repeats_and_alternates(device: Any) -> None:
    """Shapes in turn; a row that repeats; memory that is freed in between."""
    before = repeats()
    for seed in range(6):
        for shape in ((3, 8), (8, 3), (5,)):
            here = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
            there = cuda.put(here, 0)
            for a, b in ((there.T, here.T), (there[..., 1:], here[..., 1:])):
                assert cuda.fetch(COPY.get()(a)).tobytes() == b.tobytes()
            spread = device.broadcast_to(there, (4, *shape))
            assert cuda.fetch(COPY.get()(spread)).tobytes() == np.broadcast_to(here, (4, *shape)).tobytes()
            del there, spread, a
    assert repeats() >= before + 3 * 3 * 4


@EVERY
def test_cat_of_parts_that_lie_anyhow(layout: str) -> None:
    for seed in range(5):
        here, more = drawn(seed, np.float32), drawn(seed + 9, np.float32)
        parts = [LAYOUTS[layout](x) for x in (here, more, here)]
        there = [cuda.put(x, 0) for x in (here, more)]
        seen = [LAYOUTS[layout](x) for x in (*there, there[0])]
        for dim in range(parts[0].ndim):
            made = run_eager(OPS["cat"], seen, {"dim": dim})
            assert cuda.fetch(made).tobytes() == np.concatenate(parts, dim).tobytes()


def test_cat_with_parts_of_each_other_and_of_nothing() -> None:
    for seed in range(5):
        here = drawn(seed, np.float16)[0]
        there = cuda.put(here, 0)
        for cut in (lambda x: [x[0::2, 0::2], x[1::2, 0::2], x[0::2, 1::2], x[1::2, 1::2]],
                    lambda x: [x, x[:0], x], lambda x: [x[:3], x[1:4], x[2:5]], lambda x: [x]):  # fmt: skip
            made = run_eager(OPS["cat"], cut(there), {"dim": 0})
            assert cuda.fetch(made).tobytes() == np.concatenate(cut(here), 0).tobytes()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
def test_roll(dtype: str) -> None:
    for seed in range(4):
        x = dc.tensor(drawn(seed, np.float32)[0], dtype=getattr(dc, dtype))
        there = x.to("cuda")
        for shifts, dims in (((-2, 1), (0, 2)), (3, 1), ((1, 2, -4), (0, 0, 1)), (5, None), ((9, -9), (1, 1)), (0, 0)):
            for turn in (lambda v: v, lambda v: v.transpose(0, 2), lambda v: v[1:, ::2]):
                expected = dc.roll(turn(x), shifts, dims)
                assert dc.roll(turn(there), shifts, dims).tolist() == expected.tolist()
    empty = dc.zeros(3, 0, device="cuda")
    assert dc.roll(empty, 1, 0).shape == (3, 0)


def test_gradients_through_roll_twice() -> None:
    for _ in range(4):
        x = dc.randn(4, 6, device="cuda").requires_grad_()
        y = dc.roll(x * x, (1, -2), (0, 1))
        weight = dc.randn(4, 6, device="cuda")
        (g,) = dc.autograd.grad((y * y * weight).sum(), x, create_graph=True, retain_graph=True)
        back = dc.roll(weight, (-1, 2), (0, 1))
        np.testing.assert_allclose(g.detach().cpu().numpy(), (4 * x**3 * back).detach().cpu().numpy(), rtol=1e-5)
        (h,) = dc.autograd.grad(g.sum(), x, retain_graph=True)
        np.testing.assert_allclose(h.cpu().numpy(), (12 * x**2 * back).detach().cpu().numpy(), rtol=1e-5)
        (again,) = dc.autograd.grad((y * y * weight).sum(), x)
        assert again.tolist() == g.tolist()


# ---- x[index] by places that are known


def table(seed: int = 0, dtype: Any = dc.float32) -> Any:
    return dc.tensor(np.random.default_rng(seed).normal(size=(9, 5)).astype(np.float32), device="cuda", dtype=dtype)


def settled(index: Any, x: Any) -> None:
    """So often that the places are known, if they can be."""
    for _ in range(4):
        x[index]


def refused(x: Any, index: Any) -> bool:
    try:
        x[index]
        dc.cuda.synchronize()
    except IndexError_ as error:
        return "out of range" in str(error)
    return False


@pytest.mark.parametrize("dtype", [dc.float32, dc.bfloat16, dc.float64])
def test_rows_by_known_places(dtype: Any) -> None:
    index = dc.tensor([[1, 8, 0], [0, 0, 5]], device="cuda")
    for seed in range(6):
        x = table(seed, dtype).requires_grad_()
        y = x[index]
        assert y.tolist() == x.cpu()[index.cpu()].tolist()
        y.sum().backward()
        counts = [3.0, 1.0, 0, 0, 0, 1.0, 0, 0, 1.0]
        assert x.grad.tolist() == [[n] * 5 for n in counts]
    assert type(y.grad_fn).__name__ == "IndexBackward0"
    assert known_places.are_known(index._cell, 9)


def test_an_index_that_is_written_is_not_known() -> None:
    index, x = dc.tensor([1, 2, 3], device="cuda"), table()
    settled(index, x)
    for place, values in ((0, [8, 2, 3]), (1, [8, -1, 3]), (2, [8, -1, -9])):
        index[place] = values[place]
        for _ in range(4):
            assert x[index].tolist() == [x.tolist()[k] for k in values]
    index.fill_(9)
    for _ in range(4):
        assert refused(x, index)
    index.fill_(4)
    assert x[index].tolist() == [x.tolist()[4]] * 3


def test_an_index_is_known_for_one_size() -> None:
    index, x = dc.tensor([1, 7, 3], device="cuda"), table()
    settled(index, x)
    for _ in range(4):
        assert refused(x[:7], index)
    settled(index, x)
    assert x[index].tolist() == [x.tolist()[k] for k in (1, 7, 3)]
    assert x[:8][index].tolist() == [x.tolist()[k] for k in (1, 7, 3)]


def test_indices_that_come_and_go_are_read_anew() -> None:
    x = table()
    for seed in range(300):
        places = np.random.default_rng(seed).integers(-9, 9, size=4)
        index = dc.tensor(places, device="cuda")
        for _ in range(3):
            assert x[index].tolist() == x.cpu().numpy()[places].tolist()
        del index
    assert len(known_places._waiting) <= known_places.MOST


def test_tables_that_lie_anyhow() -> None:
    index = dc.tensor([[4, 0], [2, 2]], device="cuda")
    for seed in range(5):
        whole = dc.tensor(np.random.default_rng(seed).normal(size=(5, 9, 6)).astype(np.float32), device="cuda")
        for cut in (lambda v: v, lambda v: v[:, ::2], lambda v: v[..., 1:4], lambda v: v.transpose(1, 2),
                    lambda v: v[:, 0, 0], lambda v: v[1:].transpose(0, 1), lambda v: v[:, :1].expand(5, 3, 6),
                    lambda v: v[:, :0]):  # fmt: skip
            x = cut(whole)
            assert x[index].tolist() == cut(whole.cpu())[index.cpu()].tolist()
            assert x[index].stride() == cut(whole.cpu())[index.cpu()].stride()


def test_a_result_is_no_view_and_versions_tell() -> None:
    index, leaf = dc.tensor([1, 2], device="cuda"), table().requires_grad_()
    settled(index, leaf)
    x = leaf * 1
    y = x[index]
    y.mul_(2)
    assert (x._version, y._version) == (0, 1)
    x.zero_()  # the gradient reads the places alone
    y.sum().backward()
    assert leaf.grad.sum().item() == 2 * 2 * 5
    y = (leaf * 1)[index]
    index.add_(1)
    with pytest.raises(AutogradError, match="in place"):
        y.sum().backward()


def test_modes_and_hooks() -> None:
    index, x = dc.tensor([1, 2], device="cuda"), table().requires_grad_()
    settled(index, x)
    with dc.no_grad():
        assert not x[index].requires_grad
    with dc.inference_mode():
        assert x[index].is_inference()
        assert dc.roll(x, 1, 0).is_inference()
        assert x.t().contiguous().is_inference()
        assert x.t().reshape(-1).is_inference()
    seen: list[Any] = []
    y = x[index]
    y.register_hook(lambda g: seen.append(g.sum().item()))
    packed: list[Any] = []
    with dc.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t.shape) or t, lambda t: t):
        z = dc.roll(x, 1, 0)[index]
    (y.sum() + z.sum()).backward(retain_graph=True)
    (y.sum() + z.sum()).backward()
    assert seen == [10.0, 10.0]
    assert x.grad.sum().item() == 40.0


def test_copies_of_tensors_have_histories_and_memory_of_their_own() -> None:
    for turn in range(5):
        x = dc.randn(4, 3, 2, device="cuda").requires_grad_()
        y = x * 1
        made = [y.permute(2, 0, 1).contiguous(), y.transpose(0, 1).reshape(3, -1), y.clone(), y.mT.reshape(-1)]
        assert made[0].tolist() == x.permute(2, 0, 1).tolist()
        for one in made:
            one.add_(turn)
        assert y._version == 0
        sum(one.sum() for one in made).backward()
        assert x.grad.tolist() == [[[4.0] * 2] * 3] * 4
        assert [type(one._node.edges[0]).__name__ for one in made]
    with pytest.raises(RuntimeError):
        x.transpose(0, 1).view(-1)
    with pytest.raises(RuntimeError):
        x.transpose(0, 1).reshape(5, 5)


def test_calls_in_full_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def told() -> list[Any]:
        found = []
        index = dc.tensor([3, 0, 3], device="cuda")
        for seed in range(5):
            x = table(seed).requires_grad_()
            q, k = dc.roll(x, (1, 2), (0, 1))[index].split(2, 1)[:2]
            y = dc.cat([q @ k.t(), x[:3, :3]], 1).t().reshape(2, -1)
            (y * y).sum().backward()
            found.append((y.detach().cpu().numpy().tobytes(), x.grad.cpu().numpy().tobytes()))
        return found

    first = told()
    monkeypatch.setattr(replay.Noting, "is_on", False)
    assert told() == first
