"""The command `distcompile timeline`: what a program compiled, and when, as a page of text.

    DISTCOMPILE_TRACE=trace.json python train.py
    distcompile timeline trace.json

In: a file that DISTCOMPILE_TRACE, or `debug.timeline().save`, wrote. Out: text; exit code 0, or 2 for another file.
ui.perfetto.dev and chrome://tracing show the file, too.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from compiler_core.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `distcompile timeline`."""
    parser.add_argument("file", type=Path, metavar="FILE", help="what DISTCOMPILE_TRACE=FILE wrote")


def run(options: argparse.Namespace) -> int:
    """`distcompile timeline`."""
    from compiler_core.showing.timeline import read_timeline

    try:
        print(read_timeline(options.file))
    except OSError as error:
        print(f"distcompile: {options.file} cannot be read: {error.strerror}", file=sys.stderr)
        return 2
    except ConfigError as error:
        print(f"distcompile: {error.what}", file=sys.stderr)
        return 2
    return 0
