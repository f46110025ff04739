"""Plans equal brute force on small instances; the simulator equals simulators that share no code with it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import closed_form_done_s, every_groups, integrated_done_s, random_problem

from distcompile.tuning.cost import linear
from distcompile.tuning.launch_order import best_step, by_due_date, order_of
from distcompile.tuning.optimum import atoms, best_groups, candidates, solve
from distcompile.tuning.problem import Contention, Gradient, Problem
from distcompile.tuning.rivals import fixed_caps, merged_greedily
from distcompile.tuning.simulate import Stretch, play, simulate, simulate_step

INSTANCES = 400


def test_the_recurrence_equals_brute_force_on_400_of_400() -> None:
    worse = []
    for seed in range(INSTANCES):
        problem = random_problem(seed, contended=False)
        best_s = min(closed_form_done_s(problem, groups) for groups in every_groups(problem))
        ours_s = min(closed_form_done_s(problem, groups) for groups in solve(problem))
        if ours_s > best_s * (1 + 1e-9):
            worse.append((seed, ours_s / best_s))
    assert not worse


def test_with_several_dtypes_it_equals_brute_force() -> None:
    """In any order: launching a bucket of another dtype after one that is ready later can save a cut."""
    for seed in range(150):
        problem = random_problem(seed, most=5, contended=False, lanes=3)
        orders = (o for groups in every_groups(problem) for o in itertools.permutations(groups))
        best_s = min(closed_form_done_s(problem, order) for order in orders)
        assert min(simulate(problem, g).done_s for g in solve(problem)) == pytest.approx(best_s, rel=1e-9), seed


def test_with_contention_it_equals_brute_force() -> None:
    for seed in range(300):
        problem = random_problem(seed, most=8, lanes=1 + seed % 2)
        best_s = min(simulate(problem, groups).done_s for groups in every_groups(problem))
        assert simulate(problem, best_groups(problem)).done_s <= best_s * 1.0003, seed


@settings(deadline=None)
@given(seed=st.integers(0, 10**9), pick=st.integers(0, 10**9))
def test_the_simulator_equals_the_closed_form_without_contention(seed: int, pick: int) -> None:
    problem = random_problem(seed, most=6, contended=False, lanes=2)
    every = list(every_groups(problem))
    groups = every[pick % len(every)]
    outcome = simulate(problem, groups)
    assert outcome.done_s == pytest.approx(closed_form_done_s(problem, groups), rel=1e-9)
    assert outcome.exposed_s == pytest.approx(outcome.done_s - outcome.backward_s, abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**9), pick=st.integers(0, 10**9))
def test_the_simulator_equals_integration_by_small_steps(seed: int, pick: int) -> None:
    problem = random_problem(seed, most=6)
    every = list(every_groups(problem))
    groups = every[pick % len(every)]
    assert simulate(problem, groups).done_s == pytest.approx(integrated_done_s(problem, groups), rel=0.01)


@settings(deadline=None)
@given(seed=st.integers(0, 10**9))
def test_candidates_hold_every_gradient_once_and_dtypes_apart(seed: int) -> None:
    problem = random_problem(seed, most=12, lanes=3)
    for groups in [*candidates(problem), best_groups(problem), fixed_caps(problem, 0.5), merged_greedily(problem)]:
        assert sorted(i for group in groups for i in group) == list(range(len(problem.gradients)))
        assert all(len({problem.gradients[i].dtype for i in group}) == 1 for group in groups)


def test_buckets_that_add_no_computation_share_a_segment_and_cost_no_cut() -> None:
    gradients = tuple(Gradient(f"p{i}", "float32", 64, at_s) for i, at_s in enumerate([1.0, 1.0, 2.0]))
    problem = Problem(gradients, 2.0, linear(1e-3, 0.0), gamma_s=0.5)
    assert problem.segments(((0,), (1,), (2,))) == [0, 0, 1]
    assert simulate(problem, ((0,), (1,), (2,))).backward_s == 2.5


def test_slow_starts_merge_and_slow_links_split() -> None:
    gradients = tuple(Gradient(f"p{i}", "float32", 1 << 20, 1e-3 * (i + 1)) for i in range(8))
    assert len(best_groups(Problem(gradients, 8e-3, linear(20e-3, 0.0)))) == 1
    assert len(best_groups(Problem(gradients, 8e-3, linear(1e-9, 1e-9)))) == 8


def test_many_gradients_are_merged_until_the_recurrence_is_affordable() -> None:
    gradients = tuple(Gradient(f"p{i}", ("float32", "bfloat16")[i % 2], 64 * (1 + i % 7), 1e-5 * i) for i in range(400))
    problem = Problem(gradients, 5e-3, linear(1e-5, 1e-9))
    merged = atoms(problem)
    assert len(merged) < 100
    assert sorted(i for atom in merged for i in atom) == list(range(400))


def test_the_table_of_the_optimum_against_fixed_caps_and_mg_wfbp() -> None:
    """Over random instances: how far above the optimum each rival ends, on average and at worst (shown with -s)."""
    excess: dict[str, list[float]] = {"1/25 MiB": [], "MG-WFBP": []}
    for seed in range(INSTANCES):
        problem = random_problem(seed, most=10, contended=False)
        best_s = simulate(problem, best_groups(problem)).done_s
        for name, groups in (("1/25 MiB", fixed_caps(problem, 25)), ("MG-WFBP", merged_greedily(problem))):
            excess[name].append(simulate(problem, groups).done_s / best_s - 1)
    for name, values in excess.items():
        print(f"{name:10} {mean(values):7.1%} above the optimum on average, {max(values):.0%} at worst")
        assert min(values) >= -1e-3
        assert mean(values) > 0


def test_a_launch_order_across_the_step_is_near_the_best_of_all_orders() -> None:
    excess = []
    for seed in range(60):
        problem = random_problem(seed, most=5)
        best_s = min(
            simulate_step(problem, groups, order).done_s
            for groups in every_groups(problem)
            for order in itertools.permutations(range(len(groups)))
        )
        plan = best_step(problem)
        assert sorted(plan.order) == list(range(len(plan.groups)))
        excess.append(plan.done_s / best_s - 1)
    assert sorted(excess)[len(excess) * 9 // 10] < 1e-3
    assert max(excess) < 0.15


def test_what_is_needed_first_leaves_first_if_it_can() -> None:
    gradients = (
        Gradient("last", "float32", 1 << 20, 1.0, need_s=3.0),
        Gradient("middle", "float32", 1 << 20, 1.1, need_s=2.0),
        Gradient("first", "float32", 1 << 20, 1.2, need_s=0.0),
    )
    problem = Problem(gradients, 1.2, linear(1.0, 0.0), forward_s=4.0)
    assert by_due_date(problem, ((0,), (1,), (2,))) == (0, 2, 1)
    plan = order_of(problem, ((0,), (1,), (2,)))  # even better: leave the channel idle until the first is ready
    assert plan.order == (2, 0, 1)
    assert plan.done_s < simulate_step(problem, plan.groups, (0, 2, 1)).done_s


def test_a_bucket_that_never_leaves_is_an_error() -> None:
    with pytest.raises(ValueError, match="never launched"):
        play([Stretch(1.0), Stretch(0.0, needs=(0,))], [1.0], [], Contention(), 1)


def test_slowing_both_sides_scales_the_answer() -> None:
    problem = replace(random_problem(5, contended=False), contention=Contention(2.0, 3.0))
    slow = problem.slowed(2.0, 3.0)
    groups = next(every_groups(problem))
    assert slow.backward_s == 2 * problem.backward_s
    assert slow.costs_s(groups) == pytest.approx([3 * c for c in problem.costs_s(groups)])
