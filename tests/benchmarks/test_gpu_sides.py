"""The sides of benchmarks/gpu/ on a stand-in: they run, and their lines say what is compared."""

from __future__ import annotations

import importlib
import json
import math
import sys
from pathlib import Path

import pytest

import distcompile as dc
from compiler_core.config import config
from tests.fake_cuda import FakeCuda

pytest.importorskip("triton")
pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore")]
GPU = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu"
SMALL = {
    "gpt2_side": {"TOKENS": 60, "VOCABULARY": 64, "CONTEXT": 8, "WIDTH": 8, "HEADS": 2},
    "resnet_side": {"STAGES": ((4, 1, 1), (4, 1, 2)), "SIZE": 16, "CLASSES": 5},
    "vit_side": {"SIZE": 8, "PATCH": 4, "WIDTH": 8, "HEADS": 2, "LAYERS": 1, "CLASSES": 5},
}


@pytest.mark.long
@pytest.mark.parametrize("name", SMALL)
def test_a_side_prints_one_line_of_its_step(
    name: str, fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BENCH_FRAMEWORK", "distcompile")
    monkeypatch.setattr(sys, "path", [str(GPU), str(GPU.parent), *sys.path])
    side = importlib.import_module(name)
    for constant, value in SMALL[name].items():
        monkeypatch.setattr(side, constant, value)
    layers = ["--layers", "1"] if name == "gpt2_side" else []
    monkeypatch.setattr(sys, "argv", [name, "--mode", "eager", "--batch", "2", "--steps", "2", *layers])
    with config.patch(use_cache=False):
        side.main()
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert (found["framework"], found["mode"], found["world"]) == ("distcompile", "eager", 1)
    assert 0 < found["host_ms"] <= found["step_ms"] <= found["first_step_s"] * 1e4
    assert all(map(math.isfinite, found["losses"]))
    assert min(found["peak_gib"], found["first_peak_gib"]) >= 0


@pytest.mark.long
def test_losses_are_of_the_same_weights_and_tokens(
    fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("BENCH_FRAMEWORK", "distcompile")
    monkeypatch.setattr(sys, "path", [str(GPU), str(GPU.parent), *sys.path])
    side = importlib.import_module("gpt2_side")
    for constant, value in SMALL["gpt2_side"].items():
        monkeypatch.setattr(side, constant, value)
    arguments = ["--mode", "eager", "--layers", "1", "--batch", "2", "--steps", "3", "--losses", "--profile"]
    found, seeded = [], dc.manual_seed
    for seed in range(2):
        monkeypatch.setattr(side.torch, "manual_seed", lambda _, seed=seed: seeded(seed))
        monkeypatch.setattr(sys, "argv", ["gpt2_side", *arguments, "--weights", str(tmp_path / "weights.npz")])
        side.main()
        *_, line = capsys.readouterr().out.splitlines()
        found.append(json.loads(line)["losses"])
    assert found[0] == found[1]
    assert found[0][0] > found[0][-1]


def test_all_that_is_seen_on_gpus_is_there_and_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", [str(GPU), *sys.path])
    everything = importlib.import_module("everything")
    for entry in everything.ENTRIES:
        (script,) = (argument for argument in entry.arguments if argument.endswith(".py"))
        assert (GPU.parents[1] / script).is_file(), entry
    entry = everything.Entry
    several = entry("both", ("-c", "import os; print('on', os.environ['CUDA_VISIBLE_DEVICES'])"), 20, 2)
    late = entry("late", ("-c", "import time; print('here', flush=True); time.sleep(60)"), 2)
    monkeypatch.setattr(everything, "ENTRIES", (late, several, entry("left", ("-c", ""), 1e6)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    monkeypatch.setattr(sys, "argv", ["everything.py", str(tmp_path)])
    assert everything.main() == 1
    both, *alone = capsys.readouterr().out.splitlines()
    assert both.startswith("both")
    assert "exit code 0" in both
    assert both.endswith("on 3,5")
    assert any(line.startswith("left") and "left out: up to 1000000 s" in line for line in alone)
    assert any("ended after 2 s: exit code -9" in line and line.endswith("here") for line in alone)
    assert (tmp_path / "summary.txt").read_text().splitlines() == [both, *alone]


def test_each_row_of_attention_is_one_kernel_and_two(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(sys, "path", [str(GPU), *sys.path])
    rows = importlib.import_module("attention")
    for row in rows.ROWS:
        found = [[one.function.rpartition("_")[0] for one in made.launches] for made in rows.calls(row)]
        assert found == [["attention_forward"], ["attention_queries", "attention_keys"]]
