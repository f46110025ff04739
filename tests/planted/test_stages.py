"""A fault of each stage leads to a script that names the stage, and fails: a few always, all of them with --long."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.planted.run import ROOT, copied, place_of
from tests.planted.stages import STAGED, Staged, try_stage

FEW = ("arena offsets are all 0", "a raise in define")


@pytest.fixture(scope="module")
def tree() -> Iterator[Path]:
    with copied(ROOT) as copy:
        yield copy


def test_they_are_of_all_stages() -> None:
    assert len(STAGED) >= 20
    stages = {fault.stage.split()[2].rstrip(",") for fault in STAGED}
    assert stages >= {"simplify", "rule", "joint", "partition", "plan", "expand", "define", "inline", "place"}
    assert stages >= {"triangle", "schedule", "emit", "build", "run"}


@pytest.mark.parametrize("fault", STAGED, ids=lambda fault: fault.name)
def test_a_fault_has_its_place(fault: Staged) -> None:
    assert place_of(fault.old, ROOT).is_file()


@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, marks=[] if fault.name in FEW else [pytest.mark.long], id=fault.name) for fault in STAGED],
)
def test_a_fault_leads_to_its_stage_and_to_a_script_that_fails(fault: Staged, tree: Path) -> None:
    told = try_stage(fault, tree)
    assert told.is_right, told.said
    assert told.fails, told.said
    assert told.lines <= 30
