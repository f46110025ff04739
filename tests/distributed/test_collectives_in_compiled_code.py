"""What talks to other ranks does so at every call of a compiled function, in whatever form; nothing is forgotten."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

import compiled_forms
import pytest
from compiled_forms import FORMS, Form

import collectives
import distcompile as dc
from collectives import Communicator, run_ranks
from compiler_core.capture import policy
from distcompile import distributed as dist
from distcompile import futures
from distcompile.distributed import functional_collectives, recorded, traced
from distcompile.distributed.nn import functional as dist_nn

BACKENDS = ["eager", "codegen"]
STEPS = 4


def inputs(world: Communicator) -> Iterator[Any]:
    for step in range(STEPS):
        yield dc.arange(3.0) + step + 10 * world.rank


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_every_call_talks(form: Form, backend: str) -> None:
    def run(world: Communicator) -> None:
        with dist.use_communicator(world):
            compiled = dc.compile(form, backend=backend)
            for x in inputs(world):
                expected = form(x.clone())
                assert compiled(x).tolist() == expected.tolist()

    run_ranks(2, run, timeout_s=60)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("is_future", [False, True])
def test_a_handle_from_outside_is_waited_for_at_every_call(is_future: bool, backend: str) -> None:
    form = compiled_forms.future_finished_outside if is_future else compiled_forms.finished_outside

    def run(world: Communicator) -> None:
        with dist.use_communicator(world):
            compiled = dc.compile(form, backend=backend)
            for x in inputs(world):
                y = x.clone()
                work: Any = dist.all_reduce(x, async_op=True)
                dist.all_reduce(y)
                found = compiled(work.get_future() if is_future else work, x)
                assert found.tolist() == (y * 2 if is_future else y + 1).tolist()

    run_ranks(2, run, timeout_s=60)


def test_data_parallelism_by_hand() -> None:
    """The issue's step: gradients averaged by collectives within the compiled step."""

    def run(world: Communicator) -> list[list[float]]:
        with dist.use_communicator(world):
            found = []
            for compiles in (False, True):
                dc.manual_seed(0)
                model = dc.nn.Linear(3, 2)

                def step(x: Any, model: Any = model) -> Any:
                    loss = model(x).square().mean()
                    gradients = dc.autograd.grad(loss, list(model.parameters()))
                    handles = [dist.all_reduce(gradient, async_op=True) for gradient in gradients]
                    for handle in handles:
                        handle.wait()
                    with dc.no_grad():
                        for parameter, gradient in zip(model.parameters(), gradients):
                            parameter -= 0.1 * gradient / world.world_size
                    return loss

                run = dc.compile(step) if compiles else step
                for x in inputs(world):
                    run(x.reshape(1, 3) / 10)
                found.append([value for parameter in model.parameters() for value in parameter.flatten().tolist()])
            assert found[1] == pytest.approx(found[0], rel=1e-5)
            return found[1]

    results = run_ranks(2, run, timeout_s=60)
    assert results[0] == results[1]


# --- nothing is forgotten ---------------------------------------------------------------------------------------------


def modules_that_talk() -> Iterator[ModuleType]:
    yield futures
    for package in (collectives, dist):
        yield package
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            yield importlib.import_module(found.name)


def functions_of(owner: Any, module: str) -> Iterator[FunctionType]:
    """The functions written in a module: its own, those of its classes, properties, class methods."""
    for value in vars(owner).values():
        if isinstance(value, type) and value.__module__ == module and value is not owner:
            yield from functions_of(value, module)
        for part in (value, *(getattr(value, name, None) for name in ("__func__", "fget", "fset", "__wrapped__"))):
            if isinstance(part, FunctionType) and part.__code__.co_filename == sys.modules[module].__file__:
                yield part


def test_no_function_or_method_is_part_of_a_graph() -> None:
    asked, seen = set(), 0
    for module in modules_that_talk():
        for function in functions_of(module, module.__name__):
            seen += 1
            if module in (functional_collectives, traced, dist_nn):  # captured: what they call records
                assert isinstance(policy.how(function), policy.Entered)
            elif module is recorded:
                assert isinstance(policy.how(function), policy.Native)
            elif not isinstance(policy.how(function), policy.Breaks):
                asked.add(function.__qualname__)
    assert seen > 400
    for module, functions in traced.REPLACED.items():
        for function in functions:
            assert policy.said(getattr(module, function.__name__)) == policy.Replaced(function)
    # these read who is in a group, and are entered: what they read is guarded
    assert asked == {
        *("get_rank", "get_world_size", "is_initialized", "has_peers", "not_in", "group_or_default"),
        *("_current", "_Names.WORLD", "P2POp.__init__"),
    }


def test_a_graph_that_asks_for_a_rank_is_not_broken_and_is_for_that_rank() -> None:
    def step(x: Any) -> Any:
        return x * dist.get_rank() + dist.get_world_size() + dist.is_initialized()

    compiled = dc.compile(step, fullgraph=True)

    def run(world: Communicator) -> list[float]:
        with dist.use_communicator(world):
            return [*compiled(dc.ones(1)).tolist(), *compiled(dc.ones(1)).tolist()]

    for ranks in (2, 3):
        assert run_ranks(ranks, run, timeout_s=60) == [[ranks + 1.0 + r] * 2 for r in range(ranks)]


def test_a_graph_made_before_there_was_a_group_is_not_for_afterwards() -> None:
    compiled = dc.compile(lambda x: x + 10 * dist.is_initialized())
    found = [compiled(dc.zeros(1)).item()]
    dist.init_process_group("threaded")
    try:
        found.append(compiled(dc.zeros(1)).item())
    finally:
        dist.destroy_process_group()
    assert [*found, compiled(dc.zeros(1)).item()] == [0.0, 10.0, 0.0]
