"""Programs that call backward() where they are compiled, the last of them.

In: `T`, the library, and `wrap`, which compiles a function or leaves it alone. Out: numbers, equal wherever it runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from backward_programs import Wrap, data, mlp, program, state


@program
def func(T: Any, wrap: Wrap) -> Any:

    class F(T.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * x * 3

    m = mlp(T)

    def step(x: Any) -> Any:
        loss = F.apply(m(x)).mean()
        loss.backward()
        return loss

    s = wrap(step)
    return [[s(data(T, i)), *state(m)] for i in range(3)]


@program
def func_twice(T: Any, wrap: Wrap) -> Any:

    class F(T.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * x * 3

    m = mlp(T)

    def step(x: Any) -> Any:
        loss = F.apply(m(x)).mean()
        loss.backward()
        try:
            loss.backward()
        except RuntimeError:
            return "error"
        return loss

    s = wrap(step)
    return [[s(data(T, i)), *state(m)] for i in range(3)]


@program
def partial_spent(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        h = m[0](x)
        a = h.square().mean()
        a.backward()
        b = m[2](h).sum()
        return (a, b)

    s = wrap(step)
    a, b = s(data(T, 0))
    out = [a, b, state(m)]
    try:
        b.backward()
        out.append("none")
    except RuntimeError:
        out.append("error")
    return out


@program
def two_losses(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        h = m[0](x)
        a = h.square().mean()
        b = m[2](h).abs().mean()
        a.backward(retain_graph=True)
        b.backward()
        return a + b

    s = wrap(step)
    return [[s(data(T, i)), *state(m)] for i in range(3)]


@program
def gan(T: Any, wrap: Wrap) -> Any:
    g, d = (mlp(T, 1), mlp(T, 2, n=3))

    def step(z: Any, x: Any) -> Any:
        for p in d.parameters():
            p.grad = None
        f = g(z)
        (d(x).mean() - d(f.detach()).mean()).backward()
        with T.no_grad():
            for p in d.parameters():
                p -= 0.1 * p.grad
        for p in g.parameters():
            p.grad = None
        loss = d(f).mean()
        loss.backward()
        with T.no_grad():
            for p in g.parameters():
                p -= 0.1 * p.grad
        return loss

    s = wrap(step)
    return [[s(data(T, i), data(T, i + 5, n=3)), *state(g), *state(d)] for i in range(4)]


@program
def rnn(T: Any, wrap: Wrap) -> Any:
    c = T.nn.LSTMCell(4, 5)
    rng = np.random.RandomState(0)
    with T.no_grad():
        for p in c.parameters():
            p.copy_(T.tensor(rng.randn(*p.shape).astype("f")))

    def step(x: Any) -> Any:
        h, k = (T.zeros(6, 5), T.zeros(6, 5))
        for _ in range(3):
            h, k = c(x, (h, k))
        h.sum().backward()
        return h

    s = wrap(step)
    return [[s(data(T, i)), *state(c)] for i in range(3)]


@program
def grad_closure(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:

        def closure() -> Any:
            for p in m.parameters():
                p.grad = None
            loss = m(x).square().mean()
            loss.backward()
            return loss

        return closure()

    s = wrap(step)
    return [[s(data(T, i)), *state(m)] for i in range(3)]


@program
def enable_inside_nograd(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        with T.enable_grad():
            loss = m(x).square().mean()
            loss.backward()
        return loss

    s = wrap(step)
    with T.no_grad():
        return [[s(data(T, i)), *state(m)] for i in range(3)]


@program
def grad_view_param(T: Any, wrap: Wrap) -> Any:
    flat = T.nn.Parameter(T.tensor(np.arange(12.0).astype("f")))

    def step(x: Any) -> Any:
        w = flat.view(4, 3)
        loss = (x @ w).square().mean()
        loss.backward()
        return (loss, flat.grad.view(4, 3))

    s = wrap(step)
    return [[*s(data(T, i)), flat.grad] for i in range(3)]


@program
def no_history_error(T: Any, wrap: Wrap) -> Any:

    def step(x: Any) -> Any:
        try:
            x.sum().backward()
        except RuntimeError:
            return "error"
        return "none"

    s = wrap(step)
    return [s(data(T, i)) for i in range(2)]


@program
def not_scalar_error(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        try:
            m(x).backward()
        except RuntimeError:
            return "error"
        return "none"

    s = wrap(step)
    return [s(data(T, i)) for i in range(2)]


@program
def grad_given_before(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any, g: Any) -> Any:
        m[0].weight.grad = g
        loss = m(x).square().mean()
        loss.backward()
        return loss

    s = wrap(step)
    out: list[Any] = []
    for i in range(3):
        g = T.ones(5, 4)
        loss = s(data(T, i), g)
        out.append([loss, g, m[0].weight.grad is g, *state(m)])
    return out


@program
def shared_grad(T: Any, wrap: Wrap) -> Any:
    a, b = (T.nn.Parameter(T.ones(4)), T.nn.Parameter(T.ones(4)))

    def step(x: Any) -> Any:
        loss = (x * a).sum() + 2 * (x * b).sum()
        loss.backward()
        return loss

    s = wrap(step)
    out: list[Any] = []
    s(data(T, 0))
    b.grad = a.grad
    for i in range(3):
        out.append([s(data(T, i)), a.grad, b.grad, a.grad is b.grad])
    return out


@program
def clip_manual(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        m.zero_grad()
        loss = (m(x) * 9).square().mean()
        loss.backward()
        n = T.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        return (loss, n)

    s = wrap(step)
    return [[*s(data(T, i)), *state(m)] for i in range(3)]


@program
def clip_value(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        m.zero_grad()
        loss = (m(x) * 9).square().mean()
        loss.backward()
        T.nn.utils.clip_grad_value_(m.parameters(), 0.1)
        return loss

    s = wrap(step)
    return [[s(data(T, i)), *state(m)] for i in range(3)]


@program
def autocast(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        m.zero_grad()
        with T.autocast("cpu", dtype=T.bfloat16):
            loss = m(x).float().square().mean()
        loss.backward()
        return loss

    s = wrap(step)
    return [[s(data(T, i)), *state(m)] for i in range(3)]
