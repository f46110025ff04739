"""Plan files: round trips, atomic writes, and a named error for each file that is broken or made for something else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from compiler_core.dtype import float32, float64
from distcompile.ddp.plan.bucket_plan import ReadyParameter, plan_from_groups
from distcompile.tuning.cost import CostPoint, fit_costs
from distcompile.tuning.errors import PlanFileError, PlanFileMismatchError
from distcompile.tuning.plan_file import Place, PlanRecord, check_fits, load_plan, save_plan

PARAMETERS = [ReadyParameter(f"layer{i}.weight", (8, 3 + i), float32, i) for i in range(4)]
HERE = Place(2, "mpi", "1+1")


def record() -> PlanRecord:
    names = [p.name for p in PARAMETERS]
    plan = plan_from_groups([names[:1], names[1:]], PARAMETERS, order="measured optimum")
    fit = fit_costs([CostPoint(1 << k, 1e-5 + 1e-9 * (1 << k)) for k in range(10, 20)])
    return PlanRecord(plan, HERE, fit, 1.25, 20.5)


def test_a_file_gives_back_the_record(tmp_path: Path) -> None:
    save_plan(tmp_path / "plan.json", record())
    again = load_plan(tmp_path / "plan.json")
    assert again == record()
    assert again.plan.hash == record().plan.hash
    check_fits(again, PARAMETERS, HERE, "plan.json")
    data = json.loads((tmp_path / "plan.json").read_text())
    assert data["boundaries"] == ["layer0.weight", "layer3.weight"]
    assert data["parameters"][0] == ["layer0.weight", [8, 3], "float32"]
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]


def test_every_truncation_and_every_changed_byte_is_named(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    save_plan(path, record())
    text = path.read_text()
    for end in range(0, len(text) - 2, 97):
        path.write_text(text[:end])
        with pytest.raises(PlanFileError, match="truncated or no JSON"):
            load_plan(path)
    for place in range(0, len(text), 61):
        if text[place].isspace():
            continue
        path.write_text(text[:place] + ("7" if text[place] != "7" else "8") + text[place + 1 :])
        with pytest.raises(PlanFileError):
            load_plan(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [("[1]", "not one of ours"), ('{"kind": "x"}', "not one of ours"), ("", "truncated"), ("\x00\x01", "truncated")],
)
def test_foreign_files_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(PlanFileError, match=message):
        load_plan(tmp_path / "plan.json")


def test_no_file_no_text_and_another_version(tmp_path: Path) -> None:
    with pytest.raises(PlanFileError, match="cannot be read"):
        load_plan(tmp_path / "none.json")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(PlanFileError, match="cannot be read"):
        load_plan(tmp_path / "bytes")
    save_plan(tmp_path / "plan.json", record())
    text = (tmp_path / "plan.json").read_text().replace('"version": 1', '"version": 9')
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(PlanFileError, match=r"another version(.|\n)*9, expected 1"):
        load_plan(tmp_path / "plan.json")


def test_a_failed_write_keeps_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plan.json"
    save_plan(path, record())
    before = path.read_text()

    def fail(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("distcompile.tuning.plan_file.os.replace", fail)
    with pytest.raises(PlanFileError, match=r"cannot be written(.|\n)*No space left"):
        save_plan(path, record())
    assert path.read_text() == before
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]
    with pytest.raises(PlanFileError, match="cannot be written"):
        save_plan(tmp_path / "missing" / "plan.json", record())


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (replace(HERE, world_size=4), "world_size is 4 here and 2 in the file"),
        (replace(HERE, transport="threaded"), "transport is threaded here and mpi in the file"),
        (replace(HERE, hosts="2"), r"hosts is 2 here and 1\+1 in the file"),
    ],
)
def test_another_place_is_named(place: Place, message: str) -> None:
    with pytest.raises(PlanFileMismatchError, match=message):
        check_fits(record(), PARAMETERS, place, "plan.json")


def test_another_model_is_named() -> None:
    other = [*PARAMETERS[:2], replace(PARAMETERS[2], shape=(8, 9)), replace(PARAMETERS[3], dtype=float64)]
    with pytest.raises(PlanFileMismatchError, match=r"layer2.weight is float32\[8, 9\] here and float32\[8, 5\]"):
        check_fits(record(), other, HERE, "plan.json")
    more = [*PARAMETERS[1:], *(ReadyParameter(f"new{i}", (2,), float32, 9) for i in range(5))]
    with pytest.raises(PlanFileMismatchError, match="only in this model: new0, new1, new2 and 2 more") as caught:
        check_fits(record(), more, HERE, "plan.json")
    assert "only in the file: layer0.weight" in str(caught.value)
