"""torch.nn.parallel's one name: DistributedDataParallel, from `distcompile.ddp`.

In: a module. Out: the same module, its gradients averaged over the ranks.
"""

from __future__ import annotations

from distcompile.ddp import DistributedDataParallel

__all__ = ["DistributedDataParallel"]
