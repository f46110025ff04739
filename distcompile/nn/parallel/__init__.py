"""torch.nn.parallel's names: DistributedDataParallel, from `distcompile.ddp`, and DataParallel for one process.

In: a module. Out: the same module, its gradients averaged over the ranks; or just run.
"""

from __future__ import annotations

from distcompile.ddp import DistributedDataParallel
from distcompile.nn.parallel.data_parallel import DataParallel, data_parallel
from distcompile.nn.parallel.spreading import gather, parallel_apply, replicate, scatter, scatter_kwargs
from distcompile.surface.laid_out import lay_out

__all__ = [
    "DataParallel", "DistributedDataParallel", "data_parallel", "gather", "parallel_apply", "replicate", "scatter",
    "scatter_kwargs",
]  # fmt: skip

globals().update(lay_out(__name__, __name__, {"scatter_gather": "spreading"}))
