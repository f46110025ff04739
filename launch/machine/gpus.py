"""GPUs of this host: how many processes may use, which one a rank takes, and a word where ranks outnumber them.

Also whether ranks compute alike: algorithms that are measured are kept in a cache, which hosts need not share.

In: /dev, CUDA_VISIBLE_DEVICES (which stays as it is), the rank's number on its host. Out: the variable
DISTCOMPILE_CUDA_DEVICE, by which CUDA's current device is the local rank's from the start; programs that call
set_device(local_rank) choose the same one. Nothing of CUDA is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "DISTCOMPILE_CUDA_DEVICE"
MEASURE = "DISTCOMPILE_MEASURE"
DEVICES = Path("/dev")


def count(environ: Mapping[str, str] = os.environ, folder: Path = DEVICES) -> int:
    """How many GPUs processes here see: those of /dev, or fewer if CUDA_VISIBLE_DEVICES names them."""
    there = len(list(folder.glob("nvidia[0-9]*")))
    named = environ.get("CUDA_VISIBLE_DEVICES")
    if named is None or not there:
        return there
    words = [word.strip() for word in named.split(",")]
    usable = next((place for place, word in enumerate(words) if word in ("", "-1", "NoDevFiles")), len(words))
    return usable if any(not word.isdigit() for word in words[:usable]) else min(usable, there)


def choice(local_rank: int, environ: Mapping[str, str], folder: Path = DEVICES) -> dict[str, str]:
    """The variable that chooses a rank's GPU; none where there is no GPU, or the user has chosen."""
    there = count(environ, folder)
    return {} if not there or VARIABLE in environ else {VARIABLE: str(local_rank % there)}


def alike(*, several_hosts: bool, environ: Mapping[str, str]) -> dict[str, str]:
    """The variable with which ranks of several hosts take the same algorithms, unless the user has chosen."""
    return {MEASURE: "0"} if several_hosts and MEASURE not in environ else {}


def shortage(ranks: int, environ: Mapping[str, str] = os.environ, folder: Path = DEVICES) -> str:
    """What to tell the user of `ranks` ranks on this host; empty if each can have a GPU, or there is none."""
    there = count(environ, folder)
    if not there or ranks <= there:
        return ""
    return (
        f"{ranks} ranks on this host, and {there} GPU{'s' if there > 1 else ''}: NCCL takes one rank a GPU, so tensors "
        f"on GPUs cannot be communicated here with more than {there} rank{'s' if there > 1 else ''}"
    )
