"""DistributedDataParallel in a block of `torch.distributed.algorithms.join.Join`: the same steps as its own `join()`.

In: the module, and the options of the block. Out: what a rank that has run out does, a batch of the others at a time.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from distcompile.distributed.algorithms.join import JoinHook

if TYPE_CHECKING:
    from distcompile.ddp.ddp import DistributedDataParallel
    from distcompile.ddp.join import Joining


class DdpJoinHook(JoinHook):
    """Of one module, in one block."""

    def __init__(self, ddp: DistributedDataParallel, *, divide_by_initial_world_size: bool) -> None:
        self.ddp, self.divides = ddp, divide_by_initial_world_size
        self.joining: Joining | None = None

    def enter(self, block: ExitStack) -> None:
        self.joining = block.enter_context(self.ddp._joining(self.divides, throws=False))

    def main_hook(self) -> None:
        assert self.joining is not None
        self.ddp._census.take()
        self.joining.shadow(self.ddp._census.buffers)

    def post_hook(self, is_last_joiner: bool) -> None:
        assert self.joining is not None
        self.ddp._agree_after(self.joining)
