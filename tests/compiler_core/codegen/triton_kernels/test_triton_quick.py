"""Quick formulas in Triton kernels: used where nobody can tell, and only there; the instructions that they become."""

from __future__ import annotations

import math

import numpy as np
import pytest

from compiler_core.codegen.triton.coarse import coarse
from compiler_core.codegen.triton.expressions import SINE_BOUND
from compiler_core.codegen.triton.load import compile_ptx, load
from compiler_core.codegen.triton.module import print_module
from compiler_core.codegen.triton_backend import KernelRunner
from compiler_core.loop_ir.parse import parse_kernel

pytest.importorskip("triton")
from triton.runtime import interpreter

pytestmark = pytest.mark.triton

ONE_AND_TANH = """kernel k(p0: {dtype}[4096] in, p1: {dtype}[4096] out)
  for i0 in 4096 vector
    t0 = tanh(p0[i0])
    p1[i0] = {value}
"""
SUMS = """kernel k(p0: bf16[3*20001] in, p1: f32[3] out, p2: f32[3] out)
  for i0 in 3 block
    acc a0: f32 max
    acc a1: f32 expsum
    for i1 in 20001 vector
      t0 = cast(p0[20001*i0 + i1], f32)
      a0 <- t0
      a1 <- t0
    p1[i0] = a0
    p2[i0] = a1
""".replace("3*20001", "60003")


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("add(t0, f32(1.0))", True),
        ("sub(f32(1.0), t0)", True),
        ("add(t0, f32(0.25))", False),
        ("mul(t0, f32(1.0))", False),
        ("t0", False),
        ("mul(add(t0, f32(1.0)), t0)", False),
        ("add(mul(t0, t0), f32(1.0))", False),  # only named squares are followed
    ],
)
@pytest.mark.parametrize("scalar", ["tanh", "erf"])
def test_what_is_only_added_to_a_number_is_coarse(scalar: str, value: str, found: bool) -> None:
    kernel = parse_kernel(ONE_AND_TANH.format(dtype="f32", value=value).replace("tanh", scalar))
    assert coarse(kernel.body) == ({"t0"} if found else set())
    assert (f"dc_{scalar}_coarse(v0)" in print_module([kernel]).source) == found


def test_a_square_that_is_only_subtracted_from_one_may_be_coarse() -> None:
    text = ONE_AND_TANH.format(dtype="f32", value="{value}").replace("    p1", "    t1 = mul(t0, t0)\n    p1")
    assert coarse(parse_kernel(text.format(value="sub(f32(1.0), t1)")).body) == {"t0"}
    assert not coarse(parse_kernel(text.format(value="mul(f32(1.0), t1)")).body)
    assert not coarse(parse_kernel(text.format(value="add(sub(f32(1.0), t1), t1)")).body)


@pytest.mark.parametrize("scalar", ["tanh", "erf"])
def test_coarse_values_are_near(scalar: str, rng) -> None:
    kernel = parse_kernel(ONE_AND_TANH.format(dtype="f32", value="add(t0, f32(1.0))").replace("tanh", scalar))
    x = rng.standard_normal(4096).astype(np.float32) * np.float32(3)
    x[:8] = 0, 1e-9, -1e-9, np.inf, -np.inf, np.nan, 4.0, -4.1
    x[8:1000] = np.linspace(-9, -3, 992)
    found = np.zeros_like(x)
    module = print_module([kernel])
    with np.errstate(all="ignore"):
        KernelRunner(module, load(module, interpret=True))(kernel, [x, found])
    wanted = {"tanh": np.tanh, "erf": np.vectorize(math.erf)}[scalar](x.astype(np.float64)) + 1
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=3e-7)
    far = x < -3  # 1 + t is small there: as near as float32's t lets it be
    np.testing.assert_allclose(found[far], wanted[far], rtol=0, atol=6e-8)
    assert np.nanmin(found) >= 0
    assert np.nanmax(found) <= 2


def test_sums_of_exponentials_and_their_maximum_are_made_in_groups_of_lanes() -> None:
    kernel = parse_kernel(SUMS)
    module = print_module([kernel])
    (launch,) = module.launches["k"]
    assert launch.contracts, "it reads bf16"
    ptx = compile_ptx(load(module, interpret=False)[launch.function], launch)
    assert "ex2.approx.ftz.f32" in ptx
    body = ptx[ptx.index("ld.global") :]
    assert body.count("ex2.approx.ftz.f32") < 2 * body.count("max.NaN.f32"), "one exponential an element, and few more"


@pytest.mark.parametrize("scalar", ["sin", "cos"])
@pytest.mark.parametrize("scale", [1e-6, 3.0, 6e4, 1e9])
def test_sines_of_blocks_are_right_to_two_units(scalar: str, scale: float, rng) -> None:
    kernel = parse_kernel(ONE_AND_TANH.format(dtype="f32", value="t0").replace("tanh", scalar))
    module = print_module([kernel])
    x = (rng.uniform(-1, 1, 4096) * scale).astype(np.float32)
    x[:3] = 0, -0.0, np.nan
    found = np.zeros_like(x)
    KernelRunner(module, load(module, interpret=True))(kernel, [x, found])
    wanted = getattr(np, scalar)(x.astype(np.float64))
    fused = hasattr(getattr(interpreter, "_interpreter", None), "fma_fp64")  # as on a device; of older Triton it is not
    assert fused or scale < 1e4 or scale > SINE_BOUND or pytest.skip("this Triton's interpreter rounds an fma twice")
    np.testing.assert_allclose(found, wanted, rtol=2.4e-7, atol=1.2e-7 if fused else 3e-7)
    assert np.array_equal(np.signbit(found[:2]), np.signbit(wanted[:2]))
    assert "dc_beyond(v0, 65536.0)" in module.source, "one look at all lanes serves all sines of a value"
