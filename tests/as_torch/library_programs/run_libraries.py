"""Runs programs of libraries on one side: `run.py FOLDER FAMILY:NAME:MODE...`, mode: eager or compiled.

Out: FOLDER/NAME:MODE.npz for each; where a program fails, FOLDER/NAME:MODE.txt with its traceback.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import torch
from library_common import provide_torchvisions_operators


def main(folder: str, words: list[str]) -> None:
    provide_torchvisions_operators()
    for word in words:
        family, name, mode = word.split(":")
        torch.manual_seed(0)
        torch.set_default_dtype(torch.float32)
        place = Path(folder) / f"{name}:{mode}"
        try:
            np.savez(f"{place}.npz", **importlib.import_module(family).PROGRAMS[name](mode))
        except Exception:  # noqa: BLE001  # told for each program
            Path(f"{place}.txt").write_text(traceback.format_exc())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
