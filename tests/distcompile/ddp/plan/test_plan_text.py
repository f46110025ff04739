"""Plans given by their groups, and plans as text: exact round trips, named errors for everything else."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_core.dtype import bfloat16, float32
from distcompile.ddp.errors import PlanError
from distcompile.ddp.plan.bucket_plan import BucketPlan, Caps, ReadyParameter, make_plan, plan_from_groups
from distcompile.ddp.plan.plan_text import from_text, to_text

PARAMETERS = [
    ReadyParameter("a", (3, 5), float32, 0),
    ReadyParameter("b", (), float32, 1),
    ReadyParameter("c", (7,), bfloat16, 2),
]


def plan() -> BucketPlan:
    return plan_from_groups([["b", "a"], ["c"]], PARAMETERS, order="given")


def test_groups_become_buckets_as_they_stand() -> None:
    made = plan()
    assert [bucket.names for bucket in made.buckets] == [("b", "a"), ("c",)]
    assert [bucket.dtype for bucket in made.buckets] == ["float32", "bfloat16"]
    assert made.fits(PARAMETERS)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([["a"], ["b"]], "in no bucket: c"),
        ([["a", "b", "x"], ["c"]], "not trained here: x"),
        ([["a", "b", "a"], ["c"]], "planned twice: a"),
        ([["a", "b"], ["c"], []], "an empty bucket"),
        ([["a", "b", "c"]], "bucket 0 holds gradients of several dtypes"),
    ],
)
def test_groups_that_are_no_plan_are_named(groups: list[list[str]], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        plan_from_groups(groups, PARAMETERS, order="given")


@settings(deadline=None)
@given(sizes=st.lists(st.integers(0, 300), min_size=1, max_size=20), cap=st.integers(1, 2000))
def test_text_and_back_is_the_same_plan(sizes: list[int], cap: int) -> None:
    parameters = [ReadyParameter(f"p{i}", (n,), (float32, bfloat16)[i % 2], i) for i, n in enumerate(sizes)]
    made = make_plan(parameters, Caps(cap, 2 * cap), order="test").with_segments
    count = len(make_plan(parameters, Caps(cap, 2 * cap), order="test").buckets)
    made_plan = made(list(range(count)))
    again = from_text(to_text(made_plan))
    assert again == made_plan
    assert again.hash == made_plan.hash
    assert to_text(again) == to_text(made_plan)


def test_texts_that_are_no_plan_are_named() -> None:
    text = to_text(plan())
    with pytest.raises(PlanError, match="not JSON"):
        from_text(text[:-5])
    for broken in ("[]", "{}", "3", text.replace("float32", "float31"), text.replace('"offset":0', '"offset":-1')):
        with pytest.raises(PlanError, match="no bucket plan"):
            from_text(broken)
    with pytest.raises(PlanError, match="holds a parameter twice"):
        from_text(text.replace('"name":"c"', '"name":"a"'))
    data = json.loads(text)
    data["buckets"][0]["slots"][1]["offset"] = 0
    with pytest.raises(PlanError, match="overlaps another"):
        from_text(json.dumps(data))
