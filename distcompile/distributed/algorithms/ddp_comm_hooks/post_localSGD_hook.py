"""Post-local SGD: gradients are averaged over all ranks at first, then within sub-groups, or not at all.

In: PostLocalSGDState, and buckets. Out: Futures of averages. Together with a model averager (model_averaging) that runs
after the optimizer's steps. Source: Lin, Stich, Patel, Jaggi, "Don't Use Large Mini-Batches, Use Local SGD", ICLR 2020.
"""

from __future__ import annotations

import socket

from compiler_core.tensor.tensor import Tensor
from distcompile.ddp.comm_hook import GradBucket
from distcompile.distributed.algorithms.ddp_comm_hooks.default_hooks import average_future
from distcompile.distributed.group import ProcessGroup, group_or_default, new_subgroups_by_enumeration
from distcompile.futures import Future


class PostLocalSGDState:
    """process_group: averages at first (None: the default group). subgroup: averages from step start_localSGD_iter on.

    subgroup None: the ranks of this host. post_local_gradient_allreduce=False: no averages at all from then on.
    """

    def __init__(
        self,
        process_group: ProcessGroup | None,
        subgroup: ProcessGroup | None,
        start_localSGD_iter: int,
        post_local_gradient_allreduce: bool = True,
    ) -> None:
        self.process_group, self.subgroup = process_group, subgroup
        self.start_localSGD_iter = start_localSGD_iter
        self.post_local_gradient_allreduce = post_local_gradient_allreduce
        self.iter = 0

    def maybe_increase_iter(self, bucket: GradBucket) -> None:
        """Count a step when its last bucket comes."""
        if bucket.is_last():
            self.iter += 1


def post_localSGD_hook(state: PostLocalSGDState, bucket: GradBucket) -> Future[Tensor]:
    """The average over all ranks, or, after `start_localSGD_iter` steps, over the sub-group."""
    if state.iter < state.start_localSGD_iter:
        state.maybe_increase_iter(bucket)
        return average_future(state.process_group, bucket.buffer())
    if not state.post_local_gradient_allreduce:
        future: Future[Tensor] = Future()
        future.set_result(bucket.buffer())
        return future
    if state.subgroup is None:
        state.subgroup = ranks_of_this_host()
    return average_future(state.subgroup, bucket.buffer())


def ranks_of_this_host() -> ProcessGroup:
    """The group of the ranks that share this rank's host. Collective over all ranks."""
    hosts = group_or_default(None).all_gather_object(socket.gethostname())
    mine, _ = new_subgroups_by_enumeration(
        [[rank for rank, other in enumerate(hosts) if other == host] for host in dict.fromkeys(hosts)]
    )
    return mine
