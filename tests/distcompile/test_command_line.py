"""The command `distcompile`: exit codes, the parameter it names, and what `env` says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distcompile import distributed
from distcompile.cli import main
from distcompile.parity import ParityTargetError
from distcompile.parity.target import load_target

MODEL = """
import distcompile as dc
from distcompile import nn
from compiler_core.ops.registry import current_trace

class Model(nn.Module):
    def __init__(self, fault):
        super().__init__()
        self.first, self.second, self.fault = nn.Linear(4, 8), nn.Linear(8, 2), fault
    def forward(self, x):
        hidden = self.first(x).tanh()
        if self.fault and current_trace() is not None:
            hidden = hidden * 1.01
        return self.second(hidden)

def right():
    dc.manual_seed(0)
    return Model(False), dc.randn(5, 4)

def wrong():
    dc.manual_seed(0)
    return Model(True), (dc.randn(5, 4),), lambda y, x: y.sum()

def nothing():
    return 3

def unwrapped():
    return Model(False), dc.randn(5, 4), dc.randn(5, 2)
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "parity_subject.py"
    path.write_text(MODEL)
    return str(path)


@pytest.mark.parametrize("backend", ["aot_eager", "codegen"])
def test_parity_of_a_right_model_exits_with_zero(script: str, backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parity", f"{script}:right", "--backend", backend]) == 0
    out = capsys.readouterr().out
    assert "first.weight" in out
    assert "parity holds: 5 rows" in out
    assert not distributed.is_initialized()


def test_parity_of_a_wrong_model_exits_with_one_and_names_the_first_parameter(
    script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["parity", f"{script}:wrong", "--json"]) == 1
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert not report["ok"]
    assert "first: (loss) (loss: error" in captured.err
    failing = [row["parameter"] for row in report["rows"] if row["local"]["failure"]]
    assert failing == ["(loss)", "first.weight", "first.bias", "second.weight"]  # second.bias does not see the fault


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("no_colon", "names no factory"),
        ("missing.py:right", "there is no file"),
        ("SCRIPT:absent", "has no function 'absent'"),
        ("SCRIPT:nothing", "did not return what to check"),
        ("SCRIPT:unwrapped", "no loss function in third place"),
    ],
)
def test_targets_that_cannot_be_checked(
    target: str, message: str, script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target = target.replace("SCRIPT", script)
    assert main(["parity", target]) == 2
    assert message in capsys.readouterr().err
    with pytest.raises(ParityTargetError, match=message):
        load_target(target)


def test_env_lists_versions_compiler_and_cache(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env"]) == 0
    out = capsys.readouterr().out
    for fact in ("python:", "numpy:", "mpi4py:", "C++ compiler:", "MPI library:", "cache:", "knobs set:"):
        assert fact in out
