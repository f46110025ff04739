"""Bucket plans: greedy by bytes in ready order, lanes by dtype, aligned slots, hashes that tell plans apart."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler_core.dtype import bfloat16, float32, float64
from distcompile.ddp.errors import PlanError
from distcompile.ddp.plan.bucket_plan import ALIGNMENT_NBYTES, BucketPlan, Caps, ListedCaps, ReadyParameter, make_plan


def parameter(name: str, numel: int, ready: int, dtype=float32) -> ReadyParameter:  # type: ignore[no-untyped-def]
    return ReadyParameter(name, (numel,), dtype, ready)


def names(plan: BucketPlan) -> list[tuple[str, ...]]:
    return [bucket.names for bucket in plan.buckets]


def test_a_bucket_closes_with_the_gradient_that_reaches_its_cap() -> None:
    parameters = [parameter(n, 64, i) for i, n in enumerate("abcde")]
    assert names(make_plan(parameters, Caps(256, 512), order="test")) == [("a",), ("b", "c"), ("d",), ("e",)]
    assert names(make_plan(parameters[:4], Caps(256, 512), order="test")) == [("a",), ("b", "c"), ("d",)]


def test_the_last_bucket_is_kept_small() -> None:
    parameters = [parameter(n, 64, i) for i, n in enumerate("abcdefgh")]
    assert names(make_plan(parameters, Caps(512, 4096), order="test")) == [("a", "b"), ("c", "d", "e", "f"), ("g", "h")]
    large_last = [parameter(n, 64, i) for i, n in enumerate("abcd")] + [parameter("e", 6400, 4)]
    assert names(make_plan(large_last, Caps(512, 99999), order="test")) == [("a", "b"), ("c", "d"), ("e",)]
    not_worth_it = [parameter("a", 128, 0), parameter("bias", 1, 1), parameter("weight", 6400, 2)]
    assert names(make_plan(not_worth_it, Caps(512, 99999), order="test")) == [("a",), ("bias", "weight")]


def test_the_order_is_readiness_not_the_order_given() -> None:
    parameters = [parameter("late", 4, 9), parameter("early", 4, 1)]
    assert names(make_plan(parameters, Caps(1 << 20, 1 << 20), order="test")) == [("early", "late")]


def test_dtypes_have_lanes_and_buckets_stand_by_completion() -> None:
    parameters = [parameter("a", 64, 0, bfloat16), parameter("b", 64, 1), parameter("c", 64, 2, bfloat16)]
    plan = make_plan(parameters, Caps(256, 256), order="test")
    assert names(plan) == [("b",), ("a", "c")]
    assert [bucket.dtype for bucket in plan.buckets] == ["float32", "bfloat16"]


def test_caps_read_like_torchs() -> None:
    assert Caps.from_mb(25) == Caps(1 << 20, 25 << 20)
    assert Caps.from_mb(0.5) == Caps(1 << 19, 1 << 19)


def test_a_tied_parameter_planned_twice_is_an_error() -> None:
    with pytest.raises(PlanError, match="planned twice: w"):
        make_plan([parameter("w", 2, 0), parameter("w", 2, 5)], Caps(8, 8), order="test")


def test_the_hash_sees_order_sizes_dtype_and_segments() -> None:
    caps = Caps(1 << 20, 1 << 20)
    plans = [
        make_plan([parameter("a", 2, 0), parameter("b", 2, 1)], caps, order="test"),
        make_plan([parameter("a", 2, 1), parameter("b", 2, 0)], caps, order="test"),
        make_plan([parameter("a", 3, 0), parameter("b", 2, 1)], caps, order="test"),
        make_plan([parameter("a", 2, 0, float64), parameter("b", 2, 1, float64)], caps, order="test"),
    ]
    plans.append(plans[0].with_segments([1]))
    assert len({plan.hash for plan in plans}) == len(plans)
    again = make_plan([parameter("b", 2, 1), parameter("a", 2, 0)], caps, order="test")
    assert again.hash == plans[0].hash


@given(
    sizes=st.lists(
        st.tuples(st.integers(0, 400), st.sampled_from([float32, float64, bfloat16])), min_size=1, max_size=40
    ),
    first=st.integers(1, 1000),
    other=st.integers(1, 3000),
)
def test_every_plan_keeps_the_invariants(sizes: list, first: int, other: int) -> None:  # type: ignore[type-arg]
    parameters = [parameter(f"p{i}", numel, i, dtype) for i, (numel, dtype) in enumerate(sizes)]
    plan = make_plan(parameters, Caps(first, other), order="test")
    by_name = {p.name: p for p in parameters}
    assert sorted(plan.names) == sorted(by_name)
    completion = [max(by_name[n].ready for n in bucket.names) for bucket in plan.buckets]
    assert completion == sorted(completion)
    for bucket in plan.buckets:
        end = 0
        for slot in bucket.slots:
            assert by_name[slot.name].dtype.name == bucket.dtype
            assert slot.offset >= end
            assert slot.offset * by_name[slot.name].dtype.itemsize % ALIGNMENT_NBYTES == 0
            end = slot.offset + math.prod(slot.shape)
        assert end <= bucket.numel
        without_last = sum(by_name[n].nbytes for n in bucket.names[:-1])
        assert without_last < max(first, other)  # it would have closed earlier


def test_a_list_of_caps_holds_bucket_by_bucket_in_each_lane_and_its_last_for_all_that_follow() -> None:
    caps = ListedCaps.from_mb_list([2 / 4096, 1 / 4096, 3 / 4096])  # of 256-byte gradients: 2, 1, 3, 3, ...
    parameters = [parameter(n, 64, i) for i, n in enumerate("abcdefghij")]
    plan = make_plan(parameters, caps, order="test")
    assert names(plan) == [("a", "b"), ("c",), ("d", "e", "f"), ("g", "h", "i"), ("j",)]
    assert plan.caps == Caps(512, 768)
    halves = [parameter(n, 128, i, bfloat16) for i, n in enumerate("ABC")]
    both = make_plan([*parameters[:3], *halves], caps, order="test")
    assert names(both) == [("a", "b"), ("A", "B"), ("C",), ("c",)]
    assert ListedCaps.from_mb_list([0.5, 25]).listed == (1 << 19, 25 << 20)
