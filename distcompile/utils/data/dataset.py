"""torch.utils.data.dataset's path.

In: nothing. Out: the names of distcompile.data that torch has there.
"""

from __future__ import annotations

from distcompile.data import ChainDataset, ConcatDataset, Dataset, IterableDataset, Subset, TensorDataset, random_split

__all__ = ["ChainDataset", "ConcatDataset", "Dataset", "IterableDataset", "Subset", "TensorDataset", "random_split"]
