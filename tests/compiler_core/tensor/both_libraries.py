"""Expressions written once, in torch's names, evaluated by torch and by us, eager and compiled.

In: expressions as text over names of operands. Out: assertions that dtypes, shapes and values are torch's.
All expressions of a call are compiled as one function, so that a table of them costs one native build.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import distcompile

torch = pytest.importorskip("torch")


def of_both(arrays: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays as torch's Tensors and as ours."""
    return (
        {name: torch.from_numpy(np.array(a)) for name, a in arrays.items()},
        {name: distcompile.from_numpy(np.array(a)) for name, a in arrays.items()},
    )


def function_of(expressions: Sequence[str], names: Sequence[str], library: Any) -> Any:
    """A function of the named operands that returns a tuple of the expressions' values in `library`."""
    text = f"lambda {', '.join(names)}: ({''.join(e + ', ' for e in expressions)})"
    return eval(text, {"torch": library, "F": library.nn.functional, "np": np})


def assert_as_torch(
    expressions: Sequence[str], arrays: Mapping[str, Any], *, compiled: bool = True, rtol: float = 1e-6
) -> None:
    """Each expression's value is torch's: its type, dtype, shape and numbers; eager, and `compiled` without a break."""
    theirs, ours = of_both(arrays)
    expected = [function_of([e], list(arrays), torch)(**theirs)[0] for e in expressions]
    eager = [function_of([e], list(arrays), distcompile)(**ours)[0] for e in expressions]
    _assert_equal(expressions, expected, eager, rtol)
    if compiled:
        native = distcompile.compile(function_of(expressions, list(arrays), distcompile), fullgraph=True)
        _assert_equal(expressions, expected, native(**ours), rtol)


def _assert_equal(expressions: Sequence[str], expected: Sequence[Any], got: Sequence[Any], rtol: float) -> None:
    for text, theirs, mine in zip(expressions, expected, got, strict=True):
        assert isinstance(mine, distcompile.Tensor), f"{text} is {type(mine)}"
        assert (str(mine.dtype).split(".")[1], tuple(mine.shape)) == (
            str(theirs.dtype).split(".")[1],
            tuple(theirs.shape),
        ), text
        wide = (lambda x: x.double() if x.dtype.is_floating_point else x)(mine).detach().numpy()
        want = (theirs.double() if theirs.is_floating_point() else theirs).detach().numpy()
        np.testing.assert_allclose(wide, want, rtol=rtol, atol=rtol * 0.1, err_msg=text)
