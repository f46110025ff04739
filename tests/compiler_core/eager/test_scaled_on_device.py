"""16-bit floats times f32 that is spread over them, on the stand-in device: op by op's bits, in one launch each way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.ops.composites import arithmetic
from tests.fake_cupy import on_fake_device

SHAPES = [  # of x, of what it is scaled by
    ((2, 16, 4, 8), (16, 1, 1)),
    ((2, 16, 4, 8), (2, 1, 1, 1)),
    ((2, 16, 4, 8), (1, 16, 1, 1)),
    ((2, 5, 3, 7), (5, 1, 1)),
    ((6, 24), (24,)),
    ((6, 24), (6, 1)),
    ((6, 24), (1,)),
    ((3, 4, 9), (4, 1)),
    ((2, 3, 4, 8), (3, 4, 8)),
    ((2, 3, 4, 8), (2, 1, 4, 1)),
    ((6, 24), (6, 24)),
    ((6, 1), (1, 1)),
]
LAYOUTS = ("rows", "last", "turned", "part")


@pytest.fixture(autouse=True)
def _one_device() -> Iterator[None]:
    with on_fake_device(devices=1):
        yield


def _laid(x: Any, how: str) -> Any:
    if how == "last" and x.ndim == 4:
        return dc.nn.functional.relu(x.to(memory_format=dc.channels_last) * 1) - dc.nn.functional.relu(-x)
    if how == "turned":
        return (x.transpose(0, -1).contiguous() * 1).transpose(0, -1)
    return dc.cat([x, x])[: len(x)] if how == "part" else x * 1


def _made(dtype: Any, shapes: Any, how: str, first: bool) -> list[Any]:
    rng = np.random.default_rng(2)
    x, w = (dc.tensor(rng.normal(size=s).astype(np.float32), device="cuda").requires_grad_() for s in shapes)
    given = _laid(x.to(dtype), how)
    out = given * w if first else w.mul(given)
    slope = dc.tensor(np.round(rng.normal(size=tuple(out.shape)) * 8).astype(np.float32), device="cuda")
    gx, gw, gg = dc.autograd.grad(out, (x, w, given), slope)
    return [out.dtype, out.stride(), gw.dtype, gg.dtype, *[t.detach().float().cpu().numpy() for t in (out, gx, gg, gw)]]


@pytest.mark.parametrize("how", LAYOUTS)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [dc.bfloat16, dc.float16], ids=str)
def test_it_is_the_product_op_by_op(dtype: Any, shapes: Any, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [_made(dtype, shapes, how, first) for first in (True, False, True, True)]
    monkeypatch.setattr(arithmetic, "_spreads_there", lambda *_: False)
    expected = _made(dtype, shapes, how, True)
    for made in found:
        assert made[:4] == expected[:4]
        for a, b in zip(made[4:7], expected[4:7], strict=True):
            assert a.tobytes() == b.tobytes()
        np.testing.assert_allclose(made[7], expected[7], rtol=1e-5, atol=1e-4)  # a sum


def test_a_launch_each_way_and_no_copy_in_f32(asked: list[str]) -> None:
    w = dc.ones(16, 1, 1, device="cuda", requires_grad=True)
    x = dc.ones(2, 16, 4, 4, device="cuda", dtype=dc.bfloat16).requires_grad_()
    (w * x).sum().backward()  # which proves the kernels
    w.grad = None
    for _ in range(2):
        asked.clear()
        out = w * x
        assert asked == ["scale_up"]
        asked.clear()
        out.backward(dc.ones_like(out))
        assert asked[:2] == ["scale_down", "scale_wide"]
        assert "widen" not in asked
    assert type(out.grad_fn).__name__ == "MulBackward0"
    assert w.grad.flatten().tolist() == [64.0] * 16


def test_edges_are_the_cpus() -> None:
    given = np.array([[0.0, -0.0, np.inf, np.nan, 1e30, 3e38, 1e-40, 2.0]], np.float32)
    for place in ("cpu", "cuda"):
        x, w = dc.tensor(given, device=place).bfloat16(), dc.tensor(given[0, ::-1].copy(), device=place)
        made = (x * w).cpu().numpy()
        if place == "cpu":
            expected = made
    np.testing.assert_array_equal(np.isnan(made), np.isnan(expected))
    np.testing.assert_array_equal(np.nan_to_num(made, nan=0.5), np.nan_to_num(expected, nan=0.5))


def test_what_it_does_not_take_is_as_it_was() -> None:
    x, w = dc.ones(2, 3, device="cuda", dtype=dc.bfloat16), dc.full((3,), 2.0, device="cuda")
    assert (x * dc.tensor(3.0, device="cuda")).dtype is dc.bfloat16
    assert (x[:0] * w).shape == (0, 3)
    assert (x * dc.full((2, 2, 3), 2.0, device="cuda")).tolist() == [[[2.0] * 3] * 2] * 2
    assert (x * w.double()).dtype is dc.float64
    with pytest.raises(RuntimeError):
        _ = x * dc.ones(4, device="cuda")
    with pytest.raises(RuntimeError):
        _ = x * dc.ones(3)


def test_gradients_of_gradients_and_values_that_were_written() -> None:
    found = []
    for place in ("cpu", "cuda"):
        x = dc.arange(6.0, device=place).reshape(2, 3).bfloat16().requires_grad_()
        w = dc.arange(1.0, 4.0, device=place).requires_grad_()
        (gw,) = dc.autograd.grad((x * w).square().sum(), w, create_graph=True)
        gw.sum().backward()
        y = x * 1
        z = y * w
        y.mul_(2)
        if place == "cuda":  # x itself is saved, as in torch
            with pytest.raises(RuntimeError):
                z.sum().backward()
        found.append([gw.tolist(), x.grad.tolist(), w.grad.tolist()])
    assert found[0] == found[1]
