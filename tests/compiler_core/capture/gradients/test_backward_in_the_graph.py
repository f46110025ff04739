"""backward() and autograd.grad in compiled functions: programs against torch and against our own eager."""

from __future__ import annotations

import warnings
from typing import Any

import backward_programs_last
import backward_programs_leaves
import backward_programs_more
import numpy as np
import pytest
from backward_programs import BREAKING, PROGRAMS, Wrap, show

import distcompile as ours

assert backward_programs_more
assert backward_programs_leaves
assert backward_programs_last  # whose programs are in the table too


def results(library: Any, program: str, wrap: Wrap) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return show(PROGRAMS[program](library, wrap))


def check(got: Any, want: Any, tolerance: float) -> None:
    if isinstance(want, list):
        assert isinstance(got, list)
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            check(a, b, tolerance)
    elif isinstance(want, np.ndarray):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
    elif isinstance(want, float):
        assert got == pytest.approx(want, abs=1e-4)
    else:
        assert type(got) is type(want)
        assert got == want


def compiled(program: str) -> Wrap:
    return ours.compile(fullgraph=program not in BREAKING)  # type: ignore[no-any-return]


@pytest.mark.parametrize("program", PROGRAMS)
def test_as_our_eager(program: str) -> None:
    check(results(ours, program, compiled(program)), results(ours, program, lambda step: step), 2e-5)


@pytest.mark.parametrize("program", PROGRAMS)
def test_as_torch(program: str) -> None:
    torch = pytest.importorskip("torch")
    tolerance = 2e-2 if program == "autocast" else 2e-5
    check(results(ours, program, compiled(program)), results(torch, program, lambda step: step), tolerance)


@pytest.mark.parametrize("program", ["basic", "accumulate", "gan", "penalty", "func", "wgan_gp", "attack"])
def test_op_by_op(program: str) -> None:
    for backend in ("eager", "aot_eager"):
        wrap = ours.compile(fullgraph=True, backend=backend)
        check(results(ours, program, wrap), results(ours, program, lambda step: step), 2e-5)
