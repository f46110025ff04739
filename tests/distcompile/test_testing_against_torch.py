"""assert_close against torch's: who passes, the error's class, and its words."""

from __future__ import annotations

import importlib
import re
from typing import Any

import numpy as np
import pytest

import distcompile

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
NAN = float("nan")
CALLS = {
    "equal": lambda t, close, a: close(a, a.clone()),
    "near": lambda t, close, a: close(a, a + 1e-7),
    "far": lambda t, close, a: close(a, a + 1),
    "dtype": lambda t, close, a: close(a, a.double()),
    "dtype unchecked": lambda t, close, a: close(a, a.double() + 1e-6, check_dtype=False),
    "shape": lambda t, close, a: close(a, t.ones(2)),
    "nan": lambda t, close, a: close(a * NAN, a * NAN),
    "equal nan": lambda t, close, a: close(a * NAN, a * NAN, equal_nan=True),
    "infinite": lambda t, close, a: close(a / 0, a / 0),
    "infinite and not": lambda t, close, a: close(a, a / 0, rtol=0.5, atol=0.0),
    "list": lambda t, close, a: close([a, a], (a, a + 1)),
    "lengths": lambda t, close, a: close([a], [a, a]),
    "keys": lambda t, close, a: close({"a": a}, {"b": a}),
    "nested": lambda t, close, a: close({"a": [a, 1.0]}, {"a": [a, 2.0]}),
    "list and tensor": lambda t, close, a: close(a, [1, 1, 1]),
    "message": lambda t, close, a: close(a, a + 1, msg="said"),
    "made message": lambda t, close, a: close(a, a + 1, msg=lambda text: "said: " + text),
    "floats": lambda t, close, a: close(1.0, 2.0),
    "near floats": lambda t, close, a: close(1.0, 1.0 + 1e-9),
    "number types": lambda t, close, a: close(1, 1.0),
    "number types unchecked": lambda t, close, a: close(1, 1.0, check_dtype=False),
    "bools": lambda t, close, a: close(True, False),
    "0-d": lambda t, close, a: close(t.tensor(3.0), t.tensor(4.0)),
    "0-d integers": lambda t, close, a: close(t.tensor(1), t.tensor(2)),
    "integers": lambda t, close, a: close(t.tensor([1, 2]), t.tensor([1, 3])),
    "integers with tolerance": lambda t, close, a: close(t.tensor([1, 2]), t.tensor([1, 3]), rtol=0, atol=2),
    "masks": lambda t, close, a: close(t.tensor([True]), t.tensor([False])),
    "two dims": lambda t, close, a: close(t.arange(6.0).view(2, 3), t.zeros(2, 3), atol=1, rtol=0),
    "half": lambda t, close, a: close(a.half(), a.half() + 1e-3),
    "none": lambda t, close, a: close(None, None),
    "none and tensor": lambda t, close, a: close(None, a),
    "arrays": lambda t, close, a: close(np.ones(2), np.ones(2) + 1),
    "array and tensor": lambda t, close, a: close(a, a.numpy()),
    "tensor and number": lambda t, close, a: close(a, 1.0),
    "texts": lambda t, close, a: close("a", "a"),
    "one tolerance": lambda t, close, a: close(a, a, rtol=0.1),
    "nothing": lambda t, close, a: close([], []),
}


def outcome(library: Any, call: Any) -> tuple[str, str] | None:
    """The class of torch's error and its words, or None."""
    close = importlib.import_module(f"{library.__name__}.testing").assert_close
    try:
        call(library, close, library.ones(3))
    except (AssertionError, TypeError, ValueError) as error:
        kind = next(k for k in (AssertionError, TypeError, ValueError) if isinstance(error, k))
        text = re.sub(r"torch\.Size\(\[([\d, ]*)\]\)", r"(\1)", str(error)).replace("distcompile", "torch")
        text = text.replace(",)", ")").partition("\n  at:")[0]
        return kind.__name__, text.removesuffix(", but got no atol.")
    return None


@pytest.mark.parametrize("name", list(CALLS))
def test_assert_close(name: str) -> None:
    theirs, ours = (outcome(library, CALLS[name]) for library in (torch, distcompile))
    if theirs is not None and "class" in theirs[1]:  # where a class lives differs
        theirs, ours = theirs[0], ours and ours[0]  # type: ignore[assignment]
    assert ours == theirs
