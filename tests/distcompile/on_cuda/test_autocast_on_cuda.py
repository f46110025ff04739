"""autocast("cuda") and GradScaler("cuda") on the stand-in device: what is cast, where, and that the CPU's is apart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import distcompile as dc
from compiler_core.errors import AutocastError
from distcompile import nn
from distcompile.nn import functional as F
from tests.fake_cupy import on_fake_device


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    with on_fake_device():
        yield


def test_it_acts_on_tensors_of_its_kind_of_device_alone() -> None:
    x, here = dc.ones(2, 2, device="cuda"), dc.ones(2, 2)
    with dc.autocast("cuda", dc.bfloat16):
        assert (x @ x).dtype is dc.bfloat16
        assert (here @ here).dtype is dc.float32
        with dc.autocast("cpu", dc.float16):
            assert (x @ x).dtype is dc.bfloat16
            assert (here @ here).dtype is dc.float16
            with dc.autocast("cuda", enabled=False):
                assert (x @ x).dtype is dc.float32
                assert (here @ here).dtype is dc.float16
        assert dc.is_autocast_enabled("cuda")
        assert not dc.is_autocast_enabled("cpu")
    assert not dc.is_autocast_enabled("cuda")
    with dc.autocast("cuda"):
        assert (x @ x).dtype is dc.float16  # torch's default there


@pytest.mark.parametrize("call", ["exp", "log", "sum", "prod", "rsqrt"])
def test_what_a_gpu_computes_in_float32_and_the_cpu_does_not(call: str) -> None:
    x = dc.ones(2, 2, dtype=dc.bfloat16)
    with dc.autocast("cuda", dc.bfloat16), dc.autocast("cpu", dc.bfloat16):
        assert getattr(x.cuda(), call)().dtype is dc.float32
        assert getattr(x, call)().dtype is dc.bfloat16
        assert F.softmax(x.cuda(), -1).dtype is dc.float32
        assert F.layer_norm(x.cuda(), (2,)).dtype is dc.float32
        assert F.gelu(x.cuda()).dtype is dc.bfloat16  # what it calls in here is not cast
        assert x.cuda().mean().dtype is dc.bfloat16


def test_the_other_lists_of_a_gpu() -> None:
    x, v = dc.full((2, 2), 0.5, device="cuda"), dc.full((2,), 0.5, device="cuda")
    low = x.bfloat16()
    with dc.autocast("cuda", dc.bfloat16):
        assert {dc.mv(x, v).dtype, dc.addmv(v, x, v).dtype, F.prelu(x, v).dtype} == {dc.bfloat16}
        made = (low.acos(), dc.asin(low), low.erfinv(), low.square(), low.cumprod(0), F.normalize(low))
        assert {y.dtype for y in (*made, F.cosine_similarity(low, low))} == {dc.float32}
        assert dc.linalg.inv(x + 2 * dc.eye(2, device="cuda")).dtype is dc.float32
        assert F.pad(low[None], (1, 1), "reflect").dtype is dc.bfloat16  # on the CPU's list
        with pytest.raises(AutocastError, match="binary_cross_entropy is unsafe to autocast"):
            F.binary_cross_entropy(x, x)
    with dc.autocast("cpu", dc.bfloat16):
        assert F.binary_cross_entropy(x.cpu(), x.cpu()).dtype is dc.float32
        assert dc.mv(x.cpu(), v.cpu()).dtype is dc.float32


@pytest.mark.parametrize("backend", [None, "eager", "aot_eager"])
def test_training_is_the_cpus(backend: str | None) -> None:
    def losses(kind: str) -> list[float]:
        dc.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).to(kind)
        run = model if backend is None else dc.compile(model, backend=backend)
        optimizer, found = dc.optim.AdamW(model.parameters(), lr=0.1), []
        x, y = dc.randn(6, 4).to(kind), dc.tensor([0, 1, 2, 0, 1, 2]).to(kind)
        for _ in range(3):
            with dc.autocast(kind, dc.bfloat16):
                loss = F.cross_entropy(run(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            found.append(loss.item())
        return found

    assert losses("cuda") == pytest.approx(losses("cpu"), rel=1e-3)


def test_a_scaler_leaves_out_a_step_that_is_not_finite() -> None:
    weight = dc.ones(2, device="cuda").requires_grad_()
    optimizer, scaler = dc.optim.SGD([weight], lr=0.1), dc.amp.GradScaler("cuda", init_scale=4.0)
    for factor, scale in ((1.0, 4.0), (float("inf"), 2.0)):
        optimizer.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == scale
        assert weight.tolist() == pytest.approx([0.9, 0.9])


def test_without_a_gpu_it_warns_and_rests() -> None:
    with on_fake_device(0):
        with pytest.warns(UserWarning, match="CUDA is not available. Disabling autocast"):
            region = dc.autocast("cuda", dc.bfloat16)
        with region:
            x = dc.ones(2, 2)
            assert (x @ x).dtype is dc.float32
        with pytest.warns(UserWarning, match="CUDA is not available.  Disabling"):
            assert not dc.amp.GradScaler("cuda").is_enabled()
