"""Random programs: compiled is eager, in results, gradients, state left behind and random numbers drawn.

Each program runs three times (compile, cached entry, cached entry); a failing one is minimised and printed.
DISTCOMPILE_FUZZ_SEED and DISTCOMPILE_FUZZ_PROGRAMS choose others than the usual ones.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np
import pytest
from random_programs import RandomProgram, minimise

import distcompile as torch
import distcompile.nn.functional as F
from compiler_core.errors import DistCompileError
from compiler_core.log import DistCompileWarning

pytestmark = pytest.mark.usefixtures("counter_draws")

FIRST = int(os.environ.get("DISTCOMPILE_FUZZ_SEED", "0"))
COUNT = int(os.environ.get("DISTCOMPILE_FUZZ_PROGRAMS", "60"))
Outcome = list[np.ndarray[Any, Any]]


def define(lines: list[str]) -> Any:
    """The function that the lines spell."""
    namespace: dict[str, Any] = {"torch": torch, "F": F}
    exec("\n".join(lines), namespace)
    return namespace["program"]


def run(function: Any, calls: int = 3) -> Outcome:
    """Results, gradients (None is zeros) and state of some calls in a row, with new inputs each."""
    torch.manual_seed(1)
    rng = np.random.default_rng(0)
    state = torch.tensor(rng.standard_normal(6).astype(np.float32))
    seen: Outcome = []
    for _ in range(calls):
        arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((4, 6), (4, 6), (6, 6))]
        leaves = [torch.tensor(a, requires_grad=True) for a in arrays]
        results = function(*leaves, state)
        results = results if isinstance(results, tuple) else (results,)
        loss = sum((r * r).mean() for r in results)
        if loss.requires_grad:
            loss.backward()
        seen += [r.detach().numpy().copy() for r in results]
        seen += [np.zeros(leaf.shape) if leaf.grad is None else leaf.grad.numpy().copy() for leaf in leaves]
        seen.append(state.numpy().copy())
    return seen


def difference(lines: list[str], backend: str) -> str:
    """How compiled differs from eager; "" if it does not, or if eager itself refuses the program."""
    try:
        expected = run(define(lines))
    except (DistCompileError, NameError, SyntaxError):
        return ""
    if not all(np.isfinite(e).all() for e in expected):
        return ""
    try:
        actual = run(torch.compile(define(lines), backend=backend))
        for k, (mine, other) in enumerate(zip(actual, expected, strict=True)):
            scale = max(1.0, float(np.abs(other).max(initial=0.0)))
            np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-4 * scale, err_msg=f"value {k}")
    except Exception as error:  # noqa: BLE001 - whatever the compiler raises is the finding
        return f"{type(error).__name__}: {error}"
    return ""


def check(seed: int, backend: str) -> None:
    lines = RandomProgram(seed).lines
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DistCompileWarning)
        found = difference(lines, backend)
        if found:
            small = minimise(lines, lambda shorter: bool(difference(shorter, backend)))
            text = "\n".join(small)
            pytest.fail(f"seed {seed}, backend {backend}\n{text}\n{difference(small, backend)}")


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_captured_program_is_eager(seed: int) -> None:
    check(seed, "aot_eager")


@pytest.mark.parametrize("seed", range(FIRST, FIRST + max(1, COUNT // 6)))
def test_compiled_program_is_eager(seed: int) -> None:
    check(seed, "codegen")


def test_most_programs_are_accepted_by_eager() -> None:
    refused = 0
    for seed in range(FIRST, FIRST + COUNT):
        try:
            run(define(RandomProgram(seed).lines), calls=1)
        except DistCompileError:
            refused += 1
    assert refused <= COUNT // 3
