"""Hooks run in torch's order with torch's arguments: each scenario is run with both packages and logs the same."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import distcompile as dc
from distcompile.nn import hooks as our_hooks

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def registrars(p: Any) -> Any:
    return our_hooks if p is dc else torch.nn.modules.module


def scale(p: Any, factor: float = 2.0) -> Any:
    class Scale(p.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = p.nn.Parameter(p.tensor(factor))

        def forward(self, x: Any, bias: float = 0.0) -> Any:
            if bias < 0:
                raise ValueError("negative bias")
            return x * self.w + bias

    return Scale()


def data(x: Any) -> Any:
    """Tensors as numbers, in any nesting."""
    if isinstance(x, (tuple, list)):
        return [data(y) for y in x]
    if isinstance(x, dict):
        return {k: data(v) for k, v in x.items()}
    return x.detach().tolist() if hasattr(x, "detach") else x


def everything_in_order(p: Any) -> list[Any]:
    g, m, log = registrars(p), scale(p), []
    handles = [
        g.register_module_forward_pre_hook(lambda mod, a: log.append(["global pre", data(a)])),
        g.register_module_forward_hook(lambda mod, a, out: log.append(["global fwd", data(a), data(out)])),
        g.register_module_forward_hook(
            lambda mod, a, k, out: log.append(["global fwd kw", k, data(out)]), with_kwargs=True
        ),
        g.register_module_full_backward_pre_hook(lambda mod, go: log.append(["global bwd pre", data(go)])),
        g.register_module_full_backward_hook(lambda mod, gi, go: log.append(["global bwd", data(gi), data(go)])),
    ]
    m.register_forward_pre_hook(lambda mod, a: log.append(["pre", data(a)]))
    m.register_forward_pre_hook(lambda mod, a, k: log.append(["pre kw", data(a), k]), with_kwargs=True, prepend=True)
    m.register_forward_hook(lambda mod, a, out: log.append(["fwd", data(a), data(out)]))
    m.register_forward_hook(lambda mod, a, k, out: log.append(["fwd kw", k]), with_kwargs=True)
    m.register_forward_hook(lambda mod, a, out: log.append(["fwd first"]), prepend=True)
    m.register_full_backward_pre_hook(lambda mod, go: log.append(["bwd pre", data(go)]))
    m.register_full_backward_pre_hook(lambda mod, go: log.append(["bwd pre first"]), prepend=True)
    m.register_full_backward_hook(lambda mod, gi, go: log.append(["bwd", data(gi), data(go)]))
    m.register_full_backward_hook(lambda mod, gi, go: log.append(["bwd first"]), prepend=True)
    x = p.tensor([1.0, 3.0], requires_grad=True)
    try:
        m(x, bias=0.5).sum().backward()
    finally:
        for handle in handles:
            handle.remove()
    return [log, x.grad.tolist(), m.w.grad.tolist()]


def replacements(p: Any) -> list[Any]:
    m = scale(p)
    m.register_forward_pre_hook(lambda mod, a: a[0] + 1)
    m.register_forward_pre_hook(lambda mod, a, k: ((a[0] * 10,), {"bias": 7.0}), with_kwargs=True)
    m.register_forward_hook(lambda mod, a, out: out * 2)
    m.register_forward_hook(lambda mod, a, out: out + 1)
    m.register_full_backward_pre_hook(lambda mod, go: (go[0] * 3,))
    m.register_full_backward_hook(lambda mod, gi, go: (gi[0] * 5,))
    x = p.tensor([1.0, 3.0], requires_grad=True)
    out = m(x)
    out.sum().backward()
    return [out.tolist(), x.grad.tolist(), m.w.grad.tolist()]


def errors_and_always_call(p: Any) -> list[Any]:
    m, log = scale(p), []
    m.register_forward_hook(lambda mod, a, out: log.append(["always", data(a), out is None]), always_call=True)
    m.register_forward_hook(lambda mod, a, out: log.append(["only after success"]))

    def broken(mod: Any, a: Any, out: Any) -> None:
        raise RuntimeError("in the hook")

    for hook in (None, broken):
        if hook is not None:
            m.register_forward_hook(hook, always_call=True)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                m(p.ones(1), bias=-1.0)
            except ValueError as error:
                log.append([str(error), [str(w.message)[-11:] for w in caught]])
    return log


def wrong_returns(p: Any) -> list[Any]:
    log = []

    def first_line(action: Callable[[], Any]) -> None:
        try:
            action()
        except RuntimeError as error:
            log.append(str(error).splitlines()[0][:60])

    m = scale(p)
    with m.register_forward_pre_hook(lambda mod, a, k: 3, with_kwargs=True):
        first_line(lambda: m(p.ones(1)))
    with m.register_full_backward_hook(lambda mod, gi, go: (gi[0], gi[0])):
        first_line(lambda: m(p.ones(1, requires_grad=True)).sum().backward())
    with m.register_full_backward_pre_hook(lambda mod, go: (go[0], go[0])):
        first_line(lambda: m(p.ones(1, requires_grad=True)).sum().backward())
    return [*log, m(p.ones(1)).tolist()]


def several_inputs_and_outputs(p: Any) -> list[Any]:
    class Pair(p.nn.Module):
        def forward(self, a: Any, n: int, b: Any) -> Any:
            return a * b, n, a + b

    m, log = Pair(), []
    m.register_full_backward_pre_hook(lambda mod, go: log.append(["pre", data(go)]))
    m.register_full_backward_hook(lambda mod, gi, go: log.append([data(gi), data(go)]))
    a, b = p.tensor([2.0], requires_grad=True), p.tensor([5.0], requires_grad=True)
    first, n, second = m(a, 3, b)
    (first + 2 * second).sum().backward()
    return [log, n, a.grad.tolist(), b.grad.tolist()]


def no_input_needs_a_gradient(p: Any) -> list[Any]:
    m, log = scale(p), []
    m.register_full_backward_hook(lambda mod, gi, go: log.append([data(gi), data(go)]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        m(p.ones(2)).sum().backward()
        with p.no_grad():
            m(p.ones(2))
    return [log, m.w.grad.tolist()]


def nested(p: Any) -> list[Any]:
    inner, log = p.nn.Sequential(scale(p, 2.0), scale(p, 3.0)), []
    for name, m in inner.named_modules():
        m.register_forward_pre_hook(lambda mod, a, n=name: log.append(["pre", n, data(a)]))
        m.register_forward_hook(lambda mod, a, o, n=name: log.append(["fwd", n, data(o)]))
        m.register_full_backward_pre_hook(lambda mod, go, n=name: log.append(["bwd pre", n, data(go)]))
        m.register_full_backward_hook(lambda mod, gi, go, n=name: log.append(["bwd", n, data(gi), data(go)]))
    x = p.tensor([1.0], requires_grad=True)
    for _ in range(2):
        inner(x).sum().backward()
    return [log, x.grad.tolist()]


def registration(p: Any) -> list[Any]:
    g, log = registrars(p), []
    handles = [
        g.register_module_parameter_registration_hook(lambda mod, n, x: log.append(["parameter", n])),
        g.register_module_buffer_registration_hook(lambda mod, n, x: log.append(["buffer", n])),
        g.register_module_module_registration_hook(lambda mod, n, x: log.append(["module", n])),
    ]
    try:
        m = p.nn.Sequential(p.nn.Linear(1, 1))
        m.register_buffer("b", p.ones(1))
        m.w = p.nn.Parameter(p.ones(1))
    finally:
        for handle in handles:
            handle.remove()
    m.register_buffer("unseen", None)
    return log


SCENARIOS = [
    everything_in_order, replacements, errors_and_always_call, wrong_returns, several_inputs_and_outputs,
    no_input_needs_a_gradient, nested, registration,
]  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.__name__)
def test_same_story_as_torch(scenario: Callable[[Any], Any]) -> None:
    assert scenario(dc) == scenario(torch)
