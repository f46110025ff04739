"""What backward does after a compiled call: as eager, and as torch. The programs: gradient_programs.py."""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections.abc import Callable
from typing import Any

import gradient_programs_more
import pytest
from gradient_programs import PROGRAMS, Program, Wrap

import distcompile
from compiler_core.errors import AutogradError

assert gradient_programs_more  # its programs are in the table, too

# backend "eager" returns a copy of a view of what it made, and its hooks stand behind tensors, not on them
OTHERWISE_OP_BY_OP = (
    "a_view_of_a_needed_result_changed",
    "a_gradient_differentiated_behind_a_hook",
    "the_gradient_of_a_hooked_output",
)


def outcome(program: Program, library: Any, wrap: Wrap) -> Any:
    """What it returns; "error", if it raises what a tape raises."""
    library.manual_seed(0)
    raised = AutogradError if library is distcompile else RuntimeError
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return program(library, wrap)
        except raised:
            return "error"


def assert_alike(got: Any, want: Any) -> None:
    """Equal structure, and numbers equal but for rounding."""
    if isinstance(want, float):
        assert math.isclose(got, want, rel_tol=1e-12, abs_tol=1e-13), (got, want)
    elif isinstance(want, (list, tuple)):
        assert len(got) == len(want), (got, want)
        for a, b in zip(got, want):
            assert_alike(a, b)
    else:
        assert got == want


@pytest.mark.parametrize("name", PROGRAMS)
def test_backward_is_that_of_eager_and_of_torch(name: str) -> None:
    want = outcome(PROGRAMS[name], distcompile, lambda function: function)
    assert_alike(outcome(PROGRAMS[name], distcompile, compiler("aot_eager")), want)
    if name not in OTHERWISE_OP_BY_OP:
        assert_alike(outcome(PROGRAMS[name], distcompile, compiler("eager")), want)
    if importlib.util.find_spec("torch") is not None:
        import torch

        assert_alike(want, outcome(PROGRAMS[name], torch, lambda function: function))


@pytest.mark.parametrize("name", ["three_outputs", "adversaries"])
def test_parts_of_a_backward_are_native(name: str) -> None:
    want = outcome(PROGRAMS[name], distcompile, lambda function: function)
    assert_alike(outcome(PROGRAMS[name], distcompile, compiler("codegen")), want)


def compiler(backend: str) -> Wrap:
    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        compiled: Callable[..., Any] = distcompile.compile(function, backend=backend)
        return compiled

    return wrap
