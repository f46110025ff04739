"""The same calls through the native backend: outputs, gradients, aliasing and written buffers as eager has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_capture_modules import Block, Running, Tied, assert_step_as_eager

from compiler_core.capture import compile
from compiler_core.errors import CompilerNotFoundError
from compiler_core.tensor.making.creation import arange, tensor
from compiler_core.tensor.making.random import manual_seed
from compiler_core.tensor.making.random_creation import randn
from compiler_core.tensor.tensor import Tensor
from distcompile import nn
from tests.compiler_core.capture.writes.test_capture_aliasing import CASES, GRADIENT_CASES, same

pytestmark = pytest.mark.usefixtures("counter_draws")


@pytest.fixture(autouse=True)
def compiler() -> None:
    from compiler_core.runtime.toolchain import find_toolchain

    manual_seed(0)
    try:
        find_toolchain()
    except CompilerNotFoundError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("module", "argument"),
    [
        (Block, lambda: randn(4, 8)),
        (lambda: nn.Sequential(Block(), Block()), lambda: randn(2, 3, 8)),
        (Tied, lambda: arange(5)),
        (Running, lambda: randn(4, 3)),
        (lambda: nn.Sequential(nn.Linear(3, 3), nn.Identity()), lambda: randn(4, 3)),
    ],
    ids=["block", "sequence", "tied", "running buffer", "identity"],
)
def test_training_steps(module: Callable[[], nn.Module], argument: Callable[[], Tensor]) -> None:
    assert_step_as_eager(module(), "codegen", argument())


def test_all_aliasing_cases_in_one_artefact() -> None:
    """Every case of the aliasing tests at once: one compilation, all results probed."""

    def function(*xs: Tensor) -> list[Any]:
        return [run(x) for (run, _), x in zip(CASES.values(), xs, strict=True)]

    compiled = compile(function, backend="codegen", fullgraph=True)
    for _ in range(2):
        ours, theirs = ([tensor([[1.0, 2.0], [3.0, 4.0]]) for _ in CASES] for _ in range(2))
        got, want = compiled(*ours), function(*theirs)
        for (_, probe), x, y, a, b in zip(CASES.values(), ours, theirs, got, want):
            same(probe(x, a), probe(y, b))
            same(x, y)


@pytest.mark.parametrize("name", ["detached result beside it", "result and its view", "written view of a result"])
def test_gradients(name: str) -> None:
    function = GRADIENT_CASES[name]
    compiled = compile(function, backend="codegen", fullgraph=True)
    leaves = [tensor([[0.1, 0.2], [0.3, 0.4]]).requires_grad_() for _ in range(2)]
    for call, leaf in zip((compiled, function), leaves):
        result = call(leaf)
        sum((part * part).sum() for part in (result if isinstance(result, tuple) else (result,))).backward()
    np.testing.assert_allclose(leaves[0].grad.numpy(), leaves[1].grad.numpy(), rtol=1e-6)


def test_a_saved_activation_survives_later_calls() -> None:
    """Buffers are recycled only when nobody can read them any more."""
    module = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    compiled = compile(module, backend="codegen", fullgraph=True)
    xs = [randn(3, 4) for _ in range(4)]
    losses = [compiled(x).sum() for x in xs]
    for loss in reversed(losses):
        loss.backward()
    got = [p.grad.numpy().copy() for p in module.parameters()]
    module.zero_grad()
    for x in xs:
        module(x).sum().backward()
    for a, b in zip(got, module.parameters(), strict=True):
        np.testing.assert_allclose(a, b.grad.numpy(), rtol=1e-5, atol=1e-6)


def test_results_kept_by_the_user_are_not_overwritten() -> None:
    compiled = compile(lambda x: (x * 2, (x * 3).view(-1)), backend="codegen", fullgraph=True)
    kept = [compiled(tensor([[float(i)]])) for i in range(5)]
    arrays = [tuple(t.numpy() for t in pair) for pair in kept]
    del kept
    compiled(tensor([[9.0]]))
    assert [[float(a[0, 0]), float(b[0])] for a, b in arrays] == [[2.0 * i, 3.0 * i] for i in range(5)]
