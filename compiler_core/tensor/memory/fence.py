"""Fences: values that are on their way, and whoever reads one before it has arrived waits.

In: a way to wait (for a collective), and what is to be computed once that is over (an optimizer's update). Out: cells
whose next reader settles all that first. So a gradient may still travel and a parameter may still be out of date while
the program goes on, and nobody can ever see it.

A guarded cell is a `GuardedCell` for as long as it waits: its `value` is a property that settles the fence, and reads
the slot `raw` afterwards. A plain cell's `value` is that slot: where nothing waits, nothing costs anything. `raw` is
for those who know what they do: it is the array that *will* hold the value. A compiled forward is started with such
arrays and waits for each inside (`ParameterEvents`).

Invariants: a fence settles once; whoever comes meanwhile, from any thread, waits for that. A wait that fails leaves the
fence as it is: the next reader fails the same way. A computation that fails may have written half of its results: the
fence is broken, every later reader gets a FenceError. Versions rise when a value is promised, not when it arrives.
A signal handler or finalizer may read while its own thread settles: during the wait it settles the fence itself; during
the computation, which can neither be repeated nor be waited for, it gets a FenceError.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import RLock
from time import perf_counter
from weakref import WeakValueDictionary

from compiler_core.errors import FenceError
from compiler_core.ops.registry import Array, Value, use_trace
from compiler_core.tensor.memory import views
from compiler_core.tensor.memory.cell import Cell, DeviceCell

_unsettled: WeakValueDictionary[int, Fence] = WeakValueDictionary()  # by id


class Fence:
    """Cells whose values are on their way.

    wait: blocks until what the fence is about is there; raises if it will not be. is_there: whether it would return at
    once. Both may be called from any thread, and again after `wait` has raised. what: for messages. order: what fences
    with a smaller number wait for comes earlier. observe: told ("wait" or "update", begin, end), perf_counter seconds.
    owner: whose the fence is, for `settle_all`. is_brief: who puts something off behind it settles it before returning.
    """

    def __init__(
        self,
        wait: Callable[[], None],
        is_there: Callable[[], bool],
        what: str,
        *,
        order: int = 0,
        observe: Callable[[str, float, float], None] | None = None,
        owner: object = None,
        is_brief: bool = False,
    ) -> None:
        self.what, self.order, self.owner, self._observe = what, order, owner, observe
        self.is_brief = is_brief
        self.is_settled = False
        self._wait, self._is_there = wait, is_there
        self._lock = RLock()
        self._cells: list[Cell] = []
        self._then: list[Callable[[], None]] = []
        self._broken: BaseException | None = None
        self._remedy = "load the last checkpoint: what was there before may be written over in part"
        self._computes = False
        _unsettled[id(self)] = self

    def guard(self, cells: Iterable[Cell]) -> None:
        """From now on, whoever reads one of `cells` settles this fence first. They must be plain (see `can_guard`)."""
        for cell in cells:
            assert can_guard(cell), "a view, or a cell that waits already, cannot be guarded"
            cell.fence = self
            cell.__class__ = _GUARDED[type(cell)]
            self._cells.append(cell)
        if self.is_settled:  # by a signal handler, between two cells
            self._open()

    def then(self, compute: Callable[[], None], cells: Iterable[Cell]) -> None:
        """Once the wait is over, and before anyone reads `cells`: run `compute`, which touches cells by `raw` only.

        If the fence has been settled meanwhile, it runs now.
        """
        with self._lock:
            if self.is_settled:
                compute()
            else:
                self._then.append(compute)
                self.guard(cells)

    def is_there(self) -> bool:
        """Whether settling waits for nobody."""
        return self.is_settled or self._is_there()

    def settle(self) -> None:
        """Wait, compute, and let readers in. Raises what the wait raises, or FenceError."""
        if self.is_settled:
            return
        with self._lock:
            if self._settled_meanwhile():
                return
            if self._broken is not None:
                what = f"{self.what} was interrupted half way"
                raise FenceError(what, got=repr(self._broken), remedy=self._remedy) from self._broken
            if self._computes:
                raise FenceError(
                    f"{self.what} is being computed, and was read from inside of that",
                    got="a signal handler or a finalizer that reads it",
                    remedy="have the handler set a flag, and read after optimizer.step() or the forward",
                )
            began_s = perf_counter()
            self._wait()
            waited_s = perf_counter()
            self._computes = True
            try:
                if self._settled_meanwhile():  # by a signal handler, during the wait
                    return
                self._compute()
            finally:
                self._computes = False
            if self._observe is not None:
                self._observe("wait", began_s, waited_s)
                self._observe("update", waited_s, perf_counter())

    def _compute(self) -> None:
        try:
            with use_trace(None):  # the reader may be a function that is being captured
                for compute in self._then:
                    compute()
        except BaseException as error:
            self._broken = error
            raise
        self.is_settled = True  # from here on the cells are read as they are, open or not
        self._open()

    def lose(self, why: str, remedy: str) -> None:
        """It will never arrive: every reader gets a FenceError that says why."""
        self._lock = RLock()
        self._broken, self._remedy = RuntimeError(why), remedy

    def _settled_meanwhile(self) -> bool:
        return self.is_settled

    def _open(self) -> None:
        for cell in self._cells:
            cell.__class__ = DeviceCell if isinstance(cell, DeviceCell) else Cell
            del cell.fence
        self._cells, self._then = [], []
        _unsettled.pop(id(self), None)


class GuardedCell(Cell):
    """A cell whose value is on its way."""

    __slots__ = ()

    @property
    def value(self) -> Value:
        _settle(self)
        return self.raw

    @value.setter
    def value(self, value: Value) -> None:
        _settle(self)  # else the value on its way would overwrite this one
        self.raw = value

    def strides(self) -> views.Strides:
        return views.contiguous_strides(self.raw.shape)

    @property
    def is_external(self) -> bool:
        return True  # only arrays are promised


class GuardedDeviceCell(GuardedCell, DeviceCell):
    """One of a device."""

    __slots__ = ()


_GUARDED: dict[type[Cell], type[GuardedCell]] = {Cell: GuardedCell, DeviceCell: GuardedDeviceCell}


def _settle(cell: Cell) -> None:
    fence = fence_of(cell)
    if fence is not None:
        fence.settle()


def are_travelling(cells: Iterable[Cell]) -> bool:
    """Whether the value of one of these is on its way, for longer than until the next step."""
    return anything_waits() and any((fence := fence_of(cell)) is not None and not fence.is_brief for cell in cells)


def fence_of(cell: Cell) -> Fence | None:
    """The fence that `cell` waits for."""
    return getattr(cell, "fence", None)


def can_guard(cell: Cell) -> bool:
    """Whether a promise can be put into `cell`: it is a storage of its own, and waits for nothing."""
    return type(cell) in _GUARDED


def promise(cell: Cell, array: Array) -> None:
    """`array` is going to hold the next value of `cell`. Guard it right after."""
    cell.raw = array
    cell.touch()


def anything_waits() -> bool:
    """Whether any value at all is on its way."""
    return bool(_unsettled)


def _all_unsettled() -> list[Fence]:
    """The fences now. Other threads may make and settle some meanwhile: the list of references is taken at once."""
    return [fence for reference in _unsettled.valuerefs() if (fence := reference()) is not None]


def settle_all(owner: object = None) -> None:
    """Settle every fence, or those of `owner`: for the end of the program, or of a process group."""
    for fence in sorted(_all_unsettled(), key=lambda fence: fence.order):
        if owner is None or fence.owner is owner:
            fence.settle()


def _forget_after_fork() -> None:
    """In a forked child: nobody completes what the parent waits for, so whoever reads it gets an error, not a hang."""
    for fence in _all_unsettled():
        fence.lose("this process was forked while it was on its way", "read it before the fork")
    _unsettled.clear()


atexit.register(settle_all)
os.register_at_fork(after_in_child=_forget_after_fork)


class ParameterEvents:
    """The waits of a running forward: event k is the first use of the parameter in cells[k].

    While the fence that is needed waits, those before it are settled: their updates are computed in time that would
    else be lost.
    """

    def __init__(self, cells: Mapping[int, Cell]) -> None:
        self._fences = {event: fence for event, cell in cells.items() if (fence := fence_of(cell)) is not None}

    def signal(self, event: int) -> None:
        """A forward announces nothing."""

    def wait(self, event: int) -> None:
        fence = self._fences.pop(event, None)
        if fence is None or fence.is_settled:
            return
        if not fence.is_there():
            self._use_the_time(fence)
        fence.settle()

    def _use_the_time(self, needed: Fence) -> None:
        for fence in sorted(set(self._fences.values()), key=lambda fence: fence.order):
            if fence.order >= needed.order or needed.is_there():
                return
            fence.settle()


def settle_cells(cells: Sequence[Cell]) -> None:
    """Settle whatever these cells wait for."""
    for cell in cells:
        _settle(cell)
