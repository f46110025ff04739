"""Data sets, samplers and loaders: torch.utils.data's names (also reached as `distcompile.utils.data`).

In: the user's samples. Out: batches of tensors, each rank its own.
"""

from __future__ import annotations

from distcompile.data.collate import default_collate, default_convert
from distcompile.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from distcompile.data.distributed import DistributedSampler
from distcompile.data.loader import DataLoader, WorkerInfo, get_worker_info
from distcompile.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "WorkerInfo",
    "default_collate",
    "default_convert",
    "get_worker_info",
    "random_split",
]
