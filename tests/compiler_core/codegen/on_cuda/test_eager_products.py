"""Products of 16-bit floats in eager code: cuBLAS's calls, and their numbers by a library that is not there."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.dtype import DType, bfloat16, float16, float32
from compiler_core.eager.device import padding
from compiler_core.eager.device import products as device_products
from compiler_core.errors import DeviceError
from compiler_core.ops import prims
from compiler_core.runtime.cuda import context, eager_product
from tests.fake_cuda import FakeCuda
from tests.fake_cuda.programs import on_device, on_host
from tests.fake_cupy import on_fake_device

pytest.importorskip("triton")
pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

# name -> shapes as they are made, what is done with them, how many calls
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], Any, Any, int]] = {
    "one matrix": ((5, 7), (7, 4), lambda a: a, lambda b: b, 1),
    "turned": ((7, 5), (4, 7), lambda a: a.T, lambda b: b.T, 1),
    "a row and a column": ((1, 7), (7, 1), lambda a: a, lambda b: b, 1),
    "one number": ((1, 1), (1, 1), lambda a: a, lambda b: b, 1),
    "part of rows": ((5, 9), (9, 6), lambda a: a[:, 1:8], lambda b: b[:7, 2:5], 1),
    "every second column": ((5, 14), (7, 4), lambda a: a[:, ::2], lambda b: b, 1),
    "backwards": ((5, 7), (7, 4), lambda a: a[::-1], lambda b: b, 1),
    "a batch": ((3, 5, 7), (3, 7, 4), lambda a: a, lambda b: b, 1),
    "batches that lie as one": ((2, 3, 5, 7), (2, 3, 4, 7), lambda a: a, lambda b: b.swapaxes(-1, -2), 1),
    "heads inside": ((2, 5, 3, 7), (2, 4, 3, 7), lambda a: a.swapaxes(1, 2), lambda b: b.transpose(0, 2, 3, 1), 2),
    "repeated": ((1, 5, 7), (3, 7, 4), lambda a: dc_repeat(a, 3), lambda b: b, 1),
    "repeated within": ((5, 1), (7, 4), lambda a: dc_repeat(a, 7, -1), lambda b: b, 1),
}


def dc_repeat(x: Any, n: int, dim: int = 0) -> Any:
    shape = list(x.shape)
    shape[dim] = n
    module = np if isinstance(x, np.ndarray) else context.cupy()
    return module.broadcast_to(x, tuple(shape))


TYPES = {bfloat16: 14, float16: 2, float32: 0}  # cudaDataType_t


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_floats_are_multiplied_as_they_are(name: str, dtype: DType, fake_cuda: FakeCuda, rng: Any) -> None:
    first, second, of_first, of_second, calls = CASES[name]
    a, b = (rng.standard_normal(shape).astype(dtype.numpy) for shape in (first, second))
    expected = of_first(a).astype(np.float32) @ of_second(b).astype(np.float32)
    found = on_host(prims.matmul(of_first(on_device(a)), of_second(on_device(b))))
    assert found.dtype == dtype.numpy
    np.testing.assert_array_equal(found, expected.astype(dtype.numpy))
    made = fake_cuda.named("cublasGemmStridedBatchedEx")
    assert len(made) == calls
    assert {call["type"] for call in made} == {TYPES[dtype]}
    assert {call["compute"] for call in made} == {68}


ODD: dict[str, Any] = {  # operands of [5, 19] and [19, 13], as they lie
    "rows": lambda a, b: (a, b),
    "turned first": lambda a, b: (a.T.copy().T, b),
    "turned second": lambda a, b: (a, b.T.copy().T),
    "both turned": lambda a, b: (a.T.copy().T, b.T.copy().T),
    "every second row": lambda a, b: (np.repeat(a, 2, 0)[::2], b),
}


@pytest.mark.parametrize("result", [None, float32.numpy], ids=["as they are", "in f32"])
@pytest.mark.parametrize("name", ODD)
def test_rows_that_do_not_start_on_16_bytes_are_padded(
    name: str, result: Any, fake_cuda: FakeCuda, rng: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(padding, "_MIN_FLOPS", 0)
    monkeypatch.setattr(padding, "_MIN_SIZE", 1)
    told: list[int] = []
    planned = eager_product._planned

    def noted(*operands: Any) -> Any:
        told.extend(max(x.strides) for x in operands[:2])
        return planned(*operands)

    monkeypatch.setattr(eager_product, "_planned", noted)
    monkeypatch.setattr(eager_product, "_plans", {})
    for _ in range(4):
        a, b = (rng.standard_normal(shape).astype(float16.numpy) for shape in ((5, 19), (19, 13)))
        there = [on_device(x) if x.flags.c_contiguous else lain(x) for x in ODD[name](a, b)]
        fake_cuda.calls.clear()
        made = eager_product.run(context.cupy(), None, there, {} if result is None else {"result": result})
        right = a.astype(np.float32) @ b.astype(np.float32)
        assert made.dtype == (result or float16.numpy)
        np.testing.assert_allclose(on_host(made).astype(np.float32), right, rtol=1e-3 if result is None else 1e-5)
        assert len(fake_cuda.named("cublasGemmStridedBatchedEx")) == 1
    assert told
    assert not any(step % 16 for step in told)


def lain(x: Any) -> Any:
    """There, lying alike."""
    return on_device(np.ascontiguousarray(x.T)).T if x.strides[0] == x.itemsize else on_device(np.repeat(x, 2, 0))[::2]


def test_a_copy_lives_until_it_is_multiplied(fake_cuda: FakeCuda, monkeypatch: Any) -> None:
    """Else another thread's array may lie there before cuBLAS is told of it."""
    a, b = (on_device(np.ones(shape, float16.numpy)) for shape in ((5, 14), (7, 4)))
    copies: list[Any] = []
    copy, multiply = eager_product.copied, eager_product._multiply

    def copying(x: Any) -> Any:
        made = copy(x)
        copies.append(weakref.ref(made))
        return made

    def multiplying(*args: Any) -> None:
        assert all(made() is not None for made in copies)
        multiply(*args)

    monkeypatch.setattr(eager_product, "copied", copying)
    monkeypatch.setattr(eager_product, "_multiply", multiplying)
    prims.matmul(a[:, ::2], b)
    assert len(copies) == 1


def test_f32_is_multiplied_in_tf32_where_that_is_permitted_at_the_time(fake_cuda: FakeCuda) -> None:
    """The layer's kernels are proved by exact products, whatever is permitted."""
    layer = dc.nn.Linear(8, 16).cuda()
    x = dc.ones(4, 8, device="cuda")
    before = dc.get_float32_matmul_precision()
    computed = []
    try:
        for precision in ("high", "highest") * 2:
            fake_cuda.calls.clear()
            dc.set_float32_matmul_precision(precision)
            layer(x)
            x @ x.T
            made = [fake_cuda.named(name) for name in ("cublasGemmStridedBatchedEx", "cublasLtMatmul")]
            computed.append([calls[-1]["compute"] for calls in made])
    finally:
        dc.set_float32_matmul_precision(before)
    assert computed == [[77, 77], [68, 68]] * 2


def test_others_are_cupys(fake_cuda: FakeCuda) -> None:
    prims.matmul(*(on_device(np.ones((2, 2), np.float64)) for _ in range(2)))
    prims.matmul(*(on_device(np.ones(shape, bfloat16.numpy)) for shape in ((3, 0), (0, 2))))
    assert fake_cuda.named("cublasGemmStridedBatchedEx") == []


def trained(width: int, fake: FakeCuda, rng: Any) -> tuple[list[Any], list[Any]]:
    """Of a layer from `width` to 16, its result and gradients, and those of float64; proved before."""
    model = dc.nn.Linear(width, 16).cuda().to(dc.bfloat16)
    x = dc.tensor(rng.standard_normal((5, 3, width)), device="cuda", dtype=dc.bfloat16, requires_grad=True)
    exact = dc.nn.Linear(width, 16).double()
    exact.load_state_dict({name: p.cpu().double() for name, p in model.state_dict().items()})
    leaf = x.detach().cpu().double().requires_grad_()
    found: list[Any] = []
    expected: list[Any] = []
    for layer, given in ((model, x), (model, x), (exact, leaf)):
        for one in (given, *layer.parameters()):
            one.grad = None
        fake.calls.clear() if layer is model else None
        out = layer(given)
        (out * (dc.arange(out.numel()).reshape(out.shape) % 3 - 1).to(out)).sum().backward()
        made = [v.detach().cpu().double().numpy() for v in (out, given.grad, *(p.grad for p in layer.parameters()))]
        found, expected = (made, []) if layer is model else (found, made)
    return found, expected


@pytest.mark.parametrize("width", [8, 6])
def test_a_layer_is_trained_there(width: int, fake_cuda: FakeCuda, rng: Any) -> None:
    """Its bias is added by cuBLASLt, if rows start on 16 bytes."""
    found, expected = trained(width, fake_cuda, rng)
    for ours, exact in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, exact, rtol=2e-2, atol=2e-2)
    with_bias, others = (fake_cuda.named(name) for name in ("cublasLtMatmul", "cublasGemmStridedBatchedEx"))
    assert [call["bias"] for call in with_bias] == [True] * (width == 8)
    assert len(others) == (2 if width == 8 else 3)


def test_where_cublaslt_has_no_algorithm_the_bias_is_added_after(fake_cuda: FakeCuda, rng: Any) -> None:
    fake_cuda.lt.algorithms = 0
    found, expected = trained(8, fake_cuda, rng)
    for ours, exact in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, exact, rtol=2e-2, atol=2e-2)
    assert fake_cuda.named("cublasLtMatmul") == []


def test_under_autocast_a_layers_weights_are_cast_in_its_node_once_and_get_sums_in_f32(
    fake_cuda: FakeCuda, rng: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, leaf = dc.nn.Linear(8, 8).cuda(), dc.tensor(rng.standard_normal((5, 3, 8)), dtype=float32)
    exact = dc.nn.Linear(8, 8).double()
    exact.load_state_dict({name: p.cpu().double() for name, p in model.state_dict().items()})
    casts: list[Any] = []
    make, cast = device_products.run_eager, device_products.narrowed
    monkeypatch.setattr(device_products, "run_eager", lambda op, *rest: (casts.append(op.name), make(op, *rest))[1])
    monkeypatch.setattr(device_products, "narrowed", lambda *of: (casts.append("weight"), cast(*of))[1])
    found = []
    for layer, x in ((model, leaf.cuda().requires_grad_()), (exact, leaf.double().requires_grad_())):
        with dc.autocast("cuda", bfloat16):
            out = layer(layer(x) + x)
        (out * (dc.arange(out.numel()).reshape(out.shape) % 5 - 1).to(out)).sum().backward()
        if layer is model:
            assert out.dtype is bfloat16
            assert {x.grad.dtype, layer.weight.grad.dtype, layer.bias.grad.dtype} == {float32}
            assert [node.name() for node, _ in out.grad_fn.next_functions][1:] == [
                "torch::autograd::AccumulateGrad"
            ] * 2
        found.append([v.detach().cpu().double().numpy() for v in (out, x.grad, layer.weight.grad, layer.bias.grad)])
    assert casts.count("weight") == 2 * 2  # of the proof and here
    assert casts.count("cast") == 2 * 1  # the gradient of the sum
    for ours, right in zip(*found, strict=True):
        assert np.linalg.norm(ours - right) < 2e-2 * np.linalg.norm(right)


@pytest.mark.parametrize("lowers", [True, False])
def test_addmm_of_a_layer_is_one_node_whose_bias_cublaslt_adds(lowers: bool, fake_cuda: FakeCuda, rng: Any) -> None:
    """Conv1D of transformers: a weight that lies as (in, out), of f32 under autocast, or of 16 bits as all is."""
    found = []
    given = [rng.standard_normal(s) for s in ((24,), (5, 8), (8, 24))]
    for where, dtype in (("cuda", float32 if lowers else bfloat16), ("cpu", dc.float64)):
        bias, x, weight = (dc.tensor(a, dtype=dtype, device=where).requires_grad_() for a in given)
        fake_cuda.calls.clear()
        with dc.autocast("cuda", bfloat16, enabled=lowers):
            out = dc.addmm(bias, x, weight)
        (out * (dc.arange(out.numel(), device=where).reshape(out.shape) % 3 - 1).to(out)).sum().backward()
        if where == "cuda":
            assert out.grad_fn.name() == "AddmmBackward0"
            assert (out.dtype, weight.grad.dtype, bias.grad.dtype) == (bfloat16, dtype, dtype)
            assert True in [call["bias"] for call in fake_cuda.named("cublasLtMatmul")]
        found.append([v.detach().cpu().double().numpy() for v in (out, bias.grad, x.grad, weight.grad)])
    for ours, exact in zip(*found, strict=True):
        np.testing.assert_allclose(ours, exact, rtol=2e-2, atol=5e-2)


def test_addmm_that_is_no_layer_is_a_product_and_a_sum(fake_cuda: FakeCuda) -> None:
    ones = dc.ones(8, 8, device="cuda", dtype=bfloat16)
    for bias, how in ((ones, {}), (ones[0], {"beta": 2}), (ones[0], {"alpha": 0.5}), (ones[0, :1], {})):
        expected = 8 * how.get("alpha", 1) + how.get("beta", 1)
        assert dc.addmm(bias, ones, ones, **how).tolist() == [[expected] * 8] * 8
    assert fake_cuda.named("cublasLtMatmul") == []
    with pytest.raises(RuntimeError):
        dc.addmm(ones[0].float(), ones, ones)


def test_each_stream_is_told(fake_cuda: FakeCuda) -> None:
    model = dc.nn.Linear(6, 4).cuda().to(dc.bfloat16)
    x = dc.ones(5, 6, device="cuda", dtype=dc.bfloat16, requires_grad=True)
    model(x).sum().backward()
    told = len(fake_cuda.named("cublasSetStream_v2"))
    with dc.cuda.stream(dc.cuda.Stream()):
        model(x)
    model(x)
    assert len(fake_cuda.named("cublasSetStream_v2")) == told + 2


def test_a_call_that_fails_is_a_named_error(fake_cuda: FakeCuda) -> None:
    x = on_device(np.ones((2, 2), float16.numpy))
    fake_cuda.fails["cublasGemmStridedBatchedEx"] = 13
    with pytest.raises(DeviceError, match="cublasGemmStridedBatchedEx failed"):
        prims.matmul(x, x)


def test_without_cublas_they_are_multiplied_as_f32() -> None:
    with on_fake_device():
        x = dc.full((2, 3), 1.5, device="cuda", dtype=dc.bfloat16)
        assert (x @ x.T).tolist() == [[6.75, 6.75], [6.75, 6.75]]
        assert (x.float() @ x.T.float()).dtype is float32
