"""Every differentiable op on Tensors: the tape's first and second derivatives are central differences, in float64
and complex128.

Also generated from the registry: recorded or not, a Tensor's value is what the op's eager rule gives, and a second
backward through freed nodes is either fine (nothing was saved) or the error that names retain_graph.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler_core.dtype import complex128, float64
from compiler_core.errors import AutogradError
from compiler_core.ops.registry import bind
from compiler_core.tensor import Tensor
from compiler_core.tensor.autograd.gradcheck import gradcheck, gradgradcheck
from compiler_core.tensor.memory.borrowing import from_numpy
from tests.conformance.cases import Case, all_cases
from tests.sharing import some

WIDE = (float64, complex128)
CASES = [c for c in all_cases() if c.variant == "plain" and c.dtype in WIDE and c.has_cotangents()]
EXACT = [c for c in CASES if c.meta().dtype in WIDE]  # differences say nothing of a cast to narrower floats
SMALL = [c for c in EXACT if sum(a.size for a in c.arrays) <= 80]


def tensors(case: Case) -> list[Tensor]:
    """The operands as leaves; floating ones require a gradient."""
    made = [from_numpy(a.copy()) for a in case.arrays]
    return [t.requires_grad_() if t.dtype in WIDE else t for t in made]


def apply(case: Case) -> Any:
    return lambda *operands: bind(case.op, *operands, **case.sample.attrs)


@pytest.mark.parametrize("case", SMALL, ids=lambda c: c.name)
def test_first_derivative(case: Case) -> None:
    leaves = tensors(case)
    result = apply(case)(*leaves)
    np.testing.assert_array_equal(result.detach().resolve_conj().numpy(), case.eager())
    if not result.requires_grad:
        pytest.skip("no floating operand")
    assert gradcheck(apply(case), leaves)


# the derivative of a rule is the tape's, and says little of the samples: one an operation, the others with --long
FIRST = dict.fromkeys((c.op.name, c.dtype) for c in SMALL)
FIRST = {key: next(c for c in SMALL if (c.op.name, c.dtype) == key) for key in FIRST}
BY_OP = [*FIRST.values(), *(c for c in SMALL if c is not FIRST[c.op.name, c.dtype])]


@pytest.mark.parametrize("case", some(BY_OP, len(FIRST)), ids=lambda c: c.name)
def test_second_derivative(case: Case) -> None:
    leaves = tensors(case)
    if not any(t.requires_grad for t in leaves):
        pytest.skip("no floating operand")
    assert gradgradcheck(lambda *operands: apply(case)(*operands).sin(), leaves)


@pytest.mark.parametrize("case", SMALL, ids=lambda c: c.name)
def test_a_second_backward_is_fine_or_named(case: Case) -> None:
    leaves = tensors(case)
    result = apply(case)(*leaves)
    if not result.requires_grad:
        pytest.skip("no floating operand")
    ones = from_numpy(np.ones(tuple(result.shape), result.dtype.numpy))
    result.backward(ones)
    first = [None if t.grad is None else t.grad.resolve_conj().numpy().copy() for t in leaves]
    try:
        result.backward(ones)
    except AutogradError as error:
        assert "retain_graph" in error.remedy  # noqa: PT017
        return
    for tensor, grad in zip(leaves, first, strict=True):
        assert (tensor.grad is None) == (grad is None)
        if tensor.grad is not None and grad is not None:
            np.testing.assert_allclose(tensor.grad.resolve_conj().numpy(), 2.0 * grad)
