"""One integer a tree: raised by every change a compiled function relies on, and by nothing else."""

from __future__ import annotations

import copy
import pickle
import timeit
from collections.abc import Callable
from typing import Any

import pytest

import distcompile as dc
from distcompile import nn
from distcompile.errors import HookError, NotSupportedError


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
        self.alias = self.body[0]
        self.register_buffer("count", dc.zeros(1))
        self.factor = 1.0
        self.notes: list[int] = []

    def forward(self, x: Any) -> Any:
        return self.body(x) * self.factor


def nothing(*args: object) -> None:
    return None


CHANGES: dict[str, Callable[[Model], Any]] = {
    "eval": lambda m: m.eval(),
    "train of a leaf": lambda m: m.body[1].eval(),
    "plain attribute": lambda m: setattr(m, "factor", 2.0),
    "other type, equal value": lambda m: setattr(m, "factor", 1),
    "deleted attribute": lambda m: delattr(m, "factor"),
    "replaced parameter": lambda m: setattr(m.alias, "weight", nn.Parameter(dc.ones(2, 2))),
    "parameter to None": lambda m: setattr(m.alias, "bias", None),
    "new buffer": lambda m: m.register_buffer("more", None),
    "replaced buffer": lambda m: setattr(m, "count", dc.ones(1)),
    "new child": lambda m: m.body.append(nn.ReLU()),
    "replaced child": lambda m: m.body.__setitem__(0, nn.Linear(2, 2)),
    "deleted child": lambda m: m.body.pop(1),
    "registry written directly": lambda m: m._buffers.__setitem__("count", dc.ones(1)),
    "registry replaced": lambda m: setattr(m, "_modules", {"body": m.body}),
    "registry cleared": lambda m: m.body._modules.clear(),
    "forward pre-hook": lambda m: m.register_forward_pre_hook(nothing),
    "forward hook of a leaf": lambda m: m.alias.register_forward_hook(nothing),
    "backward pre-hook": lambda m: m.register_full_backward_pre_hook(nothing),
    "backward hook": lambda m: m.body.register_full_backward_hook(nothing),
    "replaced forward": lambda m: setattr(m.body[1], "forward", lambda x: x),
    "requires_grad_": lambda m: m.requires_grad_(False),
    "dtype": lambda m: m.double(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_raises_the_version(change: str) -> None:
    model = Model()
    before = model.__tree_version__()
    CHANGES[change](model)
    assert model.__tree_version__() > before


def test_the_version_stands_still_while_nothing_changes() -> None:
    model, other = Model(), Model()
    before = model.__tree_version__()
    model.train()
    model.factor = 1.0
    model(dc.ones(1, 2))
    model.state_dict()
    with dc.no_grad():
        model.alias.weight.add_(1.0)  # a new value in the same cell: the graph stays right
    other.eval()
    other.factor = 7.0
    assert model.__tree_version__() == before


def test_a_version_never_comes_back() -> None:
    """Swapping a much-changed child for a fresh one lowers a sum of counts; it must not lower the version."""
    model = Model()
    fresh = nn.Linear(2, 2)
    for _ in range(5):
        model.alias.eval().train()
    seen = [model.__tree_version__()]
    model.body[0] = fresh
    seen.append(model.__tree_version__())
    handle = fresh.register_forward_hook(nothing)
    seen.append(model.__tree_version__())
    handle.remove()
    handle.remove()
    seen.append(model.__tree_version__())
    assert seen == sorted(set(seen))


def test_only_trees_that_hold_the_changed_module_change() -> None:
    shared = nn.Linear(1, 1)
    holder, stranger = nn.Sequential(shared), nn.Sequential(nn.Linear(1, 1))
    holder.itself = holder  # a cycle is walked once
    before = (holder.__tree_version__(), stranger.__tree_version__())
    shared.eval()
    assert holder.__tree_version__() > before[0]
    assert stranger.__tree_version__() == before[1]


def test_copies_and_unpickled_modules_are_new_to_any_guard() -> None:
    model = Model()
    version = model.__tree_version__()
    twin, loaded = copy.deepcopy(model.body), pickle.loads(pickle.dumps(model.body))
    assert twin.__tree_version__() > version
    assert loaded.__tree_version__() > version
    twin.register_forward_hook(nothing)
    assert not model.body._forward_hooks
    assert model.__tree_version__() == version


def test_asking_costs_one_comparison_however_large_the_tree() -> None:
    small, large = nn.Sequential(nn.ReLU()), nn.Sequential(*(nn.Linear(1, 1) for _ in range(300)))

    def seconds(m: Any) -> float:
        m.__tree_version__()
        return min(timeit.repeat(m.__tree_version__, number=1000, repeat=5))

    assert seconds(large) < 5 * seconds(small)


def test_backward_hooks_of_torchs_old_kind_are_refused_by_name() -> None:
    with pytest.raises(NotSupportedError, match="register_full_backward_hook"):
        nn.Linear(1, 1).register_backward_hook(nothing)


def test_a_backward_hook_may_not_invent_gradients_for_inputs_that_have_none() -> None:
    layer = nn.Linear(1, 1)
    layer.register_full_backward_hook(lambda m, gi, go: (dc.ones(1),))
    with pytest.raises(HookError, match="no input requires"):
        layer(dc.ones(1, 1)).sum().backward()


def test_a_module_compiled_in_place_can_be_compiled_again_and_copied() -> None:
    layer, x = nn.Linear(2, 2), dc.ones(1, 2)
    version = layer.__tree_version__()
    layer.compile(backend="eager")
    layer.compile(backend="aot_eager", fullgraph=True)
    assert layer.__tree_version__() > version
    twin = copy.deepcopy(layer)
    with dc.no_grad():
        twin.weight.fill_(0.0)
        twin.bias.fill_(3.0)
    assert twin(x).tolist() == [[3.0, 3.0]]
    assert twin.forward.__func__ is nn.Linear.forward
    assert pickle.loads(pickle.dumps(layer))(x).tolist() == layer(x).tolist()


def test_numbers_are_never_shared_between_threads() -> None:
    """Ranks may be threads of one process: two changes with one number could hide one of them."""
    from concurrent.futures import ThreadPoolExecutor

    from distcompile.nn.versions import Stamp

    with ThreadPoolExecutor(4) as pool:
        drawn = [n for part in pool.map(lambda _: [Stamp().value for _ in range(5000)], range(4)) for n in part]
    assert len(set(drawn)) == len(drawn)
