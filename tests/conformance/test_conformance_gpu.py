"""Each op compiled alone to Triton and run on a CUDA device: eager's numbers. Skipped where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from cases import all_cases, assert_same
from one_op_graphs import graph_of

from compiler_core import dtype as dt
from compiler_core.codegen.triton.load import load
from compiler_core.codegen.triton.module import print_module
from compiler_core.loop_ir.interpret import run_program
from compiler_core.loop_ir.ir import Kernel
from compiler_core.lowering.lower import lower_and_schedule
from compiler_core.ops.registry import Array

cupy = pytest.importorskip("cupy")
pytest.importorskip("triton")
pytestmark = pytest.mark.gpu

CASES = tuple(c for c in all_cases() if c.variant != "strided")
QUOTIENT = 2.0**24  # a GPU's remainder has no digits left where the quotient exceeds this: triton/helpers.py
DTYPES = tuple(d for d in dt.ALL if any(c.dtype is d for c in CASES))


def has_device() -> bool:
    try:
        return bool(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError:
        return False


class DeviceArray:
    """Memory on the device, as Triton's launcher wants it."""

    def __init__(self, array: Array) -> None:
        self.dtype = "int8" if dt.of(array) is dt.bool_ else dt.of(array).name
        self.memory = cupy.asarray(np.frombuffer(array.tobytes() or b"\0", np.uint8))

    def data_ptr(self) -> int:
        return int(self.memory.data.ptr)

    def back(self, array: Array) -> None:
        array[...] = np.frombuffer(cupy.asnumpy(self.memory).tobytes()[: array.nbytes], array.dtype)


class DeviceRunner:
    """Runs kernels on the device; arrays travel there and back."""

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self.module = print_module(kernels)
        self.functions: dict[str, Any] = load(self.module, interpret=False)

    def __call__(self, kernel: Kernel, arrays: Sequence[Array]) -> None:
        used = [a[: p.numel] for p, a in zip(kernel.params, arrays, strict=True)]
        on_device = [DeviceArray(a) for a in used]
        for launch in self.module.launches[kernel.name]:
            scratch = [DeviceArray(np.zeros(s.numel * launch.programs, s.dtype.numpy)) for s in launch.scratch]
            status = [DeviceArray(np.zeros(1, np.int32))] if launch.has_status else []
            self.functions[launch.function][(launch.programs,)](*on_device, *scratch, *status)
        cupy.cuda.Device().synchronize()
        for param, device, host in zip(kernel.params, on_device, used, strict=True):
            if param.access != "in":
                device.back(host)


@pytest.mark.skipif(not has_device(), reason="no CUDA device")
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.short)
def test_triton_on_a_gpu_is_eager(dtype: dt.DType) -> None:
    wrong = []
    cases = [c for c in CASES if c.dtype is dtype and c.variant in ("plain", "special")]
    programs = lower_and_schedule([graph_of(c) for c in cases])
    runner = DeviceRunner(list(dict.fromkeys(k for p in programs for k in p.kernels)))
    for case, program in zip(cases, programs, strict=True):
        with np.errstate(all="ignore"):
            expected = case.eager()
            (result,) = run_program(program, case.arrays, None, runner)
            result = result.reshape(expected.shape)
            if case.op.name == "remainder" and dtype.is_floating_point:
                digits = np.abs(case.arrays[0].astype(np.float64) / case.arrays[1].astype(np.float64)) < QUOTIENT
                result, expected = result[digits], expected[digits]
            try:
                assert_same(result, expected, dt.of(expected))
            except AssertionError as error:
                wrong.append(f"{case.name}: {error}")
    assert not wrong, f"{len(wrong)} of {len(cases)} cases\n" + "\n".join(wrong)
