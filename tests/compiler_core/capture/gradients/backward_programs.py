"""Programs that call backward() where they are compiled, each for any library with torch's names.

In: `T`, the library, and `wrap`, which compiles a function or leaves it alone. Out: numbers, equal wherever it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]
Program = Callable[[Any, Wrap], Any]
PROGRAMS: dict[str, Program] = {}
BREAKING: set[str] = set()  # of which some part cannot be in one graph


def program(function: Program) -> Program:
    PROGRAMS[function.__name__] = function
    return function


def breaks(function: Program) -> Program:
    BREAKING.add(function.__name__)
    return program(function)


def mlp(T: Any, seed: int = 0, n: int = 4) -> Any:
    rng = np.random.RandomState(seed)
    m = T.nn.Sequential(T.nn.Linear(n, 5), T.nn.Tanh(), T.nn.Linear(5, 3))
    with T.no_grad():
        for p in m.parameters():
            p.copy_(T.tensor(rng.randn(*p.shape).astype("f")))
    return m


def data(T: Any, i: int, b: int = 6, n: int = 4) -> Any:
    return T.tensor(np.random.RandomState(100 + i).randn(b, n).astype("f"))


def show(v: Any) -> Any:
    if isinstance(v, (list, tuple)):
        return [show(x) for x in v]
    return v.detach().numpy().copy() if hasattr(v, "detach") else v


def state(m: Any) -> list[Any]:
    return [show(p) for p in m.parameters()] + [show(p.grad) for p in m.parameters()]


@program
def basic(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        for p in m.parameters():
            p.grad = None
        loss = m(x).square().mean()
        loss.backward()
        return loss

    s = wrap(step)
    return [[s(data(T, i)), *state(m)] for i in range(4)]


@program
def accumulate(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        loss = m(x).square().mean()
        loss.backward()
        return loss

    s = wrap(step)
    out: list[Any] = []
    for i in range(6):
        out.append([s(data(T, i)), *state(m)])
        if i == 3:
            for p in m.parameters():
                p.grad = None
    return out


@program
def alias(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        loss = m(x).square().mean()
        loss.backward()
        return loss

    s = wrap(step)
    out: list[Any] = []
    s(data(T, 0))
    held = [p.grad for p in m.parameters()]
    for i in range(4):
        s(data(T, i))
        out.append([p.grad is h for p, h in zip(m.parameters(), held)] + held)
    m.zero_grad(set_to_none=False)
    out.append(list(held))
    s(data(T, 9))
    out.append(held + [p.grad is h for p, h in zip(m.parameters(), held)])
    m.zero_grad()
    s(data(T, 9))
    out.append(held + [p.grad is h for p, h in zip(m.parameters(), held)])
    return out


@program
def retain_twice(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        loss = m(x).square().mean()
        loss.backward(retain_graph=True)
        loss.backward()
        return loss

    s = wrap(step)
    return [[s(data(T, i)), *state(m)] for i in range(3)]


@program
def twice_error(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        loss = m(x).square().mean()
        loss.backward()
        loss.backward()
        return loss

    s = wrap(step)
    out: list[Any] = []
    for i in range(2):
        try:
            s(data(T, i))
            out.append("none")
        except RuntimeError as e:
            out.append("second time" in str(e))
        out.append(state(m)[:4])
    return out


@program
def outside_after(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        loss = m(x).square().mean()
        loss.backward()
        return loss

    s = wrap(step)
    loss = s(data(T, 0))
    out = [loss.requires_grad, loss.is_leaf, loss.grad_fn is not None]
    try:
        loss.backward()
        out.append("none")
    except RuntimeError as e:
        out.append("second time" in str(e))
    return out


@program
def retained_outside(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        loss = m(x).square().mean()
        loss.backward(retain_graph=True)
        return loss

    s = wrap(step)
    out: list[Any] = []
    for i in range(3):
        loss = s(data(T, i))
        loss.backward()
        out.append(state(m))
    return out


@program
def frozen(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    m[0].weight.requires_grad_(False)

    def step(x: Any) -> Any:
        loss = m(x).square().mean()
        loss.backward()
        return loss

    s = wrap(step)
    out = [[s(data(T, i)), *state(m)] for i in range(2)]
    m[0].weight.requires_grad_(True)
    m[2].bias.requires_grad_(False)
    return out + [[s(data(T, i)), *state(m)] for i in range(2)]


@program
def freeze_inside(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        y = m(x)
        m[0].weight.requires_grad_(False)
        y.square().mean().backward()
        m[0].weight.requires_grad_(True)
        return y.detach()

    s = wrap(step)
    return [[s(data(T, i)), *state(m)] for i in range(2)]


@program
def unused(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    w = T.nn.Parameter(T.ones(3))

    def step(x: Any) -> Any:
        z = w * 2
        loss = m(x).square().mean()
        loss.backward()
        return (loss, z)

    s = wrap(step)
    return [[*s(data(T, i)), w.grad, *state(m)] for i in range(3)]


@program
def round_zero(T: Any, wrap: Wrap) -> Any:
    w = T.nn.Parameter(T.ones(4))

    def step(x: Any) -> Any:
        loss = T.round(w * x).sum() + x.sum()
        loss.backward()
        return loss

    s = wrap(step)
    return [[s(data(T, i)), w.grad] for i in range(3)]


@program
def nograd_region(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        with T.no_grad():
            t = m(x) * 2
        loss = (m(x) - t).square().mean()
        loss.backward()
        return loss

    s = wrap(step)
    return [[s(data(T, i)), *state(m)] for i in range(3)]


@program
def manual_sgd(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        loss = m(x).square().mean()
        loss.backward()
        with T.no_grad():
            for p in m.parameters():
                p -= 0.1 * p.grad
                p.grad = None
        return loss

    s = wrap(step)
    return [[s(data(T, i)), *state(m)] for i in range(5)]


@program
def manual_sgd_twice(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        for _ in range(2):
            loss = m(x).square().mean()
            loss.backward()
            with T.no_grad():
                for p in m.parameters():
                    p.add_(p.grad, alpha=-0.1)
                    p.grad.zero_()
        return (loss, m(x).sum())

    s = wrap(step)
    out: list[Any] = []
    for i in range(4):
        loss, y = s(data(T, i))
        y.backward()
        out.append([loss, *state(m)])
        m.zero_grad()
    return out


@program
def data_sgd(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        loss = m(x).square().mean()
        loss.backward()
        for p in m.parameters():
            p.data -= 0.1 * p.grad.data
            p.grad = None
        return loss

    s = wrap(step)
    return [[s(data(T, i)), *state(m)] for i in range(5)]


@program
def reads_grad(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        for p in m.parameters():
            p.grad = None
        loss = m(x).square().mean()
        loss.backward()
        return ([p.grad for p in m.parameters()], sum(p.grad.norm() for p in m.parameters()))

    s = wrap(step)
    out: list[Any] = []
    for i in range(3):
        g, n = s(data(T, i))
        out.append([n, g, [a is p.grad for a, p in zip(g, m.parameters())], [a.requires_grad for a in g]])
    return out


@program
def given_gradient(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any, g: Any) -> Any:
        y = m(x)
        y.backward(g)
        return y

    s = wrap(step)
    return [[s(data(T, i), data(T, i + 7, n=3)), *state(m)] for i in range(3)]


@program
def multi_roots(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any, g: Any) -> Any:
        y = m(x)
        T.autograd.backward([y, y.sum()], [g, None])
        return y

    s = wrap(step)
    return [[s(data(T, i), data(T, i + 7, n=3)), *state(m)] for i in range(3)]


@program
def inputs_only(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        loss = m(x).square().mean()
        loss.backward(inputs=[m[0].weight, m[2].bias])
        return loss

    s = wrap(step)
    return [[s(data(T, i)), *state(m)] for i in range(3)]


@program
def input_grad(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        loss = m(x).square().mean()
        loss.backward()
        return x.grad

    s = wrap(step)
    out: list[Any] = []
    for i in range(3):
        x = data(T, i).requires_grad_()
        g = s(x)
        out.append([g, g is x.grad, x.grad])
    return out


@program
def agrad(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        loss = m(x).square().mean()
        g = T.autograd.grad(loss, list(m.parameters()))
        return (loss, g)

    s = wrap(step)
    out: list[Any] = []
    for i in range(3):
        loss, g = s(data(T, i))
        out.append([loss, g, [a.requires_grad for a in g], state(m)])
    return out


@program
def agrad_unused(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    w = T.nn.Parameter(T.ones(2))

    def step(x: Any) -> Any:
        loss = m(x).square().mean()
        g = T.autograd.grad(loss, [m[0].weight, w], allow_unused=True)
        return g

    s = wrap(step)
    return [s(data(T, i)) for i in range(2)]
