"""torch.utils.data.dataloader's path.

In: nothing. Out: the names of distcompile.data that torch has there.
"""

from __future__ import annotations

from distcompile.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    default_collate,
    get_worker_info,
)

__all__ = [
    "BatchSampler",
    "DataLoader",
    "Dataset",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "default_collate",
    "get_worker_info",
]
