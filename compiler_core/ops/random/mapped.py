"""Draws of functions that vmap maps: one for each example, of all of them at once, or the same for all.

In: the levels that are running, a `Draw`, and what draws. Out: what one example sees of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from compiler_core.errors import RandomCallError
from compiler_core.ops import prims
from compiler_core.ops.batching.value import Batched, Level
from compiler_core.ops.random.composite import Draw
from compiler_core.ops.registry import Value


def draw_for(every: tuple[Level, ...], draw: Draw, drawn: Callable[[Draw], Value]) -> Value:
    """A draw inside of these levels, the outermost first. Raises RandomCallError where one of them allows none."""
    if any(level.randomness == "error" for level in every):
        raise RandomCallError(
            "vmap: called random operation while in randomness error mode. Please either use the 'same' or "
            "'different' randomness flags on vmap or perform the randomness operation out of vmap"
        )
    apart = [level for level in every if level.randomness == "different"]
    if not apart:
        return drawn(draw)
    sizes = tuple(level.size for level in apart)
    if draw.kind == "permutation":
        value = prims.cat([prims.reshape(drawn(draw), (1, *draw.shape)) for _ in range(math.prod(sizes))], 0)
        value = prims.reshape(value, (*sizes, *draw.shape))
    else:
        lead = len(sizes)
        order = None if draw.order is None else (*range(lead), *(d + lead for d in draw.order))
        value = drawn(draw._replace(shape=(*sizes, *draw.shape), order=order))
    for level in apart:
        value = Batched(value, level)
    return value
