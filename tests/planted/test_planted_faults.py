"""Every planted fault is one that can be planted; with --long, each is found by the tests named for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.planted.faults import FAULTS, Fault
from tests.planted.run import ROOT, copied, place_of, try_to_find


@pytest.fixture(scope="module")
def tree() -> Iterator[Path]:
    with copied(ROOT) as copy:
        yield copy


def test_every_stage_has_one() -> None:
    assert len(FAULTS) >= 20
    assert sum(bool(fault.was) for fault in FAULTS) >= 5


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_has_its_place(fault: Fault) -> None:
    assert place_of(fault.old, ROOT).is_file()
    for named in fault.found_by:
        assert len(list((ROOT / "tests").rglob(named.partition(":")[0]))) == 1, named


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_found(fault: Fault, tree: Path) -> None:
    outcome = try_to_find(fault, tree)
    assert outcome.by, f"{outcome}\n{outcome.said}"
