"""Small numeric programs give what torch gives, eager and compiled, also where their numbers change between calls."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from beside_torch import verdict, verdict_of_numbers
from small_programs import NUMBERS, PROGRAMS, WHOLE_NUMBERS

from tests.sharing import some

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

OF_ANY_KIND: list[Any] = [
    np.float64(0.75), np.float64(2.5), np.int64(5), np.int64(6), np.float32(0.5), np.float32(0.25), np.int32(7),
    np.int32(8), np.float16(0.5), np.float16(0.75), np.bool_(True), np.bool_(False), 0.5, 0.25, 3, 4, True,
]  # fmt: skip


@pytest.mark.parametrize("text", PROGRAMS)
def test_a_program_is_torchs(text: str) -> None:
    assert verdict(text) == []


@pytest.mark.parametrize("text", some(NUMBERS.strip().splitlines()[::-1], 10))
def test_a_number_that_changes_is_not_rounded(text: str) -> None:
    assert verdict_of_numbers(text, "C", [0.1 + 1e-12, 0.3, 0.7, np.float64(0.2), np.float64(0.9)]) == []


@pytest.mark.parametrize("text", some(WHOLE_NUMBERS.strip().splitlines(), 8))
def test_a_whole_number_that_changes_is_exact(text: str) -> None:
    assert verdict_of_numbers(text, "BIG", [2**60 + 3, 2**55 + 1, 2**61 + 9]) == []


DTYPES = ("int32", "float16", "float32", "bool", "complex64")
OPERATIONS = ("t * N", "N - t", "t / N", "N * t", "t ** N", "t + N")
CASES = [*itertools.product(DTYPES, ("[1, 2]", "3"), OPERATIONS)]


@pytest.mark.parametrize(
    ("dtype", "operand", "operation"), some(CASES[::7] + sorted({*CASES} - {*CASES[::7]}), len(CASES[::7]))
)
def test_numbers_of_every_kind_promote_as_torchs(dtype: str, operand: str, operation: str) -> None:
    """At the first call, where they are constants, and at later ones."""
    text = f"t = m.tensor({operand}, dtype=m.{dtype}); {operation}"
    assert verdict_of_numbers(text, "N", OF_ANY_KIND) == []
