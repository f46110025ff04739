"""Convolutions in programs for a CUDA device: which launches they become, and numbers by a driver that is not there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distcompile
import distcompile.nn.functional as F
from compiler_core.codegen.cuda_backend import CudaBackend
from compiler_core.dtype import float32
from compiler_core.graph.ir import GraphBuilder
from compiler_core.graph.passes import SIMPLIFY_JOINT, run_passes
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.convolution.composite import conv2d
from compiler_core.ops.registry import use_trace
from distcompile import nn
from tests.fake_cuda import FakeCuda
from tests.fake_cuda.hosted import HostedBackend

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.triton,
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT", "ignore::RuntimeWarning"),
    pytest.mark.usefixtures("no_cache"),
]


class Net(nn.Module):
    """A stage of a residual network, small."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.point, self.deep = nn.Conv2d(16, 8, 1), nn.Conv2d(8, 16, 3, stride=2, padding=1, groups=2)
        self.short = nn.Conv2d(16, 16, 1, stride=2)

    def forward(self, x: Any) -> Any:
        x = F.relu(self.norm(self.stem(x)))
        x = F.relu(self.deep(self.point(x)) + self.short(x))
        return (x.mean((2, 3)) ** 2).sum()


def test_a_residual_network_trains_by_kernels_and_products(fake_cuda: FakeCuda, rng: Any) -> None:
    distcompile.manual_seed(0)
    net, x = Net(), distcompile.tensor(rng.standard_normal((2, 3, 6, 6)).astype(np.float32))
    x.requires_grad_()
    leaves = [x, *net.parameters()]
    net(x).backward()
    expected = [leaf.grad.numpy().copy() for leaf in leaves]
    for leaf in leaves:
        leaf.grad = None
    backend = HostedBackend(CudaBackend(90))
    distcompile.compile(net, backend=backend)(x).backward()
    for leaf, gradient in zip(leaves, expected, strict=True):
        np.testing.assert_allclose(leaf.grad.numpy(), gradient, rtol=2e-4, atol=2e-5)
    assert not any(run.entry.callbacks for run in backend.made)
    kernels = [launch["kernel"].rpartition("_")[0] for launch in fake_cuda.named("cuLaunchKernel")]
    for function, times in (("convolution_forward", 3), ("convolution_input", 3), ("convolution_weight", 3)):
        assert kernels.count(function) == times
    assert len(fake_cuda.named("cublasGemmEx")) == 3  # the pointwise one


def test_arrays_between_convolutions_have_channels_last() -> None:
    builder = GraphBuilder("graph")
    x, first, second = (
        builder.placeholder(name, TensorMeta(shape, float32))
        for name, shape in (("x", (2, 4, 8, 8)), ("first", (6, 4, 3, 3)), ("second", (5, 6, 3, 3)))
    )
    with use_trace(builder):
        out = conv2d(prims.tanh(conv2d(x, first, padding=1)), second)
    graph = CudaBackend(90).lay_out(run_passes(builder.build([out]), SIMPLIFY_JOINT))
    names = [call.op.name for call in graph.calls]
    assert names.count("convolution_inner") == 2
    assert names.count("permute") == 4  # of x, of two weights, of the result


@pytest.mark.parametrize(("kernel", "sizes"), [((4, 2), (8, 6)), ((3,), (9,)), ((2, 1, 4), (4, 3, 8))])
def test_a_convolution_of_patches_trains_by_products(
    kernel: tuple[int, ...], sizes: tuple[int, ...], fake_cuda: FakeCuda, rng: Any
) -> None:
    distcompile.manual_seed(0)
    kind = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[len(kernel)]
    net = kind(3, 8, kernel, stride=kernel)
    x = distcompile.tensor(rng.standard_normal((2, 3, *sizes)).astype(np.float32)).requires_grad_()
    leaves = [x, *net.parameters()]

    def loss(x: Any) -> Any:
        return (net(x) ** 3).sum()

    loss(x).backward()
    expected = [leaf.grad.numpy().copy() for leaf in leaves]
    for leaf in leaves:
        leaf.grad = None
    backend = HostedBackend(CudaBackend(90))
    distcompile.compile(loss, backend=backend)(x).backward()
    for leaf, gradient in zip(leaves, expected, strict=True):
        np.testing.assert_allclose(leaf.grad.numpy(), gradient, rtol=2e-4, atol=2e-5)
    assert len(fake_cuda.named("cublasGemmEx")) == 3
    kernels = [launch["kernel"] for launch in fake_cuda.named("cuLaunchKernel")]
    assert not any("convolution" in name for name in kernels)


@pytest.mark.parametrize(
    ("channels", "size", "how"),
    [
        (3, 9, {"stride": 4}),  # a rest
        (3, 8, {"stride": 2}),  # overlapping
        (16, 8, {"stride": 4}),  # many channels
        (4, 8, {"stride": 4, "groups": 2}),
        (3, 14, {"stride": 4, "padding": 1}),
        (3, 28, {"stride": 4, "dilation": 3}),
    ],
)
def test_what_is_no_cover_of_patches_stays_a_convolution(channels: int, size: int, how: dict[str, int]) -> None:
    builder = GraphBuilder("graph")
    groups = how.get("groups", 1)
    x = builder.placeholder("x", TensorMeta((2, channels, size, size), float32))
    weight = builder.placeholder("w", TensorMeta((6, channels // groups, 4, 4), float32))
    with use_trace(builder):
        graph = builder.build([conv2d(x, weight, **how)])
    names = [call.op.name for call in CudaBackend(90).lay_out(run_passes(graph, SIMPLIFY_JOINT)).calls]
    assert "convolution_inner" in names
