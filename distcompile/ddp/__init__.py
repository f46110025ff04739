"""Distributed data parallelism: bucket plan, splitter, reducers, ledger, agreement, overlap report.

In: a module and a communicator. Out: `DistributedDataParallel`. `ddp.py` is the place to start reading.
"""

from distcompile.ddp.ddp import DistributedDataParallel
from distcompile.ddp.overlap import JobReport, OverlapReport

__all__ = ["DistributedDataParallel", "JobReport", "OverlapReport"]
