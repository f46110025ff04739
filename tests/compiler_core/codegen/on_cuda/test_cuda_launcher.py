"""The host function of programs for a CUDA device, with a driver that is not there (tests/fake_cuda).

What is seen: which calls are made, in which order, on which addresses and grids; what becomes of errors; and the
numbers, for the fake runs kernels in Triton's interpreter and products in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import distcompile
import distcompile.nn.functional as F
from compiler_core import cuda
from compiler_core.codegen.cuda_backend import CudaBackend
from compiler_core.config import config
from compiler_core.dtype import DType, bfloat16, float16, float32, float64, int64
from compiler_core.errors import BackendError, DeviceError, DTypeError, IndexError_, ShapeError
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.runtime.cuda import checks, context
from distcompile import nn
from tests.fake_cuda import FakeCuda
from tests.fake_cuda.programs import compiled, graph_of, on_device, on_host, vector
from tests.sharing import some

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.usefixtures("no_cache"),
    pytest.mark.usefixtures("counter_draws"),
    pytest.mark.triton,
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT"),
]


def axpy(a: Any, x: Any, y: Any) -> Any:
    return prims.add(prims.mul(prims.expand(a, x.shape), x), y)


# -- calls


def test_a_kernel_is_launched_on_its_grid_with_the_addresses_of_its_arrays(fake_cuda: FakeCuda, rng: Any) -> None:
    run = compiled(prims.exp, vector(5000))
    x = on_device(rng.standard_normal(5000).astype(np.float32))
    (out,) = run([x])
    (launch,) = fake_cuda.named("cuLaunchKernel")
    ((printed, _),) = fake_cuda.functions.values()
    assert launch["kernel"] == printed.function
    assert launch["grid"] == (printed.programs, 1, 1)
    assert (launch["threads"], launch["shared"]) == (128, 64)  # what the fake compiler said
    assert launch["addresses"] == [x.data.ptr, out.data.ptr, 0, 0]  # the last two: scratch that Triton did not want
    assert launch["extra"] is None
    np.testing.assert_allclose(on_host(out), np.exp(on_host(x)), rtol=1e-6)


def test_a_kernel_that_waits_itself_is_launched_while_the_one_before_it_ends(fake_cuda: FakeCuda, rng: Any) -> None:
    fake_cuda.overlaps = True
    run = compiled(prims.exp, vector(5000))
    x = on_device(rng.standard_normal(5000).astype(np.float32))
    (out,) = run([x])
    assert not fake_cuda.named("cuLaunchKernel")
    (launch,) = fake_cuda.named("cuLaunchKernelEx")
    ((printed, _),) = fake_cuda.functions.values()
    assert (launch["count"], launch["attributes"]) == (1, [(6, 1)])  # programmatic stream serialisation: allowed
    assert (launch["grid"], launch["threads"], launch["shared"]) == ((printed.programs, 1, 1), 128, 64)
    np.testing.assert_allclose(on_host(out), np.exp(on_host(x)), rtol=1e-6)
    fake_cuda.fails["cuLaunchKernelEx"] = 700
    with pytest.raises(DeviceError, match="cuLaunchKernelEx failed"):
        run([x])


def test_kernels_are_loaded_once_and_by_name(fake_cuda: FakeCuda) -> None:
    run = compiled(prims.exp, vector(8))
    x = on_device(np.ones(8, np.float32))
    run([x])
    run([x])
    (name,) = fake_cuda.named("cuModuleGetFunction")
    assert [f.name for f in run.entry.functions] == [name]
    (image,) = fake_cuda.named("cuModuleLoadData")
    assert image.startswith("not a cubin for 90")
    assert len(fake_cuda.named("cuLaunchKernel")) == 2


def test_work_goes_to_the_current_stream_and_streams_have_memory_of_their_own(fake_cuda: FakeCuda) -> None:
    def two_sums(x: Any) -> Any:
        return prims.sum(prims.mul(prims.expand(prims.sum(prims.exp(x), (0,)), (2000,)), x), (0,))

    with config.patch(fusion=False):
        run = compiled(two_sums, vector(2000))
    assert run.entry.arena_nbytes
    x = on_device(np.ones(2000, np.float32))
    stream = context.cupy().cuda.Stream()
    with stream:
        run([x])
    inside = fake_cuda.named("cuLaunchKernel")
    run([x])
    outside = fake_cuda.named("cuLaunchKernel")[len(inside) :]
    assert {launch["stream"] for launch in inside} == {stream.ptr}
    assert {launch["stream"] for launch in outside} == {None}
    assert inside[0]["addresses"][1] != outside[0]["addresses"][1]  # a temporary


def test_values_of_the_host_are_uploaded_in_one_copy(fake_cuda: FakeCuda, rng: Any) -> None:
    scalar = TensorMeta((), float32)
    run = compiled(lambda a, x, b: axpy(a, x, prims.expand(b, x.shape)), scalar, vector(100), scalar)
    x = rng.standard_normal(100).astype(np.float32)
    (out,) = run([np.float32(3.0), on_device(x), np.array(0.5, np.float32)])
    assert fake_cuda.named("cuMemcpyHtoDAsync_v2") == [20]  # two values on 16 bytes each, without the rest of the last
    np.testing.assert_allclose(on_host(out), 3 * x + 0.5, rtol=1e-6)
    (again,) = run([on_device(np.float32(2.0)), on_device(x), np.array(1, np.float32)])  # the device's is used there
    np.testing.assert_allclose(on_host(again), 2 * x + 1, rtol=1e-6)


def test_a_number_of_the_host_that_was_expanded_is_filled_in_on_the_device(fake_cuda: FakeCuda) -> None:
    run = compiled(prims.add, vector(8), vector(8))
    (out,) = run([on_device(np.arange(8, dtype=np.float32)), np.broadcast_to(np.float32(2), (8,))])
    assert on_host(out).tolist() == [2, 3, 4, 5, 6, 7, 8, 9]


def test_outputs_go_where_the_caller_says(fake_cuda: FakeCuda) -> None:
    run = compiled(prims.exp, vector(8))
    x, out = on_device(np.ones(8, np.float32)), on_device(np.zeros(8, np.float32))
    assert run([x], [out])[0] is out
    np.testing.assert_allclose(on_host(out), np.e, rtol=1e-6)
    strided = on_device(np.zeros(16, np.float32))[::2]
    assert run([x], [strided])[0] is strided
    np.testing.assert_allclose(on_host(strided), np.e, rtol=1e-6)


def test_inputs_that_are_strided_or_start_off_sixteen_bytes_are_copied(fake_cuda: FakeCuda, rng: Any) -> None:
    run = compiled(prims.neg, vector(8))
    base = rng.standard_normal(17).astype(np.float32)
    for part in (slice(0, 16, 2), slice(1, 9)):
        (out,) = run([on_device(base)[part]])
        np.testing.assert_array_equal(on_host(out), -base[part])


def test_arrays_that_do_not_fit_are_refused_by_name(fake_cuda: FakeCuda) -> None:
    run = compiled(prims.neg, vector(8))
    xp = context.cupy()
    with pytest.raises(DTypeError, match="input 0"):
        run([on_device(np.zeros(8))])
    with pytest.raises(ShapeError, match="input 0"):
        run([on_device(np.zeros(9, np.float32))])
    with pytest.raises(DeviceError, match=r"not on the device[\s\S]*\.to\('cuda'\)"):
        run([np.zeros(8, np.float32)])
    with xp.cuda.Device(1):
        other = on_device(np.zeros(8, np.float32))
    with pytest.raises(DeviceError, match="another device"):
        run([other])
    with pytest.raises(DeviceError, match="place for output 0"):
        run([on_device(np.zeros(8, np.float32))], [np.zeros(8, np.float32)])
    with pytest.raises(BackendError, match="takes 1 inputs, got 0"):
        run([])
    assert not fake_cuda.named("cuLaunchKernel")


# -- checks and failures


@pytest.mark.long
def test_a_failed_check_is_raised_where_the_host_next_looks_and_no_call_waits(fake_cuda: FakeCuda) -> None:
    run = compiled(prims.take, vector(8), vector(3, int64))
    x, good, bad = (on_device(np.array(v)) for v in (np.arange(8, dtype=np.float32), [1, 2, 7], [1, 2, 90]))
    fake_cuda.is_slow = True
    (out,) = run([x, good])
    run([x, bad])
    (again,) = run([x, good])  # nothing is known yet
    assert not fake_cuda.named("cuStreamSynchronize")
    fake_cuda.finish()
    with pytest.raises(IndexError_, match="an earlier call of compiled graph"):
        run([x, good])
    run([x, bad])
    fake_cuda.finish()
    with pytest.raises(IndexError_, match=r"CUDA_LAUNCH_BLOCKING=1[^~]*a GPU tells that an index was out of range"):
        cuda.fetch(out)
    assert cuda.fetch(again).tolist() == [1, 2, 7]  # told once
    for _ in range(2 * checks.WORDS):
        run([x, good])
        fake_cuda.finish()
    assert len(fake_cuda.pinned) == 1  # words are used again


def test_a_failed_check_is_raised_at_the_call_that_waits(fake_cuda: FakeCuda) -> None:
    run = compiled(prims.take, vector(8), vector(3, int64))
    x = on_device(np.arange(8, dtype=np.float32))
    fake_cuda.is_slow = True
    with config.patch(cuda_blocking=True):
        with pytest.raises(IndexError_):
            run([x, on_device(np.array([1, 2, 90]))])
        (out,) = run([x, on_device(np.array([1, 2, 7]))])  # the word is cleared at each call
    assert on_host(out).tolist() == [1, 2, 7]


def test_who_reads_a_tensor_is_told_of_failed_checks(fake_cuda: FakeCuda) -> None:
    table = distcompile.tensor([1.0, 2.0, 3.0], device="cuda")
    total = distcompile.compile(lambda i: table[i].sum())
    for read in (
        distcompile.Tensor.item, distcompile.Tensor.tolist, distcompile.Tensor.cpu, float,
        lambda t: distcompile.cuda.synchronize(),
    ):  # fmt: skip
        assert total(distcompile.tensor([0, 2], device="cuda")).item() == 4
        fake_cuda.is_slow = True
        made = total(distcompile.tensor([0, 7], device="cuda"))
        fake_cuda.finish()
        fake_cuda.is_slow = False
        with pytest.raises(IndexError_):
            read(made)


def test_a_program_without_checks_never_waits(fake_cuda: FakeCuda) -> None:
    compiled(prims.exp, vector(8))([on_device(np.zeros(8, np.float32))])
    assert not fake_cuda.named("cuStreamSynchronize")


def test_a_call_that_fails_says_which_for_what_and_why(fake_cuda: FakeCuda) -> None:
    run = compiled(prims.exp, vector(8))
    fake_cuda.fails["cuLaunchKernel"] = 700
    with pytest.raises(DeviceError, match=r"cuLaunchKernel failed[\s\S]*exp[\s\S]*CUDA_ERROR_700: the driver's text"):
        run([on_device(np.zeros(8, np.float32))])
    product = compiled(prims.matmul, TensorMeta((4, 4), float32), TensorMeta((4, 4), float32))
    fake_cuda.fails["cublasGemmEx"] = 7
    ones = on_device(np.ones((4, 4), np.float32))
    with pytest.raises(DeviceError, match=r"cublasGemmEx failed[\s\S]*matmul[\s\S]*the status's text \(status 7\)"):
        product([ones, ones])
    fake_cuda.fails["cuModuleLoadData"] = 209
    with pytest.raises(DeviceError, match=r"cuModuleLoadData failed[\s\S]*another kind of GPU"):
        compiled(prims.log, vector(8))([on_device(np.zeros(8, np.float32))])


# -- routines


FORMS = list(product((False, True), (False, True), ((), (3,), (2, 3))))


@pytest.mark.parametrize("dtype", [float32, float64, float16, bfloat16], ids=str)
def test_products_of_every_form_are_cublas(fake_cuda: FakeCuda, dtype: DType, rng: Any) -> None:
    graphs, arrays = [], []
    for first, second, batch in FORMS:
        a, b = ((*batch, 7, 5) if first else (*batch, 5, 7)), ((*batch, 6, 7) if second else (*batch, 7, 6))

        def multiply(x: Any, y: Any, first: bool = first, second: bool = second) -> Any:
            turned = [
                prims.permute(v, (*range(len(v.shape) - 2), -1 % len(v.shape), -2 % len(v.shape))) for v in (x, y)
            ]
            return prims.matmul(turned[0] if first else x, turned[1] if second else y)

        graphs.append(graph_of(multiply, TensorMeta(a, dtype), TensorMeta(b, dtype)))
        arrays.append([rng.standard_normal(shape).astype(dtype.numpy) for shape in (a, b)])
    for run, (x, y), (first, second, _) in zip(CudaBackend(90).compile(graphs, "forms"), arrays, FORMS):
        (out,) = run([on_device(x), on_device(y)])
        wide = [np.swapaxes(v, -1, -2) if turned else v for v, turned in ((x, first), (y, second))]
        expected = np.matmul(*(v.astype(np.float64) for v in wide))
        tolerance = {8: 1e-12, 4: 1e-5, 2: 2e-2}[dtype.itemsize]
        np.testing.assert_allclose(on_host(out).astype(np.float64), expected, rtol=tolerance, atol=tolerance * 4)
    calls = fake_cuda.named("cublasGemmEx") + fake_cuda.named("cublasGemmStridedBatchedEx")
    assert {call["compute"] for call in calls} == ({70} if dtype is float64 else {68})
    assert {call["type"] for call in calls} == {{float32: 0, float64: 1, float16: 2, bfloat16: 14}[dtype]}
    assert not fake_cuda.named("cuLaunchKernel")  # no copies, no conversions
    assert {call["batch"] for call in fake_cuda.named("cublasGemmStridedBatchedEx")} == {3, 6}


def test_batch_axes_that_do_not_merge_are_loops_around_the_longest(fake_cuda: FakeCuda, rng: Any) -> None:
    def scores(q: Any, k: Any) -> Any:  # of heads that lie side by side in (batch, time, heads, size)
        return prims.matmul(prims.permute(q, (0, 2, 1, 3)), prims.permute(k, (0, 2, 3, 1)))

    meta = TensorMeta((2, 5, 3, 4), float32)
    q, k = (rng.standard_normal(meta.shape).astype(np.float32) for _ in range(2))
    (out,) = compiled(scores, meta, meta)([on_device(q), on_device(k)])
    expected = np.einsum("bthd,bshd->bhts", q, k)
    np.testing.assert_allclose(on_host(out), expected, rtol=1e-5, atol=1e-6)
    assert [call["batch"] for call in fake_cuda.named("cublasGemmStridedBatchedEx")] == [3, 3]


def test_tf32_is_used_only_while_it_is_permitted(fake_cuda: FakeCuda) -> None:
    run = compiled(prims.matmul, TensorMeta((4, 4), float32), TensorMeta((4, 4), float32))
    ones = on_device(np.ones((4, 4), np.float32))
    run([ones, ones])
    context.permit_tf32(True)
    try:
        run([ones, ones])
    finally:
        context.permit_tf32(False)
    assert [call["compute"] for call in fake_cuda.named("cublasGemmEx")] == [68, 77]


def test_a_factor_on_the_device_is_read_there(fake_cuda: FakeCuda, rng: Any) -> None:
    square, scalar = TensorMeta((6, 6), float32), TensorMeta((), float32)
    run = compiled(lambda a, b, s: prims.mul(prims.matmul(a, b), prims.expand(s, (6, 6))), square, square, scalar)
    a, b = (rng.standard_normal((6, 6)).astype(np.float32) for _ in range(2))
    (out,) = run([on_device(a), on_device(b), np.float32(0.25)])
    np.testing.assert_allclose(on_host(out), a @ b / 4, rtol=1e-5, atol=1e-6)
    (call,) = fake_cuda.named("cublasGemmEx")
    if call["device"]:
        assert fake_cuda.named("cublasSetPointerMode_v2") == [True, False]


def test_a_routine_without_a_cuda_call_runs_between_kernels(fake_cuda: FakeCuda, rng: Any) -> None:
    run = compiled(lambda x: prims.add(prims.argsort(prims.neg(x), 0, False), prims.argsort(x, 0, True)), vector(50))
    assert [back.routine for back in run.entry.callbacks] == ["argsort", "argsort"]
    x = rng.standard_normal(50).astype(np.float32)
    (out,) = run([on_device(x)])
    np.testing.assert_array_equal(on_host(out), 2 * np.argsort(-x, kind="stable"))


def test_what_a_routine_raises_is_raised(fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    run = compiled(lambda x: prims.argsort(x, 0, False), vector(5))
    monkeypatch.setattr(context.cupy().ndarray, "argsort", None)
    monkeypatch.setattr(context.cupy(), "argsort", None)
    with pytest.raises(TypeError):
        run([on_device(np.zeros(5, np.float32))])


# -- whole models


class Block(nn.Module):
    """Embedding, attention, an MLP and a loss: each kind of kernel that a transformer has, and dropout's keys."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 16)
        self.norm = nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 48)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
        self.drop = nn.Dropout(0.25)

    def forward(self, x: distcompile.Tensor, y: distcompile.Tensor) -> distcompile.Tensor:
        h = self.embed(x)
        q, k, v = (t.view(2, 6, 2, 8).transpose(1, 2) for t in self.qkv(self.norm(h)).split(16, dim=2))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 6, 16)
        h = h + self.drop(a)
        h = h + self.down(F.gelu(self.up(h)))
        return F.cross_entropy(F.linear(h, self.embed.weight).view(-1, 11), y.view(-1))


@pytest.mark.parametrize("mode", some(["reduce-overhead", None], 1))
def test_steps_of_training_on_a_device_are_the_cpus(fake_cuda: FakeCuda, rng: Any, mode: str | None) -> None:
    tokens = [rng.integers(0, 11, (2, 6)) for _ in range(2)]

    def trained(device: str, compile: Callable[[nn.Module], Any]) -> list[Any]:
        distcompile.manual_seed(0)
        model = Block().to(device)
        x, y = (distcompile.tensor(array, device=device) for array in tokens)
        optimizer = distcompile.optim.SGD(model.parameters(), lr=0.1)
        step = compile(model)
        for _ in range(4):
            optimizer.zero_grad()
            step(x, y).backward()
            optimizer.step()
        assert {str(parameter.device.type) for parameter in model.parameters()} == {device}
        return [parameter.detach().cpu().numpy() for parameter in model.parameters()]

    expected = trained("cpu", lambda model: model)
    for got, want in zip(trained("cuda", lambda m: distcompile.compile(m, mode=mode)), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-5)
    assert len(fake_cuda.named("cuMemcpyHtoDAsync_v2")) >= 4  # the keys of dropout
    assert not fake_cuda.named("cuStreamSynchronize")
