"""Published libraries as files: installed from their wheels into a folder of their own, without the torch they ask for.

In: requirements. Out: a folder for PYTHONPATH, kept for later runs; a test is skipped, with pip's reason, where they
cannot be installed (no network, no pip).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

TIMEOUT_S = 240


def installed(*, without_dependencies: tuple[str, ...], with_dependencies: tuple[str, ...] = ()) -> Path:
    """The folder with these. A folder is whole or not there: it gets its name when both installations are done."""
    text = " ".join([sys.version.split()[0], *without_dependencies, "-", *with_dependencies])
    folder = Path(tempfile.gettempdir()) / f"distcompile-libraries-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    if folder.exists():
        return folder
    making = Path(tempfile.mkdtemp(prefix=folder.name))
    try:
        _install(making, "--no-deps", *without_dependencies)
        if with_dependencies:
            _install(making, *with_dependencies)
        if not folder.exists():  # another process may have been first
            os.rename(making, folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return folder


def _install(folder: Path, *words: str) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--target",
        str(folder),
    ]
    try:
        done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"pip needs more than {TIMEOUT_S} s for {' '.join(words)}")
    if done.returncode:
        pytest.skip(f"pip cannot install {' '.join(words)}: {(done.stderr.strip().splitlines() or ['no reason'])[-1]}")


def vision() -> Path:
    """torchvision, timm, einops, and what timm needs beside torch."""
    return installed(
        without_dependencies=("torchvision==0.29.2", "timm==1.0.31", "einops==0.8.2"),
        with_dependencies=("huggingface_hub>=1", "pyyaml", "pillow", "tqdm"),
    )
