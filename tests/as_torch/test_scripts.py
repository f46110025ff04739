"""Training scripts in the published style, unmodified, under --as-torch: what they print is what torch prints.

The scripts (published_*.py) import torch alone, and make their data from its random numbers.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from scripts import ROOT, TIMEOUT_S, environment, run

from tests.sharing import some

AS_TORCH = ("-m", "distcompile.as_torch")
pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def torch_is_here() -> None:
    pytest.importorskip("torch")


def script(name: str) -> str:
    return str(Path(__file__).with_name(f"published_{name}.py"))


def losses(printed: str) -> list[float]:
    """The numbers after `loss`, in order."""
    return [float(number) for number in re.findall(r"loss ([0-9.]+)", printed)]


def lines(printed: str, word: str) -> list[str]:
    return [line for line in printed.splitlines() if word in line]


class Printed:
    """What one run of a script printed: its losses, and the rest, without the digits of floating numbers."""

    def __init__(self, text: str) -> None:
        self.losses, self.rest = losses(text), re.sub(r"-?[0-9]+\.[0-9]+", "#", text)


@dataclass(frozen=True)
class Script:
    """short: arguments of a short run. rough: after how many losses float32 shows itself, None: it never does.

    Training magnifies what rounds otherwise: torch's own losses of the two convolutional networks drift as far, or
    farther, when it computes convolutions without oneDNN.
    """

    short: tuple[str, ...]
    rough: int | None = None


SCRIPTS = {
    "mnist": Script(("--images", "128", "--batch-size", "32", "--log-interval", "1"), 2),
    "vae": Script(("--images", "1280")),
    "dcgan": Script(("--steps", "3"), 3),
    "names": Script(("--iterations", "100")),
    "gpt": Script(("--iterations", "6")),
    "translation": Script(("--sentences", "48", "--width", "128"), 8),
    "language_model": Script(("--bptt-steps", "5", "--size", "100")),
}


@pytest.mark.parametrize("name", some(["mnist", "names", *sorted({*SCRIPTS} - {"mnist", "names"})], 2))
def test_in_double_precision_a_script_prints_what_torch_prints(name: str) -> None:
    """From its seed alone, to the last digit: weights, batches, what is dropped and what is drawn are torch's."""
    words = (script(name), "--double", *SCRIPTS[name].short)
    torchs = run(*words)
    assert run(*AS_TORCH, *words) == torchs
    assert losses(torchs)


@pytest.mark.long
@pytest.mark.parametrize("name", SCRIPTS)
def test_over_an_epoch_a_script_prints_torchs_losses(name: str) -> None:
    ours, torchs = Printed(run(*AS_TORCH, script(name))), Printed(run(script(name)))
    first = SCRIPTS[name].rough
    assert len(torchs.losses) >= 7
    np.testing.assert_allclose(ours.losses[:first], torchs.losses[:first], rtol=1e-4)
    np.testing.assert_allclose(ours.losses, torchs.losses, rtol=0.05)
    assert ours.rest == torchs.rest


@pytest.mark.long
def test_a_script_saves_what_it_trained_and_loads_from_worker_processes(tmp_path: Path) -> None:
    options = ("--images", "256", "--batch-size", "32", "--num-workers", "2")
    words = (script("mnist"), *options, "--save")
    ours, torchs = run(*AS_TORCH, *words, str(tmp_path / "ours.pt")), run(*words, str(tmp_path / "torch.pt"))
    np.testing.assert_allclose(losses(ours), losses(torchs), rtol=1e-3)
    first, second = lines(ours, "correct")
    assert first.split()[-3:] == second.split()[-3:]


def test_a_compiled_script_trains_as_well() -> None:
    words = (script("language_model"), "--bptt-steps", "10", "--dropout", "0")
    np.testing.assert_allclose(losses(run(*AS_TORCH, *words, "--compile")), losses(run(*words)), rtol=1e-4)


def ranks_of_torch(*words: str) -> str:
    """What rank 0 prints where torch's two ranks run a script, started as torchrun does."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {
        **environment(),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
    }
    started = [
        subprocess.Popen([sys.executable, *words], env=common | {"RANK": str(r), "LOCAL_RANK": str(r)}, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT)
        for r in range(2)
    ]  # fmt: skip
    try:
        printed = [process.communicate(timeout=TIMEOUT_S)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0, 0], "\n".join(printed)
    return printed[0]


def test_a_ddp_script_trains_on_two_ranks_as_with_torch_and_resumes(tmp_path: Path) -> None:
    whole = ranks_of_torch(script("ddp"), "4", str(tmp_path / "torch.pt"))
    command = ("-m", "launch", "--as-torch", "-n", "2", script("ddp"))
    first = run(*command, "2", str(tmp_path / "ours.pt"))
    assert os.path.exists(tmp_path / "ours.pt")
    second = run(*command, "4", str(tmp_path / "ours.pt"))
    assert len(lines(second, "resumes at epoch 2")) == 2
    assert len(losses(whole)) == 4
    assert losses(whole)[-1] < losses(whole)[0]
    np.testing.assert_allclose(losses(first) + losses(second), losses(whole), rtol=1e-4, atol=2e-6)
