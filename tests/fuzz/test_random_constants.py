"""Constants from all of a dtype's range: compiled is eager is torch, and so are its gradients eager's, to last places.

DISTCOMPILE_FUZZ_SEED and DISTCOMPILE_FUZZ_CONSTANTS choose others than the usual ones; the program is in the message.
Infinities, NaN and what is lost below a dtype's range are torch's. Gradients are not held to torch's: squares in its
formulas overflow first, as of 1 / x. Sums of equal terms and means may differ in their
last places, and what is halved or doubled at the range's lower end in one.
"""

from __future__ import annotations

import os
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from random_constants import RandomConstants

import distcompile as dc

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

FIRST = int(os.environ.get("DISTCOMPILE_FUZZ_SEED", "0"))
COUNT = int(os.environ.get("DISTCOMPILE_FUZZ_CONSTANTS", "80"))
PLACES = 4  # last places


def run(module: Any, made: RandomConstants, function: Any) -> list[np.ndarray[Any, Any]]:
    """The result and x's gradient, in float64 or as whole numbers."""
    x = module.tensor(made.data).to(getattr(module, made.dtype)).requires_grad_(made.is_float)
    out = function(x)
    if made.is_float:
        out.backward(module.ones_like(out))
    results = [out, x.grad] if made.is_float else [out]
    assert all(str(r.dtype).endswith(made.dtype) for r in results)
    return [np.asarray((r.detach().double() if made.is_float else r).numpy()) for r in results]


def differs(mine: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any], dtype: Any) -> bool:
    if dtype.kind in "iu":
        return not np.array_equal(mine, theirs)
    limits = ml_dtypes.finfo(dtype)
    slack = PLACES * (float(limits.eps) * np.abs(theirs) + float(limits.smallest_subnormal))
    with np.errstate(all="ignore"):
        near = np.abs(mine - theirs) <= slack
    near &= np.isfinite(mine) & np.isfinite(theirs)
    return not np.all((mine == theirs) | near | np.isnan(mine) & np.isnan(theirs))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_numbers_of_all_sizes(seed: int) -> None:
    made = RandomConstants(seed)
    function = {m: eval(f"lambda x: {made.text}", {"m": m}) for m in (torch, dc)}
    theirs = run(torch, made, function[torch])
    eager, compiled = (run(dc, made, f) for f in (function[dc], dc.compile(function[dc])))
    pairs = [(name, ours[0], theirs[0]) for name, ours in (("eager", eager), ("compiled", compiled))]
    pairs.append(("gradient", compiled[-1], eager[-1]))
    for name, mine, other in pairs:
        if differs(mine, other, made.numpy):
            pytest.fail(f"seed {seed}, {name}: {made.dtype} {made.text}\nx = {made.data.tolist()}\n"
                        f"{mine.tolist()}\nfor {other.tolist()}")  # fmt: skip
