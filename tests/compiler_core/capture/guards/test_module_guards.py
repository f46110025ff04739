"""Guards on the modules that captured code visits: few, quick, and none too few."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.config import config
from distcompile import nn

Change = Callable[[Any], Any]


def double(module: Any, args: Any, out: Any) -> Any:
    return out * 2


def triple(module: Any, args: Any, out: Any) -> Any:
    return out * 3


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.scale = 2.0

    def forward(self, x: Any) -> Any:
        return self.inner(x) * self.scale


class Counting(Plain):
    """Changes an attribute of its own at every call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return self.inner(x) * self.calls * self.scale


class Caching(Plain):
    """Has an attribute from the first call on."""

    def forward(self, x: Any) -> Any:
        if not hasattr(self, "cache"):
            self.cache = x * 2
        return self.inner(x) + self.cache


class Hooking(Plain):
    """Changes a registry that it has read before."""

    def forward(self, x: Any) -> Any:
        handle = self.inner.register_forward_hook(double)
        out = self.inner(x)
        handle.remove()
        return out


class Collecting(Plain):
    """Has one buffer more after every call."""

    def forward(self, x: Any) -> Any:
        count = len(self._buffers)
        self.register_buffer(f"b{count}", x * count)
        return self.inner(x) + sum(self._buffers.values())


CHANGES: dict[str, Change] = {
    "nothing": lambda m: None,
    "a hook": lambda m: setattr(m, "h", m.register_forward_hook(double)),
    "a hook further down": lambda m: setattr(m, "hi", m.inner.register_forward_hook(triple)),
    "a hook removed": lambda m: m.h.remove(),
    "an attribute": lambda m: setattr(m, "scale", 3.0),
    "a parameter": lambda m: setattr(m.inner, "weight", nn.Parameter(dc.ones(3, 3))),
    "a child": lambda m: setattr(m, "inner", nn.Identity()),
    "data": lambda m: [setattr(p, "data", p.detach() + 1) for p in m.parameters()],
    "dtype": lambda m: m.double(),
    "and back": lambda m: m.float(),
    "mode": lambda m: m.eval(),
    "a hook on all modules": lambda m: EVERYWHERE.append(nn.modules.module.register_module_forward_hook(double)),
    "none on all modules": lambda m: EVERYWHERE.pop().remove() if EVERYWHERE else None,
    "a deleted attribute": lambda m: delattr(m, "cache") if hasattr(m, "cache") else None,
}
EVERYWHERE: list[Any] = []


def entries(compiled: Any) -> int:
    return len(compiled._state.root.entries)


def same(module: Any, compiled: Any, x: Any) -> None:
    np.testing.assert_allclose(module(x).detach().numpy(), compiled(x).detach().numpy(), rtol=1e-5)


def change_both(change: str, module: Any, twin: Any) -> None:
    CHANGES[change](module)
    if "all modules" not in change:
        CHANGES[change](twin)


@pytest.mark.parametrize("kind", [Plain, Counting, Caching, Hooking, Collecting])
@pytest.mark.parametrize("first", [None, "mode"])
def test_after_every_change_compiled_is_eager(kind: type[nn.Module], first: str | None) -> None:
    module = kind()
    twin = copy.deepcopy(module)
    compiled = dc.compile(twin, backend="aot_eager")
    order = [first] if first else []
    with config.patch(recompile_limit=200):
        for change in (*order, *CHANGES):
            change_both(change, module, twin)
            x = dc.ones(2, 3, dtype=next(iter(module.parameters()), dc.ones(1)).dtype)
            for _ in range(3):
                same(module, compiled, x)


def test_what_the_code_does_not_read_does_not_recompile() -> None:
    module = Plain()
    compiled = dc.compile(module, backend="aot_eager", fullgraph=True)
    x = dc.ones(2, 3)
    for step in range(5):
        module.step = step
        module.inner.register_buffer("unused", dc.ones(step))
        module.eval().train()
        same(module, compiled, x)
    assert entries(compiled) == 1


def test_a_hook_added_and_removed_fits_what_was_compiled_before() -> None:
    module = Plain()
    compiled = dc.compile(module, backend="aot_eager", fullgraph=True)
    x = dc.ones(2, 3)
    for _ in range(2):
        same(module, compiled, x)
        handle = module.inner.register_forward_hook(double)
        same(module, compiled, x)
        handle.remove()
    assert entries(compiled) <= 3


def test_assigning_data_at_every_step_compiles_twice() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    twin = copy.deepcopy(module)
    compiled = dc.compile(twin, backend="aot_eager", fullgraph=True)
    x = dc.randn(5, 3)
    for _ in range(6):
        for model, call in ((module, module), (twin, compiled)):
            model.zero_grad()
            call(x).square().sum().backward()
            for p in model.parameters():
                p.data = p.data - 0.1 * p.grad
        np.testing.assert_allclose(twin[0].weight.detach().numpy(), module[0].weight.detach().numpy(), rtol=1e-5)
    assert len(compiled.explain().entries) == 2


def test_facts_of_a_parameter_that_no_op_reads_are_guarded() -> None:
    class Facts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(dc.ones(3))

        def forward(self, x: Any) -> Any:
            return x.to(self.w.dtype) * self.w.shape[0] if self.w.requires_grad else x

    module = Facts()
    compiled = dc.compile(module, backend="aot_eager", fullgraph=True)
    x = dc.ones(3, dtype=dc.float64)
    for change in (
        lambda: None,
        lambda: setattr(module.w, "data", dc.ones(3).half()),
        lambda: setattr(module.w, "data", dc.ones(2)),
        lambda: module.w.requires_grad_(False),
    ):
        change()
        assert compiled(x).dtype is module(x).dtype
        assert compiled(x).tolist() == module(x).tolist()


READERS: dict[str, Callable[[Any, Any], Any]] = {
    "repr": lambda m, x: x * len(repr(m)),
    "parameters": lambda m, x: x * sum(p.numel() for p in m.parameters()),
    "state dict": lambda m, x: x * len(list(m.modules())) * len(m.state_dict()),
    "modes": lambda m, x: x * sum(1 for _ in filter(lambda part: part.training, m.modules())),
    "names": lambda m, x: x * sum(len(name) for name, _ in m.named_modules()),
}


@pytest.mark.parametrize("what", READERS)
def test_what_reads_a_whole_module_sees_all_of_it(what: str) -> None:
    function = READERS[what]
    module = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.1))
    compiled = dc.compile(function, backend="aot_eager")
    x = dc.ones(1)
    for change in (
        lambda: None,
        lambda: module.append(nn.Linear(3, 4)),
        lambda: setattr(module[1], "p", 0.25),
        lambda: module[1].eval(),
        lambda: setattr(module[0], "bias", None),
        lambda: module[0].register_buffer("more", dc.ones(2)),
    ):
        change()
        for _ in range(2):
            assert compiled(module, x).item() == function(module, x).item()


def test_guards_do_not_grow_with_the_model() -> None:
    def guards(depth: int) -> int:
        model = nn.Sequential(*(nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3), nn.Dropout(0.1)) for _ in range(depth)))
        for block in model:
            block.register_forward_hook(lambda module, args, out: None)
        compiled = dc.compile(model, backend="eager", fullgraph=True)
        compiled(dc.ones(2, 3))
        ((_, entry),) = compiled._state.root.entries
        return len(entry.captured.guards.lines)

    assert guards(2) == guards(12)


def test_compiled_modules_die_with_their_watches() -> None:
    shared = nn.Linear(3, 3)
    alive: list[Any] = []
    for _ in range(5):
        model = nn.Sequential(shared, nn.Linear(3, 3))
        compiled = dc.compile(model, backend="aot_eager")
        compiled(dc.ones(2, 3))
        alive += [weakref.ref(model), weakref.ref(model[1]), weakref.ref(compiled)]
        assert shared._stamp._watches
        del model, compiled
        gc.collect()
    assert all(one() is None for one in alive)
    dc.compile(shared, backend="aot_eager")(dc.ones(2, 3))
    gc.collect()
    assert all(one() is None for one in shared._stamp._watches)
    assert len(shared._stamp._watches) <= 2
