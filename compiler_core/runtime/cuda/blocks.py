"""Where a program's outputs lie on a CUDA device: blocks of memory, and each output's place in one.

In: the metas of outputs, and which of them live equally long. Out: `OutputBlocks`.
An allocation takes the host microseconds, a program may have hundreds of outputs, and the device has nothing to do
before all of them have places. So small ones that live equally long share a block. Large ones have a block each: of
one of gigabytes a small piece, given to somebody else, would be the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler_core.meta import TensorMeta

ALIGNED = 512  # bytes on which outputs start: as in CuPy's pool, where each has a block of its own
SMALL = 8 << 20  # bytes of an output, up to which it shares a block: a matrix of weights, cast for the products
SHARED = 64 << 20  # bytes of a shared block, up to which more outputs come into it


@dataclass(frozen=True, slots=True)
class OutputBlocks:
    """sizes: bytes of each block. places: of each output, its block and its offset there."""

    sizes: tuple[int, ...]
    places: tuple[tuple[int, int], ...]


def lay_out(outputs: Sequence[TensorMeta], groups: Sequence[Sequence[int]] = ()) -> OutputBlocks:
    """Blocks of a program's outputs. groups: outputs that live equally long."""
    sizes: list[int] = []
    places: dict[int, tuple[int, int]] = {}
    for group in groups:
        at = SHARED
        for k in group:
            if outputs[k].nbytes > SMALL:
                continue
            if at >= SHARED:
                at = 0
                sizes.append(0)
            places[k] = len(sizes) - 1, at
            at += -(-outputs[k].nbytes // ALIGNED) * ALIGNED
            sizes[-1] = at
    for k, meta in enumerate(outputs):
        if k not in places:
            places[k] = len(sizes), 0
            sizes.append(meta.nbytes)
    return OutputBlocks(tuple(sizes), tuple(places[k] for k in range(len(outputs))))
