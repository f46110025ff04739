"""What a plan costs: one core that computes, one channel that moves buckets in launch order, each slowing the other.

In: a `Problem` and the buckets. Out: a `SimulatedStep`: when each bucket moved, when the computation ended, what it
waited. Method: exact event simulation. The computation is a list of `Stretch`es, each of which may wait for buckets
before it begins and completes buckets when it ends; while both sides are busy each runs slower by its contention
factor, so rates are constant between events. Backward only: the last stretch waits for every bucket. Across the step:
the next forward waits for a bucket where its first parameter is used, and runs its updates there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distcompile.tuning.problem import Contention, Groups, Problem


@dataclass(frozen=True, slots=True)
class Stretch:
    """Computation without a pause. needs: buckets to wait for first. completes: buckets it makes ready."""

    length_s: float
    needs: tuple[int, ...] = ()
    completes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SimulatedStep:
    """A step, simulated. Seconds after its backward began; by bucket, in the order of `Groups`.

    backward_s: end of the backward's computation. done_s: end of all. exposed_s: time in which computation waited.
    """

    ready_s: tuple[float, ...]
    started_s: tuple[float, ...]
    ended_s: tuple[float, ...]
    backward_s: float
    done_s: float
    exposed_s: float


def simulate(problem: Problem, groups: Groups) -> SimulatedStep:
    """A backward that ends when all buckets have arrived."""
    stretches = [*backward_stretches(problem, groups), Stretch(0.0, needs=tuple(range(len(groups))))]
    return play(stretches, problem.costs_s(groups), range(len(groups)), problem.contention, len(stretches) - 1)


def simulate_step(problem: Problem, groups: Groups, order: Sequence[int]) -> SimulatedStep:
    """A backward and the next forward, which waits for a bucket where it first uses one of its parameters.

    order: buckets in launch order. The forward of a steady state: every step's forward waits for the step before.
    """
    backward = backward_stretches(problem, groups)
    needed = sorted((min(problem.gradients[i].need_s for i in group), k) for k, group in enumerate(groups))
    forward, at_s = [], 0.0
    pending: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for need_s, k in needed:
        forward.append(Stretch(pending[-1][0] + max(0.0, need_s - at_s), pending[-1][1]))
        at_s = max(at_s, need_s)
        pending.append((problem.update_s_per_byte * problem.nbytes(groups[k]), (k,)))
    forward.append(Stretch(pending[-1][0] + max(0.0, problem.forward_s - at_s), pending[-1][1]))
    return play([*backward, *forward], problem.costs_s(groups), order, problem.contention, len(backward))


def backward_stretches(problem: Problem, groups: Groups) -> list[Stretch]:
    """The segments of the backward, each with one more gamma than the one before; then what comes after the last."""
    segments = problem.segments(groups)
    stretches, at_s, latest_s = [], 0.0, 0.0
    for number in range(max(segments, default=-1) + 1):
        members = tuple(k for k, segment in enumerate(segments) if segment == number)
        latest_s = max(latest_s, *(problem.gradients[i].ready_s for k in members for i in groups[k]))
        stretches.append(Stretch(latest_s - at_s + (problem.gamma_s if number else 0.0), completes=members))
        at_s = latest_s
    return [*stretches, Stretch(max(0.0, problem.backward_s - at_s))]


def play(
    stretches: Sequence[Stretch],
    costs_s: Sequence[float],
    order: Sequence[int],
    contention: Contention,
    backward_stretches: int,
) -> SimulatedStep:
    """Run the stretches against the channel. The first `backward_stretches` of them are the backward."""
    channel = _Channel(costs_s, order)
    now_s = exposed_s = backward_s = 0.0
    for number, stretch in enumerate(stretches):
        todo_s, missing = stretch.length_s, set(stretch.needs) - channel.arrived
        while todo_s > 0 or missing:
            channel.begin(now_s)
            if missing and not channel.is_moving:
                raise ValueError(f"buckets {sorted(missing)} are waited for and never launched")
            slow = contention if not missing and channel.is_moving else Contention()
            computed_s = [] if missing else [todo_s * slow.compute]
            moved_s = [channel.left_s * slow.communication] if channel.is_moving else []
            span_s = min(computed_s + moved_s)
            now_s += span_s
            if missing:
                exposed_s += span_s
            else:
                todo_s = 0.0 if computed_s[0] <= span_s else todo_s - span_s / slow.compute
            if channel.is_moving:
                channel.move(span_s / slow.communication, moved_s[0] <= span_s, now_s)
                missing -= channel.arrived
        for k in stretch.completes:
            channel.ready_s[k] = now_s
        if number == backward_stretches - 1:
            backward_s = now_s
    times_s = (tuple(channel.ready_s), tuple(channel.started_s), tuple(channel.ended_s))
    return SimulatedStep(*times_s, backward_s, now_s, exposed_s)


class _Channel:
    """Moves buckets in launch order, one at a time, each from when it is ready. Times by bucket; NaN: not yet."""

    def __init__(self, costs_s: Sequence[float], order: Sequence[int]) -> None:
        never = [float("nan")] * len(costs_s)
        self.costs_s, self.queue = costs_s, list(order)
        self.ready_s, self.started_s, self.ended_s = [*never], [*never], [*never]
        self.arrived: set[int] = set()
        self.is_moving, self.left_s = False, 0.0  # whether the first of the queue is under way; its seconds left, alone

    def begin(self, now_s: float) -> None:
        """The next bucket sets out, if it is ready and none is under way."""
        if not self.is_moving and self.queue and self.ready_s[self.queue[0]] <= now_s:
            self.is_moving, self.left_s = True, self.costs_s[self.queue[0]]
            self.started_s[self.queue[0]] = now_s

    def move(self, alone_s: float, is_done: bool, now_s: float) -> None:
        """The bucket under way moves on, as far as it does in `alone_s` with nothing beside it."""
        self.left_s -= alone_s
        if is_done:
            bucket = self.queue.pop(0)
            self.ended_s[bucket] = now_s
            self.arrived.add(bucket)
            self.is_moving = False
