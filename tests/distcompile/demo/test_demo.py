"""The demo: its text, its exit code, its numbers; and its model against torch, step for step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import distcompile
from distcompile.demo import model as demo_model
from distcompile.demo.model import GPT, ModelSizes
from distcompile.demo.text import BLOCK, Windows, english_text, make_corpus
from distcompile.demo.training import learning_rate_factor
from tests.sharing import some

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.usefixtures("compiled_as_by_users")
SMALL = ["--steps", "12", "--layers", "2", "--width", "32", "--time", "32", "--sample", "20", "--evaluate-every", "6"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Empty when the first demo begins."""
    return tmp_path_factory.mktemp("cache")


def run_demo(
    tmp_path: Path, cache: Path, ranks: int, *options: str
) -> tuple[subprocess.CompletedProcess[str], dict[str, object]]:
    """The demo in processes of its own, and its JSON."""
    result = tmp_path / "result.json"
    launcher = ["-m", "launch", "-n", str(ranks), "--timeout", "200", "-m"] if ranks > 1 else ["-m"]
    command = [sys.executable, *launcher, "distcompile.demo", *SMALL, *options, "--json", str(result)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DISTCOMPILE_CACHE_DIR": str(cache)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=250, check=False
    )
    return done, json.loads(result.read_text()) if result.exists() else {}


def test_the_text_is_english_and_the_parts_are_apart() -> None:
    corpus = make_corpus(english_text())
    assert corpus.training.size > 300_000
    assert corpus.training.shape[1] == corpus.held_out.shape[1] == BLOCK
    assert 0.05 < corpus.held_out.size / corpus.training.size < 0.15
    assert " the " in corpus.decode(corpus.held_out[0])
    training = {bytes(block) for block in corpus.training}
    assert not any(bytes(block) in training for block in corpus.held_out)


def test_targets_are_one_character_ahead() -> None:
    blocks = np.arange(40, dtype=np.int64).reshape(2, 20)
    windows = Windows(blocks, 6)
    assert len(windows) == 6
    x, y = windows[4]
    assert x.tolist() == [26, 27, 28, 29, 30, 31]
    assert y.tolist() == [27, 28, 29, 30, 31, 32]
    with pytest.raises(IndexError):
        windows[6]


def test_the_learning_rate_warms_up_and_decays() -> None:
    factors = [learning_rate_factor(step, 100) for step in range(101)]
    assert factors[0] == pytest.approx(0.1)
    assert max(factors) == pytest.approx(1.0)
    assert factors[100] == pytest.approx(0.1)
    assert factors[:10] == sorted(factors[:10])


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "backend"), some([(1, "none"), (2, "codegen"), (1, "codegen"), (2, "eager")], 1))
def test_it_learns_and_its_gradients_are_right(tmp_path: Path, cache: Path, ranks: int, backend: str) -> None:
    done, result = run_demo(tmp_path, cache, ranks, "--backend", backend)
    assert done.returncode == 0, done.stdout + done.stderr
    assert result["parity_ok"] is True
    assert result["world_size"] == ranks
    first, last = result["held_out"][0][1], result["held_out"][-1][1]  # type: ignore[index]
    assert last < first - 0.1
    for words in ("Gradient parity", "Overlap on rank 0", "Where a step's time went", "all is well"):
        assert words in done.stdout
    assert "Warning" not in done.stderr


@pytest.mark.slow
def test_a_loss_that_does_not_fall_is_a_failure(tmp_path: Path, cache: Path) -> None:
    done, _ = run_demo(tmp_path, cache, 1, "--backend", "none", "--learning-rate", "0", "--no-parity")
    assert done.returncode == 1
    assert "the loss did not fall" in done.stdout


@pytest.mark.torch
@pytest.mark.parametrize("backend", ["eager", "codegen"])
def test_the_model_trains_as_under_torch(backend: str) -> None:
    torch = pytest.importorskip("torch")
    text = Path(demo_model.__file__).read_text()
    for ours, theirs in [("import distcompile as torch", "import torch"), ("from distcompile", "from torch")]:
        text = text.replace(ours, theirs)
    peer_module = types.ModuleType("demo_model_under_torch")
    sys.modules[peer_module.__name__] = peer_module  # dataclasses look their module up
    exec(compile(text, "demo_model_under_torch", "exec"), peer_module.__dict__)

    distcompile.manual_seed(3)
    sizes = ModelSizes(vocabulary=20, layers=2, width=32, heads=4, time=16)
    mine, peer = GPT(sizes), peer_module.GPT(sizes)
    peer.load_state_dict({name: torch.from_numpy(value.numpy().copy()) for name, value in mine.state_dict().items()})
    function = distcompile.compile(mine, backend=backend)
    settings = {"lr": 1e-2, "betas": (0.9, 0.99), "weight_decay": 0.1}
    my_optimizer = distcompile.optim.AdamW(mine.parameters(), **settings)
    peer_optimizer = torch.optim.AdamW(peer.parameters(), **settings)
    generator = np.random.default_rng(0)
    for _ in range(8):
        x, y = generator.integers(0, 20, (2, 4, 16))
        my_optimizer.zero_grad()
        loss = function(distcompile.from_numpy(x), distcompile.from_numpy(y))
        loss.backward()
        my_norm = distcompile.nn.utils.clip_grad_norm_(mine.parameters(), 1.0)
        my_optimizer.step()
        peer_optimizer.zero_grad()
        peer_loss = peer(torch.from_numpy(x), torch.from_numpy(y))
        peer_loss.backward()
        peer_norm = torch.nn.utils.clip_grad_norm_(peer.parameters(), 1.0)
        peer_optimizer.step()
        assert float(loss) == pytest.approx(peer_loss.item(), rel=2e-4)
        assert float(my_norm) == pytest.approx(peer_norm.item(), rel=2e-3)
