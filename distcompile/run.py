"""The entry point of the command `distcompile-run`: are the four packages one installation? Then the launcher.

In: the command line. Out: the exit code. The launcher imports nothing of distcompile. Importing distcompile has made
the check (`installation.py`): without it another module of the name `launch`, found first, would end the command in an
error that does not name it.
"""

from __future__ import annotations

import sys


def main() -> int:
    """`distcompile-run`."""
    from launch.cli import main as launcher

    return launcher()


if __name__ == "__main__":
    sys.exit(main())
