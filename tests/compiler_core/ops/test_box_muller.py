"""Normal numbers of random words: close to the true transform, and the same bits in every language."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distcompile
from compiler_core.dtype import DType, bfloat16, float16, float32, float64
from compiler_core.errors import DTypeError, ShapeError
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.random import box_muller, draws
from compiler_core.ops.random import on_device as random_there
from compiler_core.ops.random.box_muller import PRECISIONS, Precision
from compiler_core.ops.registry import OPS

EDGES = np.array([0, 255, 256, 2**29, 2**30 - 1, 2**30, 2**31, 3 * 2**30, 2**32 - 256, 2**32 - 1], np.uint32)


def words(n: int) -> tuple[Any, Any]:
    first, second = np.random.default_rng(n).integers(0, 2**32, (2, n), np.uint32)
    pairs = np.stack(np.meshgrid(EDGES, EDGES)).reshape(2, -1)
    return np.concatenate([pairs[0], first]), np.concatenate([pairs[1], second])


@pytest.mark.parametrize("p", PRECISIONS, ids=lambda p: p.name)
def test_numbers_are_those_of_box_and_mullers_transform(p: Precision) -> None:
    first, second = words(200_000)
    found = box_muller.normal(p, np, first, second)
    u = (2 * (first >> 8).astype(np.float64) + 1).astype(p.dtype.numpy) * np.longdouble(2.0**-25)
    v = (2 * (second >> 8).astype(np.longdouble) + 1) * np.longdouble(2.0**-25)
    exact = np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v)
    unit = np.spacing(np.sqrt(-2 * np.log(u)).astype(p.dtype.numpy))
    assert found.dtype == p.dtype.numpy
    assert np.max(np.abs(found - exact) / np.maximum(unit, np.finfo(p.dtype.numpy).tiny)) < 4


def test_quarter_turns_are_symmetric_none_is_0_and_none_infinite() -> None:
    quarters = (np.arange(4, dtype=np.uint32) << np.uint32(30)).astype(np.uint32)
    for p in PRECISIONS:
        one = box_muller.normal(p, np, np.full(4, 1 << 20, np.uint32), quarters)
        assert one[0] == -one[2] > 4
        assert one[3] == -one[1]
        assert 0 < one[3] < 1e-6
        assert np.isfinite(box_muller.normal(p, np, *words(0))).all()


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_moments(dtype: DType) -> None:
    x = distcompile.randn(1 << 20, dtype=dtype, generator=distcompile.Generator().manual_seed(3)).numpy()
    moments = [np.mean(x.astype(np.float64) ** k) for k in (1, 2, 3, 4)]
    np.testing.assert_allclose(moments, [0, 1, 0, 3], atol=0.02)
    assert abs(np.mean(np.abs(x) < 1.959964) - 0.95) < 1e-3


@pytest.mark.parametrize("n", [3, draws.LARGE + 5, 2 * draws._BLOCK + 5])
@pytest.mark.parametrize("dtype", [float32, float64, bfloat16, float16], ids=str)
def test_large_draws_native_code_and_numpy_give_the_ops_bits(n: int, dtype: DType, monkeypatch: Any) -> None:
    key = np.array((5, 2**40, 3), np.uint64)
    wide = dtype.compute
    both = prims.philox(key, (2, n), 4)
    scaled = OPS[f"normal{8 * wide.itemsize}"].eager(np, *both) * wide.numpy.type(0.3) + wide.numpy.type(1.7)
    for steps in (draws._steps(), draws.NUMPY):
        monkeypatch.setattr(draws, "_steps", lambda steps=steps: steps)
        found = F.randn(key, (n,), stream=4, std=0.3, mean=1.7, dtype=dtype)
        np.testing.assert_array_equal(found, scaled.astype(dtype.numpy))


@pytest.mark.usefixtures("counter_draws")
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "codegen", pytest.param("triton", marks=pytest.mark.triton)])
@pytest.mark.parametrize("dtype", [float32, float64, float16], ids=str)  # Triton's interpreter cuts bf16 off
def test_compiled_draws_have_the_bits_of_eager_ones(backend: str, dtype: DType) -> None:
    if backend == "triton":
        pytest.importorskip("triton")

    def draw(x: Any) -> Any:
        return x, distcompile.randn(7, 41, dtype=dtype), distcompile.randn_like(x) * 0.3 + 1.7

    x, found = distcompile.zeros(3, 5, dtype=dtype), []
    for function in (draw, distcompile.compile(draw, backend=backend, fullgraph=True)):
        distcompile.manual_seed(11)
        found.append([part.double().numpy() for part in function(x)])
    for eager, compiled in zip(*found):
        np.testing.assert_array_equal(compiled, eager)


def test_the_kernels_of_a_device_give_the_same_bits(tmp_path: Path) -> None:
    """Their C text, compiled for the host."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    arguments = "unsigned long long seed, unsigned long long stream, unsigned long long first"
    head = "#define DC_INLINE static inline\n#define __fsqrt_rn __builtin_sqrtf\n#define __dsqrt_rn __builtin_sqrt\n"
    head += "#define __umulhi(a, b) (unsigned)(((unsigned long long)(a) * (b)) >> 32)\n"
    reals = {"philox": "unsigned", "uniform": "float", "normal32": "float", "normal64": "double"}
    for name, real in reals.items():
        kernel = random_there.KERNELS[name]
        loop = f"for (long i = 0; i < n; ++i) {{ {real} out; {kernel.text} all[i] = out; }}"
        second = "unsigned long long second, long n"
        text = f"{head}{kernel.before}void draw({arguments}, {second}, {real} *all) {{ {loop} }}\n"
        (tmp_path / f"{name}.c").write_text(text)
        flags = ["-O2", "-ffp-contract=off", "-shared", "-fPIC", "-o", f"{name}.so", f"{name}.c", "-lm"]
        subprocess.run([compiler, *flags], cwd=tmp_path, check=True)
        library = ctypes.CDLL(str(tmp_path / f"{name}.so"))
        for key in ((5, 2, 1), (2**63 + 12345678901, 2**40 + 3, 0), (2**64 - 1, 2**64 - 1, 7)):
            seed, offset, shard = key
            start = shard * 300 * kernel.words
            numbers = [ctypes.c_uint64(n % 2**64) for n in (seed, offset + 4, start, start + 300)]
            out = np.empty(300, kernel.dtype)
            library.draw(*numbers, ctypes.c_long(300), ctypes.c_void_p(out.ctypes.data))
            np.testing.assert_array_equal(out, random_there.on_host(name, np.array(key, np.uint64), (300,), 4))


def test_other_operands_are_errors() -> None:
    word = np.zeros(3, np.uint32)
    with pytest.raises(DTypeError, match="random words"):
        prims.normal32(word, word.astype(np.int64))
    with pytest.raises(ShapeError, match="operand shapes differ"):
        prims.normal64(word, word[:2])
