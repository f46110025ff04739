"""What is compiled goes with what it was compiled for: a thousand compilations leave nothing behind."""

from __future__ import annotations

import gc
import weakref
from collections import Counter

import pytest

import distcompile as dc
from compiler_core.showing.timeline import Mark
from compiler_core.steps import StepTime
from distcompile import Tensor, nn

COMPILATIONS = 1000


def objects() -> Counter[str]:
    """How many objects of ours there are, by class."""
    gc.collect()
    kinds = Counter(map(type, gc.get_objects()))
    del kinds[StepTime], kinds[Mark]  # the last few thousand are kept, and no more
    return Counter(
        {f"{k.__module__}.{k.__qualname__}": n for k, n in kinds.items() if str(k.__module__).startswith("compiler_")}
    )


def train(step: int) -> weakref.ref[nn.Module]:
    """Compile a module that breaks, keeps state and trains; use it; drop it."""
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    kept: list[Tensor] = []

    @dc.compile(backend="eager")
    def function(x: Tensor, n: int) -> Tensor:
        y = model(x) * n
        kept.append(y.detach())
        if y.sum() > 1e9:
            return y
        return y.sum()

    for n in (1, 2):
        function(dc.ones(1, 2), n).backward()
    assert len(kept) == 2
    return weakref.ref(model)


@pytest.mark.long
def test_a_thousand_compilations_leave_nothing_behind() -> None:
    for step in range(5):
        train(step)
    before = objects()
    models = [train(step) for step in range(COMPILATIONS // 4)]  # four graphs each
    after = objects()
    assert not any(ref() for ref in models)
    grown = {kind: n - before[kind] for kind, n in after.items() if n > before[kind] + 20}
    assert grown == {}
