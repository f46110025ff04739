"""Runs kernels written by hand in Triton's interpreter, on NumPy arrays; compiles them, and reads what came of it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compiler_core import dtype as dt
from compiler_core.codegen.triton.handwritten import Handwritten, join, print_call
from compiler_core.codegen.triton.load import HostArray, load
from compiler_core.codegen.triton.module import TritonModule
from compiler_core.dtype import DType, float32
from compiler_core.meta import TensorMeta
from compiler_core.ops import routine
from compiler_core.ops.routine import Strided

Array = Any


def strided(array: Array) -> Strided:
    return Strided(dt.of(array), array.shape, tuple(stride // array.itemsize for stride in array.strides))


def module_of(made: Handwritten) -> TritonModule:
    return join(TritonModule("", {}, ()), {"call": made})


def interpret(called: Any, operands: Sequence[Array], out: Array, **attrs: Any) -> list[str]:
    """Run the kernels of one call on the host; `out` is written. Returns the names of what was launched."""
    made = print_call(called, tuple(map(strided, operands)), dt.of(out), attrs)
    functions = load(module_of(made), interpret=True)
    scratch = [np.full(array.numel, np.nan, array.dtype.numpy) for array in made.launches[0].common]
    arguments = [HostArray(array) for array in (*operands, out, *scratch)]
    for launch in made.launches:
        functions[launch.function][(launch.programs,)](*arguments, *launch.numbers)
    return [launch.function.rpartition("_")[0] for launch in made.launches]


def assert_near(found: Array, expected: Array, tolerance: float) -> None:
    """By the whole's size, as errors of blocks add up; places of NaN and infinities are the same."""
    found, expected = found.astype(np.float64).reshape(-1), expected.reshape(-1)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(found[~finite], expected[~finite])
    assert np.linalg.norm((found - expected)[finite]) <= tolerance * max(np.linalg.norm(expected[finite]), 1e-9)


# ---- compiled


def contiguous(dtype: DType, *shape: int) -> Strided:
    return routine.contiguous(TensorMeta(shape, dtype))


def tool(name: str, *arguments: str) -> str:
    """What a program of CUDA's that Triton brings along says."""
    import triton

    path = getattr(triton.knobs.nvidia, name).path
    return subprocess.run([path, *arguments], capture_output=True, text=True, check=True, timeout=60).stdout


def check_compiled(
    made: Handwritten, function: str, capability: int, folder: Path, *, unit: str = "", stack: int = 64
) -> None:
    """Within the limits of a multiprocessor, little spilled (`stack`: bytes), and instructions of the matrix unit.

    unit: their name.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    (launch,) = (launch for launch in made.launches if launch.function.startswith(function))
    source = ASTSource(
        load(module_of(made), interpret=False)[launch.function],
        signature=dict(launch.signature),
        constexprs={},
        attrs={(place,): [["tt.divisibility", 16]] for place in range(len(launch.signature))},
    )
    options = {"num_warps": launch.warps, "num_stages": launch.stages, "enable_fp_fusion": launch.contracts}
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    assert compiled.metadata.shared <= (227 if capability == 90 else 163) * 1024
    (folder / "kernel.cubin").write_bytes(compiled.asm["cubin"])
    usage = tool("cuobjdump", "-res-usage", str(folder / "kernel.cubin"))
    (found,) = re.findall(r"STACK:(\d+)", usage)
    assert int(found) <= stack, usage
    assert unit in tool("cuobjdump", "-sass", str(folder / "kernel.cubin"))


def unit_of(dtype: DType, capability: int) -> str:
    """What blocks of 64 rows or more are multiplied by; "" where several will do."""
    return "" if dtype is float32 else "HGMMA" if capability == 90 else "HMMA"
