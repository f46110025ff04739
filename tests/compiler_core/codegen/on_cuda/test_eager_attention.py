"""Attention of eager code on a CUDA device: when its kernels are used, their numbers, and what happens without them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import distcompile as dc
import distcompile.nn.functional as F
from compiler_core.codegen.cuda import eager_attention
from compiler_core.config import config
from compiler_core.errors import CompilerNotFoundError
from tests.fake_cuda import FakeCuda
from tests.fake_cupy import on_fake_device
from tests.sharing import some

pytest.importorskip("triton")
pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore:TRITON_DEFAULT", "ignore::RuntimeWarning")]


@pytest.fixture(autouse=True)
def few_scores_are_many(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("compiler_core.ops.attention.sizes.MANY", 1)
    monkeypatch.setattr(eager_attention, "_programs", {})
    with config.patch(use_cache=False):
        yield


def gradients(q: Any, k: Any, v: Any, device: str, dtype: Any, mask: Any = None, **how: Any) -> list[Any]:
    """What is attended, and the gradients, as float64 of the host."""
    leaves = [dc.tensor(x).to(device, dtype).requires_grad_() for x in (q, k, v)]
    more = {} if mask is None else {"attn_mask": dc.tensor(mask).to(device)}
    out = F.scaled_dot_product_attention(*leaves, **more, **how)
    (out.float() * dc.arange(out.numel(), device=device).reshape(out.shape).cos()).sum().backward()
    return [x.detach().cpu().double().numpy() for x in (out, *(leaf.grad for leaf in leaves))]


def launched(fake: FakeCuda) -> list[str]:
    names = [launch["kernel"].rpartition("_")[0] for launch in fake.named("cuLaunchKernel")]
    return [name for name in names if name.startswith("attention")]


KINDS = ("causal", "mask", "whole", "grouped")
ALWAYS = [("causal", dc.bfloat16), ("mask", dc.float32), ("grouped", dc.float16), ("whole", dc.bfloat16)]
OTHERS = [(k, d) for k in KINDS for d in (dc.bfloat16, dc.float16, dc.float32) if (k, d) not in ALWAYS]


@pytest.mark.parametrize(("kind", "dtype"), some([*ALWAYS, *OTHERS], 1), ids=str)
def test_the_kernels_give_the_cpus_numbers(kind: str, dtype: Any, fake_cuda: FakeCuda, rng: Any) -> None:
    heads = 2 if kind == "grouped" else 4
    q, k, v = (rng.standard_normal((2, n, 24, 16)).astype(np.float32) for n in (4, heads, heads))
    how: dict[str, Any] = {"is_causal": kind == "causal", "enable_gqa": kind == "grouped"}
    mask = rng.random((2, 1, 24, 24)) < 0.7 if kind == "mask" else None
    rounded = [dc.tensor(x).to(dtype).float().numpy() for x in (q, k, v)]
    expected = gradients(*rounded, "cpu", dc.float64, mask, **how)
    found = gradients(*rounded, "cuda", dtype, mask, **how)
    assert launched(fake_cuda) == ["attention_forward", "attention_queries", "attention_keys"]
    tolerance = {dc.bfloat16: 2e-2, dc.float16: 3e-3, dc.float32: 1e-5}[dtype]
    for ours, exact in zip(found, expected, strict=True):
        assert np.linalg.norm(ours - exact) < tolerance * np.linalg.norm(exact)
    again = gradients(*rounded, "cuda", dtype, mask, **how)
    assert len(eager_attention._programs) == 2
    for ours, before in zip(again, found, strict=True):
        np.testing.assert_array_equal(ours, before)


def test_a_mask_is_not_repeated_for_every_head(fake_cuda: FakeCuda, rng: Any) -> None:
    """Its copies would have the scores' size."""
    q = dc.tensor(rng.standard_normal((2, 3, 24, 16)), dtype=dc.bfloat16, device="cuda").requires_grad_()
    mask = dc.tensor(rng.standard_normal((24, 24)), dtype=dc.bfloat16, device="cuda")
    out = F.scaled_dot_product_attention(q, q, q, attn_mask=mask)
    out.sum().backward()
    programs: list[Any] = list(eager_attention._programs.values())
    assert [program.entry.inputs[-1].shape for program in programs] == [(1, 1, 24, 24)] * 2
    assert launched(fake_cuda) == ["attention_forward", "attention_queries", "attention_keys"]
    leaf, here = q.detach().cpu().double().requires_grad_(), mask.cpu().double()
    exact = F.scaled_dot_product_attention(leaf, leaf, leaf, attn_mask=here)
    exact.sum().backward()
    np.testing.assert_allclose(out.detach().cpu().double().numpy(), exact.detach().numpy(), atol=2e-2)
    np.testing.assert_allclose(q.grad.cpu().double().numpy(), leaf.grad.numpy(), atol=6e-2)


def test_few_scores_float64_and_wide_heads_are_not_theirs(
    fake_cuda: FakeCuda, rng: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    q = rng.standard_normal((1, 2, 8, 16)).astype(np.float32)
    wide = rng.standard_normal((1, 1, 4, 300)).astype(np.float32)
    gradients(q, q, q, "cuda", dc.float64)
    gradients(wide, wide, wide, "cuda", dc.bfloat16)
    monkeypatch.setattr("compiler_core.ops.attention.sizes.MANY", 1000)
    gradients(q, q, q, "cuda", dc.bfloat16)
    assert launched(fake_cuda) == []


def test_many_sizes_run_in_blocks_which_is_said_once(
    fake_cuda: FakeCuda, rng: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eager_attention, "MOST", 2)

    def attend(n: int) -> None:
        q = dc.tensor(rng.standard_normal((1, 2, n, 16)), dtype=dc.float32)
        there, here = (F.scaled_dot_product_attention(x, x, x) for x in (q.cuda(), q))
        np.testing.assert_allclose(there.cpu().numpy(), here.numpy(), rtol=1e-4, atol=1e-5)

    attend(3)
    attend(4)
    with pytest.warns(UserWarning, match="has its 2 programs; other sizes run in blocks"):
        attend(5)
    attend(6)
    assert launched(fake_cuda) == ["attention_forward"] * 2


def test_without_a_compiler_or_a_driver_it_runs_in_blocks(fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_compiler(*_: Any, **__: Any) -> Any:
        raise CompilerNotFoundError("no C++ compiler was found")

    x = np.ones((1, 1, 3, 16), np.float32)
    with monkeypatch.context() as patch:
        patch.setattr("compiler_core.codegen.cuda_backend.host_toolchain", no_compiler)
        with pytest.warns(UserWarning, match="its kernels cannot be built: .*no C\\+\\+ compiler"):
            assert gradients(x, x, x, "cuda", dc.bfloat16)[0].tolist() == x.tolist()
    with on_fake_device():
        assert gradients(x, x, x, "cuda", dc.bfloat16)[0].tolist() == x.tolist()
    assert launched(fake_cuda) == []
