"""torch.utils.hooks: one class of handles, of a dict of the caller's or of what hooks are registered on."""

from __future__ import annotations

import copy
import gc
import pickle
import warnings
import weakref
from collections import OrderedDict
from typing import Any

import pytest

import distcompile as dc
from distcompile.errors import NotSupportedError
from distcompile.utils.hooks import BackwardHook, RemovableHandle, unserializable_hook, warn_if_has_hooks


def test_a_handle_of_a_dict_and_of_what_is_beside_it() -> None:
    hooks: OrderedDict[int, Any] = OrderedDict()
    first, options = OrderedDict(hooks), {}
    handle = RemovableHandle(hooks, extra_dict=[options, first])
    hooks[handle.id], options[handle.id], hooks[-1] = print, True, print
    with handle as same:
        assert same is handle
    assert (list(hooks), options) == ([-1], {})
    handle.remove()
    plain: dict[int, Any] = {}
    other = RemovableHandle(plain)
    plain[other.id] = print
    assert other.id != handle.id
    other.remove()
    assert plain == {}


def test_a_handle_keeps_nothing_alive() -> None:
    layer = dc.nn.Linear(2, 2)
    handle, alive = layer.register_forward_hook(print), weakref.ref(layer)
    assert isinstance(handle, RemovableHandle)
    del layer
    gc.collect()
    assert alive() is None
    handle.remove()


def test_every_registration_gives_one() -> None:
    layer = dc.nn.Linear(2, 2)
    optimizer = dc.optim.SGD(layer.parameters(), 0.1)
    handles = [
        layer.register_forward_hook(print),
        layer.register_state_dict_pre_hook(print),
        layer.weight.register_hook(print),
        layer.weight.register_post_accumulate_grad_hook(print),
        optimizer.register_step_pre_hook(print),
    ]
    assert all(isinstance(handle, RemovableHandle) for handle in handles)
    assert len({handle.id for handle in handles}) == len(handles)
    for handle in handles:
        handle.remove()


def doubles(module: Any, inputs: Any, output: Any) -> Any:
    return output * 2


class Keeps(dc.nn.Module):
    """Keeps the handle of its own hook."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = dc.nn.Identity()
        self.handle = self.layer.register_forward_hook(doubles)

    def forward(self, x: dc.Tensor) -> dc.Tensor:
        return self.layer(x)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_the_handle_of_a_copy_is_the_copys(copied: Any) -> None:
    first, x = Keeps(), dc.ones(1)
    second = copied(first)
    second.handle.remove()
    assert (first(x).item(), second(x).item()) == (2, 1)
    first.handle.remove()
    assert first(x).item() == 1


def test_hooks_that_are_not_saved_are_told_of() -> None:
    weight = dc.ones(2, requires_grad=True)
    weight.register_hook(unserializable_hook(lambda g: g))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_has_hooks(weight)
    weight.register_hook(lambda g: g)
    with pytest.warns(UserWarning, match="will not be serialized"):
        warn_if_has_hooks(weight)


def test_torchs_own_way_of_backward_hooks_is_named() -> None:
    with pytest.raises(NotSupportedError, match="register_full_backward_hook"):
        BackwardHook(dc.nn.Linear(1, 1), [], [])
