"""Published libraries, as files from their wheels, under --as-torch: each runs its typical step, and equals torch.

A row is a program of `library_programs/`: the same file runs under torch and under distcompile, eager, and compiled
where the library's model compiles; the losses of a few steps, every gradient, and what else the program notes down are
compared. Weights come from the names of parameters, data from seeds. Rows run with --long, where the library is
installed (`pip install ".[libraries]"`); a family of them in one pair of processes, for to import takes longest.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from scripts import run

Found = dict[str, np.ndarray]
RUNNER = str(Path(__file__).parent / "library_programs" / "run_libraries.py")


@dataclass(frozen=True)
class Row:
    """libraries: import names that must be there. relative: how near to torch, f32 inside of a library: 1e-5.

    compiled: whether the program has a model that it compiles.
    """

    libraries: tuple[str, ...]
    relative: float = 1e-9
    compiled: bool = True


ROWS: dict[str, dict[str, Row]] = {
    "hugging_face": {
        "trainer": Row(("transformers", "accelerate"), 1e-6),
        "accelerate": Row(("accelerate",)),
        "peft": Row(("peft", "transformers"), 1e-5),
        "diffusers_unet": Row(("diffusers",), 1e-5),
        "diffusers_vae": Row(("diffusers",), compiled=False),
        "sentence_transformers": Row(("sentence_transformers",), compiled=False),
        "safetensors": Row(("safetensors", "huggingface_hub"), compiled=False),
    },
    "of_science": {
        "torch_geometric": Row(("torch_geometric",)),
        "torch_geometric_sparse": Row(("torch_geometric",)),
        "gpytorch": Row(("gpytorch",), compiled=False),
        "pyro": Row(("pyro",), compiled=False),
        "e3nn": Row(("e3nn",)),
        "torchdiffeq": Row(("torchdiffeq",), compiled=False),
    },
    "of_training": {
        "lightning": Row(("pytorch_lightning",)),
        "ignite": Row(("ignite",)),
        "skorch": Row(("skorch",)),
        "torchmetrics": Row(("torchmetrics",), 1e-5, compiled=False),
        "captum": Row(("captum",), compiled=False),
        "torchinfo": Row(("torchinfo",), compiled=False),
        "schedulefree": Row(("schedulefree",)),
    },
    "of_images": {
        "torchvision": Row(("torchvision",)),
        "transforms": Row(("torchvision",), compiled=False),
        "kornia": Row(("kornia",), compiled=False),
        "timm": Row(("timm",)),
        "segmentation": Row(("segmentation_models_pytorch",)),
        "open_clip": Row(("open_clip",)),
        "vit_pytorch": Row(("vit_pytorch",)),
        "x_transformers": Row(("x_transformers",), 1e-5),
    },
}
CASES = [
    (family, name, mode)
    for family, rows in ROWS.items()
    for name, row in rows.items()
    for mode in (("eager", "compiled") if row.compiled else ("eager",))
]
_ran: dict[str, Path] = {}


def missing(row: Row) -> list[str]:
    return [name for name in row.libraries if find_spec(name) is None]


def results(family: str, folder: Path) -> Path:
    """A folder with what the programs of a family find on both sides: torch/NAME:eager.npz, ours/NAME:MODE.npz."""
    if family not in _ran:
        sides = [folder / side for side in ("torch", "ours")]
        for side in sides:
            side.mkdir()
        its = [(name, mode) for other, name, mode in CASES if other == family and not missing(ROWS[family][name])]
        words = [f"{family}:{name}:{mode}" for name, mode in its]
        run(RUNNER, str(sides[0]), *[word for word in words if word.endswith(":eager")])
        run("-m", "distcompile.as_torch", RUNNER, str(sides[1]), *words)
        _ran[family] = folder
    return _ran[family]


def loaded(path: Path) -> Found:
    told = path.with_suffix(".txt")
    assert not told.exists(), told.read_text()
    return dict(np.load(path))


def close(ours: Found, torchs: Found, relative: float) -> None:
    """Each array within `relative` of its norm; of a gradient, or of a hundredth of the norm of all."""
    assert set(ours) == set(torchs)
    gradients = [np.linalg.norm(value.astype("f8").ravel()) for key, value in torchs.items() if key.startswith("g.")]
    whole = float(np.linalg.norm(gradients)) if gradients else 0.0
    for key, expected in torchs.items():
        assert ours[key].shape == expected.shape, key
        if expected.dtype.kind == "U":
            assert ours[key].tolist() == expected.tolist(), key
            continue
        error = float(np.linalg.norm((ours[key].astype("f8") - expected).ravel()))
        norm = float(np.linalg.norm(expected.astype("f8").ravel()))
        least = 1e-2 * whole if key.startswith("g.") else 1e-6
        assert error <= relative * max(norm, least), f"{key}: {error:.2e} of {norm:.2e} ({whole:.2e} in all)"


@pytest.mark.torch
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("family", "name", "mode"), CASES)
def test_a_library_computes_what_it_computes_with_torch(
    family: str, name: str, mode: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pytest.importorskip("torch")
    row = ROWS[family][name]
    if missing(row):
        pytest.skip(f"not installed: {', '.join(missing(row))}")
    folder = results(family, tmp_path_factory.mktemp(family))
    torchs = loaded(folder / "torch" / f"{name}:eager.npz")
    close(loaded(folder / "ours" / f"{name}:{mode}.npz"), torchs, row.relative)


def test_the_comparison_can_fail() -> None:
    right = {"loss": np.ones(()), "g.w": np.ones(4), "text": np.array(["a"])}
    close(right, right, 1e-9)
    for wrong in ({"loss": np.ones(()) + 1e-8}, {"g.w": np.array([1, 1, 1, 1 + 1e-8])}, {"text": np.array(["b"])}):
        with pytest.raises(AssertionError):
            close({**right, **wrong}, right, 1e-9)
