"""BucketPlan: which gradients travel together, in which order, and which backward segment completes each bucket.

In: parameters in gradient-ready order, with caps in bytes. Out: a frozen `BucketPlan` with a hash; made once, agreed by
all ranks, used by splitter and reducer alike, and never rebuilt silently.
Method: greedy, as PyTorch's Reducer (Li et al., VLDB 2020, section 3.2): a bucket closes with the gradient that reaches
its cap; the first bucket's cap is 1 MiB, so that communication starts early, later ones' bucket_cap_mb. Unlike there,
the order is that of the backward graph (not registration, reversed), so the plan is right before the first step; and
the last bucket, which nothing can hide, is cut to 1 MiB too if that lets as much leave earlier.
Invariants: every parameter is in one bucket; a bucket has one dtype (each dtype fills a lane of its own); buckets stand
in the order in which they complete; every gradient starts at a multiple of 64 bytes of its bucket.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from compiler_core import dtype as dtypes
from compiler_core.dtype import DType
from compiler_core.meta import Shape
from distcompile.ddp.errors import PlanError

ALIGNMENT_NBYTES = 64  # a cache line, and the widest vector
FIRST_BUCKET_NBYTES = 1 << 20
MIB = 1 << 20
READY_ORDER = "gradient-ready order"
REGISTRATION_ORDER = "reversed registration order"


@dataclass(frozen=True, slots=True)
class Caps:
    """Bucket sizes in bytes: of the first bucket of a lane, and of the others."""

    first_nbytes: int
    other_nbytes: int

    @staticmethod
    def from_mb(bucket_cap_mb: float) -> Caps:
        """torch's reading of `bucket_cap_mb`; a cap under 1 MiB holds for the first bucket too."""
        other_nbytes = max(1, int(bucket_cap_mb * MIB))
        return Caps(min(FIRST_BUCKET_NBYTES, other_nbytes), other_nbytes)

    def of(self, number: int) -> int:
        """The cap of a lane's bucket, counted from 0, in bytes."""
        return self.other_nbytes if number else self.first_nbytes


@dataclass(frozen=True, slots=True)
class ListedCaps(Caps):
    """A size for each bucket of a lane, the last one for all that follow. A plan keeps the first and the largest."""

    listed: tuple[int, ...]

    @staticmethod
    def from_mb_list(bucket_cap_mb_list: Sequence[float]) -> ListedCaps:
        """torch's reading of `bucket_cap_mb_list`, which is not empty."""
        listed = tuple(max(1, int(cap_mb * MIB)) for cap_mb in bucket_cap_mb_list)
        return ListedCaps(listed[0], max(listed), listed)

    def of(self, number: int) -> int:
        return self.listed[min(number, len(self.listed) - 1)]


@dataclass(frozen=True, slots=True)
class ReadyParameter:
    """A parameter and when its gradient is ready: `ready` grows along the backward.

    place: of the gradient's node in the backward graph, if it is of one.
    """

    name: str
    shape: Shape
    dtype: DType
    ready: int
    place: int = 0

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.numel * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Slot:
    """A parameter's place in its bucket: `offset` in elements."""

    name: str
    shape: Shape
    offset: int

    @property
    def numel(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Bucket:
    """Gradients that are reduced in one call. numel: elements of the flat buffer, padding included."""

    dtype: str
    slots: tuple[Slot, ...]
    numel: int
    segment: int

    @property
    def nbytes(self) -> int:
        return self.numel * dtypes.by_name(self.dtype).itemsize

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(slot.name for slot in self.slots)

    def __str__(self) -> str:
        inside = self.names[0] if len(self.names) == 1 else f"{self.names[0]} .. {self.names[-1]}"
        return f"{self.dtype} {self.nbytes} bytes, segment {self.segment}: {len(self.slots)} parameter(s), {inside}"


@dataclass(frozen=True, slots=True)
class BucketPlan:
    """All buckets, in launch order. `order` says where the order comes from."""

    order: str
    caps: Caps
    buckets: tuple[Bucket, ...]
    launch: tuple[int, ...] = ()  # the buckets' numbers in the order in which they are launched; empty: as they stand

    @property
    def launch_order(self) -> tuple[int, ...]:
        """The buckets' numbers in the order in which all ranks launch them."""
        return self.launch or tuple(range(len(self.buckets)))

    @property
    def hash(self) -> str:
        """Equal on all ranks, or the ranks do not train the same model."""
        return hashlib.sha256(repr(self).encode()).hexdigest()

    @property
    def names(self) -> tuple[str, ...]:
        """Every planned parameter, in launch order."""
        return tuple(name for bucket in self.buckets for name in bucket.names)

    def fits(self, parameters: Iterable[ReadyParameter]) -> bool:
        """Whether the plan is for exactly these parameters: names, shapes and dtypes."""
        planned = {(slot.name, slot.shape, bucket.dtype) for bucket in self.buckets for slot in bucket.slots}
        return planned == {(p.name, p.shape, p.dtype.name) for p in parameters}

    def with_segments(self, segments: Sequence[int]) -> BucketPlan:
        """The plan with the segment of each bucket filled in."""
        buckets = tuple(replace(b, segment=s) for b, s in zip(self.buckets, segments, strict=True))
        return replace(self, buckets=buckets)

    def __str__(self) -> str:
        head = f"bucket plan by {self.order}, caps {self.caps.first_nbytes} and {self.caps.other_nbytes} bytes"
        return "\n".join([head, *(f"  bucket {k}: {bucket}" for k, bucket in enumerate(self.buckets))])


def make_plan(parameters: Iterable[ReadyParameter], caps: Caps, *, order: str) -> BucketPlan:
    """The greedy plan of `parameters`. Raises PlanError if a name comes twice."""
    in_order = sorted(parameters, key=lambda p: p.ready)
    check_names_are_unique(in_order)
    closed: list[list[ReadyParameter]] = []
    open_lanes: dict[DType, list[ReadyParameter]] = {}
    lanes_closed: Counter[DType] = Counter()  # buckets of each lane
    for parameter in in_order:
        lane = open_lanes.setdefault(parameter.dtype, [])
        lane.append(parameter)
        if sum(p.nbytes for p in lane) >= caps.of(lanes_closed[parameter.dtype]):
            closed.append(open_lanes.pop(parameter.dtype))
            lanes_closed[parameter.dtype] += 1
    closed.extend(open_lanes.values())
    if closed:
        last = closed.pop(max(range(len(closed)), key=lambda k: closed[k][-1].ready))
        closed.extend(split_tail(last, caps.first_nbytes))
    closed.sort(key=lambda members: members[-1].ready)
    kept = Caps(caps.first_nbytes, caps.other_nbytes)
    return BucketPlan(order, kept, tuple(_lay_out(members) for members in closed))


def plan_from_groups(
    groups: Sequence[Sequence[str]], parameters: Iterable[ReadyParameter], *, order: str
) -> BucketPlan:
    """The plan whose bucket k holds the parameters that groups[k] names, in that order. caps: the largest buckets.

    Raises PlanError for a name that is unknown, missing or given twice, an empty group, or a group of two dtypes.
    """
    by_name = {p.name: p for p in parameters}
    given = [name for group in groups for name in group]
    check_names_are_unique([by_name[name] for name in given if name in by_name])
    unknown = [name for name in given if name not in by_name]
    missing = sorted(by_name.keys() - set(given))
    if unknown or missing or not all(groups):
        raise PlanError(
            "the buckets do not hold each trained parameter once",
            expected="every trained parameter in one bucket, and no empty bucket",
            got="; ".join(
                f"{what}: {', '.join(names)}"
                for what, names in (("not trained here", unknown), ("in no bucket", missing))
                if names
            )
            or "an empty bucket",
        )
    mixed = [k for k, group in enumerate(groups) if len({by_name[name].dtype for name in group}) > 1]
    if mixed:
        raise PlanError(f"bucket {mixed[0]} holds gradients of several dtypes", expected="one dtype in a bucket")
    buckets = tuple(_lay_out([by_name[name] for name in group]) for group in groups)
    sizes = [bucket.nbytes for bucket in buckets] or [0]
    return BucketPlan(order, Caps(sizes[0], max(sizes)), buckets)


def split_tail(members: list[ReadyParameter], tail_nbytes: int) -> list[list[ReadyParameter]]:
    """The last bucket, cut so that what no computation can hide is at most `tail_nbytes` (or one parameter).

    Not cut if less than `tail_nbytes` would leave earlier: that is not worth a segment and a collective.
    """
    tail = [members[-1]]
    for member in reversed(members[:-1]):
        if sum(p.nbytes for p in tail) + member.nbytes > tail_nbytes:
            break
        tail.insert(0, member)
    head = members[: len(members) - len(tail)]
    return [head, tail] if sum(p.nbytes for p in head) >= tail_nbytes else [members]


def check_names_are_unique(parameters: Sequence[ReadyParameter]) -> None:
    """Raise PlanError naming the parameters that come twice (a tied parameter must come once)."""
    seen: set[str] = set()
    twice = [p.name for p in parameters if p.name in seen or seen.add(p.name)]  # type: ignore[func-returns-value]
    if twice:
        raise PlanError(
            f"planned twice: {', '.join(twice)}", expected="every parameter once; a tied one under its first name"
        )


def _lay_out(members: Sequence[ReadyParameter]) -> Bucket:
    """Slots one after the other, each starting at an aligned offset."""
    itemsize = members[0].dtype.itemsize
    step = max(1, ALIGNMENT_NBYTES // itemsize)
    slots: list[Slot] = []
    end = 0
    for member in members:
        slots.append(Slot(member.name, member.shape, end))
        end += -(-member.numel // step) * step
    return Bucket(members[0].dtype.name, tuple(slots), end, segment=0)
