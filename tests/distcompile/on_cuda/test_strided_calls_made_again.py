"""Calls of operands that lie in other orders, made again: their bits are those of calls made in full.

CuPy makes dense copies of some inside a call, lets go of them, and gives their memory to what is asked for next: a
launch that reads such a copy is not one that reads what lies there later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.runtime.cuda import cudnn, replay
from distcompile.nn import functional as F
from tests.fake_cuda import FakeCuda
from tests.fake_cuda import fake_cuda as fake_cuda
from tests.fake_cuda.dnn import add_cudnn
from tests.fake_cupy import on_fake_device

FORMS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "x * w.t()": lambda x, w, b: x * w.t(),
    "x * w.t() * b": lambda x, w, b: x * w.t() * b,
    "in place": lambda x, w, b: (x * 1).mul_(w.t()).add_(w.t()),
    "quotient": lambda x, w, b: x / (w.t().abs() + 1),
    "every second": lambda x, w, b: x[:, ::2] * w[:, 1::2],
    "gate": lambda x, w, b: x * w.t().sigmoid(),
    "swiglu": lambda x, w, b: F.silu(x.t()) * w,
    "mish": lambda x, w, b: F.mish(x.t()) * x,
    "layer_norm": lambda x, w, b: F.layer_norm(x.t(), (16,), b, b) * w.t(),
    "batch_norm": lambda x, w, b: F.batch_norm(x.t(), None, None, b, b, True) * w,
    "group_norm": lambda x, w, b: F.group_norm(x.t()[None], 4, b, b),
    "softmax": lambda x, w, b: x.t().softmax(-1) * w,
    "rope": lambda x, w, b: x * b + dc.cat([-x[:, 8:], x[:, :8]], -1) * w.t(),
    "where": lambda x, w, b: dc.where(x.t() > 0, w, x.t()),
    "linear": lambda x, w, b: F.linear(x.t(), w, b),
    "matmul": lambda x, w, b: x.t() @ w,
    "cross_entropy": lambda x, w, b: F.cross_entropy(x.t(), dc.arange(16, device="cuda")),
    "embedding": lambda x, w, b: F.embedding(dc.arange(16, device="cuda").flip(0), x.t()) * w,
    "max_pool2d": lambda x, w, b: F.max_pool2d(x.t().reshape(1, 16, 4, 4), 2),
    "conv2d of 1 x 1": lambda x, w, b: F.conv2d(x.t().reshape(1, 16, 4, 4), w.t().reshape(16, 16, 1, 1)),
    "conv2d, turned": lambda x, w, b: F.conv2d(x.view(1, 16, 4, 4).mT, w.t()[:, :, None, None].repeat(1, 1, 3, 3), b),
    "attention": lambda x, w, b: F.scaled_dot_product_attention(*[v.view(2, 8, 2, 8).mT for v in (x, w, x)]),
}
MODES = ("float32", "float16", "autocast")


def run(form: Callable[[Any, Any, Any], Any], mode: str) -> list[bytes | None]:
    """The bits of a result and of gradients, of five steps on other numbers."""
    found: list[bytes | None] = []
    dtype = dc.float16 if mode == "float16" else dc.float32
    for step in range(5):
        rng = np.random.default_rng(step)
        x, w, b = (
            dc.tensor(rng.normal(size=shape).astype(np.float32), device="cuda", dtype=dtype, requires_grad=True)
            for shape in ((16, 16), (16, 16), (16,))
        )
        with dc.autocast("cuda", dtype=dc.bfloat16, enabled=mode == "autocast"):
            out = form(x, w, b)
        out.float().square().sum().backward()
        arrays = [out.detach(), *(v.grad for v in (x, w, b))]
        found += [None if one is None else one.cpu().float().numpy().tobytes() for one in arrays]
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", FORMS)
def test_the_bits_are_those_of_calls_made_in_full(
    name: str, mode: str, fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cudnn, "_eager_plans", {})
    add_cudnn(fake_cuda)
    with on_fake_device(devices=1):
        again = run(FORMS[name], mode)
        monkeypatch.setattr(replay.Noting, "is_on", False)
        assert again == run(FORMS[name], mode)


def test_a_pointer_is_not_that_of_memory_asked_for_later(fake_cuda: FakeCuda) -> None:
    """As where CuPy let go of what a launch had read."""
    from compiler_core.runtime.cuda.variant import variant_of

    note = replay.Note()
    late = dc.zeros(4, device="cuda")._cell.raw
    note.add("cuMemcpyDtoDAsync_v2", None, (replay.Address(late.data.ptr),))
    note.made.append(late)
    with pytest.raises(LookupError):
        variant_of(note, [], [], late)
