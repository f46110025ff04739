"""Tensors on a CUDA device: where they are, how they move, what may stand together; on a stand-in."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core import cuda
from compiler_core.device import check_device, cpu
from compiler_core.errors import CudaMemoryError, DeviceError, DeviceTypeError
from compiler_core.tensor.cell import DeviceCell
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
def test_new_tensors_go_to_the_default_device(make: Callable[[], Any]) -> None:
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
    import subprocess
    import sys

    text = "import sys, distcompile as t; t.ones(2).sum().item(); t.nn.Linear(2, 2); assert 'cupy' not in sys.modules"
    subprocess.run([sys.executable, "-c", text], check=True, timeout=120)
