"""The command `distcompile run`: a package, on arrays of files.

    distcompile run model.dcpkg --input x.npy --output y.npy
    distcompile run model.dcpkg                                what it takes and gives

In: a package; `.npy` files for its inputs, in order or by name (`--input mask=m.npy`). Out: `.npy` files of its
results, in order; without `--output` what they are. Exit code 0; 1 for a package, or an array, that does not fit; 2 for
misuse.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from compiler_core.errors import DistCompileError
from distcompile.errors import ArgumentError
from distcompile.package.load import Package, load_package


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `distcompile run`."""
    parser.add_argument("package", type=Path, metavar="MODEL.dcpkg", help="what aot_compile wrote")
    parser.add_argument("--input", action="append", default=[], metavar="[NAME=]X.npy", help="an input, in order")
    parser.add_argument("--output", action="append", default=[], type=Path, metavar="Y.npy", help="a result, in order")


def run(options: argparse.Namespace) -> int:
    """`distcompile run`."""
    try:
        package = load_package(options.package)
        if not options.input and package.inputs:
            print("takes", *map(str, package.inputs), sep="\n  ")
            print("gives", *map(str, package.outputs), sep="\n  ")
            return 0
        results = package.run(*_arrays(package, options.input))
        if len(options.output) > len(results):
            raise ArgumentError(f"the package has {len(results)} results", got=f"{len(options.output)} --output")
        for place, array in zip(options.output, results):
            np.save(place, array)
        for one, array in list(zip(package.outputs, results))[len(options.output) :]:
            print(f"{one.name}: {array.dtype}{list(array.shape)}\n{array}")
    except (DistCompileError, OSError, ValueError) as error:
        print(f"distcompile: {error}", file=sys.stderr)
        return 1
    return 0


def _arrays(package: Package, given: list[str]) -> list[Any]:
    names = [one.name for one in package.inputs]
    found: dict[str, Any] = {}
    for text in given:
        name, _, place = text.rpartition("=")
        name = name or next((other for other in names if other not in found), "")
        if name not in names or name in found:
            raise ArgumentError(f"--input {text}: the package does not take it", expected=", ".join(names))
        found[name] = np.load(place)
    return [found[name] for name in names if name in found]
