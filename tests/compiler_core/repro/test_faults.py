"""Faults of the compiler: the ladder names the stage, small cases keep them, knobs ask for scripts. Whole runs, with
scripts in processes of their own: tests/planted/test_stages.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core import pipeline
from compiler_core.config import config
from compiler_core.errors import CompilationError, ConfigError
from compiler_core.graph.ir import Graph
from compiler_core.log import DistCompileWarning
from compiler_core.repro import ladder, script, watch
from compiler_core.repro.case import Case, Fault, far_apart
from compiler_core.repro.ladder import find
from compiler_core.repro.script import ALIKE, OTHERWISE, RIGHT, run
from compiler_core.repro.shrink import shrink
from compiler_core.runtime.executor import NativeExecutable
from compiler_core.schedule import lending
from compiler_core.schedule.arena_plan import Life
from tests.fuzz.random_graphs import RandomGraph

TEXT = """graph f(%x: f32[4, 5] input 'args[0]', %w: f32[5, 6] input 'args[1]') {
  %matmul: f32[4, 6] = matmul(%x, %w)            # model.py:3
  %tanh: f32[4, 6] = tanh(%matmul)               # model.py:4
  %sum: f32[4] = sum(%tanh) dims=(1,)            # model.py:5
  %exp: f32[4] = exp(%sum)                       # model.py:6
  %expand: f32[6, 4] = expand(%exp) shape=(6, 4)
  %permute: f32[4, 6] = permute(%expand) dims=(1, 0)
  %mul: f32[4, 6] = mul(%tanh, %permute)         # model.py:7
  %matmul_1: f32[5, 6] = matmul(%permute_1, %mul)
  return %mul, %matmul_1
}
""".replace("  %matmul_1:", "  %permute_1: f32[5, 4] = permute(%x) dims=(1, 0)\n  %matmul_1:")


def case(**words: Any) -> Case:
    return Case.read(TEXT, "x w", 2, **words)


def planted_offsets(lives: list[Life]) -> tuple[dict[str, int], int]:
    return {life.name: 0 for life in lives}, max((life.nbytes for life in lives), default=0)


@pytest.fixture
def _no_cache() -> Any:
    with config.patch(use_cache=False):
        yield


@pytest.mark.parametrize("seed", range(20))
def test_of_what_is_right_nothing_is_said(seed: int) -> None:
    graph = RandomGraph(seed).graph
    floats = frozenset(node.name for node in graph.inputs if node.dtype.is_floating_point)
    assert find(Case(graph, floats, len(graph.outputs))) is None


@pytest.mark.parametrize("backend", ["codegen", "aot_eager", "eager"])
def test_a_case_that_is_right(backend: str) -> None:
    assert find(case(backend=backend)) is None


@pytest.mark.usefixtures("_no_cache")
def test_a_fault_of_memory_keeps_the_company_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lending, "plan_memory", planted_offsets)
    fault = find(case())
    assert fault is not None
    assert fault.key == "accuracy in schedule, memory"
    small, found = shrink(case(), fault, 60)
    assert found.key == fault.key
    assert 2 <= len(small.graph.calls) < len(case().graph.calls)
    assert find(small) == found


def test_an_error_of_running_is_an_error_of_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr(NativeExecutable, "_destinations", fails)
    with pytest.raises(CompilationError, match="KeyError in step 'run'") as caught:
        dc.compile(lambda x: x.exp())(dc.ones(3))
    assert caught.value.step == "run"
    fault = find(case(), errors_only=True)
    assert fault is not None
    assert fault.key == "error in run: KeyError"


def test_an_error_has_the_kept_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr(pipeline, "partition", fails)
    with pytest.raises(CompilationError) as caught:
        dc.compile(lambda x: x.exp())(dc.ones(3, requires_grad=True))
    assert isinstance(caught.value.kept, Graph)
    assert [call.op.name for call in caught.value.kept.calls] == ["exp"]


def test_a_case_has_the_memory_budget_of_its_compilation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In its stages, and in its script."""
    split, budgets = ladder.partition, []

    def noted(joint: Any, budget: float = 1.0) -> Any:
        budgets.append(budget)
        return split(joint, budget)

    for module in (ladder, pipeline):
        monkeypatch.setattr(module, "partition", noted)
    given = case(memory_budget=0.5)
    assert find(given) is None
    assert set(budgets) == {0.5}
    assert "memory_budget=0.5" in script._text(given, Fault("error", "emit", "", ""), tmp_path, "f")


def test_far_apart() -> None:
    ones = np.ones(3, np.float32)
    assert far_apart([ones], [ones * np.float32(1 + 1e-6)]) == ""
    assert "apart by" in far_apart([ones], [ones * 2])
    assert "other places" in far_apart([ones], [ones * np.float32(np.nan)])
    assert "whole numbers" in far_apart([np.arange(3)], [np.arange(3)[::-1]])
    assert "in place of" in far_apart([ones], [ones.astype(np.float64)])
    assert far_apart([ones, ones * np.float32(3e-8)], [ones, ones * np.float32(1e-8)]) == ""
    assert "output 1" in far_apart([ones, ones * np.float32(2e-2)], [ones, ones * np.float32(1e-2)])


def test_a_gradient_that_is_rounding_alone_is_no_fault(tmp_path: Path) -> None:
    nn = dc.nn
    dc.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2))
    with config.patch(repro="accuracy", repro_dir=str(tmp_path)):
        dc.compile(net)(dc.randn(2, 3, 12, 12)).sum().backward()
    assert not list(tmp_path.iterdir())


# ---- what asks for scripts


@pytest.mark.parametrize(
    ("knobs", "expected"),
    [
        ({}, None),
        ({"repro": "error"}, watch.Asked(False, False, True, False)),
        ({"repro": "accuracy"}, watch.Asked(True, False, True, False)),
        ({"repro_after": "dynamo"}, watch.Asked(False, False, True, False)),
        ({"repro_after": "aot", "repro_level": 1}, watch.Asked(False, True, False, False)),
        ({"repro_after": "aot", "repro_level": 3}, watch.Asked(False, True, False, True)),
        ({"repro_after": "dynamo", "repro_level": 4}, watch.Asked(True, False, True, False)),
    ],
)
def test_what_is_asked(knobs: dict[str, Any], expected: watch.Asked | None) -> None:
    with config.patch(**knobs):
        assert watch.asked() == expected


@pytest.mark.parametrize(("name", "text"), [("repro", "all"), ("repro_after", "inductor"), ("repro_level", "5")])
def test_other_words_are_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match="is not valid"):
        type(config).knobs()[name].read(text, "IT")


def test_a_script_that_does_not_fail_alike_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(*_: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr(pipeline, "partition", fails)  # of this process alone
    with config.patch(repro="error", repro_dir=str(tmp_path)), pytest.raises(CompilationError) as caught:
        dc.compile(lambda x: x.exp().sin())(dc.ones(3, requires_grad=True))
    assert "does not fail alike in a process of its own" in "".join(caught.value.__notes__)
    text = Path(caught.value.script).read_text()
    assert text.count(" = exp(") == text.count(" = sin(") == 1  # the whole graph
    assert len(text.splitlines()) <= 30
    assert run(Path(caught.value.script))[0] == RIGHT


def test_a_script_of_a_fault_is_run_and_ends_by_what_it_finds(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    head = "import compiler_core.pipeline as p\ndef fails(*_): raise KeyError('lost')\np.partition = fails\n"
    body = (
        "from compiler_core.repro.case import Case\nfrom compiler_core.repro.script import main\n"
        f"main(Case.read('''{TEXT}''', 'x w', 2), expected='error in STAGE: KeyError')\n"
    )
    path.write_text(head + body.replace("STAGE", "partition"))
    assert run(path)[0] == ALIKE
    path.write_text(head + body.replace("STAGE", "joint"))
    assert run(path)[0] == OTHERWISE


def test_level_3_writes_before_it_compiles(tmp_path: Path) -> None:
    with (
        config.patch(repro_after="aot", repro_level=3, repro_dir=str(tmp_path)),
        pytest.warns(DistCompileWarning, match="is what is compiled now"),
    ):
        dc.compile(lambda x: x.exp() * 3)(dc.ones(3, requires_grad=True))
    assert len(list(tmp_path.rglob("*.py"))) == 2  # forward and backward


def test_torchs_variables_under_its_name(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\nfrom torch._dynamo import config\nprint(config.repro_after, config.repro_level)\n"
        "torch.compile(lambda x: x.exp() * 3)(torch.ones(3))\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "distcompile.as_torch", str(program)],
        capture_output=True, text=True, timeout=120, check=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "TORCHDYNAMO_REPRO_AFTER": "dynamo",
             "TORCHDYNAMO_REPRO_LEVEL": "3"},
    )  # fmt: skip
    assert done.stdout.split() == ["dynamo", "3"]
    assert len(list((tmp_path / "distcompile_repro").rglob("repro.py"))) == 1
