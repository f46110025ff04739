"""Parity of modules that are given integers, and that cast inside: the float64 reference stays in float64; and what a
target cannot be run on is told as its own error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.ops import prims
from compiler_core.ops.registry import OPS
from distcompile import nn, parity
from distcompile.parity import Judges, ParityTargetError
from distcompile.parity.case import Case, default_loss, in_float64


class Counts(nn.Module):
    """Integers in, cast before they meet weights. how: the cast."""

    def __init__(self, how: Any) -> None:
        super().__init__()
        dc.manual_seed(0)
        self.layer, self.how = nn.Linear(3, 2), how

    def forward(self, counts: dc.Tensor) -> dc.Tensor:
        return self.layer(self.how(counts))


class Back(dc.autograd.Function):
    """Twice its operand; its backward, wrong, thrice."""

    @staticmethod
    def forward(ctx: Any, x: dc.Tensor) -> dc.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: dc.Tensor) -> dc.Tensor:
        return gradient * 3


COUNTS = dc.arange(12).reshape(4, 3)
CASTS = {
    "float()": lambda x: x.float(),
    "to": lambda x: x.to(dc.float32),
    "type": lambda x: x.type(dtype=dc.float32),
    "new zeros": lambda x: x + dc.zeros(3),
    "half between": lambda x: (x / 100).half().float(),
}


@pytest.mark.parametrize("how", CASTS.values(), ids=CASTS)
def test_integers_are_cast_in_the_module(how: Any) -> None:
    report = parity.check(Counts(how), COUNTS, judges=Judges(steps=2))
    assert report.ok, str(report)


def test_a_cast_inside_rounds_nothing_in_the_reference() -> None:
    class Cast(Counts):
        def forward(self, x: dc.Tensor) -> dc.Tensor:
            return super().forward(x).half().square().mean()

    x = dc.linspace(0, 1, 12).reshape(4, 3)
    wide = in_float64(Case(Cast(lambda x: x), (x,), default_loss))
    weight, bias = (p.detach().numpy() for p in wide.module.parameters())
    expected = np.square(x.numpy().astype(np.float64) @ weight.T + bias).mean()
    assert wide.casts
    np.testing.assert_allclose(float(wide.run(wide.module)), expected, rtol=1e-14)


def test_only_modules_that_make_narrow_floats_pay_for_it() -> None:
    assert not in_float64(Case(nn.Linear(3, 2), (dc.ones(4, 3),), default_loss)).casts
    assert not in_float64(Case(nn.Embedding(12, 2), (COUNTS,), default_loss)).casts


def test_a_wrong_rule_behind_a_cast_is_found() -> None:
    report = parity.check(Counts(lambda x: x.float()), COUNTS, loss=lambda y, x: Back.apply(y).square().mean())
    assert not report.ok
    assert "differences: backward gives" in report.verdict()


def test_an_op_with_a_wrong_rule_behind_a_cast_is_named() -> None:
    class Wrong(Counts):
        def forward(self, x: dc.Tensor) -> dc.Tensor:
            return Back.apply(super().forward(x))

    report = parity.check(Wrong(lambda x: x.float()), COUNTS, judges=Judges(bisect=True))
    assert "the backward of Back" in str(report)


def test_a_wrong_op_behind_a_cast_is_named() -> None:
    tanh = OPS["tanh"]
    right = tanh.vjp
    object.__setattr__(tanh, "vjp", lambda g, out, x: (prims.mul(g, out),))
    try:
        report = parity.check(
            Counts(lambda x: x.float()), COUNTS, loss=lambda y, x: y.tanh().square().mean(), judges=Judges(bisect=True)
        )
    finally:
        object.__setattr__(tanh, "vjp", right)
    assert "the vjp of op tanh" in str(report)


@pytest.mark.parametrize(
    ("target", "loss", "got"),
    [
        (nn.Linear(3, 2), None, "got: DTypeError: linear: expected operands of the same dtype"),
        (Counts(lambda x: x.float()), lambda y, x: y, "got: AutogradError: a gradient can be implied only for a scal"),
        (Counts(lambda x: x.float()), lambda y, x: 3.0, "got: AttributeError: 'float' object has no attribute"),
        (Counts(lambda x: x.float()), lambda y, x: y.argmax(), "got: AutogradError: backward from a tensor"),
    ],
)
def test_what_cannot_run_uncompiled_is_the_targets_own_error(target: nn.Module, loss: Any, got: str) -> None:
    with pytest.raises(ParityTargetError, match="cannot be run and differentiated") as caught:
        parity.check(target, COUNTS, loss=loss)
    assert got in str(caught.value)
    assert caught.value.__cause__ is not None


def test_a_module_that_gives_integers_needs_a_loss() -> None:
    class Classes(Counts):
        def forward(self, counts: dc.Tensor) -> dc.Tensor:
            return super().forward(counts).argmax(1)

    with pytest.raises(ParityTargetError, match=r"no Tensor of floats[^~]*int64[^~]*pass loss="):
        parity.check(Classes(lambda x: x.float()), COUNTS)


def test_as_many_samples_whatever_the_weights() -> None:
    found = set()
    for seed in range(6):
        dc.manual_seed(seed)
        report = parity.check(nn.Linear(3, 2), dc.randn(4, 3), judges=Judges(samples=2))
        found.add(tuple(row.differences.checked for row in report.rows if row.differences))
    assert found == {(3, 3)}
