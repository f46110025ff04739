"""`distcompile tune` under the launcher: a table, a plan file, a picture; 2 for a target that cannot be tuned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mpi_job import check_ran, run_on_ranks

from distcompile.tuning.plan_file import load_plan

pytest.importorskip("mpi4py")

SUBJECT = """
import distcompile as dc
from distcompile import nn

def make():
    dc.manual_seed(0)
    return nn.Sequential(*(nn.Linear(64, 64) for _ in range(4))), dc.randn(32, 64)
"""


@pytest.mark.slow
def test_a_script_is_tuned_on_two_ranks(tmp_path: Path) -> None:
    (tmp_path / "subject.py").write_text(SUBJECT)
    plan, picture = tmp_path / "plan.json", tmp_path / "plan.png"
    options = ["--budget-s", "0.5", "--caps-mb", "0.02,25", "--output", str(plan), "--picture", str(picture), "--json"]
    result = run_on_ranks(
        2, ["-m", "distcompile.cli", "tune", f"{tmp_path / 'subject.py'}:make", *options], limit_s=150
    )
    check_ran(result)
    text = next(line for line in result.stdout.splitlines() if "verdict" in line)
    report = json.loads(text[text.index("{") :])
    assert report["rows"][0]["name"] == "default"
    assert report["recommended"] in {row["name"] for row in report["rows"]}
    record = load_plan(plan)
    assert record.place.world_size == 2
    assert sum(len(bucket.slots) for bucket in record.plan.buckets) == 8
    assert "compiling" in result.stderr + result.stdout
    assert picture.exists() or "no picture" in result.stderr + result.stdout


def test_a_target_that_is_none_is_misuse(tmp_path: Path) -> None:
    result = run_on_ranks(2, ["-m", "distcompile.cli", "tune", f"{tmp_path / 'none.py'}:make"], limit_s=60)
    assert result.returncode == 2, result.stdout + result.stderr
    assert "there is no file" in result.stdout + result.stderr
