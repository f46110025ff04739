"""Tensors on a CUDA device: where they are, how they move, what may stand together; on a stand-in."""

from __future__ import annotations

import copy
import pickle
import re
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core import cuda
from compiler_core.device import check_device, cpu
from compiler_core.errors import CudaMemoryError, DeviceError, DeviceTypeError
from compiler_core.ops import prims
from compiler_core.ops.indexing import adding
from compiler_core.ops.random import composite as composite_draws
from compiler_core.ops.random import on_device as random_there
from compiler_core.ops.random.on_device import normal_there, philox_there, uniform_there
from compiler_core.ops.whole import COMPOSITES
from compiler_core.tensor.memory.cell import DeviceCell
from distcompile.nn import functional as F
from tests.fake_cupy import on_fake_device


@pytest.fixture(autouse=True)
def device() -> Iterator[Any]:
    with on_fake_device() as module:
        yield module


def test_where_a_tensor_is() -> None:
    x = dc.ones(2, 3, device="cuda")
    assert (x.device, x.is_cuda, x.get_device(), x.is_cpu) == (dc.device("cuda:0"), True, 0, False)
    assert type(x._cell) is DeviceCell
    assert (x.cpu().device, x.cpu().get_device()) == (cpu, -1)
    assert x.to("cuda:1").device == dc.device("cuda", 1) == x.cuda(1).device
    assert x.to("cuda") is x is x.cuda()
    assert x.cpu().to(x).device == x.device
    with dc.cuda.device(1):
        assert dc.ones(1, device="cuda").get_device() == 1
    assert x.type() == "torch.cuda.FloatTensor"
    assert (x.type(dc.DoubleTensor).device, x.type("torch.cuda.LongTensor").device) == (cpu, x.device)
    assert (x.type(dc.float64).device, dc.ones(1).type(dc.cuda.FloatTensor).device) == (x.device, x.device)
    assert isinstance(x, dc.cuda.FloatTensor)
    assert not isinstance(x, dc.FloatTensor)


@pytest.mark.parametrize(
    "make",
    [
        lambda: dc.zeros(3), lambda: dc.empty(2), lambda: dc.arange(4), lambda: dc.tensor([1.0]), lambda: dc.rand(2),
        lambda: dc.eye(2), lambda: dc.full((2,), 3), lambda: dc.randint(0, 9, (3,)), lambda: dc.randperm(4),
        lambda: dc.as_tensor(np.ones(2)), lambda: dc.linspace(0, 1, 3), lambda: dc.nn.Linear(2, 2).weight,
        lambda: dc.normal(0.0, 1.0, (2,)), lambda: dc.hann_window(4), lambda: dc.tril_indices(2, 2),
        lambda: dc.nn.init.orthogonal_(dc.empty(3, 2)), lambda: dc.nn.init.trunc_normal_(dc.empty(3)),
    ],
)  # fmt: skip
def test_new_tensors_go_to_the_default_device(make: Callable[[], Any], counter_draws: None) -> None:
    dc.manual_seed(3)
    expected = make()
    with dc.device("cuda"):
        dc.manual_seed(3)
        made = make()
        assert made.device == dc.device("cuda:0")
    assert made.cpu().tolist() == expected.tolist()
    dc.set_default_device("cuda:1")
    try:
        assert make().get_device() == 1
    finally:
        dc.set_default_device(None)
    assert make().device is cpu


@pytest.mark.parametrize(
    ("use", "error", "words"),
    [
        (lambda x: x + dc.ones(2, 3), DeviceError, "same device, but found at least two devices, cuda:0 and cpu!"),
        (lambda x: dc.ones(2, 3) @ x.T, DeviceError, "same device, but found at least two devices, cpu and cuda:0!"),
        (lambda x: x * x.to("cuda:1"), DeviceError, "same device, but found at least two devices, cuda:0 and cuda:1!"),
        (lambda x: dc.cat([x, dc.ones(2, 3)]), DeviceError, "same device"),
        (lambda x: dc.ones(5)[x.long()], DeviceError, "indices should be either on cpu or on the same device"),
        (lambda x: x.numpy(), DeviceTypeError, "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu()"),
        (np.asarray, TypeError, "can't convert cuda:0 device type tensor to numpy"),
        (lambda x: x.to("cuda:2"), DeviceError, "invalid device ordinal"),
        (lambda x: x.pin_memory(), DeviceError, "only dense CPU tensors can be pinned"),
        (lambda x: x.cuda("cpu"), DeviceError, "must be cuda device"),
    ],
)
def test_what_is_refused(use: Callable[[Any], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=re.escape(words)):
        use(dc.ones(2, 3, device="cuda"))


def test_numbers_of_the_cpu_may_stand_beside() -> None:
    x, two = dc.ones(2, 3, device="cuda", requires_grad=True), dc.tensor(2.0, requires_grad=True)
    y = (x * two + dc.tensor(1.0)).sum()
    assert y.device == x.device
    y.backward()
    assert x.grad is not None
    assert two.grad is not None
    assert (x.grad.device, two.grad.device, two.grad.item()) == (x.device, cpu, 6.0)
    assert (x[dc.tensor([1])].device, x[:, dc.tensor([True, False, True])].shape) == (x.device, (2, 2))


def test_a_gradient_goes_back_to_where_the_tensor_was() -> None:
    x = dc.arange(4.0, requires_grad=True)
    y = x.to("cuda") ** 2
    z = y.cpu().sum() + y.to("cuda:1").sum().cpu()
    z.backward()
    assert x.grad is not None
    assert (x.grad.device, x.grad.tolist()) == (cpu, [0.0, 4.0, 8.0, 12.0])
    (twice,) = dc.autograd.grad((x.cuda() ** 3).sum(), x, create_graph=True)
    twice.sum().backward()
    assert x.grad.tolist() == [0.0, 4.0 + 6.0, 8.0 + 12.0, 12.0 + 18.0]


def test_hooks_and_functions_see_gradients_on_the_device() -> None:
    seen = []

    class Square(dc.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            seen.append(grad.device)
            return 2 * grad * ctx.saved_tensors[0]

    x = dc.ones(3, device="cuda:1", requires_grad=True)
    y = Square.apply(x)
    y.register_hook(lambda grad: seen.append(grad.device))
    (y.floor().sum() + y.sum()).backward()  # floor's gradient is zero, a constant
    assert set(seen) == {x.device}
    assert x.grad is not None
    assert (x.grad.get_device(), x.grad.tolist()) == (1, [2.0, 2.0, 2.0])
    with pytest.raises(RuntimeError, match="must be on its tensor's device"):
        x.grad = dc.ones(3)
    (zeros,) = dc.autograd.grad(x.sum(), dc.ones(1, device="cuda", requires_grad=True), materialize_grads=True)
    assert zeros is not None
    assert zeros.is_cuda


def test_draws_of_distributions() -> None:
    loc = dc.zeros(3, device="cuda")
    for made in (
        dc.distributions.Normal(loc, loc + 1), dc.distributions.Uniform(loc, loc + 1),
        dc.distributions.Gamma(loc + 1, loc + 1), dc.distributions.Categorical(logits=loc),
        dc.distributions.Dirichlet(loc + 1), dc.distributions.Bernoulli(logits=loc),
        dc.distributions.MultivariateNormal(loc, dc.eye(3, device="cuda")),
    ):  # fmt: skip
        draw = made.sample()
        assert draw.is_cuda
        assert made.log_prob(draw).is_cuda


def test_views_and_writes() -> None:
    x = dc.zeros(3, 4, device="cuda")
    x[1] = 5
    x[:, 0] += dc.ones(3, device="cuda")
    x.T[3].copy_(dc.tensor([7.0, 8.0, 9.0]))
    x[x > 8] = -1.0
    x[2, [1, 2]] = dc.tensor([3.0, 4.0], device="cuda")
    assert x.tolist() == [[1, 0, 0, 7], [6, 5, 5, 8], [1, 3, 4, -1]]
    assert x.is_cuda
    assert x.view(2, 6)[1, 0].item() == 5
    y = dc.zeros(4)
    y.copy_(x[1])
    assert (y.device, y.tolist()) == (cpu, [6, 5, 5, 8])
    assert x.nonzero().device == x.device
    assert x.unique().tolist() == [-1, 0, 1, 3, 4, 5, 6, 7, 8]


def test_what_repeats_on_the_cpu_is_memory_on_the_device() -> None:
    """Programs would otherwise copy it at every call: the weights and biases of a normalisation are ones and zeros."""
    norm = dc.nn.LayerNorm(8)
    assert norm.weight._cell.value.strides == (0,)
    norm.cuda()
    for parameter in norm.parameters():
        assert parameter._cell.value.flags.c_contiguous
    spread = dc.arange(3.0).expand(2, 3).cuda()
    assert spread._read().flags.c_contiguous
    np.testing.assert_array_equal(spread.cpu().numpy(), [[0, 1, 2], [0, 1, 2]])


def test_copies_pickles_and_text() -> None:
    x = dc.arange(3.0, device="cuda:1").requires_grad_()
    for made in (copy.deepcopy(x), pickle.loads(pickle.dumps(x)), copy.copy(x), x.clone().detach()):
        assert (made.device, made.tolist()) == (x.device, [0, 1, 2])
    assert repr(x) == "tensor([0., 1., 2.], device='cuda:1', requires_grad=True)"
    assert repr(dc.zeros(0, 2, device="cuda", dtype=dc.int64)) == (
        "tensor([], device='cuda:0', size=(0, 2), dtype=distcompile.int64)"
    )
    assert (float(x[1]), bool(x[0]), x.data_ptr() != 0) == (1.0, False, True)


def test_cupys_arrays_become_tensors_and_tensors_are_read_by_others(device: Any) -> None:
    array = device.arange(3.0)
    shared, copied = dc.as_tensor(array), dc.tensor(array, dtype=dc.float32, requires_grad=True)
    assert (shared.device, shared.data_ptr(), copied.dtype) == (dc.device("cuda:0"), array.data.ptr, dc.float32)
    assert dc.tensor(array, device="cuda:1").get_device() == 1
    assert shared.__cuda_array_interface__["data"][0] == array.data.ptr
    assert not hasattr(dc.ones(1), "__cuda_array_interface__")
    with pytest.raises(RuntimeError, match="requires a gradient"):
        _ = copied.__cuda_array_interface__


def test_without_a_device_the_error_says_what_is_missing(device: Any) -> None:
    from tests.fake_cupy.module import install

    with cuda.use(install(0)), pytest.raises(DeviceError, match="no device 'cuda' here") as error:
        check_device("cuda")
    assert "no CUDA-capable device is detected" in str(error.value)
    assert "pip install 'distcompile[cuda]'" in str(error.value)


def test_out_of_memory_says_what_is_held_and_by_whom(device: Any) -> None:
    weights = dc.ones(256, 256, device="cuda") * 2
    device.get_default_memory_pool().set_limit(size=1 << 20)
    with pytest.raises(CudaMemoryError, match="CUDA out of memory on cuda:0") as error:
        [weights * k for k in range(9)]
    assert isinstance(error.value, MemoryError)
    assert dc.cuda.OutOfMemoryError is CudaMemoryError
    assert "0.2 MiB  distcompile.float32[256, 256]  Tensor 'weights'" in str(error.value)
    assert "empty_cache" in str(error.value)


def test_nothing_is_loaded_by_a_program_on_the_cpu() -> None:
    import sys

    text = "import sys, distcompile as t; t.ones(2).sum().item(); t.nn.Linear(2, 2); assert 'cupy' not in sys.modules"
    subprocess.run([sys.executable, "-c", text], check=True, timeout=120)


def test_selection_by_data_stays_on_the_device(monkeypatch: pytest.MonkeyPatch, counter_draws: None) -> None:
    mask, numbers = dc.tensor([[0, 1, 2], [3, 0, 0]]), dc.tensor([3, 1, 3, 0, 1, 1])
    weights = dc.tensor([[0.0, 2.0, 1.0], [1.0, 0.0, 0.0]])
    expected = [mask.nonzero(), *mask.nonzero(as_tuple=True), *dc.unique(numbers, return_inverse=True,
                return_counts=True), numbers.unique(), dc.bincount(numbers, minlength=6)]  # fmt: skip
    dc.manual_seed(1)
    drawn = [dc.multinomial(weights, 4, replacement=True), dc.multinomial(weights[0], 2)]
    there = [x.cuda() for x in (mask, numbers, weights)]
    x = weights.cuda()
    _ = x.sum(1), x / x.sum(1, keepdim=True), *[dc.cat([x, x]) for _ in range(3)], there[1] + 1
    # whose kernels are proved once, which fetches
    fetch, fetched = cuda.fetch, []
    monkeypatch.setattr(cuda, "fetch", lambda array: fetched.append(array.size) or fetch(array))
    mask, numbers, weights = there
    found = [mask.nonzero(), *mask.nonzero(as_tuple=True), *dc.unique(numbers, return_inverse=True,
             return_counts=True), numbers.unique(), dc.bincount(numbers, minlength=6)]  # fmt: skip
    dc.manual_seed(1)
    found += [dc.multinomial(weights, 4, replacement=True), dc.multinomial(weights[0], 2)]
    assert all(n <= 2 for n in fetched)  # multinomial's check alone
    monkeypatch.undo()
    for a, b in zip(found, [*expected, *drawn], strict=True):
        assert (a.is_cuda, a.dtype, a.tolist()) == (True, b.dtype, b.tolist())
    with pytest.raises(RuntimeError, match="element < 0"):
        dc.multinomial(-weights, 1)
    with pytest.raises(RuntimeError, match="n_sample > prob_dist"):
        dc.multinomial(weights, 4)
    assert dc.tensor(3, device="cuda").nonzero().shape == (1, 0)
    assert dc.tensor([1.5, 0.5, 1.5], device="cuda", dtype=dc.bfloat16).unique().tolist() == [0.5, 1.5]


def test_a_copy_to_another_device_has_the_streams_wait_and_not_the_host(device: Any) -> None:
    streams = []
    for number in range(2):
        with device.cuda.Device(number):
            streams.append(device.cuda.Stream().use())
    there, here = streams
    dc.testing.assert_close(dc.ones(3, device="cuda:0").to("cuda:1").cpu(), dc.ones(3))
    (_, written), (_, read) = there.log
    assert there.log == [("record", written), ("wait", read)]
    assert here.log[:2] == [("wait", written), ("record", read)]


def _draws(place: str) -> list[Any]:
    dc.manual_seed(7)
    own = dc.Generator(place).manual_seed(3)
    x = dc.ones(5, 7, device=place, requires_grad=True)
    kept = dc.nn.functional.dropout(x, 0.3)
    kept.sum().backward()
    flat = x.detach().clone()
    return [
        kept.detach(), x.grad, dc.rand(3, 4, device=place), dc.rand(3, device=place, dtype=dc.float64),
        dc.rand(3, device=place, dtype=dc.bfloat16), dc.randint(-3, 90, (6,), device=place),
        dc.randperm(20, device=place), dc.rand(3, device=place, generator=own),
        dc.rand(2, device=place, dtype=dc.complex64),
        dc.randn(4, device=place), flat.clone().uniform_(-2, 3), flat.clone().bernoulli_(0.5), flat.clone().random_(9),
        dc.rand(300, 400, device=place), dc.rand_like(flat), dc.randint_like(flat, 4), dc.rand((), device=place),
        dc.rand(0, device=place), dc.bernoulli(flat * 0.5),
        dc.nn.functional.dropout2d(dc.ones(2, 3, 2, 2, device=place)),
    ]  # fmt: skip


def test_a_devices_counter_based_draws_are_the_cpus(counter_draws: None) -> None:
    for here, there in zip(_draws("cpu"), _draws("cuda"), strict=True):
        assert (there.is_cuda, there.dtype) == (True, here.dtype)
        assert there.tolist() == here.tolist()


def test_exact_draws_are_made_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []
    makers = ((prims, philox_there), (composite_draws, uniform_there), (composite_draws, normal_there))
    for module, made in makers:
        monkeypatch.setattr(module, made.__name__, lambda *args, made=made: asked.append(args[1:]) or made(*args))
    x = dc.ones(4, 2, device="cuda:1")
    asked.clear()
    COMPOSITES["dropout"].compose(x, np.array((5, 2, 1), np.uint64), p=0.5, stream=0)
    dc.rand(3, device="cuda")
    dc.bernoulli(x)
    dc.randn(3, device="cuda")
    x.double().normal_()
    assert [args[:3] for args in asked] == [((4, 2), 0, 1), ((3,), 0, 0), ((4, 2), 0, 1), ((3,), 0, 0), ((4, 2), 0, 1)]
    assert [dtype.name for *_, dtype in asked[3:]] == ["float32", "float64"]
    key = np.array((5, 2, 1), np.uint64)
    with on_fake_device():
        assert cuda.fetch(philox_there(key, (3, 5), 4, 0)).tolist() == prims.philox(key, (3, 5), 4).tolist()


def test_kernels_of_draws_are_proved_on_each_device_and_tried_again_after_memory_ran_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def compiled(name: str) -> None:
        asked.append(cuda.current())
        if len(asked) == 1:
            raise MemoryError

    monkeypatch.setattr(random_there, "_compiled", compiled)
    monkeypatch.setattr(random_there, "_kernels", {})
    with pytest.raises(MemoryError):
        dc.randn(3, device="cuda:0")
    for number in (0, 1, 0, 1):
        dc.randn(3, device=f"cuda:{number}")
    assert asked == [0, 0, 1]


def test_what_is_of_another_device_than_the_current_one_is_computed_there() -> None:
    """CuPy would compute them on the current device, out of the other's memory, without waiting for what makes it."""
    a, b = dc.ones(3, device="cuda:1"), dc.ones(3, device="cuda:1")
    assert [str(x.device) for x in (a + b, a * 2, a / b - a, a[a > 0])] == ["cuda:1"] * 4
    with pytest.raises(DeviceError, match="at least two devices"):
        a + b.to("cuda:0")


def test_the_gradient_of_a_number_of_the_cpu_is_on_the_cpu() -> None:
    for devices in (1, 2):
        with on_fake_device(devices):
            x, weights = dc.ones(3, device="cuda"), dc.zeros(4, requires_grad=True)
            share = dc.softmax(weights, 0)[1]  # computed whole, by kernels of the host
            (x.mean() * share).backward()
            assert weights.grad is not None
            assert weights.grad.tolist() == pytest.approx([-1 / 16, 3 / 16, -1 / 16, -1 / 16])


def test_deterministic_sums_into_repeated_places_are_the_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy adds by atomics, floats in any order: where deterministic algorithms are asked for it adds whole numbers."""
    weight, at = dc.zeros(4, 2, device="cuda:1", requires_grad=True), dc.tensor([1, 3, 1], device="cuda:1")
    ones, asked = dc.ones(3, device="cuda:1"), []
    plain = cuda.module().add.at
    monkeypatch.setattr(cuda.module().add, "at", lambda out, *rest: (asked.append(out.dtype), plain(out, *rest)))
    monkeypatch.setitem(adding.mode, "on", False)  # and so again after the test
    for mode in (False, True):
        dc.use_deterministic_algorithms(mode)
        asked.clear()
        weight.grad = None
        F.embedding(at, weight).sum().backward()
        assert weight.grad is not None
        assert weight.grad.tolist() == [[0, 0], [2, 2], [0, 0], [1, 1]]
        empty = dc.zeros(4, device="cuda:1")
        sums = empty.index_add(0, at, ones), empty.scatter_add(0, at, ones), empty.index_put((at,), ones, True)
        assert [x.tolist() for x in sums] == [[0, 2, 0, 1]] * 3
        assert {str(x.device) for x in (*sums, weight.grad)} == {"cuda:1"}
        assert bool(asked) is not mode
    assert empty.long().index_add(0, at, at).tolist() == [0, 2, 0, 3]
    assert asked == [np.int64]


def test_constant_results_are_on_their_operands_device() -> None:
    whole, number = dc.tensor([1, 2], device="cuda:1"), dc.tensor(3.0, device="cuda:1")
    mask = whole.isnan() | whole.isinf() | ~whole.isfinite()
    assert (mask.tolist(), str(mask.device)) == ([False, False], "cuda:1")
    assert (dc.isclose(whole, whole).tolist(), str(number.max(0).indices.device)) == ([True, True], "cuda:1")
    for one in (whole**0, (number * np.nan) ** 0, whole.double().requires_grad_() ** 0.0):
        assert (set(np.ravel(one.tolist())), str(one.device)) == ({1}, "cuda:1")
    assert str((dc.tensor(2.0) * number).device) == str((number - dc.tensor(2.0)).device) == "cuda:1"
