"""The sides of benchmarks/gpu/ on a stand-in: they run, and their lines say what is compared."""

from __future__ import annotations

import importlib
import json
import math
import sys
from pathlib import Path

import pytest

from compiler_core.config import config
from tests.fake_cuda import FakeCuda

pytest.importorskip("triton")
pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore")]
GPU = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu"
SMALL = {
    "gpt2_side": {"TOKENS": 60, "VOCABULARY": 64, "CONTEXT": 8, "WIDTH": 8, "HEADS": 2},
    "resnet_side": {"STAGES": ((4, 1, 1), (4, 1, 2)), "SIZE": 16, "CLASSES": 5},
}


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
    assert found["peak_gib"] >= 0
