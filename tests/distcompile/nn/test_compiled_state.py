"""State dicts that torch's compiled modules wrote, whose keys begin with "_orig_mod.", load into compiled modules."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import numpy as np
import pytest

import distcompile as torch
from compiler_core.errors import GraphBreak
from distcompile import nn
from distcompile.errors import StateDictError


def test_keys_of_torchs_compiled_modules_load() -> None:
    written, net = (nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)) for _ in range(2))
    state = copy.copy(written.state_dict())
    for name in list(state):
        state[f"_orig_mod.{name}"] = state.pop(name)
    compiled = torch.compile(net)
    assert not any(compiled.load_state_dict(state))
    for name, tensor in net.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), written.state_dict()[name].numpy())
    with pytest.raises(StateDictError, match="_orig_mod"):
        net.load_state_dict(state)
    state["_orig_mod.other"] = torch.ones(1)
    with pytest.raises(StateDictError, match="other"):
        compiled.load_state_dict(state)


def test_the_module_itself_is_found_under_torchs_name() -> None:
    net = nn.Linear(3, 4)
    assert torch.compile(net)._orig_mod is net
    assert not hasattr(net, "_orig_mod")


def test_compiling_leaves_nothing_on_the_module() -> None:
    net = nn.Linear(3, 4)
    names, version = set(vars(net)), net.__tree_version__()
    torch.compile(net)(torch.ones(2, 3))
    assert set(vars(net)) == names
    assert net.__tree_version__() == version


def test_another_module_can_take_the_place_of_the_compiled_one() -> None:
    """As accelerate does it, which puts back what it has unwrapped."""
    net, other = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    compiled: Any = torch.compile(net)
    x = torch.ones(1, 2)
    compiled(x)
    entries = compiled.explain().entries
    compiled._orig_mod = net
    assert compiled.explain().entries == entries
    assert list(net.children()) == []
    compiled._orig_mod = other
    np.testing.assert_allclose(compiled(x).detach().numpy(), other(x).detach().numpy(), rtol=1e-6)
    assert compiled._orig_mod is other


def test_functions_are_compiled_as_the_module_is() -> None:
    """As Lightning does it, for the steps of a module."""
    compiled: Any = torch.compile(torch.nn.Linear(2, 2), backend="eager", fullgraph=True)
    doubled = compiled.dynamo_ctx(lambda x: x * 2)
    assert doubled(torch.ones(2)).tolist() == [2.0, 2.0]
    assert len(doubled.explain().entries) == 1
    with pytest.raises(GraphBreak):
        compiled.dynamo_ctx(lambda x: print(x))(torch.ones(2))
    assert type(compiled) is torch._dynamo.OptimizedModule
    assert inspect.getfullargspec(torch.compile(doubled)).args == ["x"]
