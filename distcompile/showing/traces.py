"""Tracebacks without our own frames: the user's frames, and what went wrong.

In: an error that nobody caught. Out: the same error, its traceback shortened, and a note that says so; whoever prints
it (Python, IPython, the launcher, another hook) prints that. DISTCOMPILE_TRACEBACK=full leaves it whole.
Left out are frames of the four packages, what they call of the standard library on the way to another frame of theirs
or of the user's, and the import system's. Invariants: a frame of anybody else stays; an error that our catalogues do
not know keeps the frame of ours that raised it, unless that did what the program says (looked up a key that is absent);
a traceback with nothing but our frames stays whole.
`distcompile.demo` counts as a user. Imported with the package, so it loads nothing.
"""

from __future__ import annotations

import sys
import sysconfig
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

_HOME = __file__.rpartition("/distcompile/")[0]
_PACKAGES = ("distcompile", "compiler_core", "collectives", "launch")
_OURS = tuple(f"{_HOME}/{name}/" for name in _PACKAGES)
_DEMO = f"{_HOME}/distcompile/demo/"
_TRACING = f"{_HOME}/compiler_core/capture/tracing/"
_PROGRAMS = (LookupError, ArithmeticError, ValueError)  # what Python raises of values; a fault of ours is seldom one
_LIBRARY = sysconfig.get_path("stdlib") + "/"
_OTHERS = sysconfig.get_path("purelib") + "/"  # what is installed may lie below the standard library
Trace = types.TracebackType
Hook = Callable[[type[BaseException], BaseException, Trace | None], Any]


class Folding:
    """An excepthook that shortens, then calls the one that was there before."""

    def __init__(self, previous: Hook) -> None:
        self.previous = previous

    def __call__(self, kind: type[BaseException], error: BaseException, trace: Trace | None) -> None:
        fold(error)
        self.previous(kind, error, error.__traceback__)


def install() -> None:
    """Once: put the hook before the one that is there; a notebook, which asks no excepthook, has a place of its own."""
    if not isinstance(sys.excepthook, Folding):
        sys.excepthook = Folding(sys.excepthook)
        threading.excepthook = _of_thread(threading.excepthook)
    loaded = sys.modules.get("IPython")
    shell = loaded.get_ipython() if loaded is not None else None
    if shell is not None and not shell.custom_exceptions:
        shell.set_custom_exc((Exception,), _show_in_notebook)


def _of_thread(previous: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The hook of threads, which prints the error's own traceback."""

    def shortened(told: Any) -> None:
        if told.exc_value is not None:
            fold(told.exc_value)
        previous(told)

    return shortened


def _show_in_notebook(
    shell: Any, kind: type[BaseException], error: BaseException, trace: Trace | None, tb_offset: int | None = None
) -> None:
    """As IPython shows it, shortened."""
    fold(error)
    shell.showtraceback((kind, error, error.__traceback__), tb_offset=tb_offset)


def fold(error: BaseException) -> None:
    """Shorten the tracebacks of `error` and of those that led to it. The launcher calls it, too."""
    if _is_whole(error):
        return
    left_out = sum(map(_shorten, _led_to(error)))
    if left_out:
        frames = "frame of distcompile's own is" if left_out == 1 else "frames of distcompile's own are"
        _note(error, f"({left_out} {frames} left out; DISTCOMPILE_TRACEBACK=full shows all)")


def _note(error: BaseException, text: str) -> None:
    """Add a note once, unless the program made something else of the error's notes."""
    notes = getattr(error, "__notes__", [])
    if isinstance(notes, list) and text not in notes:
        error.add_note(text)


def has_others(error: BaseException) -> bool:
    """Whether a frame of anybody else's is in the traceback."""
    return any(_kind(frame.tb_frame.f_code) == "theirs" for frame in _frames(error.__traceback__))


def _is_whole(error: BaseException) -> bool:
    """Whether tracebacks stay as they are. A knob's value that is none must not hide the error that is told: a note."""
    from compiler_core.config import config
    from compiler_core.errors import ConfigError

    try:
        return config.traceback == "full"
    except ConfigError as wrong:
        _note(error, f"({wrong.what}; all frames are shown)")
        return True


def _led_to(error: BaseException | None) -> Iterator[BaseException]:
    """The error, its causes, and the members of groups, each once."""
    seen: set[int] = set()
    row = [error]
    while row:
        each = row.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            yield each
            row += [each.__cause__, each.__context__]
            row += each.exceptions if isinstance(each, BaseExceptionGroup) else ()


def _shorten(error: BaseException) -> int:
    """How many frames were left out."""
    frames = list(_frames(error.__traceback__))
    is_known = type(error).__module__.partition(".")[0] in _PACKAGES or _is_the_programs(error, frames)
    kept = kept_frames(frames, is_known=is_known)
    if len(kept) == len(frames):
        return 0
    shorter: Trace | None = None
    for frame in reversed(kept):
        shorter = Trace(shorter, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    error.__traceback__ = shorter
    return len(frames) - len(kept)


def _is_the_programs(error: BaseException, frames: Sequence[Trace]) -> bool:
    """Whether capture, in the place of Python, did what the program says, and that raised the error."""
    if not frames or not isinstance(error, _PROGRAMS):
        return False
    return frames[-1].tb_frame.f_code.co_filename.startswith(_TRACING)


def kept_frames(frames: Sequence[Trace], *, is_known: bool) -> list[Trace]:
    """Those that are not ours. is_known: the frame that raised the error says nothing that its text does not."""
    kinds = [_kind(frame.tb_frame.f_code) for frame in frames]
    if "theirs" not in kinds:
        return list(frames)
    kept = []
    behind_ours = False  # the last frame that is not the library's is ours
    for place, (frame, kind) in enumerate(zip(frames, kinds)):
        is_on_the_way = kind == "library" and behind_ours and set(kinds[place:]) != {"library"}
        is_origin = kind == "ours" and not is_known and not {"ours", "theirs"} & set(kinds[place + 1 :])
        if is_origin or not (kind in ("ours", "importing") or is_on_the_way):
            kept.append(frame)
        behind_ours = behind_ours if kind == "library" else kind == "ours"
    return kept


def _frames(trace: Trace | None) -> Iterator[Trace]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _kind(code: types.CodeType) -> str:
    """ "ours", "library" (Python's own), "importing" (the import system), or "theirs"."""
    name = code.co_filename
    if name.startswith(_OURS):
        return "theirs" if name.startswith(_DEMO) else "ours"
    if name.startswith("<frozen importlib"):
        return "importing"
    is_library = name.startswith(_LIBRARY) and not name.startswith(_OTHERS)
    return "library" if is_library or name.startswith("<frozen ") else "theirs"
