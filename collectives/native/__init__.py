"""The native engine's source, and the library made of it.

In: a builder (C++ texts by name -> path of a shared object), handed in by who opens a communicator. Out:
`EngineLibrary`, with typed functions. The pieces are one translation unit, in the order of FILES; only system headers
are included. Two handles on one library: `calls` lets other Python threads run meanwhile, `quick` does not and costs
less.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NoReturn, TypeAlias, cast

from collectives.errors import CollectiveError

FILES = ("base.h", "state.h", "reduce.h", "board.h", "programs.h", "engine.h")
Build: TypeAlias = Callable[[Mapping[str, str]], Path]

_POINTER, _WORD = ctypes.c_void_p, ctypes.c_int64
_SIGNATURES = {
    "dc_board_nbytes": (_WORD, (_WORD, _WORD)),
    "dc_open": (_POINTER, (_POINTER, _POINTER)),
    "dc_launch": (_POINTER, (_POINTER, ctypes.c_char_p)),
    "dc_release": (None, (_POINTER, _POINTER, _WORD)),
    "dc_wait": (_WORD, (_POINTER, _POINTER, _WORD)),
    "dc_drop": (None, (_POINTER,)),
    "dc_missing": (_WORD, (_POINTER, _POINTER)),
    "dc_excuse": (None, (_POINTER,)),
    "dc_error": (_WORD, (_POINTER, _POINTER, _POINTER)),
    "dc_abandon": (None, (_POINTER, _WORD)),
    "dc_limit": (None, (_POINTER, _WORD)),
    "dc_join": (None, (_POINTER,)),
    "dc_free": (None, (_POINTER,)),
    "dc_signal": (None, (_POINTER, _WORD)),
    "dc_await": (ctypes.c_int32, (_POINTER, _WORD)),
}


@dataclass(frozen=True, slots=True)
class EngineLibrary:
    """The same functions twice: `calls` release the GIL, `quick` hold it."""

    calls: ctypes.CDLL
    quick: ctypes.PyDLL


class Refusal:
    """In the place of either handle in a forked child: whoever wants a function gets `error`."""

    def __init__(self, error: CollectiveError) -> None:
        self.error = error

    def __getattr__(self, name: str) -> NoReturn:
        raise self.error


def refusing(error: CollectiveError) -> EngineLibrary:
    """A library that nobody can call."""
    return EngineLibrary(cast(ctypes.CDLL, Refusal(error)), cast(ctypes.PyDLL, Refusal(error)))


def source() -> str:
    """The engine as one translation unit."""
    folder = Path(__file__).parent
    return "\n".join(f'#line 1 "{name}"\n{(folder / name).read_text()}' for name in FILES)


def load(build: Build) -> EngineLibrary:
    """The engine's library, built by `build` if need be. Raises what `build` raises, or OSError."""
    return _open(str(build({"collectives_engine": source()})))


@cache
def _open(path: str) -> EngineLibrary:
    calls, quick = ctypes.CDLL(path), ctypes.PyDLL(path)
    for handle in (calls, quick):
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(handle, name)
            function.restype, function.argtypes = result, arguments
    return EngineLibrary(calls, quick)
