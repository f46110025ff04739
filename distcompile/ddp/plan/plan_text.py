"""A BucketPlan as text, and back: what ranks exchange when their plans differ, and what plan files hold.

In: a `BucketPlan`. Out: canonical JSON (sorted keys, one line), equal for equal plans; `from_text` gives back an equal
plan, with the same hash, or raises PlanError naming what is wrong: a text is never trusted.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from compiler_core import dtype as dtypes
from compiler_core.dtype import DType
from compiler_core.errors import DTypeError
from distcompile.ddp.errors import PlanError
from distcompile.ddp.plan.bucket_plan import Bucket, BucketPlan, Caps, Slot


def to_text(plan: BucketPlan) -> str:
    """`plan` as one line of JSON."""
    return json.dumps(asdict(plan), sort_keys=True, separators=(",", ":"))


def from_text(text: str) -> BucketPlan:
    """The plan that `to_text` wrote. Raises PlanError for anything else."""
    try:
        return plan_from_data(json.loads(text))
    except ValueError as error:
        raise PlanError("a bucket plan's text is not JSON", got=str(error)) from error


def plan_from_data(data: Any) -> BucketPlan:
    """The plan of the parsed JSON. Raises PlanError naming what does not fit."""
    try:
        caps = Caps(**{k: _whole(v) for k, v in data["caps"].items()})
        rest = {k: v for k, v in data.items() if k not in ("caps", "buckets")}
        if not isinstance(rest.get("order"), str):
            raise TypeError("'order' is no text")
        rest = {k: tuple(map(_whole, v)) if isinstance(v, list) else v for k, v in rest.items()}
        plan = BucketPlan(caps=caps, buckets=tuple(_bucket(b) for b in data["buckets"]), **rest)
    except (KeyError, TypeError, ValueError, AttributeError, DTypeError) as error:
        raise PlanError("this is no bucket plan", got=f"{type(error).__name__}: {error}") from error
    _check_layout(plan)
    return plan


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no size")
    return value


def _bucket(data: Any) -> Bucket:
    slots = tuple(Slot(_name(s["name"]), tuple(map(_whole, s["shape"])), _whole(s["offset"])) for s in data["slots"])
    return Bucket(_dtype(data["dtype"]).name, slots, _whole(data["numel"]), _whole(data["segment"]))


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no parameter name")
    return value


def _dtype(name: Any) -> DType:
    return dtypes.by_name(_name(name))


def _check_layout(plan: BucketPlan) -> None:
    """Slots must not overlap or leave their bucket, and no parameter may come twice."""
    names = plan.names
    if len(set(names)) < len(names):
        raise PlanError("a bucket plan holds a parameter twice", got=next(n for n in names if names.count(n) > 1))
    for number, bucket in enumerate(plan.buckets):
        end = 0
        for slot in bucket.slots:
            if slot.offset < end or slot.offset + slot.numel > bucket.numel:
                raise PlanError(f"bucket {number}: the slot of {slot.name} overlaps another or leaves the bucket")
            end = slot.offset + slot.numel
