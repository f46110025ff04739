"""The picture of the architecture is the code's own imports: arrows go down, nothing is left out, circles are seen."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def drawn() -> ModuleType:
    pytest.importorskip("sphinx", reason="the extra `docs`")
    spec = importlib.util.spec_from_file_location("rooms", ROOT / "docs" / "extensions" / "rooms.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_arrow_goes_down_and_every_room_is_there(drawn: ModuleType) -> None:
    boxes = drawn.without_circles(drawn.edges())
    at = drawn.places(drawn.levels(boxes))
    assert {room for box in boxes for room in box} == set(drawn.rooms())
    assert all(at[a][1] < at[b][1] for a, below in boxes.items() for b in below)
    text = drawn.draw()
    assert text.count("<line") == sum(map(len, boxes.values()))
    assert len(re.findall("<rect", text)) == len(boxes)


def test_what_is_known_of_the_code_is_in_it(drawn: ModuleType) -> None:
    below = drawn.reached(drawn.edges())
    assert "collectives" in below["distcompile/ddp"]
    assert "compiler_core/loop_ir" in below["compiler_core/codegen"]
    assert not {"distcompile/ddp", "collectives"} & below["compiler_core/schedule"]


def test_circles_and_shortcuts(drawn: ModuleType) -> None:
    boxes = drawn.without_circles({"a": {"b", "c", "d"}, "b": {"c"}, "c": {"b", "d"}, "d": set()})
    assert boxes == {("a",): {("b", "c")}, ("b", "c"): {("d",)}, ("d",): set()}
    assert drawn.levels(boxes) == {("a",): 2, ("b", "c"): 1, ("d",): 0}
