"""The user's line: the first frame outside of our packages; the demo counts as a user's code."""

from __future__ import annotations

from pathlib import Path

import compiler_core
from compiler_core.tensor.location import is_ours, user_frame, user_location

ROOT = Path(compiler_core.__file__).resolve().parents[1]


def test_what_is_ours() -> None:
    assert is_ours(str(ROOT / "compiler_core" / "tensor" / "cell.py"))
    assert is_ours(str(ROOT / "distcompile" / "nn" / "module.py"))
    assert is_ours("<frozen importlib._bootstrap>")
    assert not is_ours(str(ROOT / "distcompile" / "demo" / "model.py"))
    assert not is_ours(str(ROOT / "compiler_core_of_a_friend" / "x.py"))
    assert not is_ours(__file__)


def test_the_line_is_this_one() -> None:
    frame = user_frame()
    assert frame is not None
    assert frame.f_code.co_name == "test_the_line_is_this_one"
    assert user_location().startswith(f"{__file__}:")
