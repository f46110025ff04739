"""State dicts that torch's compiled modules wrote, whose keys begin with "_orig_mod.", load into compiled modules."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import distcompile as torch
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
