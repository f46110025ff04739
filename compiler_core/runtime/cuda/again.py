"""The library that makes device calls again (again.h): built at the first need, loaded once a process.

In: `learn(again, *operands)`, which is asked of operands that fit no variant. Out: `made(...)`, a function of operands
that knows no variant yet; `add`, one variant more, as numbers and objects (variant.py writes them). None where there is
no compiler: calls are made in full then.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from compiler_core import log
from compiler_core.errors import DistCompileError
from compiler_core.runtime.build import build_library
from compiler_core.runtime.cache import Manifest, load_or_build, make_key
from compiler_core.runtime.toolchain import find_toolchain
from compiler_core.showing.notice import noticed

_FILE = "again.so"
_INCLUDED = ("algorithm", "atomic", "cstddef", "cstdint", "memory", "utility", "vector")
_OBJECT = ctypes.py_object


class AgainLibrary:
    """The library's functions, which hold the GIL."""

    def __init__(self, path: Path) -> None:
        library = ctypes.PyDLL(str(path))
        self.made: Callable[[Any, Any, Any], Callable[..., Any]] = library.dc_again
        self.forget: Callable[[Any], int] = library.dc_again_forget
        self.repeats: Callable[[], int] = library.dc_again_repeats
        self.note: Callable[[bool], int] = library.dc_again_note
        self._add: Any = library.dc_again_add
        forms: list[tuple[Any, Any, tuple[Any, ...]]] = [
            (self.made, _OBJECT, (_OBJECT,) * 3),
            (self.forget, ctypes.c_int, (_OBJECT,)),
            (self.note, ctypes.c_int, (ctypes.c_int,)),
            (self.repeats, ctypes.c_int64, ()),
            (self._add, ctypes.c_int, (_OBJECT, ctypes.c_void_p, _OBJECT)),
        ]
        for function, result, arguments in forms:
            function.restype, function.argtypes = result, arguments

    def add(self, again: Any, numbers: Sequence[int], objects: tuple[Any, ...]) -> None:
        """One variant more of what `learn` was given first."""
        self._add(again, (ctypes.c_int64 * len(numbers))(*numbers), objects)


@cache
def library() -> AgainLibrary | None:
    """The library, built if need be; None, said in the log, where it cannot be had."""
    try:
        return AgainLibrary(_built())
    except (DistCompileError, OSError) as error:
        log.emit("code", f"device calls are not made again: {error}")
        return None


def _built() -> Path:
    text = Path(__file__).with_name("again.h").read_text()
    source = "".join(f"#include <{name}>\n" for name in _INCLUDED) + text
    toolchain = find_toolchain()

    def build(folder: Path) -> Manifest:
        with noticed("calls of CUDA devices", "build"):
            build_library({"again": source}, folder / _FILE, toolchain)
        return {}

    key = make_key({"kind": "device calls made again", "toolchain": toolchain.key(), "source": source})
    return load_or_build(key, build).file(_FILE)
