"""torch._inductor's names: its `config`, `compile_fx`, and packages under its names (distcompile/package/)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from distcompile._inductor import config

__all__ = ["aoti_compile_and_package", "aoti_load_package", "config"]


def aoti_compile_and_package(
    exported_program: Any,
    _deprecated_unused_args: Any = None,
    _deprecated_unused_kwargs: Any = None,
    *,
    package_path: str | os.PathLike[str] | None = None,
    inductor_configs: Mapping[str, Any] | None = None,
) -> str:
    """Compile an exported program ahead of time; the path of the package, by default `NAME.pt2`. See `aot_compile`."""
    from distcompile.package import aot_compile

    made: str = aot_compile(exported_program, package_path or f"{exported_program.dc_graph.name}.pt2")
    return made


def aoti_load_package(
    path: str | os.PathLike[str], model_name: str = "model", run_single_threaded: bool = False, **_: object
) -> Callable[..., Any]:
    """A function of Tensors, of what `aoti_compile_and_package` wrote. See `load_package`."""
    from distcompile.package import load_package

    made = load_package(path, threads=1 if run_single_threaded else 0)
    made.gives_tensors = True
    found: Callable[..., Any] = made
    return found
