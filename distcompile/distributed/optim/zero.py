"""ZeroRedundancyOptimizer: each rank keeps the optimizer's state of a part of the parameters, and updates that part.

In: parameters, the same on all ranks, with gradients that are the same on all ranks (DDP's); an optimizer class. Out:
after `step`, every rank has all updated parameters, bit by bit those of the optimizer alone.
Method (Rajbhandari et al., "ZeRO", SC 2020, stage 1; the interface is torch's): within each group, parameters go,
largest first, to the rank that has the fewest elements so far; after the local step each rank sends its parameters to
the others, one message per rank and dtype.
Limit: `overlap_with_ddp` is not offered; parameters_as_bucket_view makes no difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from collectives import Communicator, Work
from compiler_core.ops.registry import Array
from compiler_core.tensor.tensor import Tensor
from distcompile.distributed.group import ProcessGroup, get_group_rank, group_or_default
from distcompile.distributed.objects import gather_object
from distcompile.errors import NotSupportedError, StateDictError
from distcompile.optim.optimizer import Closure, Group, Optimizer

WHOLE = "params"


class ZeroRedundancyOptimizer(Optimizer):
    """`optimizer_class(its part of params, **defaults)` on each rank of `process_group` (None: the default group)."""

    def __init__(
        self,
        params: Iterable[Any],
        optimizer_class: type[Optimizer],
        process_group: ProcessGroup | None = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        if overlap_with_ddp:
            raise NotSupportedError("overlap_with_ddp=True is not offered", remedy="leave it out")
        self.process_group: Communicator = group_or_default(process_group)
        self._owner: dict[int, int] = {}  # id of a parameter -> the group rank that updates it
        self._loads = [0] * self.process_group.world_size  # elements that each rank updates
        self._consolidated: dict[str, Any] | None = None
        super().__init__(params, defaults)
        make: Any = optimizer_class
        self.optim: Optimizer = make([self._part_of(group) for group in self.param_groups], **defaults)
        self.state = self.optim.state
        self._copy_options(self.optim.param_groups, self.param_groups)

    # --- partition ------------------------------------------------------------------------------------------------

    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Add a group; its parameters are divided among the ranks. All ranks add the same."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        for parameter in sorted(group[WHOLE], key=_numel, reverse=True):
            rank = self._loads.index(min(self._loads))
            self._owner[id(parameter)] = rank
            self._loads[rank] += _numel(parameter)
        if hasattr(self, "optim"):
            self._copy_options(self.param_groups[:-1], self.optim.param_groups)
            self.optim.add_param_group(self._part_of(group))
            self._copy_options(self.optim.param_groups, self.param_groups)

    def _part_of(self, group: Group) -> Group:
        """The group with this rank's parameters only. Names, if there are any, are the whole group's alone."""
        part = {key: value for key, value in group.items() if key != "param_names"}
        part[WHOLE] = self._mine(group[WHOLE])
        return part

    def _mine(self, parameters: Iterable[Tensor]) -> list[Tensor]:
        return [p for p in parameters if self._owner[id(p)] == self.process_group.rank]

    @staticmethod
    def _copy_options(source: list[Group], target: list[Group]) -> None:
        """Options are set on this optimizer's groups, by schedulers too, and used from the local one's."""
        for given, taken in zip(source, target, strict=True):
            taken.update({key: value for key, value in given.items() if key not in (WHOLE, "param_names")})

    # --- the step -------------------------------------------------------------------------------------------------

    def step(self, closure: Closure | None = None) -> Any:
        """Update this rank's part, then exchange the parts. Collective."""
        self._copy_options(self.param_groups, self.optim.param_groups)
        loss = self.optim.step(closure)
        self._copy_options(self.optim.param_groups, self.param_groups)
        self._exchange()
        return loss

    def _exchange(self) -> None:
        """Give every rank every rank's parameters."""
        lanes: dict[tuple[int, str], list[Tensor]] = {}
        for parameter in self._parameters():
            lanes.setdefault((self._owner[id(parameter)], parameter.dtype.name), []).append(parameter)
        sent = [self._send(owner, lane) for (owner, _), lane in lanes.items()]
        for (owner, _), lane, (work, flat) in zip(lanes, lanes.values(), sent):
            work.wait()
            if owner != self.process_group.rank:
                _unpack(flat, lane)

    def _send(self, owner: int, parameters: list[Tensor]) -> tuple[Work, Array]:
        values = [parameter._cell.current() for parameter in parameters]
        if owner == self.process_group.rank:
            flat: Array = np.concatenate([value.reshape(-1) for value in values])
        else:
            flat = np.empty_like(values[0], shape=(sum(value.size for value in values),))
        return self.process_group.broadcast_async(flat, root=owner, label=f"parameters of rank {owner}"), flat

    # --- state ----------------------------------------------------------------------------------------------------

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Bring all ranks' state to global rank `to`, where `state_dict` is then whole. Collective."""
        to_rank = get_group_rank(self.process_group, to)
        is_target = self.process_group.rank == to_rank
        parts: list[Any] | None = [None] * self.process_group.world_size if is_target else None
        number = {id(p): i for i, p in enumerate(self._parameters())}
        mine = {number[id(parameter)]: dict(entries) for parameter, entries in self.optim.state.items()}
        gather_object(mine, parts, group=self.process_group, group_dst=to_rank)
        self._consolidated = None
        if parts is not None:
            merged = {index: entries for part in parts for index, entries in part.items()}
            self._consolidated = {index: merged[index] for index in sorted(merged)}

    def state_dict(self) -> dict[str, Any]:
        """The whole optimizer's, as the plain optimizer's would be, on the rank to which it was brought.

        Raises StateDictError elsewhere, or without consolidate_state_dict().
        """
        if self._consolidated is None:
            raise StateDictError(
                "Optimizer state has not been consolidated on this rank",
                remedy="call consolidate_state_dict(to=...) on all ranks, and state_dict() on that rank",
            )
        whole = super().state_dict()
        whole["state"] = self._consolidated
        return whole

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take the whole optimizer's state; each rank keeps its part. Every rank must be given it."""
        saved = state_dict["param_groups"]
        sizes = [len(group[WHOLE]) for group in self.param_groups]
        if [len(group["params"]) for group in saved] != sizes:
            raise StateDictError(
                "loaded state dict has other parameter groups",
                expected=f"groups of {sizes} parameters",
                got=str([len(group["params"]) for group in saved]),
            )
        groups, wanted = [], set()
        for given, group in zip(saved, self.param_groups, strict=True):
            owned = [i for i, p in zip(given["params"], group[WHOLE]) if self._owner[id(p)] == self.process_group.rank]
            groups.append({**given, "params": owned})
            wanted |= set(owned)
        states = {int(i): entries for i, entries in state_dict["state"].items() if int(i) in wanted}
        self.optim.load_state_dict({"state": states, "param_groups": groups})
        self._copy_options(self.optim.param_groups, self.param_groups)
        self._consolidated = None


def _numel(parameter: Tensor) -> int:
    return math.prod(parameter.shape)


def _unpack(flat: Array, parameters: list[Tensor]) -> None:
    start = 0
    for parameter in parameters:
        value = parameter._cell.current()
        parameter._cell.write(flat[start : start + value.size].reshape(value.shape))
        start += value.size
