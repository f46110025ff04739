"""The builder of the native communication engine: `collectives` has the source, `compiler_core` compiler and cache.

In: C++ texts by name. Out: the path of a shared object, from the artefact cache if it was built before; of many ranks
one builds and the others wait. Raises what the toolchain raises (no compiler, a failed build): `collectives` then runs
a Python thread instead, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from compiler_core.runtime.build import build_library
from compiler_core.runtime.cache import Manifest, load_or_build, make_key
from compiler_core.runtime.toolchain import find_toolchain
from compiler_core.showing.notice import noticed

_NAME = "engine.so"


def build_engine(sources: Mapping[str, str]) -> Path:
    """The shared object of `sources` (file stem -> C++ text)."""
    toolchain = find_toolchain()

    def build(folder: Path) -> Manifest:
        with noticed("the communication engine", "build"):
            build_library(sources, folder / _NAME, toolchain)
        return {}

    key = make_key({"kind": "communication engine", "toolchain": toolchain.key(), **sources})
    return load_or_build(key, build).file(_NAME)
