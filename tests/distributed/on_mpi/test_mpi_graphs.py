"""Collectives in graphs on MPI ranks: values and gradients of eager code's, launched and waited for without Python."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from graph_collectives import PROGRAMS, Program

import distcompile as dc
from collectives.work_events import NativeWorkEvents
from distcompile import distributed as dist
from distcompile.distributed import _functional_collectives as fc
from distcompile.distributed import in_graphs


@pytest.fixture(scope="module", autouse=True)
def group() -> Iterator[None]:
    dist.init_process_group("mpi", timeout=60)
    yield
    dist.destroy_process_group()


def value_and_gradient(function: Program, data: Any) -> tuple[Any, Any]:
    x = dc.tensor(data).requires_grad_()
    out = function(x)
    out.square().sum().backward()
    assert x.grad is not None
    return out.detach().numpy(), x.grad.numpy()


@pytest.mark.mpi
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_values_and_gradients_are_those_of_eager_code(function: Program) -> None:
    compiled = dc.compile(function, fullgraph=True)
    for step in range(2):
        rng = np.random.default_rng(7 * step + dist.get_rank())
        data = rng.uniform(-1, 1, (4 * dist.get_world_size(), 3))
        for got, expected in zip(value_and_gradient(compiled, data), value_and_gradient(function, data), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.mpi
def test_the_native_engine_serves_the_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is one: no Python between the kernels."""
    seen = []

    class Flight(in_graphs.GroupFlight):
        def land(self) -> None:
            seen.append(type(self.events))
            super().land()

    monkeypatch.setattr(in_graphs, "GroupFlight", Flight)
    compiled = dc.compile(lambda x: fc.all_reduce(x.sin(), "sum").cos(), fullgraph=True)
    compiled(dc.ones(4))
    assert len(seen) == 1
    group = dist.group.WORLD
    assert group is not None
    if "native" in getattr(getattr(group, "engine", None), "__module__", ""):
        assert seen == [NativeWorkEvents]
