"""torch.nn.parallel.distributed's one public name, for scripts that import it from there."""

from __future__ import annotations

from distcompile.ddp import DistributedDataParallel

__all__ = ["DistributedDataParallel"]
