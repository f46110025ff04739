"""What others do, to be compared with: fixed caps (PyTorch) and MG-WFBP's greedy merge.

In: a `Problem`. Out: `Groups`. Fixed caps are our own `make_plan` (torch's first bucket of 1 MiB, then the cap).
MG-WFBP (Shi et al., INFOCOM 2019, algorithm 1): a gradient joins the bucket before it if that bucket would otherwise
begin to move less than one start-up time before the gradient is ready: waiting then costs less than starting twice.
"""

from __future__ import annotations

from compiler_core import dtype as dtypes
from distcompile.ddp.plan.bucket_plan import Caps, ReadyParameter, make_plan
from distcompile.tuning.problem import Groups, Problem


def fixed_caps(problem: Problem, cap_mb: float) -> Groups:
    """The buckets of `bucket_cap_mb=cap_mb`."""
    parameters = []
    for place, gradient in enumerate(problem.gradients):
        dtype = dtypes.by_name(gradient.dtype)
        parameters.append(ReadyParameter(str(place), (gradient.nbytes // dtype.itemsize,), dtype, place))
    plan = make_plan(parameters, Caps.from_mb(cap_mb), order="caps")
    return tuple(tuple(int(name) for name in bucket.names) for bucket in plan.buckets)


def merged_greedily(problem: Problem) -> Groups:
    """MG-WFBP's buckets."""
    open_groups: dict[str, list[int]] = {}
    closed: list[tuple[int, ...]] = []
    free_s = 0.0  # when the channel is free
    for place, gradient in enumerate(problem.gradients):
        group = open_groups.get(gradient.dtype)
        if group:
            begins_s = max(free_s, problem.gradients[group[-1]].ready_s)
            if gradient.ready_s >= begins_s + problem.fit.startup_s:
                free_s = begins_s + problem.fit.seconds(problem.nbytes(group))
                closed.append(tuple(group))
                group = None
        open_groups[gradient.dtype] = [*(group or []), place]
    closed.extend(tuple(group) for group in open_groups.values())
    return tuple(sorted(closed, key=lambda g: g[-1]))
