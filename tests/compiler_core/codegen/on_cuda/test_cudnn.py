"""Convolutions by cuDNN: which calls go there, with which engine, and their numbers by a library that is not there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from compiler_core.codegen.cuda_backend import CudaBackend
from compiler_core.config import config
from compiler_core.dtype import DType, bfloat16, float16, float32
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.runtime.callback import Callback
from compiler_core.runtime.cuda import context, cudnn
from compiler_core.runtime.cuda.executable import CudaExecutable
from tests.fake_cuda import FakeCuda
from tests.fake_cuda.dnn import WORKSPACE, Dnn, add_cudnn
from tests.fake_cuda.programs import graph_of, on_device, on_host

pytest.importorskip("triton")
pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore:TRITON_DEFAULT", "ignore::RuntimeWarning")]

ATTRS: dict[str, Any] = {"stride": (2, 1), "low": (1, 0), "high": (0, 1), "dilation": (1, 2), "groups": 2}


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What the fake compiles, and chooses, must not be found by others."""
    monkeypatch.setattr(cudnn, "_plans", {})
    monkeypatch.setattr(cudnn, "_eager_plans", {})
    monkeypatch.setattr(cudnn, "_choices", {})
    with config.patch(use_cache=False):
        yield


@pytest.fixture
def dnn(fake_cuda: FakeCuda) -> Dnn:
    return add_cudnn(fake_cuda)


def _three(x: Any, weight: Any, g: Any) -> list[Any]:
    """A convolution and its two gradients."""
    made = prims.convolution(x, weight, **ATTRS)
    back = prims.convolution_input(g, weight, tuple(x.shape[2:]), **ATTRS)
    return [made, back, prims.convolution_weight(x, g, tuple(weight.shape[2:]), **ATTRS)]


def _compiled(dtype: DType) -> tuple[CudaExecutable, list[np.ndarray], list[np.ndarray]]:
    """The executable, its operands, and what it should give."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 32, 7, 9)).astype(dtype.numpy)
    weight = rng.standard_normal((6, 16, 3, 2)).astype(dtype.numpy)
    wide = [array.astype(np.float64) for array in (x, weight)]
    shape = prims.convolution(*wide, **ATTRS).shape
    g = rng.standard_normal(shape).astype(dtype.numpy)
    metas = [TensorMeta(array.shape, dtype) for array in (x, weight, g)]
    backend = CudaBackend(90)
    (run,) = backend.compile([backend.lay_out(graph_of(_three, *metas))], "test")
    return run, [x, weight, g], _three(*wide, g.astype(np.float64))


@pytest.mark.parametrize("dtype", [bfloat16, float16], ids=str)
def test_convolutions_of_16_bit_floats_are_its_calls(dtype: DType, dnn: Dnn) -> None:
    run, operands, expected = _compiled(dtype)
    assert [call.routine for call in run.entry.planned] == [
        "convolution_cudnn", "convolution_cudnn_input", "convolution_cudnn_weight",
    ]  # fmt: skip
    assert all("place=1" in call.attrs for call in run.entry.planned)  # the first engine's bits do not repeat
    dnn.ran.clear()
    found = run([on_device(operand) for operand in operands])
    for ours, exact in zip(found, expected, strict=True):
        np.testing.assert_allclose(on_host(ours).astype(np.float64), exact, rtol=2e-2, atol=5e-2)
    assert [kind for kind, _ in dnn.ran] == ["convolution", "convolution_input", "convolution_weight"]
    assert all(workspace for _, workspace in dnn.ran)
    assert run.entry.arena_nbytes >= WORKSPACE


def test_float32_stays_with_our_kernels(dnn: Dnn) -> None:
    run, operands, expected = _compiled(float32)
    assert run.entry.planned == ()
    for ours, exact in zip(run([on_device(operand) for operand in operands]), expected, strict=True):
        np.testing.assert_allclose(on_host(ours), exact, rtol=1e-4, atol=1e-4)


def test_what_it_refuses_stays_too(dnn: Dnn) -> None:
    dnn.refuses = True
    run, operands, expected = _compiled(bfloat16)
    assert run.entry.planned == ()
    assert not any(call.routine for call in run.entry.callbacks)
    np.testing.assert_allclose(
        on_host(run([on_device(operand) for operand in operands])[0]).astype(np.float64),
        expected[0],
        rtol=2e-2,
        atol=5e-2,
    )


def test_it_can_be_switched_off(dnn: Dnn) -> None:
    cudnn.enable(False)
    try:
        assert _compiled(bfloat16)[0].entry.planned == ()
    finally:
        cudnn.enable(True)


def test_without_it_one_warning_says_why(fake_cuda: FakeCuda) -> None:
    with pytest.warns(UserWarning, match="our own kernels, which are slower.*cudnnGetVersion"):
        run, _, _ = _compiled(bfloat16)
    assert run.entry.planned == ()


def test_eager_operands_that_start_anywhere_are_copied(dnn: Dnn, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch without its first image: contiguous, but plans were promised multiples of 16 bytes."""
    given: list[int] = []
    execute = cudnn.execute

    def watched(plan: Any, addresses: Sequence[int], workspace: int) -> None:
        given.extend(addresses)
        execute(plan, addresses, workspace)

    monkeypatch.setattr(cudnn, "execute", watched)
    rng = np.random.default_rng(0)
    x, weight = (rng.standard_normal(shape).astype(bfloat16.numpy) for shape in ((3, 3, 5, 5), (4, 3, 3, 3)))
    attrs: dict[str, Any] = {"stride": (1, 1), "low": (0, 0), "high": (0, 0), "dilation": (1, 1), "groups": 1}
    late = on_device(x)[1:]
    assert late.data.ptr % 16, "the case is one"
    made = on_host(prims.convolution(late, on_device(weight), **attrs)).astype(np.float64)
    exact = prims.convolution(x[1:].astype(np.float64), weight.astype(np.float64), **attrs)
    np.testing.assert_allclose(made, exact, rtol=2e-2, atol=0.2)
    assert len(given) == 3
    assert not any(address % 16 for address in given)


@pytest.mark.parametrize("refuses", [False, True])
def test_eager_convolutions_go_there_too(refuses: bool, dnn: Dnn) -> None:
    dnn.refuses = refuses
    rng = np.random.default_rng(0)
    x, weight = (rng.standard_normal(shape).astype(bfloat16.numpy) for shape in ((2, 32, 7, 9), (6, 16, 3, 2)))
    exact = prims.convolution(x.astype(np.float64), weight.astype(np.float64), **ATTRS)
    g = rng.standard_normal(exact.shape).astype(bfloat16.numpy)
    expected = _three(x.astype(np.float64), weight.astype(np.float64), g.astype(np.float64))
    for _ in range(2):  # at the first call engines are measured
        dnn.ran.clear()
        for ours, one in zip(_three(*map(on_device, (x, weight, g))), expected, strict=True):
            np.testing.assert_allclose(on_host(ours).astype(np.float64), one, rtol=2e-2, atol=0.2)
    kinds = [] if refuses else ["convolution", "convolution_input", "convolution_weight"]
    assert [kind for kind, _ in dnn.ran] == kinds


def _engines(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The engines that are run, by the place in their list, of which the second is the fastest."""
    ran: list[int] = []
    plans: dict[int, int] = {}
    monkeypatch.setattr(cudnn, "_notes", lambda configuration: set())
    candidates = cudnn._candidates

    def counted(call: Any, tf32: bool = False) -> Iterator[Any]:
        for mode, place, plan, workspace in candidates(call, tf32):
            plans[plan.value] = place
            yield mode, place, plan, workspace

    def measured(plan: Any, addresses: list[int], workspace: int) -> float:
        ran.append(plans[plan.value])
        return 2.0 - plans[plan.value]

    monkeypatch.setattr(cudnn, "_candidates", counted)
    monkeypatch.setattr(cudnn, "_measured", measured)
    return ran


def _grouped(groups: int) -> Any:
    x, weight = (on_device(np.ones(shape, bfloat16.numpy)) for shape in ((2, 32, 7, 9), (6, 32 // groups, 3, 2)))
    return on_host(prims.convolution(x, weight, **{**ATTRS, "groups": groups})).astype(np.float64)


def test_eager_convolutions_in_groups_have_the_fastest_engine(
    dnn: Dnn, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """It is measured once, and found in the cache by other processes."""
    measured = _engines(monkeypatch)
    chosen: list[Any] = []
    make = cudnn._configurations
    monkeypatch.setattr(cudnn, "_configurations", lambda *a: (chosen.append(a[1:]), make(*a))[1])
    with config.patch(use_cache=True, cache_dir=tmp_path):
        assert _grouped(1).max() == 192
        assert measured == []
        first = _grouped(2)
        assert measured == [0, 1, 0, 1], "both engines, of both lists of heuristics"
        assert chosen[-1] == (3, 2), "the second of the first list is planned"
        assert np.array_equal(_grouped(2), first)
        for name in ("_eager_plans", "_choices"):  # as in another process
            monkeypatch.setattr(cudnn, name, {})
        assert np.array_equal(_grouped(2), first)
        assert measured == [0, 1, 0, 1]
        assert chosen[-1] == (3, 2)


def test_eager_convolutions_are_measured_where_that_is_asked_for(dnn: Dnn, monkeypatch: pytest.MonkeyPatch) -> None:
    import distcompile as torch

    measured = _engines(monkeypatch)
    assert not torch.backends.cudnn.benchmark
    assert _grouped(1).max() == 192
    with torch.backends.cudnn.flags(enabled=True, benchmark=True):
        assert torch.backends.cudnn.benchmark
        assert _grouped(1).max() == 192
    assert measured == [0, 1, 0, 1]
    assert not torch.backends.cudnn.benchmark
    assert _grouped(1).max() == 192
    assert measured == [0, 1, 0, 1]


def test_where_nothing_is_measured_groups_have_the_first_engine(dnn: Dnn, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = _engines(monkeypatch)
    with config.patch(measure=False):
        assert _grouped(2).max() == 96
    assert measured == []


def test_each_kind_of_device_has_a_choice_of_its_own(dnn: Dnn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs of a host may be of two kinds: what is fastest on one is not what the other has."""
    asked: list[str] = []

    def measured(call: Callback) -> str:
        asked.append(cudnn.identity())
        return f"none on {len(asked)}"

    monkeypatch.setattr(cudnn, "_choose", measured)
    runtime = context.cupy().cuda.runtime
    call = Callback("convolution_cudnn", "", ())
    assert [cudnn.choose(call), cudnn.choose(call)] == ["none on 1", "none on 1"]
    kinds = [b"Stand-in GPU", b"Another GPU"]
    monkeypatch.setattr(runtime, "getDeviceProperties", lambda number: {"name": kinds[number]})
    with context.on(1):
        assert cudnn.choose(call) == "none on 2"
    assert cudnn.choose(call) == "none on 1"
    assert asked[0] != asked[1]


def test_operands_that_start_anywhere(dnn: Dnn) -> None:
    """Eager copies them; in a program they stay with our kernels."""
    rng = np.random.default_rng(0)
    x, weight = (rng.standard_normal(shape).astype(bfloat16.numpy) for shape in ((3, 16, 3, 1), (4, 16, 1, 1)))
    attrs = {"stride": (1, 1), "low": (0, 0), "high": (0, 0), "dilation": (1, 1), "groups": 1}
    base = on_device(np.concatenate([np.zeros(1, x.dtype), x.reshape(-1)]))
    found = prims.convolution(base[1:].reshape(x.shape), on_device(weight), **attrs)
    expected = prims.convolution(x.astype(np.float64), weight.astype(np.float64), **attrs)
    np.testing.assert_allclose(on_host(found).astype(np.float64), expected, rtol=2e-2, atol=5e-2)
    assert len(dnn.ran) == 1

    def odd(flat: Any, weight: Any) -> Any:
        """Of what begins 2 bytes behind an input's start, as it lies."""
        last = prims.reshape(prims.slice(flat, (1,), (145,), (1,)), (3, 3, 1, 16))
        return prims.convolution_inner(last, weight, **{**attrs, "stride": (2, 1)})

    metas = [TensorMeta((145,), bfloat16), TensorMeta((4, 1, 1, 16), bfloat16)]
    (run,) = CudaBackend(90).compile([graph_of(odd, *metas)], "odd")
    assert run.entry.steps[0].startswith("convolution_inner ")
    assert run.entry.planned == ()
