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
from distcompile.data.iteration import Batches as _BaseDataLoaderIter
from distcompile.data.iteration import BatchesHere as _SingleProcessDataLoaderIter
from distcompile.data.iteration import BatchesOfWorkers as _MultiProcessingDataLoaderIter
from distcompile.data.iteration import DatasetKind as _DatasetKind

__all__ = [
    "BatchSampler",
    "DataLoader",
    "Dataset",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "_BaseDataLoaderIter",
    "_DatasetKind",
    "_MultiProcessingDataLoaderIter",
    "_SingleProcessDataLoaderIter",
    "default_collate",
    "get_worker_info",
]
