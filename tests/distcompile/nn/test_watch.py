"""A watch over modules sees every change of them, no change of others, and what was taken back."""

from __future__ import annotations

import copy
import gc
import pickle
import timeit
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import distcompile as dc
from compiler_core.capture.guards.module_protocol import WatchedModule, watch_modules
from compiler_core.watch import Watch
from distcompile import nn
from distcompile.nn import hooks


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
        self.alias = self.body[0]
        self.register_buffer("count", dc.zeros(1))
        self.factor, self.slope, self.nan = 1.0, 0.0, float("nan")
        self.notes: list[int] = []

    def forward(self, x: Any) -> Any:
        return self.body(x) * self.factor


def watch(model: nn.Module, names: frozenset[str] | None = None) -> Watch:
    return watch_modules(
        WatchedModule(m, f"model.{path}" if path else "model", names) for path, m in model.named_modules()
    )


def nothing(*args: object) -> None:
    return None


def give_state(module: Any) -> None:
    module.__setstate__(copy.deepcopy(module.__getstate__()))


# change -> what the watch calls it
CHANGES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "eval": (lambda m: m.eval(), "model.training is unchanged"),
    "train of a leaf": (lambda m: m.body[1].eval(), "model.body.1.training is unchanged"),
    "plain attribute": (lambda m: setattr(m, "factor", 2.0), "model.factor is unchanged"),
    "other type, equal value": (lambda m: setattr(m, "factor", 1), "model.factor is unchanged"),
    "minus zero": (lambda m: setattr(m, "slope", -0.0), "model.slope is unchanged"),
    "an equal container": (lambda m: setattr(m, "notes", []), "model.notes is unchanged"),
    "new attribute": (lambda m: setattr(m, "more", 1), "model.more is unchanged"),
    "deleted attribute": (lambda m: delattr(m, "factor"), "model.factor is unchanged"),
    "replaced parameter": (lambda m: setattr(m.alias, "weight", nn.Parameter(dc.ones(2, 2))), "body.0.weight is"),
    "parameter to None": (lambda m: setattr(m.alias, "bias", None), "body.0.bias is unchanged"),
    "deleted parameter": (lambda m: delattr(m.alias, "bias"), "body.0.bias is unchanged"),
    "new parameter": (lambda m: m.register_parameter("p", nn.Parameter(dc.ones(1))), "model.p is unchanged"),
    "new buffer": (lambda m: m.register_buffer("more", None), "model.more is unchanged"),
    "replaced buffer": (lambda m: setattr(m, "count", dc.zeros(1)), "model.count is unchanged"),
    "new child": (lambda m: m.body.append(nn.ReLU()), "model.body.2 is unchanged"),
    "replaced child": (lambda m: m.body.__setitem__(0, nn.Linear(2, 2)), "model.body.0 is unchanged"),
    "deleted child": (lambda m: m.body.pop(1), "model.body.1 is unchanged"),
    "children in another order": (lambda m: m._modules.move_to_front("alias"), "is unchanged"),
    "registry item set": (lambda m: m._buffers.__setitem__("count", dc.ones(1)), "model.count is unchanged"),
    "registry item popped": (lambda m: m._buffers.pop("count"), "model.count is unchanged"),
    "registry item deleted": (lambda m: m._buffers.__delitem__("count"), "model.count is unchanged"),
    "registry popitem": (lambda m: m._buffers.popitem(), "model.count is unchanged"),
    "registry updated": (lambda m: m._buffers.update(count=dc.ones(1)), "model.count is unchanged"),
    "registry joined": (lambda m: m._buffers.__ior__({"count": dc.ones(1)}), "model.count is unchanged"),
    "registry setdefault": (lambda m: m._buffers.setdefault("more"), "model.more is unchanged"),
    "registry replaced": (lambda m: setattr(m, "_modules", {"body": m.body}), "model.alias is unchanged"),
    "registry cleared": (lambda m: m.body._modules.clear(), "model.body.0 is unchanged"),
    "forward pre-hook": (lambda m: m.register_forward_pre_hook(nothing), "model's forward pre hooks are unchanged"),
    "forward hook of a leaf": (
        lambda m: m.alias.register_forward_hook(nothing),
        "body.0's forward hooks are unchanged",
    ),
    "backward pre-hook": (lambda m: m.register_full_backward_pre_hook(nothing), "backward pre hooks are unchanged"),
    "backward hook": (lambda m: m.body.register_full_backward_hook(nothing), "body's backward hooks are unchanged"),
    "replaced forward": (lambda m: setattr(m.body[1], "forward", lambda x: x), "model.body.1.forward is unchanged"),
    "requires_grad_": (lambda m: m.requires_grad_(False), "model.body.0.weight is unchanged"),
    "dtype": (lambda m: m.double(), "is unchanged"),
    "another class": (lambda m: setattr(m.body[1], "__class__", nn.Identity), "is a Dropout"),
    "the state of a copy": (lambda m: give_state(m.body[1]), "model.body.1 is the same module"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_seen_and_named(change: str) -> None:
    model = Model()
    seen = watch(model)
    make, words = CHANGES[change]
    assert not seen.changed
    make(model)
    assert seen.changed
    assert not seen.still_same()
    assert words in seen.difference
    assert seen.changed
    assert not seen.still_same()  # for as long as it is not taken back


def test_what_happens_elsewhere_is_not_seen() -> None:
    model, other = Model(), Model()
    model(dc.ones(1, 2))
    seen, of_the_top = watch(model), watch_modules([WatchedModule(model, "model")])
    other.eval()
    other.half().factor = 7.0
    other.register_forward_hook(nothing)
    model(dc.ones(1, 2)).sum().backward()
    model.state_dict()
    model.train().zero_grad()
    with dc.no_grad():
        model.alias.weight.add_(1.0)
    assert not seen.changed
    model.body[1].p = 0.1
    assert seen.changed
    assert not of_the_top.changed


def test_what_is_taken_back_leaves_no_trace() -> None:
    model = Model()
    seen = watch(model)

    def settles() -> bool:
        return seen.changed and seen.still_same() and not seen.changed

    model.eval()
    assert not seen.still_same()
    model.train()
    assert settles()
    hook = model.body.register_forward_hook(nothing)
    assert not seen.still_same()
    hook.remove()
    assert settles()
    everywhere = hooks.register_module_forward_pre_hook(nothing)
    assert not seen.still_same()
    assert seen.difference == "every module's global forward pre hooks are unchanged"
    everywhere.remove()
    assert settles()
    model.nan, weight = float("nan"), model.alias.weight
    assert settles()
    model.alias.weight = nn.Parameter(dc.zeros(2, 2))
    assert not seen.still_same()
    model.alias.weight = weight
    assert settles()
    model.requires_grad_(False).requires_grad_(True)
    assert settles()
    model.float()  # as it is
    assert settles()


def test_attributes_that_do_not_matter_may_change() -> None:
    model = Model()
    seen = watch_modules([WatchedModule(model, "model", frozenset({"factor", "alias", "absent", "training"}))])
    model.step = 1
    model.body = nn.Identity()
    model.register_forward_hook(nothing)
    assert seen.changed
    assert seen.still_same()
    model.absent = None
    assert not seen.still_same()
    assert seen.difference == "model.absent is unchanged"
    del model.absent
    model.alias = nn.Linear(2, 2)
    assert not seen.still_same()
    assert seen.difference == "model.alias is unchanged"


def test_culprits_are_modules_that_hold_something_else() -> None:
    model = Model()
    seen = watch(model)
    model.eval().requires_grad_(False).register_forward_hook(nothing)
    hook = hooks.register_module_forward_hook(nothing)
    assert not seen.still_same()
    assert seen.culprits() == []
    model.body[1].p = 0.25
    model.factor = 2.0
    model.alias.new = 1
    assert seen.culprits() == [model, model.body[1]]
    hook.remove()


def test_a_change_during_the_comparison_is_not_lost() -> None:
    class Turning(Watch):
        def find_difference(self) -> str:
            if not self.difference and not turned:
                turned.append(1)
                model.eval()
            return ""

    turned: list[int] = []
    model = nn.Linear(1, 1)
    seen = watch(model)
    turning = Turning()
    nn.versions.add_watch(model._stamp, turning)
    assert turning.still_same()
    assert turning.changed
    assert not seen.still_same()


def test_threads_add_watches_to_one_module_and_each_is_told() -> None:
    model = Model()
    with ThreadPoolExecutor(4) as pool:
        watches = [w for part in pool.map(lambda _: [watch(model) for _ in range(50)], range(4)) for w in part]
    model.alias.factor = 1
    assert all(w.changed for w in watches)


def test_copies_do_not_take_watches_along() -> None:
    model = Model()
    seen = watch(model)
    twin, loaded = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    assert not seen.changed
    for other in (twin, loaded):
        assert other._stamp._watches == ()
        other.factor = 3.0
    assert not seen.changed
    shallow = copy.copy(model)  # shares registries, so it shares their stamp
    shallow.register_parameter("more", None)
    assert not seen.still_same()
    copied: Any = copy.deepcopy(seen)
    assert copied.changed


def test_versions_of_a_shallow_copy_are_its_own() -> None:
    model = Model()
    model.__tree_version__()
    twin = copy.copy(model)
    assert twin.__tree_version__() != model.__tree_version__()


def test_watches_die_with_those_who_made_them_and_keep_nothing_alive() -> None:
    model = Model()
    seen = watch(model)
    gone, module = weakref.ref(seen), weakref.ref(model)
    weight = weakref.ref(model.alias.weight)
    del model
    gc.collect()
    assert module() is None
    assert weight() is None
    del seen
    assert gone() is None


def test_a_module_watched_a_thousand_times_remembers_only_the_living() -> None:
    model = nn.Linear(1, 1)
    for _ in range(1000):
        seen = watch(model)
    assert len(model._stamp._watches) <= 2
    model.eval()
    assert seen.changed


def test_a_module_that_is_gone_is_no_longer_the_same() -> None:
    layer = nn.Linear(1, 1)
    seen = watch(layer)
    layer.eval()
    del layer
    gc.collect()
    assert not seen.still_same()
    assert seen.difference == "model is the same module"


def test_looking_costs_one_comparison_however_many_modules_and_changes_elsewhere() -> None:
    large = nn.Sequential(*(nn.Linear(1, 1) for _ in range(300)))
    small, other = nn.Sequential(nn.ReLU()), nn.ReLU()

    def seconds(model: nn.Module) -> float:
        seen = watch(model)
        return min(timeit.repeat(lambda: (setattr(other, "x", object()), seen.changed), number=1000, repeat=5))

    assert seconds(large) < 5 * seconds(small)
