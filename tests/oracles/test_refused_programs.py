"""What torch refuses is refused here, with its class of error, eager and compiled: programs of refused_programs.py."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from beside_torch import verdict
from refused_programs import DECLARED, PROGRAMS

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("text", PROGRAMS.strip().splitlines())
def test_a_program_is_refused_where_torch_refuses_it(text: str) -> None:
    assert verdict(text) == []


@pytest.mark.parametrize("text", [line for text in DECLARED.values() for line in text.strip().splitlines()])
def test_what_is_declared_differs(text: str) -> None:
    assert verdict(text) != [], "this program is right: take it out of the list"
