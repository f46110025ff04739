"""Data sets that several test files read.

In: a size. Out: samples that say which index they came from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import distcompile as dc
import distcompile.utils.data as ours


class Squares(ours.Dataset[Any]):
    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> int:
        return i * i


class Noisy(Squares):
    def __getitem__(self, i: int) -> Any:
        return i + dc.rand(())


class Stream(ours.IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(10))

    def __len__(self) -> int:
        return 10
