"""torch.distributed.constants: how long a process group's calls wait where `timeout` is not given.

In: nothing. Out: timedeltas. A launcher's --timeout, where it is given, is shorter or longer for its job.
"""

from __future__ import annotations

from datetime import timedelta

from collectives.work import DEFAULT_TIMEOUT_S

__all__ = ["default_pg_nccl_timeout", "default_pg_timeout"]

default_pg_timeout = timedelta(seconds=DEFAULT_TIMEOUT_S)
default_pg_nccl_timeout = default_pg_timeout
