"""The extension that evaluates frames (frames.cpp): built at the first need, loaded once a process.

In: `config.frame_evaluation`, Python's headers, the C++ compiler, the artefact cache. Out: `frame_evaluation()`: the
extension, or None: turned off, another Python than CPython 3.11 to 3.13, no headers, no compiler, a build that failed,
or somebody else evaluates frames. But for the first, that is said once; nothing else needs it.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import CodeType
from typing import Any, Protocol, cast

from compiler_core import log
from compiler_core.config import config
from compiler_core.errors import DistCompileError
from compiler_core.runtime.build import build_library
from compiler_core.runtime.cache import Manifest, load_or_build, make_key
from compiler_core.runtime.toolchain import find_toolchain

PLAIN, OFF, ASK = 1, 2, 3  # what is done with the frames of a code: see frames.cpp
KNOWN = ((3, 11), (3, 12), (3, 13))
_MODULE = "distcompile_frames"
_FILE = f"{_MODULE}.so"
Ask = Callable[[Any, tuple[Any, ...]], Any]


class FrameEvaluation(Protocol):
    """What the extension offers: see frames.cpp."""

    def run(self, ask: Ask, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], /) -> Any: ...
    def is_free(self) -> bool: ...
    def prepare(self, judge: Callable[[CodeType], int], /) -> None: ...
    def forked(self) -> None: ...
    def __hash__(self) -> int: ...


def frame_evaluation() -> FrameEvaluation | None:
    """The extension, if it is wanted and can be had. `prepare` is yet to be called, once."""
    extension = _loaded() if config.frame_evaluation else None
    if extension is not None and not extension.is_free():
        _say("another library evaluates Python's frames in this process (torch.compile does)")
        return None
    return extension


@cache
def _loaded() -> FrameEvaluation | None:
    missing = _missing()
    if not missing:
        try:
            return _load(_built())
        except (DistCompileError, ImportError, OSError) as error:
            missing = str(error)
    _say(missing)
    return None


def _say(missing: str) -> None:
    log.warn_once(
        "frame evaluation",
        f"functions that only uncompiled code calls are not compiled: {missing}. DISTCOMPILE_FRAME_EVALUATION=0 says"
        " that this is meant",
        stacklevel=5,
    )


def _missing() -> str:
    """What this Python lacks; "" if nothing."""
    if sys.implementation.name != "cpython" or sys.version_info[:2] not in KNOWN:
        return f"frames of {sys.implementation.name} {sys.version_info[0]}.{sys.version_info[1]} are not known"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "frames of Python without its lock are not known"
    if not (_headers() / "internal" / "pycore_frame.h").exists():
        return f"Python's headers are not in {_headers()}"
    return ""


def _headers() -> Path:
    return Path(sysconfig.get_path("include"))


def _built() -> Path:
    found, text = find_toolchain(), (Path(__file__).parent / "frames.cpp").read_text()
    late = ("-undefined", "dynamic_lookup") if sys.platform == "darwin" else ()  # Python's own functions
    toolchain = replace(found, flags=(*found.flags, f"-I{_headers()}", *late))

    def build(folder: Path) -> Manifest:
        build_library({_MODULE: text}, folder / _FILE, toolchain)
        return {}

    parts = {"kind": "frame evaluation", "python": sys.version, "toolchain": toolchain.key(), "source": text}
    return load_or_build(make_key(parts), build).file(_FILE)


def _load(path: Path) -> FrameEvaluation:
    loader = ExtensionFileLoader(_MODULE, str(path))
    spec = spec_from_loader(_MODULE, loader)
    if spec is None:
        raise ImportError(f"{path} is no extension")
    made = module_from_spec(spec)
    loader.exec_module(made)
    extension = cast(FrameEvaluation, made)
    os.register_at_fork(after_in_child=extension.forked)
    return extension
