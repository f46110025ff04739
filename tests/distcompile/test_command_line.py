"""The command `distcompile`: exit codes, the parameter it names, and what `env` says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

import distcompile as dc
from compiler_core.errors import ArgumentError, DTypeError
from distcompile import distributed, nn
from distcompile.cli import COMMANDS, main
from distcompile.commands.options import writable
from distcompile.parity import Judges, ParityTargetError
from distcompile.parity.target import load_target
from distcompile.surface.torch_version import OWN

ROOT = Path(distributed.__file__).parents[2]

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

def whole():
    return Model(False), dc.ones(5, 4).long()

def numpys():
    return Model(False), dc.ones(5, 4).numpy()

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


@pytest.mark.parametrize(
    ("text", "said", "frame"),
    [
        ("def load():\n    return {}['absent']\nload()\n", "got: KeyError: 'absent'", "in load"),
        ("def make(:\n", "got: SyntaxError", "def make(:"),
        ("import no_such_module\n", "got: ModuleNotFoundError: No module named 'no_such_module'", "in <module>"),
        ("raise SystemExit('not here')\n", "got: SystemExit: not here", "in <module>"),
    ],
)
def test_a_target_that_cannot_be_imported_says_so_with_its_own_traceback(
    text: str, said: str, frame: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broken_subject.py"
    path.write_text(text)
    assert main(["parity", f"{path}:make"]) == 2
    found = capsys.readouterr().err
    assert f"{path} cannot be imported" in found
    assert said in found
    assert frame in found
    assert str(path) in found.split("distcompile:")[0]
    assert "target.py" not in found


def test_a_factory_that_raises_says_so_with_its_own_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "raising_subject.py"
    path.write_text("def make():\n    return 1 / 0\n")
    assert main(["parity", f"{path}:make"]) == 2
    found = capsys.readouterr().err
    assert f"{path}:make raised an error" in found
    assert "return 1 / 0" in found
    assert "target.py" not in found


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["parity", "--steps", "-1"], "--steps: '-1': expected a whole number, 1 or more"),
        (["parity", "--steps", "two"], "--steps: 'two': expected a whole number, 1 or more"),
        (["parity", "--seed", "-1"], "--seed: '-1': expected a whole number, 0 or more"),
        (["parity", "--seed", "99999999999999999999"], "expected a seed below 2**64"),
        (["parity", "--record", "/proc/nowhere"], "/proc/nowhere cannot be written"),
        (["parity", "--samples", "-2"], "expected a whole number, -1 or more"),
        (["parity", "--factor", "nan"], "--factor: 'nan': expected a finite number above 0"),
        (["parity", "--factor", "0"], "expected a finite number above 0"),
        (["parity", "--ulps", "inf"], "expected a finite number, 0 or more"),
        (["parity", "--limit", "inf"], "expected a finite number above 0"),
        (["parity", "--html", "/proc/nowhere/page.html"], "/proc/nowhere/page.html cannot be written"),
        (["parity", "--html", "/"], "/ cannot be written: Is a directory"),
        (["tune", "--budget-s", "nan"], "expected a finite number above 0"),
        (["tune", "--caps-mb", "1,inf"], "'inf': expected a finite number above 0"),
        (["tune", "--output", "/proc/nowhere/plan.json"], "cannot be written"),
    ],
)
def test_values_that_the_work_would_fail_on_are_refused_before_it(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([words[0], "no/such/target.py:make", *words[1:]])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("command", ["parity", "tune"])
def test_a_backend_that_is_none_is_misuse(command: str, script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, f"{script}:right", "--backend", "codgen"]) == 2
    found = capsys.readouterr().err
    assert "there is no backend 'codgen'" in found
    assert "did you mean 'codegen'?" in found


def test_what_a_module_refuses_is_said_in_its_own_dtypes(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parity", f"{script}:whole", "--backend", "eager"]) == 2
    found = capsys.readouterr().err
    assert "hidden = self.first(x).tanh()" in found
    assert "got: int64 and float32 and float32" in found
    assert "the module and its loss cannot be run and differentiated" in found
    assert "check.py" not in found


def test_numpy_inputs_are_to_be_made_tensors(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parity", f"{script}:numpys", "--backend", "eager"]) == 2
    found = capsys.readouterr().err
    assert "input 0 is a NumPy array" in found
    assert "what to do: distcompile.from_numpy(array)" in found


def test_the_commands_script_is_no_line_of_the_users(script: str) -> None:
    path = Path(sysconfig.get_path("scripts")) / "distcompile"
    names: dict[str, object] = {"x": dc.ones(2, 4).long(), "module": nn.Linear(4, 2)}
    with pytest.raises(DTypeError) as caught:
        exec(compile("module(x)", str(path), "exec"), names)
    assert str(path) not in caught.value.where


def test_a_failing_verdict_is_told_once(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parity", f"{script}:wrong", "--backend", "aot_eager"]) == 1
    captured = capsys.readouterr()
    assert (captured.out + captured.err).count("parity fails on") == 1


def test_a_page_that_can_be_written_is_not_touched_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "old.html").write_text("old")
    for name in ("old.html", "new.html"):
        assert writable(str(tmp_path / name)) == str(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["old.html"]
    assert (tmp_path / "old.html").read_text() == "old"


def test_env_says_what_a_report_needs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTCOMPILE_FUSION", "0")
    monkeypatch.setenv("DISTCOMPILE_VERIFY", "0")  # its default
    monkeypatch.setenv("DISTCOMPILE_RECOMPILE_LIMIT", "many")  # no value at all: that may be the bug
    monkeypatch.setenv("DISTCOMPILE_CXX_FLAGS", "")
    assert main(["env"]) == 0
    facts = dict(re.split(r":\s+", line, maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert {"python", "numpy", "mpi4py", "C++ compiler", "BLAS", "MPI library", "devices", "cache"} <= facts.keys()
    assert facts["distcompile"].startswith(OWN)
    assert facts["devices"].startswith("cpu")
    assert "OpenBLAS" in facts["BLAS"]
    differing = facts["knobs that differ"].split(", ")
    assert {"DISTCOMPILE_FUSION=0", "DISTCOMPILE_RECOMPILE_LIMIT=many"} <= set(differing)
    assert not [text for text in differing if "VERIFY" in text or "CXX_FLAGS" in text]


@pytest.mark.parametrize("words", [[], ["--help"]])
def test_help_shows_every_command_with_a_line(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "distcompile", *words], capture_output=True, text=True, timeout=60, check=True, cwd=ROOT
    )
    for command in COMMANDS:
        assert re.search(rf"^ +{command.name} +\w.*", done.stdout, re.M), command.name
    for other in ("distcompile-run", "distcompile.demo", "distcompile.as_torch"):
        assert other in done.stdout


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["partiy", "x"], "parity"),
        (["parity", "x", "--bakend", "eager"], "--backend"),
        (["cache", "prun"], "prune"),
        (["cache", "prune", "--dais=3"], "--days"),
        (["--versoin"], "--version"),
    ],
)
def test_what_is_misspelt_is_answered_with_the_nearest(
    words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert f"did you mean {meant}?" in capsys.readouterr().err


def test_what_is_near_nothing_gets_no_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["parity", "x", "--zzzzzzzz"])
    assert "did you mean" not in capsys.readouterr().err


def test_options_may_not_be_shortened() -> None:
    with pytest.raises(SystemExit):
        main(["parity", "x", "--back", "eager"])


def test_training_that_would_never_end_is_refused() -> None:
    with pytest.raises(ArgumentError, match="counted from 0"):
        Judges(steps=-1)


def test_the_version_stands_in_one_place() -> None:
    """The wheel's metadata is made from the line that programs read; nowhere else is it written out."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    source = project["tool"]["hatch"]["version"]
    assert project["project"]["dynamic"] == ["version"]
    assert re.search(source["pattern"], (ROOT / source["path"]).read_text())["version"] == OWN  # type: ignore[index]


def test_each_package_says_that_it_is_typed() -> None:
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert [name for name in packages["packages"] if not (ROOT / name / "py.typed").exists()] == []
