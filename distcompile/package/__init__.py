"""Packages: exported programs compiled ahead of time, with their weights, in one file.

- `compiling.py`: `aot_compile`: an exported program -> a `.dcpkg` file
- `tables.py`: what the code says of itself, as C++
- `compiling_cuda.py`: the code of a program for a GPU
- `load.py`: `load_package`: a file -> a function, without a compiler; imports little
- `native.py`: what it runs on the CPU
- `libraries.py`: which calls these
- `on_cuda.py`: what it runs on a GPU
- `instances.py`: what both say of inputs and outputs
- `more_sizes.py`: sizes that a package of the CPU was not compiled for
- `container.py`: the file
- `trees.py`: arguments and results
- `command.py`: `distcompile run`
`runtime.cpp` is the part of a package's code that is the same in all; `../include/distcompile_package.h` is its
interface, and loads a package in C++.
"""

from __future__ import annotations

from typing import Any

__all__ = ["aot_compile", "load_package"]


def __getattr__(name: str) -> Any:
    if name == "load_package":
        from distcompile.package.load import load_package

        return load_package
    if name == "aot_compile":
        from distcompile.package.compiling import aot_compile

        return aot_compile
    raise AttributeError(f"module 'distcompile.package' has no attribute {name!r}")
