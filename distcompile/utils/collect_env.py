"""torch.utils.collect_env, `python -m distcompile.utils.collect_env`: what an error report should say of the machine.

In: nothing. Out: a text of what is found here.
"""

from __future__ import annotations

import os
import platform
import sys

from distcompile import __config__
from distcompile.surface.torch_version import __version__

__all__ = ["get_pretty_env_info", "main"]


def get_pretty_env_info() -> str:
    """Versions, the system, processors."""
    lines = [
        f"PyTorch version: {__version__}",
        "Is CUDA available: False",
        f"OS: {platform.platform()}",
        f"Python version: {sys.version}",
        f"CPU: {platform.machine()}, {os.cpu_count()} processors",
        __config__.show() + __config__.parallel_info(),
    ]
    return "\n".join(lines)


def main() -> None:
    """Print it."""
    print("Collecting environment information...")
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
