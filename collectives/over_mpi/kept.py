"""Memory that MPI may still touch when nobody waits for it any more: it stays for as long as the process.

In: requests that are given up, and the arrays they read or write. Method: what MPI lets go of is ended; the rest gets
a reference that nobody gives back. A list of a module's would not do: mpi4py calls MPI_Finalize, in which MPI may still
move data, after Python has cleared its modules.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

_is_used = False


def is_used() -> bool:
    """Whether anything was kept: MPI may have much to do before it gets to what is waited for."""
    return _is_used


def keep_for_ever(*things: object) -> None:
    """Never free `things`, which MPI may go on moving whenever it is called: what comes next stands behind them."""
    global _is_used
    _is_used = True
    for thing in things:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def give_up(sends: Sequence[Any], receives: Sequence[Any], *buffers: object) -> bool:
    """Whether MPI is through with all these requests; if not, they and `buffers` are kept.

    A receive is called back, unless its message is there already; a send cannot be.
    """
    for request in receives:
        request.Cancel()
    left = [request for request in (*sends, *receives) if not request.Test()]
    if left:
        keep_for_ever(left, *buffers)
    return not left
