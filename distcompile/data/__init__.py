"""Data sets, samplers and loaders: torch.utils.data's names (also reached as `distcompile.utils.data`).

In: the user's samples. Out: batches of tensors, each rank its own.
"""

from __future__ import annotations

from compiler_core.names.namespaces import named_in
from distcompile.data import collate, dataset, distributed, loader, sampler

_NAMES = {
    collate: "default_collate default_convert",
    dataset: "ChainDataset ConcatDataset Dataset IterableDataset StackDataset Subset TensorDataset random_split",
    distributed: "DistributedSampler",
    loader: "DataLoader WorkerInfo get_worker_info",
    sampler: "BatchSampler RandomSampler Sampler SequentialSampler SubsetRandomSampler WeightedRandomSampler",
}

globals().update(named_in(_NAMES))
__all__ = sorted(named_in(_NAMES))
