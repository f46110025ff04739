"""Values and gradients at NaN, infinities, zeros, ends of the range and ties are torch's, eager and compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from beside_torch import outcome, program
from special_values import DECLARED, PAIR_VALUES, PAIRS, ROW_VALUES, ROWS, UNARY, VALUES

import distcompile as dc

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

NOT_OURS = {text for texts in DECLARED.values() for text in texts}
NEAR, LEAST = 1e-9, 1e-16  # relative, and what is left where terms cancel: functions' own errors are tested elsewhere


def answers(module: Any, text: str, columns: Sequence[Sequence[float]], compiled: bool = False) -> Any:
    """Results, then gradients of their sum (0 where there is none); the kind of error otherwise."""
    operands = [module.tensor(column, dtype=module.float64, requires_grad=True) for column in columns]
    function = program(text, module, *("x", "y")[: len(columns)])
    results: list[Any] = []

    def run() -> Any:
        made = (dc.compile(function) if compiled else function)(*operands)
        results.extend(made if isinstance(made, tuple) else (made,))
        roots = [r for r in results if r.requires_grad]
        if not roots:
            return results
        grads = module.autograd.grad(roots, operands, [module.ones_like(r) for r in roots], allow_unused=True)
        return [*results, *(module.zeros_like(x) if g is None else g for g, x in zip(grads, operands))]

    found = outcome(run)
    return type(found.error).__name__ if found.error else [part[2] for part in found.parts]


def differences(text: str, columns: Sequence[Sequence[float]], compiled: bool) -> list[str]:
    theirs, ours = answers(torch, text, columns), answers(dc, text, columns, compiled)
    if isinstance(theirs, str) or isinstance(ours, str):
        return [] if isinstance(theirs, str) and isinstance(ours, str) else [f"{columns}: {ours} for {theirs}"]
    found = []
    for place, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        if mine.shape != other.shape:
            return [f"{mine.shape} for {other.shape}"]
        with np.errstate(all="ignore"):
            near = np.abs(mine - other) <= NEAR * np.abs(other) + LEAST if mine.dtype.kind == "f" else mine == other
        same = (mine == other) | near | ((mine != mine) & (other != other))
        for at in np.argwhere(~same.ravel()).ravel()[:4]:
            asked = [column[at] for column in columns] if mine.size == len(columns[0]) else columns
            found.append(f"result {place} of {asked}: {mine.ravel()[at]} for {other.ravel()[at]}")
    return found


def verdict(text: str, compiled: bool) -> list[str]:
    if text in UNARY:
        return differences(text, [VALUES], compiled)
    if text in PAIRS:
        return differences(text, list(zip(*PAIR_VALUES)), compiled)
    return [bad for row in ROW_VALUES for bad in differences(text, [row], compiled)]


@pytest.mark.parametrize("text", [*UNARY, *PAIRS, *ROWS])
def test_special_values_are_torchs(text: str) -> None:
    found = verdict(text, compiled=False)
    if text in NOT_OURS:
        assert found != [], "this is right: take it out of the list"
    else:
        assert found == []


@pytest.mark.parametrize("text", [text for text in (*UNARY, *PAIRS) if text not in NOT_OURS])
def test_compiled_special_values_are_torchs(text: str) -> None:
    assert verdict(text, compiled=True) == []


@pytest.mark.long
@pytest.mark.parametrize("text", [text for text in ROWS if text not in NOT_OURS])
def test_compiled_special_rows_are_torchs(text: str) -> None:
    assert verdict(text, compiled=True) == []
