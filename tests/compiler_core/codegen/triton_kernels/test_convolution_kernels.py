"""Convolutions' Triton functions: run by the interpreter against float64, compiled for GPUs, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handwritten_harness import assert_near, check_compiled, contiguous, interpret, unit_of

from compiler_core.codegen.triton.handwritten import print_call
from compiler_core.dtype import DType, bfloat16, float16, float32, float64
from compiler_core.errors import LoweringError
from compiler_core.ops.convolution import op as first
from compiler_core.ops.convolution.inner import INNER
from compiler_core.ops.registry import Op, run_eager

pytestmark = pytest.mark.triton
pytest.importorskip("triton")

Dims = tuple[int, ...]
# name -> x (channels last), output channels, kernel, stride, low, high, dilation, groups, dtype
CASES: dict[str, tuple[Dims, int, Dims, Dims, Dims, Dims, Dims, int, DType]] = {
    "three by three": ((2, 9, 8, 24), 40, (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1, bfloat16),
    "strides, few channels": ((1, 9, 8, 3), 20, (5, 4), (2, 2), (2, 1), (2, 2), (1, 1), 1, float32),
    "strides and dilation": ((1, 12, 11, 17), 18, (2, 3), (2, 3), (0, 1), (2, 0), (3, 1), 1, float32),
    "groups": ((2, 6, 7, 34), 6, (3, 2), (1, 2), (1, 0), (0, 1), (1, 1), 2, float16),
    "a channel a group": ((1, 10, 9, 5), 10, (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 5, float32),
    "one spatial dim": ((2, 50, 16), 33, (5,), (2,), (2,), (1,), (1,), 1, float32),
    "pointwise, strides": ((2, 8, 8, 130), 70, (1, 1), (2, 2), (0, 0), (0, 0), (1, 1), 1, float32),
    "depthwise": ((2, 9, 15, 40), 40, (5, 7), (1, 1), (2, 3), (2, 3), (1, 1), 40, bfloat16),
    "depthwise, strides": ((2, 9, 14, 36), 36, (3, 3), (2, 3), (1, 0), (1, 2), (1, 1), 36, float32),
    "depthwise, strides and dilation": ((1, 12, 11, 33), 33, (2, 3), (2, 3), (0, 1), (2, 0), (3, 2), 33, float32),
    "depthwise, dilation, much padding": ((1, 8, 9, 3), 3, (3, 2), (1, 1), (7, 4), (0, 1), (2, 3), 3, float16),
    "depthwise, one dim, in parts": ((3, 700, 5), 5, (4,), (1,), (3,), (0,), (1,), 5, float32),
    "positions in parts": ((2, 17, 16, 16), 16, (2, 2), (1, 1), (1, 1), (0, 0), (1, 1), 1, float32),
}
TOLERANCE = {bfloat16: 5e-3, float16: 1e-3, float32: 2e-6}
KINDS = {op.name: op for op in (first.CONVOLUTION, first.CONVOLUTION_INPUT, first.CONVOLUTION_WEIGHT)}


def operands_of(op: Op, name: str) -> tuple[list[np.ndarray], dict[str, Any]]:
    x, channels, kernel, stride, low, high, dilation, groups, dtype = CASES[name]
    attrs: dict[str, Any] = {"stride": stride, "low": low, "high": high, "dilation": dilation, "groups": groups}
    sizes = [a + n + b - d * (k - 1) - 1 for a, n, b, d, k in zip(low, x[1:-1], high, dilation, kernel)]
    shapes = {"x": x, "weight": (channels, *kernel, x[-1] // groups)}
    shapes["g"] = (x[0], *(n // s + 1 for n, s in zip(sizes, stride)), channels)
    names = {"convolution": "x weight", "convolution_input": "g weight", "convolution_weight": "x g"}[op.name].split()
    own = {"convolution_input": {"size": x[1:-1]}, "convolution_weight": {"kernel": kernel}}.get(op.name, {})
    rng = np.random.default_rng(len(name))
    return [rng.standard_normal(shapes[n]).astype(dtype.numpy) for n in names], own | attrs


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_the_kernels_give_what_float64_gives(name: str, kind: str) -> None:
    inner = INNER[KINDS[kind]]
    operands, attrs = operands_of(KINDS[kind], name)
    expected = _exact(kind, operands, attrs)
    out = np.full(expected.shape, np.nan, operands[0].dtype)
    launched = interpret(inner.lower, operands, out, **attrs)
    assert_near(out, expected, TOLERANCE[CASES[name][-1]])
    if kind == "convolution_weight" and name == "positions in parts":
        assert launched == ["convolution_weight", "convolution_sum"]
    if name.startswith("depthwise"):
        assert {function.partition("_")[0] for function in launched} == {"depthwise"}


def _exact(kind: str, operands: list[np.ndarray], attrs: dict[str, Any]) -> np.ndarray:
    """By the op with channels first, in float64."""
    moved = [np.moveaxis(a.astype(np.float64), -1, 1) for a in operands]
    return np.moveaxis(run_eager(KINDS[kind], moved, attrs), 1, -1)


# ---- compiled

RESNET = [
    ((32, 56, 56, 64), (64, 3, 3, 64), 1),
    ((32, 56, 56, 256), (512, 1, 1, 256), 2),
    ((32, 224, 224, 3), (64, 7, 7, 3), 2),
    ((32, 56, 56, 96), (96, 7, 7, 1), 1),  # ConvNeXt's
    ((32, 56, 56, 96), (96, 5, 5, 1), 2),
]


def printed(kind: str, dtype: DType, shape: int = 0) -> Any:
    """A convolution of ResNet-50, or one of its gradients."""
    x, weight, stride = RESNET[shape]
    low = weight[1] // 2
    out = (x[1] + 2 * low - weight[1]) // stride + 1
    attrs: dict[str, Any] = {
        "stride": (stride,) * 2, "low": (low,) * 2, "high": (low,) * 2, "dilation": (1, 1), "groups": x[3] // weight[3],
    }  # fmt: skip
    arrays = {"x": contiguous(dtype, *x), "weight": contiguous(dtype, *weight)}
    arrays["g"] = contiguous(dtype, x[0], out, out, weight[0])
    names = {"convolution": "x weight", "convolution_input": "g weight", "convolution_weight": "x g"}[kind].split()
    own = {"convolution_input": {"size": x[1:3]}, "convolution_weight": {"kernel": weight[1:3]}}.get(kind, {})
    return print_call(INNER[KINDS[kind]].lower, tuple(arrays[n] for n in names), dtype, own | attrs)


FUNCTIONS = {"convolution": "convolution_forward"} | {
    name: name for name in ("convolution_input", "convolution_weight")
}


def test_a_weights_gradient_compiles_for_hopper(tmp_path: Path) -> None:
    made = printed("convolution_weight", bfloat16)
    check_compiled(made, "convolution_weight", 90, tmp_path, unit="HGMMA")


@pytest.mark.long
@pytest.mark.parametrize(("shape", "dtype", "capability"), [(1, bfloat16, 80), (2, bfloat16, 90), (0, float32, 90)])
@pytest.mark.parametrize("kind", KINDS)
def test_convolutions_of_a_resnet_compile(kind: str, shape: int, dtype: DType, capability: int, tmp_path: Path) -> None:
    made = printed(kind, dtype, shape)
    check_compiled(made, FUNCTIONS[kind], capability, tmp_path, unit=unit_of(dtype, capability))


@pytest.mark.long
@pytest.mark.parametrize(("shape", "function"), [(3, "depthwise_forward"), (4, "depthwise_input")])
def test_depthwise_convolutions_compile(shape: int, function: str, tmp_path: Path) -> None:
    check_compiled(printed("convolution_input", bfloat16, shape), function, 90, tmp_path)
    check_compiled(printed("convolution_weight", bfloat16, shape), "depthwise_weight", 90, tmp_path)


# ---- what is refused


def test_what_the_kernels_do_not_take_is_refused_with_the_reason() -> None:
    with pytest.raises(LoweringError, match="16-bit floats and f32, not float64"):
        printed("convolution", float64)
    x, weight = contiguous(float32, 1, 3, 3, 3, 2), contiguous(float32, 2, 1, 1, 1, 2)
    attrs: dict[str, Any] = dict.fromkeys(("stride", "dilation"), (1, 1, 1)) | dict.fromkeys(("low", "high"), (0, 0, 0))
    with pytest.raises(LoweringError, match="one and two spatial dims"):
        print_call(INNER[first.CONVOLUTION].lower, (x, weight), float32, attrs | {"groups": 1})
