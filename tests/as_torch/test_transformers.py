"""transformers, as files from its wheel, under --as-torch: GPT-2, BERT, Llama and T5 train, and equal torch.

Small configurations, random weights of torch's, handed over by save_pretrained and from_pretrained (safetensors). Each
runs eager and compiled (in one graph); loss, logits, every gradient, five steps of AdamW and greedy decoding compared.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from scripts import run

MODELS = ("gpt2", "bert", "llama", "t5")
DECODERS = ("gpt2", "llama")
SCRIPT = str(Path(__file__).parent / "library_programs" / "transformers_models.py")

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]
Found = dict[str, np.ndarray]


def results(folder: Path, *models: str) -> dict[str, Found]:
    """MODEL:SIDE -> what was found."""
    pytest.importorskip("torch")
    if find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    run(SCRIPT, str(folder), "torch", *models)
    run("-m", "distcompile.as_torch", SCRIPT, str(folder), "eager,compiled", *models)
    return {path.stem: dict(np.load(path)) for path in folder.glob("*.npz")}


def equal(ours: Found, torchs: Found) -> None:
    assert torchs["losses"][-1] < torchs["losses"][0] - 0.1
    assert ours["loss"] == pytest.approx(torchs["loss"], rel=2e-6)
    for key in set(ours) - {"loss", "said"}:
        scale = max(1.0, float(np.abs(torchs[key]).max())) if key in ("logits", "losses") else 1.0
        np.testing.assert_allclose(ours[key], torchs[key], rtol=1e-4, atol=3e-6 * scale, err_msg=key)
    assert sum(float(np.abs(torchs[key]).sum()) for key in ours if key.startswith("g.")) > 1
    if "said" in ours:
        assert torchs["said"].shape == (2, 10)
        np.testing.assert_array_equal(ours["said"], torchs["said"])


def check(found: dict[str, Found], model: str) -> None:
    eager, compiled, torchs = (found[f"{model}:{side}"] for side in ("eager", "compiled", "torch"))
    assert set(eager) == set(torchs) == set(compiled) | ({"said"} if model in DECODERS else set())
    equal(eager, torchs)
    equal(compiled, torchs)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Found]:
    """All in one pair of processes: to import transformers takes as long as a model."""
    return results(tmp_path_factory.mktemp("models"), *MODELS)


@pytest.mark.long
@pytest.mark.parametrize("model", MODELS)
def test_it_equals_torch(model: str, found: dict[str, Found]) -> None:
    check(found, model)
