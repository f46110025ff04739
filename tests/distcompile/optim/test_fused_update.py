"""The compiled update: equal to the eager rule, one native call, and blind to nobody who still looks at a value."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.config import config
from compiler_core.errors import BackendError, CompilerNotFoundError, GraphBreak
from compiler_core.graph.verify import verify
from compiler_core.log import DistCompileWarning
from compiler_core.ops.registry import use_trace
from compiler_core.tensor.memory.ownership import is_sole_owner
from distcompile.optim.adam import AdamRule
from distcompile.optim.update_rules.fused import update_graph

SHAPES = ((33, 17), (17,), (128,), (3, 5, 2))


def parameters(seed: int = 0) -> list[Any]:
    dc.manual_seed(seed)
    return [dc.nn.Parameter(dc.randn(*shape)) for shape in SHAPES]


def give_gradients(params: list[Any], step: int) -> None:
    rng = np.random.default_rng(step)
    for p in params:
        p.grad = dc.tensor(rng.standard_normal(tuple(p.shape)).astype(np.float32))


@pytest.mark.parametrize("make", [
    lambda p, fused: dc.optim.SGD(p, 0.1, momentum=0.9, fused=fused),
    lambda p, fused: dc.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.1, fused=fused),
    lambda p, fused: dc.optim.Adam(p, 0.01, amsgrad=True, fused=fused),
    lambda p, fused: dc.optim.AdamW(p, 0.01, fused=fused),
])  # fmt: skip
def test_fused_equals_eager_to_float32_rounding(make: Any) -> None:
    runs = []
    for fused in (False, True):
        params = parameters()
        optimizer = make(params, fused)
        for step in range(20):
            give_gradients(params, step)
            optimizer.step()
        state = [t.numpy().copy() for entries in optimizer.state.values() for t in entries.values()]
        runs.append([p.detach().numpy().copy() for p in params] + state)
    for a, b in zip(*runs, strict=True):
        np.testing.assert_allclose(a, b, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("part", [lambda t: t, lambda t: t[0]], ids=["all", "view"])
def test_parameters_that_share_memory_are_updated_one_after_the_other(part: Any, fused: bool) -> None:
    first, second = dc.nn.Parameter(dc.ones(2, 3)), dc.nn.Parameter(dc.zeros(1))
    second.data = part(first.data)
    optimizer = dc.optim.SGD([first, second], 0.125, fused=fused)
    for _ in range(2):
        first.grad, second.grad = dc.ones(2, 3), dc.full(tuple(second.shape), 2.0)
        optimizer.step()
    assert first[0].tolist() == [1 - 2 * 0.125 * (1 + 2)] * 3
    assert part(first).tolist() == second.tolist()


def test_one_call_a_step_and_no_recompile_when_numbers_change() -> None:
    params = parameters()
    optimizer = dc.optim.AdamW(params, fused=True)
    for step in range(5):
        give_gradients(params, step)
        optimizer.param_groups[0].update(lr=0.1 / (step + 1), betas=(0.9 - step / 100, 0.99), weight_decay=0.1 + step)
        optimizer.step()
    ((executable,),) = optimizer._fused._calls.values()
    assert executable.calls == 5


def test_the_graph_of_an_update_is_valid_and_has_one_node_an_operation() -> None:
    rule = AdamRule(amsgrad=False, maximize=False, weight_decay=True, decoupled=True)
    scalars = {
        k: np.array(v, np.float32)
        for k, v in rule.numbers({"betas": (0.9, 0.99), "lr": 1, "eps": 1e-8, "weight_decay": 0.1}, 1).items()
    }
    graph = update_graph([(rule, p.detach().numpy(), 0) for p in parameters()], [scalars])
    verify(graph)
    assert len(graph.inputs) == 4 * len(SHAPES) + len(scalars)
    assert len(graph.outputs) == 3 * len(SHAPES)


def test_values_that_somebody_still_looks_at_are_left_alone() -> None:
    params = parameters()
    optimizer = dc.optim.SGD(params, 0.1, momentum=0.9, fused=True)
    give_gradients(params, 0)
    optimizer.step()
    alias = params[0]._cell.current()  # an array
    view = params[1]._cell.current()[2:5]  # a view of one
    before, before_view = alias.copy(), view.copy()
    give_gradients(params, 1)
    optimizer.step()
    np.testing.assert_array_equal(alias, before)
    np.testing.assert_array_equal(view, before_view)
    assert not np.array_equal(params[0].detach().numpy(), before)


def test_a_copy_made_before_a_step_keeps_its_value() -> None:
    (weight,) = params = [dc.nn.Parameter(dc.ones(64))]
    average, clone = dc.zeros(64), weight.detach().clone()
    average.copy_(weight.detach())
    optimizer = dc.optim.SGD(params, 0.5, fused=True)
    for _ in range(3):
        weight.grad = dc.ones(64)
        optimizer.step()
    assert weight.tolist() == [-0.5] * 64
    assert average.tolist() == clone.tolist() == [1.0] * 64


def test_memory_is_reused_when_nobody_looks() -> None:
    params = parameters()
    optimizer = dc.optim.AdamW(params, fused=True)
    give_gradients(params, 0)
    optimizer.step()
    assert all(is_sole_owner(p._cell) for p in params)
    addresses = [p._cell.value.ctypes.data for p in params]
    give_gradients(params, 1)
    optimizer.step()
    assert [p._cell.value.ctypes.data for p in params] == addresses


def test_detached_handles_see_the_new_values_and_the_version_rises() -> None:
    (weight,) = params = [dc.nn.Parameter(dc.zeros(3))]
    shared, version = weight.detach(), weight._version
    weight.grad = dc.ones(3)
    dc.optim.SGD(params, 1.0, fused=True).step()
    assert shared.tolist() == [-1.0, -1.0, -1.0]
    assert weight._version > version


def test_gradients_may_be_views_of_one_buffer() -> None:
    params = parameters()
    flat = np.random.default_rng(0).standard_normal(sum(p.numel() for p in params)).astype(np.float32)
    start, want = 0, []
    for p in params:
        part = flat[start : start + p.numel()].reshape(p.shape)
        p.grad = dc.from_numpy(part)
        want.append(p.detach().numpy() - np.float32(0.1) * part)
        start += p.numel()
    dc.optim.SGD(params, 0.1, fused=True).step()
    for p, expected in zip(params, want, strict=True):
        np.testing.assert_allclose(p.detach().numpy(), expected, rtol=1e-6)


def test_without_a_compiler_it_runs_eager_and_says_so_once(tmp_path: Path) -> None:
    with config.patch(cxx=str(tmp_path / "no_such_compiler"), cache_dir=tmp_path):
        params = parameters()
        optimizer = dc.optim.AdamW(params)
        give_gradients(params, 0)
        with pytest.warns(DistCompileWarning, match="runs op by op"):
            optimizer.step()
        optimizer.step()
        assert float(optimizer.state[params[0]]["step"]) == 2.0


def test_fused_true_without_a_compiler_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    with config.patch(cxx=str(tmp_path / "no_such_compiler"), cache_dir=tmp_path):
        params = parameters()
        before = params[0].detach().numpy().copy()
        optimizer = dc.optim.AdamW(params, fused=True)
        give_gradients(params, 0)
        with pytest.raises(BackendError) as caught:
            optimizer.step()
        assert isinstance(caught.value, CompilerNotFoundError)
        np.testing.assert_array_equal(params[0].detach().numpy(), before)
        assert float(optimizer.state[params[0]]["step"]) == 0.0


def test_an_optimizer_can_be_copied_and_goes_on_by_itself() -> None:
    params = parameters()
    optimizer = dc.optim.AdamW(params, fused=True)
    give_gradients(params, 0)
    optimizer.step()
    twin = copy.deepcopy(optimizer)
    (group,) = twin.param_groups
    assert all(a is not b for a, b in zip(group["params"], params, strict=True))
    before = params[0].detach().numpy().copy()
    give_gradients(group["params"], 1)
    twin.step()
    np.testing.assert_array_equal(params[0].detach().numpy(), before)
    assert float(twin.state[group["params"][0]]["step"]) == 2.0


def test_a_step_cannot_be_traced() -> None:
    params = parameters()
    optimizer = dc.optim.SGD(params, 0.1)

    class Recorder:
        def bind(self, op: object, values: object, attrs: object) -> object:
            raise AssertionError("nothing may be recorded")

    with use_trace(Recorder()), pytest.raises(GraphBreak, match=r"optimizer.step\(\)"):
        optimizer.step()
