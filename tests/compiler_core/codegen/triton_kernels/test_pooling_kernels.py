"""Pooling's Triton functions: run by the interpreter against the definition, and in a compiled network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handwritten_harness import check_compiled, contiguous, interpret, module_of, strided

import distcompile
import distcompile.nn.functional as F
from compiler_core.codegen.cuda_backend import CudaBackend
from compiler_core.codegen.triton.handwritten import print_call
from compiler_core.codegen.triton.load import HostArray, load
from compiler_core.config import config
from compiler_core.dtype import DType, bfloat16, float16, float32
from compiler_core.ops.pooling.inner import POOL_MAX_INNER, POOL_MAX_PUT_INNER
from compiler_core.ops.registry import run_eager
from distcompile import nn
from tests.fake_cuda import FakeCuda
from tests.fake_cuda.hosted import HostedBackend
from tests.sharing import some

pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore:TRITON_DEFAULT", "ignore::RuntimeWarning")]
pytest.importorskip("triton")

Dims = tuple[int, ...]
# name -> x (channels last), kernel, stride, dilation, low, high
CASES: dict[str, tuple[Dims, Dims, Dims, Dims, Dims, Dims]] = {
    "three by three": ((2, 9, 8, 24), (3, 3), (2, 2), (1, 1), (1, 1), (1, 0)),
    "dilation": ((1, 12, 11, 7), (2, 3), (2, 1), (3, 2), (0, 2), (1, 1)),
    "one spatial dim": ((3, 20, 5), (4,), (3,), (1,), (2,), (1,)),
    "windows apart": ((1, 9, 9, 4), (2, 2), (3, 4), (1, 1), (0, 0), (0, 0)),
}


def _operands(name: str, dtype: DType) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Numbers with ties, a NaN, and windows that are lowest throughout."""
    x, kernel, stride, dilation, low, high = CASES[name]
    attrs = {"kernel": kernel, "stride": stride, "dilation": dilation, "low": low, "high": high}
    rng = np.random.default_rng(len(name))
    array = rng.integers(0, 9, x).astype(dtype.numpy)
    array[0, :4], array[-1].flat[::7] = -np.inf, np.nan
    out = run_eager(POOL_MAX_INNER, [array], attrs)
    return array, rng.integers(-3, 4, out.shape).astype(dtype.numpy), attrs


@pytest.mark.parametrize("dtype", [float32, bfloat16, float16], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_the_kernels_give_what_the_definition_gives(name: str, dtype: DType) -> None:
    x, g, attrs = _operands(name, dtype)
    for op, operands in ((POOL_MAX_INNER, [x]), (POOL_MAX_PUT_INNER, [g, x])):
        expected = run_eager(op, operands, attrs)
        out = np.full(expected.shape, 77, dtype.numpy)
        interpret(op.lower, operands, out, **attrs)
        np.testing.assert_array_equal(out.astype(np.float64), expected.astype(np.float64))


def test_numbers_of_elements_near_two_to_the_31_are_of_64_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last two programs of 2^31 - 8 elements, in memory of which nothing else is touched."""
    from triton.runtime.interpreter import interpreter_builder

    x, kernel = (1, (1 << 31) - 8, 1), (1,)
    attrs = {"kernel": kernel, "stride": (1,), "dilation": (1,), "low": (0,), "high": (0,)}
    ones = np.zeros(x, bfloat16.numpy)  # pages that nobody wrote: none is there
    ones[0, -1040:] = 1
    out = np.zeros(x, bfloat16.numpy)
    made = print_call(POOL_MAX_INNER.lower, (strided(ones),), bfloat16, attrs)
    (launch,) = made.launches
    (function,) = load(module_of(made), interpret=True).values()
    first = launch.programs - 2

    def set_grid_idx(x: int, y: int, z: int) -> None:
        interpreter_builder.grid_idx = (x + first, y, z)

    monkeypatch.setattr(interpreter_builder, "set_grid_idx", set_grid_idx)
    function[(2,)](HostArray(ones), HostArray(out))
    assert int(out[0, -4096:].astype(np.float32).sum()) == 1040
    assert (out[0, -1040:] == 1).all()


@pytest.mark.parametrize("capability", some([90, 80], 1))
def test_they_compile(capability: int, tmp_path: Path) -> None:
    attrs = {"kernel": (3, 3), "stride": (2, 2), "dilation": (1, 1), "low": (1, 1), "high": (1, 1)}
    x, g = contiguous(bfloat16, 8, 112, 112, 64), contiguous(bfloat16, 8, 56, 56, 64)
    made = print_call(POOL_MAX_INNER.lower, (x,), bfloat16, attrs)
    check_compiled(made, "pool_max", capability, tmp_path)
    made = print_call(POOL_MAX_PUT_INNER.lower, (g, x), bfloat16, attrs)
    big = contiguous(bfloat16, 1, (1 << 31) - 64 >> 6, 1, 64)
    one = {"kernel": (1, 1), "stride": (1, 1), "dilation": (1, 1), "low": (0, 0), "high": (0, 0)}
    wide = print_call(POOL_MAX_PUT_INNER.lower, (big, big), bfloat16, one)
    for function in ("pool_places", "pool_put"):
        check_compiled(wide, function, capability, tmp_path)
    for function in ("pool_places", "pool_put"):
        check_compiled(made, function, capability, tmp_path)


class Stem(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x: Any) -> Any:
        return (F.max_pool2d(F.relu(self.conv(x)), 3, stride=2, padding=1) ** 2).sum()


def test_pooling_behind_a_convolution_is_three_launches(fake_cuda: FakeCuda) -> None:
    distcompile.manual_seed(0)
    rng = np.random.default_rng(0)
    net, x = Stem(), distcompile.tensor(rng.standard_normal((2, 3, 8, 8)).astype(np.float32))
    net(x).backward()
    leaves = list(net.parameters())
    expected = [leaf.grad.numpy().copy() for leaf in leaves]
    for leaf in leaves:
        leaf.grad = None
    with config.patch(use_cache=False):
        backend = HostedBackend(CudaBackend(90))
        distcompile.compile(net, backend=backend)(x).backward()
    for leaf, gradient in zip(leaves, expected, strict=True):
        np.testing.assert_allclose(leaf.grad.numpy(), gradient, rtol=2e-4, atol=2e-5)
    kernels = [launch["kernel"].rpartition("_")[0] for launch in fake_cuda.named("cuLaunchKernel")]
    assert [kernels.count(name) for name in ("pool_max", "pool_places", "pool_put")] == [1, 1, 1]
    assert not any("window" in name or "pad" in name for name in kernels)
