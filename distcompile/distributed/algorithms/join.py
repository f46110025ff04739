"""torch.distributed.algorithms.join: ranks with different numbers of batches, for anything that talks once a batch.

In: `Joinable`s, which say what a rank that has run out does in their place (`JoinHook`). Out: the block
`with Join([...]):`, which every rank leaves after the last one's last batch.
Method: before its collectives of a batch, the first joinable calls `Join.notify_join_context`, a sum of ones over the
ranks. A rank that has left its loop takes part in that sum with a zero, runs all main hooks, and so on, until the sum
is zero; then the post hooks.
DistributedDataParallel is one (`ddp/join.py`); ZeroRedundancyOptimizer is not: Join says so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, NamedTuple, Self

from compiler_core import log
from compiler_core.device import Device
from compiler_core.tensor.making.creation import full
from distcompile.ddp.errors import EarlyEndError
from distcompile.distributed.group import get_rank
from distcompile.distributed.tensors import all_reduce
from distcompile.distributed.work import TensorWork
from distcompile.errors import ArgumentError

__all__ = ["Join", "JoinHook", "Joinable"]
SKEW = 1000  # batches that a rank may have fewer before it is said


class JoinHook:
    """What a rank that has run out does for one joinable."""

    def main_hook(self) -> None:
        """While others still have batches, once for each: take part in their collectives."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """When all have run out. is_last_joiner: whether this rank was among the last."""

    def enter(self, block: ExitStack) -> None:
        """The block begins; what it enters is left at the end, however that comes. Of ours alone."""


class JoinConfig(NamedTuple):
    """What a joinable must know of the block that it is in."""

    enable: bool
    throw_on_early_termination: bool
    is_first_joinable: bool


DISABLED = JoinConfig(enable=False, throw_on_early_termination=False, is_first_joinable=False)


class Joinable(ABC):
    """Base of what talks to other ranks once a batch; it calls `Join.notify_join_context(self)` before that."""

    @abstractmethod
    def __init__(self) -> None:
        super().__init__()
        self._join_config = DISABLED

    @abstractmethod
    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What a rank that has run out does. kwargs: those of `Join`."""

    @property
    @abstractmethod
    def join_device(self) -> Device | str:
        """Where the sums of `Join` are taken."""

    @property
    @abstractmethod
    def join_process_group(self) -> Any:
        """The ranks; the same for all joinables of a block."""


class Join:
    """A block of uneven batches. kwargs: for every joinable's `join_hook`.

    throw_on_early_termination: EarlyEndError, a RuntimeError, on all ranks when the first has run out, unless all do.
    Raises ArgumentError without joinables, or for several process groups.
    """

    def __init__(
        self,
        joinables: Sequence[Any],
        enable: bool = True,
        throw_on_early_termination: bool = False,
        **kwargs: Any,
    ) -> None:
        if not joinables:
            raise ArgumentError("The join context manager requires at least one joinable")
        self._joinables, self._enable, self._throws = list(joinables), enable, throw_on_early_termination
        for joinable in self._joinables:
            _check(joinable)
        groups = [joinable.join_process_group for joinable in self._joinables]
        if any(group is not groups[0] for group in groups):
            raise ArgumentError("Using join context manager with multiple process groups")
        self._group, self._device = groups[0], self._joinables[0].join_device
        self._hooks: list[JoinHook] = [joinable.join_hook(**kwargs) for joinable in self._joinables]
        self._block = ExitStack()

    def __enter__(self) -> Self:
        for number, joinable in enumerate(self._joinables):
            config = JoinConfig(self._enable, self._throws, number == 0)
            object.__setattr__(joinable, "_join_config", config)  # it is no change of a module
            self._block.callback(object.__setattr__, joinable, "_join_config", DISABLED)
        if self._enable:
            for hook in self._hooks:
                hook.enter(self._block)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._block:
            if self._enable and kind is None:
                self._shadow()

    def _shadow(self) -> None:
        rounds = 0
        while self._some_train(has_ended=False):
            if self._throws:
                self._some_train(has_ended=True)
                raise EarlyEndError(f"Rank {get_rank(self._group)} exhausted all inputs.")
            if rounds == SKEW:
                log.warn_once("join: skew", f"rank {get_rank(self._group)} has {SKEW} batches fewer than others")
            for hook in self._hooks:
                hook.main_hook()
            rounds += 1
        for hook in self._hooks:
            hook.post_hook(rounds == 0)

    def _some_train(self, *, has_ended: bool) -> bool:
        """This rank's part in the sums that the others take in `notify_join_context`: of ones, then of ends."""
        total = full((1,), float(has_ended), device=self._device)
        all_reduce(total, group=self._group)
        return bool(total.item())

    @staticmethod
    def notify_join_context(joinable: Any) -> TensorWork | None:
        """A batch's collectives come next, on this rank: None, or, of the first joinable of a block, its sum of ones.

        Raises EarlyEndError, a RuntimeError, if a rank has run out and the block is told to throw.
        """
        config = getattr(joinable, "_join_config", None)
        assert config is not None, f"Check that the {type(joinable)} constructor calls the ``Joinable`` constructor"
        if not config.enable or not config.is_first_joinable:
            return None
        device, group = joinable.join_device, joinable.join_process_group
        work = all_reduce(full((1,), 1.0, device=device), group=group, async_op=True)
        if config.throw_on_early_termination:
            has_ended = full((1,), 0.0, device=device)
            all_reduce(has_ended, group=group)
            if has_ended.item():
                raise EarlyEndError("Detected at least one rank that exhausted inputs. Throwing across all ranks.")
        return work


def _check(joinable: Any) -> None:
    if not all(hasattr(type(joinable), name) for name in ("join_hook", "join_device", "join_process_group")):
        raise ArgumentError(
            f"a {type(joinable).__name__} does not join: it has no join_hook, join_device and join_process_group",
            expected="DistributedDataParallel, or a class derived of Joinable",
        )
