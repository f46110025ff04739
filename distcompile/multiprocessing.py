"""torch.multiprocessing.spawn: not offered, for ranks are started by MPI; says how.

In: a script that starts its own ranks. Out: LaunchError with the command that starts them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from distcompile.distributed.environment import command
from distcompile.distributed.errors import LaunchError


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> NoReturn:
    """Always raises LaunchError: call `fn(rank, *args)` in a script that distcompile-run starts on `nprocs` ranks."""
    raise LaunchError(
        f"ranks are started by MPI, not by spawn({getattr(fn, '__name__', fn)}, nprocs={nprocs})",
        remedy=f"call the function with distcompile.distributed.get_rank() in its place, and start the script with: "
        f"{command(nprocs)}",
    )
