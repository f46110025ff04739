"""What compiled code must not do by itself: the beginning and the end of a forward, and what no_sync() switches.

In: a DDP instance, or its books. Out: the same, in a way that capture understands: a forward that begins in what is
traced is announced there, and so is its end; switching how gradients are reduced breaks the graph, so that it happens
at every call, and before the forward that follows it. Capture runs these functions as they are, unlike `ddp.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compiler_core.errors import GraphBreak, GraphSeam
from compiler_core.location import user_location
from compiler_core.ops.registry import current_trace

if TYPE_CHECKING:
    from distcompile.ddp.books import Books
    from distcompile.ddp.ddp import DistributedDataParallel


def announced(ddp: DistributedDataParallel) -> bool:
    """Whether the forward of `ddp` that begins here is traced; who runs the graph does what is due before it."""
    trace = current_trace()
    if trace is None:
        return False
    if hasattr(trace, "announce_gradient_owner"):
        trace.announce_gradient_owner(ddp)
    return True


def ended(ddp: DistributedDataParallel) -> None:
    """The forward of `ddp` ends here, well or by an exception; of one that is traced, who runs the graph is told."""
    trace: Any = current_trace()
    if trace is None:
        ddp._books.end_forward()
    elif hasattr(trace, "announce_forward_end"):
        trace.announce_forward_end(ddp)


def begins_apart(ddp: DistributedDataParallel) -> None:
    """Have a graph end here that the forward of `ddp` must not be part of.

    One in which its parameters were frozen or unfrozen: who runs it asks what is trained. One in which the forward of
    another instance was that shares some: a backward would not know whose graph it is.
    """
    trace: Any = current_trace()
    if hasattr(trace, "is_frozen_anew") and any(map(trace.is_frozen_anew, ddp._census.parameters.values())):
        raise GraphBreak(
            "parameters were frozen or unfrozen before the forward of a DistributedDataParallel",
            where=user_location(),
            remedy="do it outside of the compiled function",
        )
    ours = {id(parameter) for parameter in ddp.module.parameters()}
    for other in getattr(trace, "forwards_ended", ()):
        if other is not ddp and not ours.isdisjoint(map(id, other.parameters())):
            raise GraphBreak(
                "forwards of two DistributedDataParallel that share parameters",
                where=user_location(),
                remedy="call one of them outside of the compiled function",
            )


def switch(books: Books, is_synchronising: bool) -> bool:
    """Have backwards synchronise, or not, whose forward comes from now on. Returns what it was."""
    if current_trace() is not None:
        raise GraphSeam("no_sync() changes what the backward does with gradients", where=user_location())
    before, books.is_synchronising = books.is_synchronising, is_synchronising
    return before


class NoSync:
    """The block of `no_sync()`."""

    def __init__(self, books: Books) -> None:
        self.books, self.before = books, True

    def __enter__(self) -> None:
        self.before = switch(self.books, False)

    def __exit__(self, *error: object) -> None:
        switch(self.books, self.before)
