"""Convolutions by oneDNN: what it is asked, what it answers, what is done without it, and that all ways agree."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import numpy as np
import pytest

import distcompile as dc
import distcompile.nn.functional as F
from compiler_core.dtype import float32
from compiler_core.errors import BackendError
from compiler_core.graph.parse import parse_graph
from compiler_core.log import DistCompileWarning
from compiler_core.ops.routine import Strided
from compiler_core.pipeline import compile_graph
from compiler_core.runtime import onednn
from compiler_core.runtime.callback import Callback
from distcompile import nn

ATTRS = "dilation=(1, 1) groups=1 high=(1, 1) low=(1, 1) stride=(1, 1)"
needs_onednn = pytest.mark.skipif(isinstance(onednn.find_onednn(), onednn.No), reason="oneDNN is not installed")


def contiguous(*shape: int) -> Strided:
    strides = np.empty(shape, np.int8).strides
    return Strided(float32, shape, strides)


CALL = Callback("convolution_last", ATTRS, (contiguous(2, 5, 5, 16), contiguous(16, 16, 3, 3), contiguous(2, 5, 5, 16)))


def net(x: Any, w: Any, v: Any) -> Any:
    h = F.relu(F.conv2d(x, w, padding=1))
    return (F.conv2d(F.avg_pool2d(h, 2), v, stride=2, groups=2) * h[:, :4, :2, :2]).sum()


def operands() -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    shapes = ((2, 3, 8, 8), (8, 3, 3, 3), (4, 4, 1, 1))
    return tuple(dc.tensor(rng.standard_normal(s).astype(np.float32), requires_grad=True) for s in shapes)


def results(step: Any) -> list[Any]:
    values = operands()
    out = step(*values)
    out.backward()
    return [out.detach().numpy(), *(value.grad.numpy() for value in values)]


@pytest.fixture
def no_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn, "find_onednn", lambda: onednn.No("not here"))
    onednn.verdict.cache_clear()
    onednn.eager_plan.cache_clear()
    yield
    onednn.verdict.cache_clear()
    onednn.eager_plan.cache_clear()


@needs_onednn
def test_a_plan_is_made_once_and_asks_for_scratch() -> None:
    assert onednn.verdict(CALL)
    plan = onednn.make_plan(CALL)
    assert onednn.make_plan(CALL) is plan
    assert plan.scratch_nbytes >= 16 * 16 * 9 * 4  # the weight in blocks
    assert plan.scratch_nbytes % 64 == 0


@needs_onednn
def test_what_onednn_refuses_is_no_plan_but_an_error() -> None:
    wrong = Callback(CALL.routine, ATTRS, (CALL.arrays[0], CALL.arrays[1], contiguous(2, 4, 5, 16)))
    assert not onednn.verdict(wrong)
    with pytest.raises(BackendError, match="does not compute convolution_last"):
        onednn.make_plan(wrong)


@needs_onednn
def test_compiled_graphs_hold_channels_last_and_agree_with_eager() -> None:
    compiled = dc.compile(net, fullgraph=True)
    for got, want in zip(results(compiled), results(net), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
    text = str(compiled.explain())
    assert "convolution_last_weight(" in text
    assert "by windows" not in text


def test_without_the_library_windows_stand_in_and_say_so(no_onednn: None) -> None:
    compiled = dc.compile(net, fullgraph=True)
    with pytest.warns(DistCompileWarning, match="windows and matrix products.*not here"):
        mine = results(compiled)
    for got, want in zip(mine, results(net), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
    text = str(compiled.explain())
    assert "convolution_last" not in text
    assert "convolution in the forward by windows and matrix products" in text


def test_an_artefact_that_needs_the_library_says_what_to_install(
    no_onednn: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    onednn._onednn.cache_clear()
    with pytest.raises(BackendError, match="oneDNN"):
        onednn.make_plan(Callback(CALL.routine, ATTRS + " ", CALL.arrays))
    onednn._onednn.cache_clear()


@needs_onednn
def test_float64_is_computed_as_windows() -> None:
    x, w = (dc.randn(1, 2, 4, 4, dtype=dc.float64), dc.randn(3, 2, 3, 3, dtype=dc.float64))
    got = dc.compile(F.conv2d)(x, w)
    np.testing.assert_allclose(got.numpy(), F.conv2d(x, w).numpy(), rtol=1e-12)


@needs_onednn
def test_threads_share_a_plan() -> None:
    text = "graph g(%x: f32[4, 9, 9, 8] input 'x', %w: f32[8, 8, 3, 3] parameter 'w') {\n  %a: f32[4, 9, 9, 8] = "
    run = compile_graph(parse_graph(f"{text}convolution_last(%x, %w) {ATTRS}\n  return %a\n}}\n"))
    aot = compile_graph(parse_graph(f"{text}convolution_last(%x, %w) {ATTRS}\n  return %a\n}}\n"), "aot_eager")
    rng = np.random.default_rng(1)
    inputs = [[rng.standard_normal(s).astype(np.float32) for s in ((4, 9, 9, 8), (8, 8, 3, 3))] for _ in range(4)]
    want = [aot(given)[0] for given in inputs]
    worst = [0.0] * 4

    def work(k: int) -> None:
        for _ in range(50):
            worst[k] = max(worst[k], float(np.abs(run(inputs[k])[0] - want[k]).max()))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert max(worst) < 1e-4


@pytest.mark.parametrize("memory", ["first", "last"])
@pytest.mark.parametrize(("stride", "padding", "dilation", "groups"), [(1, 1, 1, 1), (2, 0, 2, 4), (3, 2, 1, 8)])
def test_channels_last_inputs(memory: str, stride: int, padding: int, dilation: int, groups: int) -> None:
    rng = np.random.default_rng(2)
    x = dc.tensor(rng.standard_normal((2, 11, 10, 8)).astype(np.float32))
    x = x.permute(0, 3, 1, 2) if memory == "last" else x.permute(0, 3, 1, 2).contiguous()
    w = dc.tensor(rng.standard_normal((16, 8 // groups, 3, 3)).astype(np.float32))

    def conv(x: Any, w: Any) -> Any:
        return F.conv2d(x, w, None, stride, padding, dilation, groups)

    np.testing.assert_allclose(dc.compile(conv)(x, w).numpy(), conv(x, w).numpy(), rtol=1e-4, atol=1e-4)


POOLINGS: dict[str, Any] = {
    "max": lambda h: F.max_pool2d(h, 3, 2, 1),
    "max_of_many": lambda h: F.max_pool2d(h, 5, 1, 2),
    "max_dilated": lambda h: F.max_pool2d(h, (2, 3), dilation=2, ceil_mode=True),
    "places": lambda h: F.max_pool2d(h, 2, return_indices=True)[1] * F.avg_pool2d(h, 2),
    "average": lambda h: F.avg_pool2d(h, 3, 2, 1, count_include_pad=False),
}


@pytest.mark.parametrize("name", POOLINGS)
def test_pooling_beside_convolutions_is_eagers(name: str) -> None:
    """Ties (zeros of a ReLU), NaN, and windows that hold nothing but -inf."""
    rng = np.random.default_rng(3)
    values = rng.integers(-2, 3, (2, 4, 9, 8)).astype(np.float32)
    values[0, 0, :3, :3] = -np.inf
    values[1, 1, 4, 4] = np.nan
    weight = np.ones((4, 1, 1, 1), np.float32)  # each channel by itself: 0 * inf is NaN

    def step(x: Any, w: Any) -> Any:
        h = F.conv2d(x, w, groups=4)
        return F.conv2d(POOLINGS[name](dc.where(h > 0, h, dc.minimum(h, dc.zeros_like(h)))), w, groups=4)

    def run(function: Any) -> list[Any]:
        x, w = dc.tensor(values, requires_grad=True), dc.tensor(weight)
        out = function(x, w)
        out.backward(dc.ones(*out.shape))
        return [out.detach().numpy(), x.grad.numpy()]

    for got, want in zip(run(dc.compile(step, fullgraph=True)), run(step), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@needs_onednn
@pytest.mark.parametrize(("batch", "size", "kernel"), [(1, 9, 3), (8, 1, 3), (1, 1, 1), (3, 2, 5)])
def test_a_batch_of_one_and_an_image_of_one_pixel_have_fast_kernels(batch: int, size: int, kernel: int) -> None:
    """The kernel that was judged is the one that runs: a dim of one element has the stride that oneDNN knows."""
    dc.manual_seed(0)
    conv = nn.Conv2d(32, 16, kernel, padding=kernel // 2)
    x, grads = dc.randn(batch, 32, size, size), []
    with warnings.catch_warnings():
        warnings.simplefilter("error", DistCompileWarning)
        for run in (conv, dc.compile(conv)):
            given = x.detach().clone().requires_grad_()
            conv.zero_grad()
            out = run(given)
            (out * dc.linspace(0, 1, out.numel()).reshape(out.shape)).sum().backward()
            grads.append([out, given.grad, conv.weight.grad])
    for got, want in zip(grads[1], grads[0], strict=True):
        dc.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


# ---- eager code

EAGER: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 3, 9, 8), (4, 3, 3, 3), {"padding": 1}),
    "blocks of channels": ((2, 32, 7, 7), (48, 32, 3, 3), {"stride": 2}),
    "groups": ((2, 8, 9, 8), (12, 4, 3, 2), {"groups": 2, "stride": (2, 1), "dilation": (1, 2)}),
    "depthwise": ((2, 16, 9, 9), (16, 1, 5, 5), {"groups": 16, "padding": 2}),
    "one dim": ((2, 3, 20), (5, 3, 4), {"padding": "same"}),
    "three dims": ((1, 2, 5, 6, 5), (3, 2, 2, 3, 2), {"padding": (0, 1, 1)}),
    "of one pixel": ((1, 4, 1, 1), (2, 4, 1, 1), {"stride": 2}),
}


def eagerly(dtype: Any, case: str, bias: bool = True) -> list[Any]:
    """The result and all gradients of an eager convolution."""
    shape, weight, options = EAGER[case]
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(s) for s in (shape, weight, weight[:1])]
    x, w, b = (dc.tensor(array.astype(dtype), requires_grad=True) for array in arrays)
    function = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[len(shape)]
    out = function(x, w, b if bias else None, **options)
    out.backward(dc.tensor(rng.standard_normal(tuple(out.shape)).astype(dtype)))
    return [out.detach().numpy(), *(p.grad.numpy() for p in (x, w, b) if p.grad is not None)]


@needs_onednn
@pytest.mark.parametrize("case", EAGER)
def test_eager_convolutions_are_those_by_columns_in_float64(case: str) -> None:
    onednn.eager_plan.cache_clear()
    for ours, exact in zip(eagerly(np.float32, case), eagerly(np.float64, case), strict=True):
        np.testing.assert_allclose(ours, exact, rtol=1e-4, atol=1e-5 * np.abs(exact).max())
    assert onednn.eager_plan.cache_info().misses == (2 if case == "depthwise" else 3)  # its weight's gradient is ours


def test_without_onednn_eager_convolutions_are_columns(no_onednn: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn, "find_onednn", lambda: onednn.No("not here for eager code"))
    with pytest.warns(DistCompileWarning, match=r"windows and matrix products.*: not here for eager code"):
        found = eagerly(np.float32, "groups")
    for ours, exact in zip(found, eagerly(np.float64, "groups"), strict=True):
        np.testing.assert_allclose(ours, exact, rtol=1e-4, atol=1e-5 * np.abs(exact).max())


@needs_onednn
def test_eager_plans_have_an_end_which_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn, "EAGER_PLANS", 0)
    onednn.eager_plan.cache_clear()
    with pytest.warns(DistCompileWarning, match="oneDNN has plans for 0 eager convolutions: others are slower"):
        ours = eagerly(np.float32, "plain")
    np.testing.assert_allclose(ours[0], eagerly(np.float64, "plain")[0], rtol=1e-4, atol=1e-5)
    onednn.eager_plan.cache_clear()


@needs_onednn
def test_eager_convolutions_of_many_threads_share_plans_and_nothing_else() -> None:
    expected, wrong = eagerly(np.float32, "blocks of channels"), []

    def work() -> None:
        for _ in range(20):
            found = eagerly(np.float32, "blocks of channels")
            wrong.extend(n for n, (a, b) in enumerate(zip(found, expected)) if not np.array_equal(a, b))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_what_loops_compute_is_no_call_that_a_library_could() -> None:
    compiled = dc.compile(lambda x: F.gelu(x, approximate="tanh").std(), fullgraph=True)
    compiled(dc.randn(3, 4, requires_grad=True)).backward()
    (report,) = compiled.explain().entries
    assert report.expansions == ()
