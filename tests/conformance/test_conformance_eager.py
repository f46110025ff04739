"""Each op against itself: infer says what eager gives, vjp agrees with float64 differences, numbers with NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
from cases import Case, all_cases, assert_same, by_op, check_each, differentiable_cases

from compiler_core.aot.pruning import zero_sets
from compiler_core.dtype import of
from compiler_core.loop_ir.scalars import TABLE
from compiler_core.ops.registry import OPS, Array, NotDifferentiable, meta_of
from compiler_core.ops.rules import Pointwise

SCALARS = {name: function for name, _, _, function, _ in TABLE}
POINTWISE = tuple(c for c in all_cases() if isinstance(c.op.lower, Pointwise) and c.op.lower.scalar in SCALARS)


def infer_is_what_eager_gives(case: Case) -> None:
    before = [a.tobytes() for a in case.arrays]
    promised = case.op.infer(*map(meta_of, case.arrays), **case.sample.attrs)
    result = case.eager()
    assert isinstance(result, np.ndarray)
    assert meta_of(result) == promised
    assert [a.tobytes() for a in case.arrays] == before, "the op wrote to its operands"


def strides_do_not_matter(case: Case) -> None:
    dense = case.op.eager(np, *(a.copy(order="C") for a in case.arrays), **case.sample.attrs)
    assert_same(case.eager(), dense, of(dense))


def scalar_functions_of_the_loop_ir_mean_the_same(case: Case) -> None:
    """The second definition of each pointwise op, written for the loop-IR interpreter, as oracle."""
    assert isinstance(case.op.lower, Pointwise)
    dtype = case.dtype
    wide = [a.astype(dtype.compute.numpy) for a in case.arrays]
    with np.errstate(all="ignore"):
        expected = np.asarray(SCALARS[case.op.lower.scalar](*wide))
        result = case.eager()
        assert_same(result, expected.astype(result.dtype).reshape(result.shape), dtype)


def differences(case: Case, position: int, weights: Array, step: float = 1e-6) -> Array:
    """The gradient of L = Re sum(conj(weights) * op(...)) by operand[position], by central differences.

    Of a complex operand dL/d real + i dL/d imag, as torch has it.
    """
    operand = np.array(case.arrays[position])
    gradient = np.zeros_like(operand)
    for place in np.ndindex(operand.shape):
        for direction in (1, 1j) if operand.dtype.kind == "c" else (1,):
            sides = []
            for sign in (1, -1):
                moved = operand.copy()
                moved[place] += sign * step * direction
                arrays = [*case.arrays[:position], moved, *case.arrays[position + 1 :]]
                out = case.op.eager(np, *arrays, **case.sample.attrs)
                sides.append(float((np.conjugate(weights) * out).sum().real))
            gradient[place] += direction * (sides[0] - sides[1]) / (2 * step)
    return gradient


def vjp_agrees_with_differences(case: Case) -> None:
    assert not isinstance(case.op.vjp, NotDifferentiable)
    out = case.eager()
    rng = np.random.default_rng(7)
    weights = rng.standard_normal(out.shape)
    if out.dtype.kind == "c":
        weights = weights + 1j * rng.standard_normal(out.shape)
    cotangents = case.op.vjp(weights, out, *case.arrays, **case.sample.attrs)
    assert len(cotangents) == len(case.arrays)
    for position, (array, cotangent) in enumerate(zip(case.arrays, cotangents)):
        if not of(array).is_inexact:
            assert cotangent is None
            continue
        given = np.zeros_like(array) if cotangent is None else cotangent  # None: nothing depends on this operand
        np.testing.assert_allclose(given, differences(case, position, weights), rtol=2e-6, atol=2e-7)


def cotangents_have_the_operands_metas(case: Case) -> None:
    out = case.eager()
    assert not isinstance(case.op.vjp, NotDifferentiable)
    for array, cotangent in zip(case.arrays, case.op.vjp(np.ones_like(out), out, *case.arrays, **case.sample.attrs)):
        assert cotangent is None or meta_of(cotangent) == meta_of(array)


def zeros_make_zeros(case: Case) -> None:
    """As a backward of some outputs alone takes for granted (aot/pruning.py)."""
    for places in zero_sets(case.op, len(case.arrays)):
        arrays = [np.zeros_like(a) if k in places else a for k, a in enumerate(case.arrays)]
        assert not np.any(case.op.eager(np, *arrays, **case.sample.attrs)), places


@pytest.mark.parametrize("cases", by_op([c for c in all_cases() if c.variant == "plain" and zero_sets(c.op, 1)]))
def test_zeros_make_zeros(cases: tuple[Case, ...]) -> None:
    check_each(zeros_make_zeros, cases)


@pytest.mark.parametrize("cases", by_op(all_cases()))
def test_infer_is_what_eager_gives(cases: tuple[Case, ...]) -> None:
    check_each(infer_is_what_eager_gives, cases)


@pytest.mark.parametrize("cases", by_op([c for c in all_cases() if c.variant == "strided"]))
def test_strides_do_not_matter(cases: tuple[Case, ...]) -> None:
    check_each(strides_do_not_matter, cases)


@pytest.mark.parametrize("cases", by_op(POINTWISE))
def test_scalar_functions_of_the_loop_ir_mean_the_same(cases: tuple[Case, ...]) -> None:
    check_each(scalar_functions_of_the_loop_ir_mean_the_same, cases)


@pytest.mark.parametrize("cases", by_op(differentiable_cases()))
def test_vjp_agrees_with_differences(cases: tuple[Case, ...]) -> None:
    check_each(vjp_agrees_with_differences, cases)


@pytest.mark.parametrize("cases", by_op([c for c in all_cases() if c.variant == "plain" and c.has_cotangents()]))
def test_cotangents_have_the_operands_metas(cases: tuple[Case, ...]) -> None:
    check_each(cotangents_have_the_operands_metas, cases)


def test_every_differentiable_op_is_checked_in_float64() -> None:
    checked = {c.op.name for c in differentiable_cases()}  # or in complex128
    missing = [op.name for op in OPS.values() if not isinstance(op.vjp, NotDifferentiable) and op.name not in checked]
    assert missing == []
