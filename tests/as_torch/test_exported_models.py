"""Models of torchvision, timm and transformers: exported, saved, compiled ahead of time, run in another process.

The other process has no compiler on its PATH. One of each library runs each time, all 20 with --long.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from scripts import TIMEOUT_S, environment

SCRIPT = Path(__file__).parent / "library_programs" / "exported_models.py"
VISION = [
    f"torchvision_{name}"
    for name in (
        *("resnet18", "mobilenet_v3_small", "shufflenet_v2_x0_5", "squeezenet1_1", "mnasnet0_5", "regnet_y_400mf"),
        *("efficientnet_b0", "vit_b_16"),
    )
]
TIMM = [
    f"timm_{name}"
    for name in (
        *("resnet10t", "convnext_atto", "mobilenetv3_small_050", "ghostnet_050", "vit_tiny_patch16_224"),
        "mixer_s32_224",
    )
]
TEXT = [
    f"transformers_{name}"
    for name in ("BertModel", "RobertaModel", "DistilBertModel", "GPT2LMHeadModel", "LlamaForCausalLM", "T5Model")
]
LIBRARIES = {"torchvision": VISION, "timm": TIMM, "transformers": TEXT}

pytestmark = pytest.mark.torch


def _lines(action: str, folder: Path, names: list[str], **more: str) -> list[str]:
    command = [sys.executable, "-m", "distcompile.as_torch", str(SCRIPT), action, str(folder), *names]
    variables = {**environment(), **more}
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=variables, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == names, done.stdout + done.stderr
    assert all(line.endswith(" ok") for line in lines), done.stdout + done.stderr
    return lines


def _check(folder: Path, names: list[str]) -> None:
    for name in names:
        library = name.split("_")[0]
        if find_spec(library) is None:
            pytest.skip(f"not installed: {library}")
    _lines("make", folder, names)
    _lines("run", folder, names, PATH=os.fspath(folder), XDG_CACHE_HOME=os.fspath(folder))


def test_models_are_equal_in_another_process_without_a_compiler(tmp_path: Path) -> None:
    _check(tmp_path, ["torchvision_squeezenet1_1", "timm_resnet10t", "transformers_BertModel"])


@pytest.mark.long
@pytest.mark.parametrize("library", LIBRARIES)
def test_all_models_are(library: str, tmp_path: Path) -> None:
    _check(tmp_path, LIBRARIES[library])
