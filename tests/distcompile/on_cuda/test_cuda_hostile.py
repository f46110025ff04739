"""What hostile readers found of tensors on GPUs, on the stand-in device."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import distcompile as dc
from compiler_core import cuda
from compiler_core.errors import DeviceError
from compiler_core.tensor.memory.lent import memory
from distcompile import Tensor, distributions, nn
from distcompile.nn import functional as F
from tests.fake_cupy import on_fake_device


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    with on_fake_device():
        yield


def test_a_copy_of_a_tensor_is_where_it_was_asked_for() -> None:
    x = dc.ones(2, device="cuda:1")
    assert dc.tensor(x, device="cpu").device.type == "cpu"
    assert dc.tensor(x).device == x.clone().device == x.device


def test_out_is_on_the_results_device() -> None:
    with pytest.raises(DeviceError, match="two devices, cuda:0 and cpu"):
        dc.add(dc.ones(3, device="cuda"), 2, out=dc.empty(3))


def test_a_write_through_a_mask_of_the_cpu() -> None:
    x = dc.arange(6.0, device="cuda").reshape(2, 3)
    x[dc.tensor([True, False])] = 0
    x[dc.tensor([[False, False, False], [False, True, False]])] = dc.tensor(9.0)
    assert x.tolist() == [[0, 0, 0], [3, 9, 5]]
    with pytest.raises(DeviceError):
        x.masked_fill(dc.ones(2, 3, dtype=dc.bool), 1.0)


def test_distributions_of_a_number_and_a_tensor_of_a_gpu() -> None:
    one = dc.ones(2, device="cuda")
    assert distributions.Normal(one, 1.0).log_prob(one).is_cuda
    assert distributions.StudentT(one * 3).variance.is_cuda
    assert distributions.Binomial(5, one * 0.5).sample().is_cuda
    assert distributions.Beta(one * 2, 3.0).mode.is_cuda


def test_gradients_of_two_gpus_are_clipped_by_one_norm() -> None:
    parameters = [nn.Parameter(dc.ones(2, device=f"cuda:{k}")) for k in range(2)]
    for parameter in parameters:
        (3 * parameter).sum().backward()
    assert nn.utils.clip_grad_norm_(parameters, 1.0).item() == pytest.approx(6.0)
    assert parameters[1].grad.tolist() == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("shared", ["twice", "overlapping", "apart"])
def test_gradients_that_share_memory_are_scaled_for_each(shared: str) -> None:
    def clipped(place: str) -> list[list[float]]:
        first, second = nn.Parameter(dc.zeros(6, device=place)), nn.Parameter(dc.zeros(6, device=place))
        flat = dc.arange(12.0, device=place)
        first.grad, second.grad = flat[:6], flat[3:9] if shared == "overlapping" else flat[6:]
        parameters = [first, first, second] if shared == "twice" else [first, second]
        return [nn.utils.clip_grad_norm_(parameters, 1.0).reshape(1).tolist(), flat.tolist(), first.grad.tolist()]

    for there, here in zip(clipped("cuda:1"), clipped("cpu"), strict=True):
        assert there == pytest.approx(here, rel=1e-5)


@pytest.mark.parametrize("order", [0.0, 0.5, 1.0, float("inf"), -float("inf")])
def test_norms_of_any_order_are_the_cpus(order: float) -> None:
    def norm(place: str) -> float:
        return nn.utils.get_total_norm(
            [dc.tensor([3.0, 0.0, -4.0], device=place), dc.tensor([2.0], device=place)], order
        ).item()

    assert norm("cuda") == pytest.approx(norm("cpu"))


def _with_gaps(tensor: Tensor) -> Tensor:
    """The same with gaps between its elements."""
    return dc.stack([tensor, tensor], -1)[..., 0]


@pytest.mark.parametrize("place", ["cpu", "cuda:1"])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w: F.batch_norm(x, None, None, w, w, True),
        lambda x, w: F.group_norm(x, 2, w, w),
        lambda x, w: F.layer_norm(x, (4,), w, w),
        lambda x, w: F.max_pool1d(x, 2),
        lambda x, w: F.scaled_dot_product_attention(x, x.flip(1), x),
        lambda x, w: F.cross_entropy(x, dc.ones(3, 4, dtype=dc.int64, device=x.device), reduction="sum"),
        lambda x, w: F.cross_entropy(x, dc.ones(3, 4, dtype=dc.int64, device=x.device)),
        lambda x, w: F.softmax(x, 1) * w,
    ],
    ids=["batch_norm", "group_norm", "layer_norm", "max_pool", "attention", "sum", "mean", "softmax"],
)
def test_hooks_may_give_what_was_saved_with_gaps(fn: Callable[[Tensor, Tensor], Tensor], place: str) -> None:
    def slopes(hooked: bool) -> list[float]:
        x = dc.arange(48.0, device=place).sin().reshape(3, 4, 4).requires_grad_()
        w = dc.arange(4.0, device=place).cos().requires_grad_()
        with dc.autograd.graph.saved_tensors_hooks(_with_gaps if hooked else lambda t: t, lambda t: t):
            out = fn(x, w)
        (out * dc.arange(float(out.numel()), device=place).reshape(out.shape)).sum().backward()
        return [*x.grad.flatten().tolist(), *(w.grad.tolist() if w.grad is not None else [])]

    assert slopes(True) == pytest.approx(slopes(False), rel=1e-4, abs=1e-4)


def test_who_was_told_an_address_has_the_memory() -> None:
    x = dc.zeros(4, device="cuda")
    address, told = x.__cuda_array_interface__["data"][0], memory(x._cell)
    x.add_(1)
    assert cuda.is_array(told)
    assert told.get().tolist() == [1.0] * 4
    assert x.__cuda_array_interface__["data"][0] == told.data.ptr == address
    del x
    assert told.get().tolist() == [1.0] * 4


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: F.leaky_relu(x, 0.2) ** 2,
        lambda x: F.gelu(x),
        lambda x: F.layer_norm(x, (3,)),
        lambda x: x.cumprod(1).tril(),
        lambda x: x[:, [0, 2]] ** 3,
        lambda x: F.avg_pool1d(x, 2) ** 2,
        lambda x: dc.where(x > 0, x**2, 0.1 * x),
        lambda x: F.normalize(x.maximum(x * 0.5)),
    ],
)
def test_gradients_of_gradients_are_the_cpus(fn: Callable[[Tensor], Tensor]) -> None:
    """What a composite made on the CPU (a table, a number of elements) is a constant there too."""
    found = []
    for place in ("cuda", "cpu"):
        x = dc.linspace(-1, 1.5, 6).reshape(2, 3).to(place).requires_grad_()
        (first,) = dc.autograd.grad(fn(x).sum(), x, create_graph=True)
        (first * first).sum().backward()
        assert x.grad.device.type == place
        found.append(x.grad.tolist())
    assert found[0][0] == pytest.approx(found[1][0])
    assert found[0][1] == pytest.approx(found[1][1])
