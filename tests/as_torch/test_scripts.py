"""Training scripts in the published style, unmodified, under --as-torch: what they print is what torch prints.

The scripts (published_*.py) import torch alone. Random numbers differ, so initial weights are handed over or computed.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scripts import ROOT, TIMEOUT_S, environment, run

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


def weights(folder: Path, shapes: dict[str, tuple[int, ...]], buffers: dict[str, np.ndarray]) -> str:
    draw = np.random.default_rng(3)
    arrays = {name: draw.uniform(-0.2, 0.2, shape).astype(np.float32) for name, shape in shapes.items()}
    np.savez(folder / "weights.npz", **arrays, **buffers)
    return str(folder / "weights.npz")


@pytest.mark.parametrize("workers", [0, 2])
def test_a_network_for_digits_trains_as_with_torch(workers: int, tmp_path: Path) -> None:
    shapes = {
        "conv1.weight": (8, 1, 3, 3), "conv1.bias": (8,), "bn.weight": (8,), "bn.bias": (8,),
        "conv2.weight": (16, 8, 3, 3), "conv2.bias": (16,), "fc.weight": (10, 400), "fc.bias": (10,),
    }  # fmt: skip
    buffers = {"bn.running_mean": np.zeros(8, np.float32), "bn.running_var": np.ones(8, np.float32),
               "bn.num_batches_tracked": np.zeros((), np.int64)}  # fmt: skip
    words = [script("mnist"), "--weights", weights(tmp_path, shapes, buffers), "--num-workers", str(workers)]
    torchs = run(*words, "--save", str(tmp_path / "torch.pt"))
    ours = run(*AS_TORCH, *words, "--save", str(tmp_path / "ours.pt"))
    assert len(losses(torchs)) == 3
    assert losses(torchs)[-1] < 0.5 * losses(torchs)[0]
    np.testing.assert_allclose(losses(ours), losses(torchs), rtol=2e-3)
    assert re.findall(r"lr [0-9.]+", ours) == re.findall(r"lr [0-9.]+", torchs)
    assert len(lines(ours, "correct")) == 4
    assert lines(ours, "correct")[-1] == lines(ours, "correct")[-2]  # what was saved is what was trained


def test_a_language_model_trains_as_with_torch(tmp_path: Path) -> None:
    shapes: dict[str, tuple[int, ...]] = {"encoder.weight": (28, 24), "decoder.weight": (28, 24), "decoder.bias": (28,)}
    for layer in range(2):
        for kind in ("ih", "hh"):
            shapes |= {f"rnn.weight_{kind}_l{layer}": (96, 24), f"rnn.bias_{kind}_l{layer}": (96,)}
    words = [script("language_model"), "--weights", weights(tmp_path, shapes, {})]
    torchs, ours, compiled = run(*words), run(*AS_TORCH, *words), run(*AS_TORCH, *words, "--compile")
    assert len(losses(torchs)) == 4
    assert losses(torchs)[-1] < 0.96 * losses(torchs)[0]
    np.testing.assert_allclose(losses(ours), losses(torchs), rtol=5e-3)
    np.testing.assert_allclose(losses(compiled), losses(torchs), rtol=5e-3)
    assert re.findall(r"lr [0-9.]+", ours) == re.findall(r"lr [0-9.]+", torchs)


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
