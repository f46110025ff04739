"""Where in the user's code we are: the first frame outside of our own packages.

In: the Python stack. Out: "file:line". The demo counts as a user's code. Used by graph breaks and by graph nodes.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from types import FrameType

_ROOT = Path(__file__).resolve().parents[2]
_OURS = tuple(f"{_ROOT / package}/" for package in ("compiler_core", "collectives", "distcompile", "launch"))
_USERS = (f"{_ROOT / 'distcompile' / 'demo'}",)


@cache
def is_ours(filename: str) -> bool:
    """Whether a source file belongs to us rather than to the user (frozen and generated code does too)."""
    return filename.startswith("<frozen") or (filename.startswith(_OURS) and not filename.startswith(_USERS))


def user_frame() -> FrameType | None:
    """The innermost frame of the user's code, or None."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def user_location() -> str:
    """`file:line` of the innermost frame of the user's code, or an empty text."""
    frame = user_frame()
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
