"""Dumps are replayed from each of their stages; what was edited by hand is found where it stands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.config import config
from compiler_core.errors import ConfigError
from compiler_core.repro.replay import STAGES, folders, replay
from distcompile import nn
from distcompile.cli import main

F = nn.functional
LONG = np.linspace(-1, 1, 40).reshape(5, 8).tolist()  # longer than a literal


def mixed(x: dc.Tensor, w: dc.Tensor) -> dc.Tensor:
    h = dc.tanh(x @ w) * dc.tensor(LONG)
    turned = dc.exp(h.flip(1)) * h.sum(1, keepdim=True)
    return dc.softmax(h, 1) * turned.cumsum(0) - turned.mean(0)


def masked(x: dc.Tensor, w: dc.Tensor) -> dc.Tensor:
    return (x @ w).tril().tanh() @ x


def convolved(x: dc.Tensor, w: dc.Tensor) -> dc.Tensor:
    return F.max_pool2d(F.conv2d(x, w).relu(), 2)


def looked_up(x: dc.Tensor, w: dc.Tensor) -> dc.Tensor:
    return F.embedding(x, w).cumsum(0) * 0.5


MODELS: dict[str, tuple[Callable[..., dc.Tensor], list[Any]]] = {
    "mixed": (mixed, [dc.ones(5, 4), dc.ones(4, 8)]),
    "masked": (masked, [dc.ones(128, 128), dc.ones(128, 128)]),
    "convolved": (convolved, [dc.ones(2, 3, 7, 7), dc.ones(4, 3, 2, 2)]),
    "looked_up": (looked_up, [dc.tensor([0, 1, 1]), dc.ones(2, 3)]),
}


def dumped(name: str, folder: Path, *, gradients: bool = True) -> Path:
    """The folder of the graph of a model."""
    function, given = MODELS[name]
    with config.patch(dump_dir=str(folder)):
        arguments = [x.clone().requires_grad_(gradients and x.is_floating_point()) for x in given]
        dc.compile(function)(*arguments)
    (found,) = folders(folder)
    return found


def stages_of(folder: Path) -> list[str]:
    names = [path.stem.split("_", 1)[1] for path in sorted(folder.glob("*.txt"))]
    return [stage for stage in STAGES if any(name == stage or name.startswith(f"{stage}_") for name in names)]


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_every_stage_of_a_dump_is_replayed(name: str, gradients: bool, tmp_path: Path) -> None:
    folder = dumped(name, tmp_path, gradients=gradients)
    found = stages_of(folder)
    assert {"capture", "define", "schedule"} <= set(found)
    for stage in found:
        replayed = replay(folder, stage)
        assert replayed.fault is None, f"{stage}\n{replayed}"
        assert replayed.held[-1][0] == "emit", stage


def edit(folder: Path, start: str, old: str, new: str) -> None:
    (path,) = [path for path in folder.glob("*.txt") if path.stem.split("_", 1)[1].startswith(start)]
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_what_was_edited_is_what_is_run(tmp_path: Path) -> None:
    folder = dumped("mixed", tmp_path, gradients=False)
    edit(folder, "schedule", "tanh(", "sin(")
    assert replay(folder, "schedule").fault is None  # another program, compiled as it says
    edit(folder, "define", "element [", "elemental [")
    with pytest.raises(ConfigError, match="does not read back"):
        replay(folder, "define")


def test_long_constants_are_whole_in_a_dump(tmp_path: Path) -> None:
    folder = dumped("mixed", tmp_path)
    (text,) = [path.read_text() for path in folder.glob("*schedule_mixed_forward*")]
    assert "base64" in text  # the long constant, whole
    assert replay(folder, "schedule").fault is None


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dumped("looked_up", tmp_path)
    assert main(["replay", str(tmp_path), "--from", "inline"]) == 0
    assert "all stages hold" in capsys.readouterr().out
    assert main(["replay", str(tmp_path), "--from", "layout"]) == 2
    assert "has nothing of stage 'layout'" in capsys.readouterr().err
    assert main(["replay", str(tmp_path / "nowhere")]) == 2
    assert "has 0 graphs" in capsys.readouterr().err


def test_a_stage_that_differs_ends_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from compiler_core.schedule import lending

    folder = dumped("mixed", tmp_path)

    def all_at_0(lives: Any) -> Any:
        return {life.name: 0 for life in lives}, max((life.nbytes for life in lives), default=0)

    monkeypatch.setattr(lending, "plan_memory", all_at_0)
    replayed = replay(folder, "triangle")
    assert replayed.fault is not None
    assert replayed.fault.key == "accuracy in schedule"
    assert main(["replay", str(tmp_path), "--from", "triangle"]) == 1


def test_a_folder_without_graphs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no graph"):
        replay(tmp_path, "capture")
