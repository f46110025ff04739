"""Programs that draw random numbers, run by both libraries from the same seed: all that they give must be equal.

In: `program(torch)`, which returns or yields what is to be compared, in any nesting; `torch` is either package. Out:
assertions on values, shapes, dtypes, and on the generator's state at the end. rtol: 0 for what must be equal bit for
bit, else of floating numbers; whole numbers, masks and states are always equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest

import distcompile

Program = Callable[[Any], Any]


def assert_same_draws(program: Program, *, seeds: Iterable[int] = (0, 7), rtol: float = 0.0) -> None:
    """See the head of this file."""
    theirs_of = pytest.importorskip("torch")
    for seed in seeds:
        found = [list(leaves(run(program, library, seed))) for library in (theirs_of, distcompile)]
        theirs, ours = found
        assert len(ours) == len(theirs), f"{len(ours)} results, not {len(theirs)}, with seed {seed}"
        for number, (mine, their) in enumerate(zip(ours, theirs)):
            what = "the generator's state" if number == len(ours) - 1 else f"result {number}"
            assert (mine.shape, mine.dtype) == (their.shape, their.dtype), f"{what} with seed {seed}"
            exact = rtol == 0 or mine.dtype.kind not in "fc"
            compare = np.testing.assert_array_equal if exact else np.testing.assert_allclose
            near = {} if exact else {"rtol": rtol, "atol": rtol}
            compare(mine, their, err_msg=f"{what} with seed {seed}", **near)


def run(program: Program, library: Any, seed: int) -> list[Any]:
    """What it gives, then the state of the default generator."""
    library.manual_seed(seed)
    given = program(library)
    results = list(given) if isinstance(given, Iterator) else given
    return [results, library.get_rng_state()]


def leaves(value: Any) -> Iterator[np.ndarray[Any, Any]]:
    """All of it as arrays, in order."""
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from leaves(part)
    elif isinstance(value, dict):
        for key in value:
            yield np.asarray(str(key))
            yield from leaves(value[key])
    elif hasattr(value, "detach"):
        value = value.detach()
        yield np.array((value.float() if str(value.dtype).endswith("bfloat16") else value).numpy())
    else:
        yield np.asarray(value)
