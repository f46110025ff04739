"""torch.__config__: what this was built with, and how many threads it uses.

In: nothing. Out: texts for people, of what is found on this machine.
"""

from __future__ import annotations

import platform

import numpy as np

from compiler_core.runtime import toolchain
from distcompile.surface.threads import get_num_threads
from distcompile.surface.torch_version import OWN

__all__ = ["parallel_info", "show"]


def show() -> str:
    """Versions, instruction sets and what is not here, a line each."""
    from distcompile.backends import cpu, mkldnn

    lines = [
        "distcompile built with:",
        f"  - distcompile {OWN}, Python {platform.python_version()}, NumPy {np.__version__}",
        f"  - CPU capability usage: {cpu.get_cpu_capability()}",
        f"  - CPU: {len(toolchain.cpu_features())} instruction-set flags, {platform.machine()}",
        "  - USE_CUDA=OFF, USE_ROCM=OFF, USE_MPS=OFF, USE_MKL=OFF, USE_OPENMP=OFF",
        f"  - USE_MKLDNN={'ON' if mkldnn.is_available() else 'OFF'}",
    ]
    return "\n".join(lines) + "\n"


def parallel_info() -> str:
    """How many threads loops and matrix products use."""
    return (
        f"Parallel info:\n\tget_num_threads() : {get_num_threads()}\n"
        "\tloops use no OpenMP, matrix products no MKL; oneDNN's convolutions take OMP_NUM_THREADS\n"
    )
