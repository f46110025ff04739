"""Where a program's outputs lie on a CUDA device: blocks of memory, and each output's place in one.

In: the metas of outputs, and which of them live equally long. Out: `OutputBlocks`.
An allocation takes the host microseconds, a program may have hundreds of outputs, and the device has nothing to do
before all of them have places. So small ones that live equally long share a block. Large ones have a block each: of
one of gigabytes a small piece, given to somebody else, would be the end. Stacks are those in which a backward computes,
too (schedule/lending.py): their memory is of a pool of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from compiler_core import cuda
from compiler_core.meta import TensorMeta
from compiler_core.records import dataclass

Stack = Mapping[int, int]  # output -> first byte

ALIGNED = 512  # bytes on which outputs start: as in CuPy's pool, where each has a block of its own
SMALL = 8 << 20  # bytes of an output, up to which it shares a block: a matrix of weights, cast for the products
SHARED = 64 << 20  # bytes of a shared block, up to which more outputs come into it


@dataclass(frozen=True, slots=True)
class OutputBlocks:
    """sizes: bytes of each block. places: of each output, its block and its offset there. The first `stacks` blocks are
    stacks."""

    sizes: tuple[int, ...]
    places: tuple[tuple[int, int], ...]
    stacks: int = 0

    def allocate(self, wanted: Collection[int] | None = None) -> list[Any]:
        """New memory on the current device, for each block; None for those that are not among `wanted`."""
        if wanted is None:
            return [*map(cuda.allocate_apart, self.sizes[: self.stacks]), *cuda.allocate_all(self.sizes[self.stacks :])]
        if not wanted:
            return [None] * len(self.sizes)
        made = [cuda.allocate_apart(n) if k in wanted else None for k, n in enumerate(self.sizes[: self.stacks])]
        sizes = list(enumerate(self.sizes))[self.stacks :]
        others = iter(cuda.allocate_all([size for k, size in sizes if k in wanted]))
        return [*made, *(next(others) if k in wanted else None for k, _ in sizes)]


def whole(nbytes: int) -> int:
    """nbytes, and what is left of the last unit of CuPy's pool."""
    return -(-nbytes // ALIGNED) * ALIGNED


def lay_out(
    outputs: Sequence[TensorMeta], groups: Sequence[Sequence[int]] = (), stacks: Sequence[Stack] = ()
) -> OutputBlocks:
    """Blocks of a program's outputs. groups: outputs that live equally long. stacks: of each, where its outputs lie."""
    sizes: list[int] = []
    places: dict[int, tuple[int, int]] = {}
    for stack in stacks:
        places |= {k: (len(sizes), start) for k, start in stack.items()}
        sizes.append(whole(max(start + outputs[k].nbytes for k, start in stack.items())))
    for group in groups:
        at = SHARED
        for k in group:
            if outputs[k].nbytes > SMALL or k in places:
                continue
            if at >= SHARED:
                at = 0
                sizes.append(0)
            places[k] = len(sizes) - 1, at
            at += whole(outputs[k].nbytes)
            sizes[-1] = at
    for k, meta in enumerate(outputs):
        if k not in places:
            places[k] = len(sizes), 0
            sizes.append(meta.nbytes)
    return OutputBlocks(tuple(sizes), tuple(places[k] for k in range(len(outputs))), len(stacks))
