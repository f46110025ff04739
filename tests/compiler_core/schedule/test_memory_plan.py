"""The arena: temps that live at once never overlap, those that do not share bytes."""

from __future__ import annotations

import random

import pytest

import distcompile as dc
from compiler_core.schedule.arena_plan import ALIGNMENT, PAGE, Life, plan_memory


@pytest.mark.parametrize("seed", range(20))
def test_living_temps_never_overlap(seed: int) -> None:
    rng = random.Random(seed)
    lives = []
    for k in range(40):
        first = rng.randrange(30)
        lives.append(Life(f"t{k}", rng.choice([0, 4, 100, 4096, 5000, 70000]), first, first + rng.randrange(6)))
    offsets, total = plan_memory(lives)
    for a in lives:
        assert offsets[a.name] % ALIGNMENT == 0
        assert offsets[a.name] + a.nbytes <= total
        for b in lives:
            apart = offsets[a.name] + a.nbytes <= offsets[b.name] or offsets[b.name] + b.nbytes <= offsets[a.name]
            assert a is b or apart or a.last < b.first or b.last < a.first


@pytest.mark.parametrize("seed", range(20))
def test_each_temp_lies_as_low_as_those_placed_before_it_let_it(seed: int) -> None:
    rng = random.Random(seed)
    lives = []
    for k in range(rng.randint(1, 60)):
        first = rng.randrange(40)
        lives.append(Life(f"t{k}", 64 * rng.randint(1, 63), first, min(first + int(rng.expovariate(0.2)), 40)))
    offsets, _ = plan_memory(lives)
    placed: list[Life] = []
    for life in sorted(lives, key=lambda life: (-life.nbytes, life.first, life.name)):
        meeting = [o for o in placed if o.first <= life.last and life.first <= o.last]
        taken = sorted((offsets[o.name], offsets[o.name] + o.nbytes) for o in meeting)
        free = [0, *(end for _, end in taken)]
        fits = [at for at in free if all(at + life.nbytes <= begin or at >= end for begin, end in taken)]
        assert offsets[life.name] == min(fits)
        placed.append(life)


def test_a_chain_reuses_two_places() -> None:
    _, total = plan_memory([Life(f"t{k}", 1024, k, k + 1) for k in range(10)])
    assert total == 2048


def test_large_temps_of_one_kernel_start_at_different_places_of_a_page() -> None:
    offsets, total = plan_memory([Life(f"t{k}", 1 << 20, k, 10) for k in range(8)])
    assert len({offset % PAGE for offset in offsets.values()}) == 8
    assert total <= 8 * ((1 << 20) + 2 * PAGE)


def test_values_that_outputs_are_views_of_are_copied_as_soon_as_they_are_there() -> None:
    def program(*rows: dc.Tensor) -> list[dc.Tensor]:
        return [x.argsort(1).t().contiguous() for x in rows]

    compiled = dc.compile(program)
    rows = [dc.arange(1024.0).reshape(32, 32) * sign for sign in (1, -1, 2, -2)]
    for x, found in zip(rows, compiled(*rows), strict=True):
        assert found.tolist() == x.argsort(1).t().tolist()
    (entry,) = compiled.explain().entries
    assert entry.memory is not None
    assert entry.memory.working < 2 * 32 * 32 * 8  # one of four at a time
