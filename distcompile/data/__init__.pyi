"""Written by tests/test_stubs.py from what the namespace holds: see there."""

# ruff: noqa
# fmt: off

from distcompile.data.collate import default_collate as default_collate
from distcompile.data.collate import default_convert as default_convert
from distcompile.data.dataset import ChainDataset as ChainDataset
from distcompile.data.dataset import ConcatDataset as ConcatDataset
from distcompile.data.dataset import Dataset as Dataset
from distcompile.data.dataset import IterableDataset as IterableDataset
from distcompile.data.dataset import StackDataset as StackDataset
from distcompile.data.dataset import Subset as Subset
from distcompile.data.dataset import TensorDataset as TensorDataset
from distcompile.data.dataset import random_split as random_split
from distcompile.data.distributed import DistributedSampler as DistributedSampler
from distcompile.data.loader import DataLoader as DataLoader
from distcompile.data.sampler import BatchSampler as BatchSampler
from distcompile.data.sampler import RandomSampler as RandomSampler
from distcompile.data.sampler import Sampler as Sampler
from distcompile.data.sampler import SequentialSampler as SequentialSampler
from distcompile.data.sampler import SubsetRandomSampler as SubsetRandomSampler
from distcompile.data.sampler import WeightedRandomSampler as WeightedRandomSampler
from distcompile.data.worker import WorkerInfo as WorkerInfo
from distcompile.data.worker import get_worker_info as get_worker_info

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
