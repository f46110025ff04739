"""Parity's judgement on made-up gradients: what passes, what fails, and which parameter is named."""

from __future__ import annotations

import math

import numpy as np
import pytest

from distcompile.parity.report import Comparison, ParityReport, ParityRow, Tolerance, compare, error_of, merge_failures

GOOD = Comparison(1e-7, 2e-7, "")
REFERENCE = {"w": np.array([1.0, -2.0])}


def judged(compiled: float | None, eager_error: float = 1e-6) -> Comparison:
    eager = {"w": np.array([1.0, -2.0 + 2 * eager_error], np.float32)}
    mine = {"w": None if compiled is None else np.array([1.0, -2.0 + 2 * compiled], np.float32)}
    return compare("local", "w", REFERENCE, eager, mine, Tolerance(factor=4, ulps=2))


def test_errors_are_relative_to_the_largest_element() -> None:
    assert error_of(np.array([0.0, 4.5]), np.array([0.0, 5.0])) == pytest.approx(0.1)
    assert error_of(np.array([0.5]), np.array([0.0])) == 0.5
    assert error_of(np.empty(0), np.empty(0)) == 0


def test_nan_and_inf_must_stand_in_the_same_places() -> None:
    assert error_of(np.array([np.nan, 1.0]), np.array([1.0, 1.0])) == math.inf
    assert error_of(np.array([np.nan, 1.0]), np.array([np.nan, 1.0])) == 0
    assert error_of(np.array([np.inf]), np.array([np.inf])) == 0


def test_eager_is_the_yardstick() -> None:
    assert judged(3e-6).failure == ""
    assert judged(1e-4).failure.startswith("local: error 1.00e-04 >")
    assert judged(1e-4, eager_error=1e-4).failure == ""


def test_a_gradient_on_one_side_only_fails() -> None:
    assert judged(None).failure == "local: only reference and eager gave a gradient"
    assert compare("local", "v", {}, {}, {}, Tolerance()).failure == ""


def row(name: str, local: Comparison = GOOD, ranks_equal: bool = True) -> ParityRow:
    return ParityRow(name, 3, local, GOOD, ranks_equal)


def test_the_first_failing_parameter_is_named() -> None:
    bad = Comparison(0.0, 1.0, "local: error 1 > 0")
    report = ParityReport("codegen", 0, 2, (row("a"), row("b", bad), row("c", bad)))
    assert not report.ok
    assert report.verdict() == "parity fails on 2 of 3 rows; first: b (local: error 1 > 0)"
    assert "local: error 1 > 0" in str(report)
    good = ParityReport("codegen", 1, 2, (row("a"),))
    assert good.ok
    assert merge_failures([good, report]) is report
    assert merge_failures([good, good]) is good


def test_ranks_with_different_bits_fail() -> None:
    assert "different bits" in row("a", ranks_equal=False).failure


@pytest.mark.parametrize(
    ("gradient", "reference", "what"),
    [
        ([np.nan, np.nan], [1.0, 2.0], "NaN in 2 of 2 elements, reference in 0"),
        ([np.inf, 1.0], [np.nan, 1.0], "NaN in 0 of 2 elements, reference in 1"),
        ([np.inf, 1.0], [-np.inf, 1.0], "infinite differently in 1 of 2 elements: inf, reference -inf"),
        ([np.inf, 1.0], [5.0, 1.0], "infinite differently in 1 of 2 elements: inf, reference 5"),
    ],
)
def test_what_is_not_finite_must_be_the_references(gradient: list[float], reference: list[float], what: str) -> None:
    mine, ref = {"w": np.array(gradient, np.float32)}, {"w": np.array(reference)}
    assert what in compare("local", "w", ref, mine, mine, Tolerance()).failure  # that eager has it too is no excuse
    assert compare("local", "w", ref, {"w": np.array(reference, np.float32)}, mine, Tolerance()).failure


def test_a_reference_that_is_nowhere_finite_proves_nothing() -> None:
    same = {"w": np.array([np.nan, np.nan], np.float32)}
    judged = compare("local", "w", {"w": same["w"].astype(np.float64)}, same, same, Tolerance())
    assert judged.failure == "local: proves nothing, the float64 reference is nan and nowhere finite"


def test_what_the_reference_has_too_holds_and_is_marked() -> None:
    same = {"w": np.array([np.nan, 2.0, -np.inf], np.float32)}
    judged = compare("local", "w", {"w": same["w"].astype(np.float64)}, same, same, Tolerance())
    assert judged.failure == ""
    assert "not finite in 2 of 3 elements" in judged.note
