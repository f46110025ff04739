"""Hooks of compiled modules tell the same story as torch's eager ones: names, order, values, at every call.

Each story runs in torch, then compiled here on every backend, three calls; `fullgraph` where hooks only log in the
backward: then the hooks run between segments of one compiled backward.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.capture import compile
from distcompile.nn import hooks as our_hooks
from tests.sharing import some

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

BACKENDS = ["eager", "aot_eager", "codegen"]
Log = list[Any]
Story = Callable[[Any, Callable[[Any], Any]], Log]


def data(x: Any) -> Any:
    """Tensors as rounded numbers, in any nesting."""
    if isinstance(x, (tuple, list)):
        return [data(y) for y in x]
    if isinstance(x, dict):
        return {k: data(v) for k, v in x.items()}
    return np.round(np.asarray(x.detach().tolist()), 4).tolist() if hasattr(x, "detach") else x


def values(p: Any, shape: tuple[int, ...], seed: int) -> Any:
    """Numbers from which neither package differs in the digits that are compared."""
    return p.tensor((np.random.default_rng(seed).integers(-8, 9, shape) / 8.0).astype(np.float32).tolist())


def fill(p: Any, module: Any) -> Any:
    with p.no_grad():
        for k, parameter in enumerate(module.parameters()):
            parameter.copy_(values(p, tuple(parameter.shape), k + 1))
    return module


def net(p: Any) -> Any:
    """Nested: (linear, (tanh, linear), relu, linear)."""
    inner = p.nn.Sequential(p.nn.Tanh(), p.nn.Linear(4, 4))
    return fill(p, p.nn.Sequential(p.nn.Linear(3, 4), inner, p.nn.ReLU(), p.nn.Linear(4, 2)))


def steps(p: Any, module: Any, call: Any, log: Log, *, count: int = 3) -> Log:
    """Three calls with their backwards; parameters' gradients and the input's go into the log."""
    for number in range(count):
        log.append(f"call {number}")
        x = values(p, (2, 3), 10 + number).requires_grad_()
        module.zero_grad()
        call(x).sum().backward()
        log.append(data([x.grad, *(parameter.grad for parameter in module.parameters())]))
    return log


def registrars(p: Any) -> Any:
    return our_hooks if p is dc else torch.nn.modules.module


@contextmanager
def removed_after(handles: list[Any]) -> Iterator[None]:
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


# -- stories that log in the backward only


def every_module_twice(p: Any, compiled: Callable[[Any], Any]) -> Log:
    module, log = net(p), []
    for name, part in module.named_modules():
        part.register_full_backward_pre_hook(lambda m, go, n=name: log.append(["pre", n, data(go)]))
        part.register_full_backward_hook(lambda m, gi, go, n=name: log.append(["full", n, data(gi), data(go)]))
        part.register_full_backward_hook(lambda m, gi, go, n=name: log.append(["first", n]), prepend=True)
        part.register_full_backward_pre_hook(lambda m, go, n=name: log.append(["pre first", n]), prepend=True)
    return steps(p, module, compiled(module), log)


def global_and_local(p: Any, compiled: Callable[[Any], Any]) -> Log:
    module, log, g = net(p), [], registrars(p)
    names = {id(part): name for name, part in module.named_modules()}
    module[1].register_full_backward_hook(lambda m, gi, go: log.append(["local", data(gi), data(go)]))
    module[1].register_full_backward_pre_hook(lambda m, go: log.append(["local pre", data(go)]))
    handles = [
        g.register_module_full_backward_pre_hook(lambda m, go: log.append(["global pre", names[id(m)], data(go)])),
        g.register_module_full_backward_hook(lambda m, gi, go: log.append(["global", names[id(m)], data(gi)])),
    ]
    with removed_after(handles):
        return steps(p, module, compiled(module), log)


def replacements_by_data(p: Any, compiled: Callable[[Any], Any]) -> Log:
    module, log = net(p), []

    def clip(m: Any, gi: Any, go: Any) -> Any:
        norm = float(gi[0].abs().sum().item())
        log.append(round(norm, 3))
        return (gi[0] / 2 if norm > 0.5 else gi[0] * 4,)

    module[1].register_full_backward_hook(clip)
    module[3].register_full_backward_pre_hook(lambda m, go: (go[0] * len(log) + 1,))
    module[2].register_full_backward_hook(lambda m, gi, go: None)
    return steps(p, module, compiled(module), log)


def forward_hooks_beside(p: Any, compiled: Callable[[Any], Any]) -> Log:
    """Forward hooks that compute, and full backward hooks, on the same module and on others."""
    module, log = net(p), []
    for name, part in module.named_modules():
        part.register_full_backward_pre_hook(lambda m, go, n=name: log.append(["pre", n, data(go)]))
        part.register_full_backward_hook(lambda m, gi, go, n=name: log.append(["full", n, data(gi), data(go)]))
    module.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    module.register_forward_hook(lambda m, args, out: out + args[0].sum())
    module[0].register_forward_pre_hook(lambda m, args, kwargs: ((args[0] + 1,), kwargs), with_kwargs=True)
    module[0].register_forward_hook(lambda m, args, out: out * out, prepend=True)
    module[1].register_forward_hook(lambda m, args, kwargs, out: (out + args[0],)[0], with_kwargs=True)
    module[2].register_forward_hook(lambda m, args, out: out.clone(), always_call=True)
    return steps(p, module, compiled(module), log)


def no_input_needs_a_gradient(p: Any, compiled: Callable[[Any], Any]) -> Log:
    module, log = net(p), []
    module[0].register_full_backward_hook(lambda m, gi, go: log.append([data(gi), data(go)]))
    call = compiled(module)
    for number in range(3):
        module.zero_grad()
        call(values(p, (2, 3), number)).sum().backward()
        log.append(data([parameter.grad for parameter in module.parameters()]))
    return log


def several_in_and_out(p: Any, compiled: Callable[[Any], Any]) -> Log:
    class Pair(p.nn.Module):
        def forward(self, a: Any, n: int, b: Any, unused: Any) -> Any:
            return a * b, n, a + b, b * 3

    class Whole(p.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pair = Pair()

        def forward(self, a: Any, b: Any) -> Any:
            first, _, second, _ = self.pair(a, 3, b, a)
            return first + 2 * second

    module, log = Whole(), []
    module.pair.register_full_backward_pre_hook(lambda m, go: log.append(["pre", data(go)]))
    module.pair.register_full_backward_hook(lambda m, gi, go: log.append(["full", data(gi), data(go)]))
    call = compiled(module)
    for number in range(3):
        a, b = values(p, (2,), number).requires_grad_(), values(p, (2,), number + 5).requires_grad_()
        call(a, b).sum().backward()
        log.append(data([a.grad, b.grad]))
    return log


def heads_of_which_one_is_used(p: Any, compiled: Callable[[Any], Any]) -> Log:
    class Heads(p.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.left, self.right = p.nn.Linear(3, 3), p.nn.Linear(3, 2), p.nn.Linear(3, 2)

        def forward(self, x: Any) -> Any:
            h = self.body(x)
            return self.left(h), self.right(h)

    module, log = fill(p, Heads()), []
    for name, part in module.named_modules():
        part.register_full_backward_pre_hook(lambda m, go, n=name: log.append(["pre", n, data(go)]))
        part.register_full_backward_hook(lambda m, gi, go, n=name: log.append(["full", n, data(gi), data(go)]))
    call = compiled(module)
    for used in ([0], [1], [0, 1], [0]):
        x = values(p, (2, 3), 3).requires_grad_()
        module.zero_grad()
        outputs = call(x)
        sum(outputs[k].sum() for k in used).backward()
        log.append(data([x.grad, *(parameter.grad for parameter in module.parameters())]))
    return log


def two_forwards_then_two_backwards(p: Any, compiled: Callable[[Any], Any]) -> Log:
    module, log = net(p), []
    module[1].register_full_backward_pre_hook(lambda m, go: log.append(["pre", data(go)]))
    module[1].register_full_backward_hook(lambda m, gi, go: log.append(["full", data(gi), data(go)]))
    call = compiled(module)
    for first in (0, 1):
        xs = [values(p, (2, 3), k).requires_grad_() for k in range(2)]
        outs = [call(x) for x in xs]
        outs[first].sum().backward(retain_graph=True)
        (3 * outs[1 - first]).sum().backward()
        outs[first].sum().backward()
        log.append(data([x.grad for x in xs]))
    return log


def a_module_called_twice(p: Any, compiled: Callable[[Any], Any]) -> Log:
    class Twice(p.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = p.nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            return self.layer(self.layer(x).tanh())

    module, log = fill(p, Twice()), []
    module.layer.register_full_backward_pre_hook(lambda m, go: log.append(["pre", data(go)]))
    module.layer.register_full_backward_hook(lambda m, gi, go: log.append(["full", data(gi), data(go)]))
    return steps(p, module, compiled(module), log)


def hooks_on_parameters_and_tensors_between(p: Any, compiled: Callable[[Any], Any]) -> Log:
    """Every kind of hook in its turn; an optimizer step inside one."""

    class Whole(p.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = p.nn.Linear(3, 4), p.nn.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            h = self.up(x)
            h.register_hook(lambda g: log.append(["h", data(g)]))
            h = h.tanh()
            h.register_hook(lambda g: g * 2)
            return self.down(h)

    module, log = fill(p, Whole()), []
    for name, part in module.named_modules():
        part.register_full_backward_pre_hook(lambda m, go, n=name: log.append(["pre", n, data(go)]))
        part.register_full_backward_hook(lambda m, gi, go, n=name: log.append(["full", n, data(gi), data(go)]))

    def update(weight: Any) -> None:
        log.append(["step", data(weight.grad)])
        with p.no_grad():
            weight -= weight.grad / 8

    for name, parameter in module.named_parameters():
        parameter.register_hook(lambda g, n=name: log.append([n, data(g)]))
    module.down.weight.register_post_accumulate_grad_hook(update)
    module.up.weight.register_post_accumulate_grad_hook(update)
    return steps(p, module, compiled(module), log)


def hooks_that_come_and_go(p: Any, compiled: Callable[[Any], Any]) -> Log:
    module, log = net(p), []
    call = compiled(module)
    steps(p, module, call, log, count=1)
    handle = module[2].register_full_backward_hook(lambda m, gi, go: log.append(["a", data(gi)]))
    steps(p, module, call, log, count=2)
    other = module[2].register_full_backward_pre_hook(lambda m, go: (go[0] * 2,))
    steps(p, module, call, log, count=2)
    handle.remove()
    steps(p, module, call, log, count=2)
    other.remove()
    return steps(p, module, call, log, count=1)


def one_that_raises(p: Any, compiled: Callable[[Any], Any]) -> Log:
    module, log, fails = net(p), [], [False]

    def hook(m: Any, gi: Any, go: Any) -> None:
        if fails[0]:
            raise ZeroDivisionError("in the hook")
        log.append(data(gi))

    module[1].register_full_backward_hook(hook)
    call = compiled(module)
    for fail in (False, True, False):
        fails[0] = fail
        try:
            steps(p, module, call, log, count=1)
        except ZeroDivisionError as error:
            log.append(str(error))
    return log


BACKWARD_STORIES: list[Story] = [
    every_module_twice, global_and_local, replacements_by_data, forward_hooks_beside, no_input_needs_a_gradient,
    several_in_and_out, heads_of_which_one_is_used, two_forwards_then_two_backwards, a_module_called_twice,
    hooks_on_parameters_and_tensors_between, hooks_that_come_and_go, one_that_raises,
]  # fmt: skip


# -- stories that log in the forward too


def everything(p: Any, compiled: Callable[[Any], Any]) -> Log:
    module, log, g = net(p), [], registrars(p)
    names = {id(part): name for name, part in module.named_modules()}
    for name, part in module.named_modules():
        part.register_forward_pre_hook(lambda m, a, n=name: log.append(["fwd pre", n, data(a)]))
        part.register_forward_pre_hook(
            lambda m, a, k, n=name: log.append(["fwd pre kw first", n, data(k)]), with_kwargs=True, prepend=True
        )
        part.register_forward_hook(lambda m, a, o, n=name: log.append(["fwd", n, data(o)]))
        part.register_forward_hook(lambda m, a, k, o, n=name: log.append(["kw", n, data(k)]), with_kwargs=True)
        part.register_forward_hook(lambda m, a, o, n=name: log.append(["always", n]), always_call=True, prepend=True)
        part.register_full_backward_pre_hook(lambda m, go, n=name: log.append(["pre", n, data(go)]))
        part.register_full_backward_hook(lambda m, gi, go, n=name: log.append(["full", n, data(gi), data(go)]))
    handles = [
        g.register_module_forward_pre_hook(lambda m, a: log.append(["global fwd pre", names[id(m)]])),
        g.register_module_forward_hook(lambda m, a, o: log.append(["global fwd", names[id(m)]])),
        g.register_module_full_backward_pre_hook(lambda m, go: log.append(["global pre", names[id(m)], data(go)])),
        g.register_module_full_backward_hook(lambda m, gi, go: log.append(["global", names[id(m)], data(gi)])),
    ]
    with removed_after(handles):
        return steps(p, module, compiled(module), log, count=2)


_torchs: dict[str, Log] = {}


def torchs(story: Story) -> Log:
    """What torch's eager says."""
    if story.__name__ not in _torchs:
        _torchs[story.__name__] = story(torch, lambda module: module)
    return _torchs[story.__name__]


def same(ours: Any, theirs: Any, path: str = "") -> None:
    """Equal, numbers nearly: the last digit that is compared may be rounded either way."""
    if isinstance(ours, list) and isinstance(theirs, list):
        for k, (a, b) in enumerate(itertools.zip_longest(ours, theirs, fillvalue="nothing")):
            same(a, b, f"{path}[{k}]")
    elif isinstance(ours, float) and isinstance(theirs, float):
        assert ours == pytest.approx(theirs, abs=3e-4, rel=1e-4), path
    else:
        assert ours == theirs, path


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("story", BACKWARD_STORIES, ids=lambda s: s.__name__)
def test_backward_hooks_run_in_torchs_order_inside_one_graph(story: Story, backend: str) -> None:
    same(story(dc, lambda module: compile(module, backend=backend, fullgraph=True)), torchs(story))


@pytest.mark.filterwarnings("ignore:Full backward hook is firing", "ignore:.*runs eager")
@pytest.mark.parametrize("backend", some(["aot_eager", "eager"], 1))
@pytest.mark.parametrize("story", [everything], ids=lambda s: s.__name__)
def test_all_hooks_run_in_torchs_order(story: Story, backend: str) -> None:
    same(story(dc, lambda module: compile(module, backend=backend)), torchs(story))


# uncompiled, a linear layer is one node, which gives its weight and its bias their gradients at the same time
UNCOMPILED = [story for story in BACKWARD_STORIES if story is not hooks_on_parameters_and_tensors_between]


@pytest.mark.parametrize("story", [*UNCOMPILED, everything], ids=lambda s: s.__name__)
def test_uncompiled_too(story: Story) -> None:
    same(story(dc, lambda module: module), torchs(story))
