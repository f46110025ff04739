"""More programs that call backward() where they are compiled: hooks, what breaks, models.

In: `T`, the library, and `wrap`, which compiles a function or leaves it alone. Out: numbers, equal wherever it runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from backward_programs import Wrap, breaks, data, mlp, program, state


@program
def agrad_unused_error(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    w = T.nn.Parameter(T.ones(2))

    def step(x: Any) -> Any:
        loss = m(x).square().mean()
        try:
            return T.autograd.grad(loss, [m[0].weight, w])
        except RuntimeError:
            return "error"

    s = wrap(step)
    return [s(data(T, i)) for i in range(2)]


@program
def penalty(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        y = m(x).sum()
        (g,) = T.autograd.grad(y, x, create_graph=True)
        loss = (g.norm(2, dim=1) - 1).square().mean()
        loss.backward()
        return (loss, g.requires_grad)

    s = wrap(step)
    return [[*s(data(T, i).requires_grad_()), *state(m)] for i in range(3)]


@breaks
def wgan(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any, f: Any, a: Any) -> Any:
        h = (a * x + (1 - a) * f).requires_grad_(True)
        y = m(h)
        (g,) = T.autograd.grad(y, h, grad_outputs=T.ones_like(y), create_graph=True, retain_graph=True)
        loss = (g.norm(2, dim=1) - 1).square().mean()
        loss.backward()
        return loss

    s = wrap(step)
    return [[s(data(T, i), data(T, i + 5), 0.3), *state(m)] for i in range(3)]


@program
def third(T: Any, wrap: Wrap) -> Any:

    def step(x: Any) -> Any:
        y = (x**4).sum()
        (a,) = T.autograd.grad(y, x, create_graph=True)
        (b,) = T.autograd.grad(a.sum(), x, create_graph=True)
        (c,) = T.autograd.grad(b.sum(), x)
        return (a, b, c, c.requires_grad)

    s = wrap(step)
    return [s(data(T, i).requires_grad_()) for i in range(3)]


@program
def maml(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        w = dict(m.named_parameters())
        loss = T.func.functional_call(m, w, (x,)).square().mean()
        g = T.autograd.grad(loss, list(w.values()), create_graph=True)
        w2 = {k: v - 0.1 * a for (k, v), a in zip(w.items(), g)}
        loss2 = T.func.functional_call(m, w2, (x,)).square().mean()
        loss2.backward()
        return loss2

    s = wrap(step)
    return [[s(data(T, i)), *state(m)] for i in range(3)]


@program
def tied(T: Any, wrap: Wrap) -> Any:
    w = T.nn.Parameter(T.tensor(np.random.RandomState(3).randn(4, 4).astype("f")))

    def step(x: Any) -> Any:
        loss = (x @ w @ w.t()).square().mean()
        loss.backward()
        return loss

    s = wrap(step)
    return [[s(data(T, i)), w.grad] for i in range(3)]


@program
def inplace(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        y = m(x).clone()
        y[:, 0] *= 2
        y.relu_()
        loss = y.sum()
        loss.backward()
        return y

    s = wrap(step)
    return [[s(data(T, i)), *state(m)] for i in range(3)]


@breaks
def hook_leaf(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        loss = m(x).square().mean()
        loss.backward()
        return loss

    s = wrap(step)
    out = [[s(data(T, 0)), *state(m)]]
    h = m[0].weight.register_hook(lambda g: g * 2)
    out += [[s(data(T, i)), *state(m)] for i in range(2)]
    h.remove()
    return out + [[s(data(T, i)), *state(m)] for i in range(2)]


@breaks
def hook_post(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    seen: list[Any] = []

    def step(x: Any) -> Any:
        loss = m(x).square().mean()
        loss.backward()
        return loss

    s = wrap(step)
    out = [[s(data(T, 0)), *state(m)]]
    m[0].weight.register_post_accumulate_grad_hook(lambda p: seen.append(float(p.grad.sum())))
    out += [[s(data(T, i)), *state(m)] for i in range(2)]
    return (out, len(seen))


@breaks
def hook_inside(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        y = m(x)
        y.register_hook(lambda g: g * 3)
        loss = y.square().mean()
        loss.backward()
        return loss

    s = wrap(step)
    return [[s(data(T, i)), *state(m)] for i in range(3)]


@breaks
def module_hook(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    m[0].register_full_backward_hook(lambda mod, gi, go: tuple(None if g is None else g * 2 for g in gi))

    def step(x: Any) -> Any:
        loss = m(x).square().mean()
        loss.backward()
        return loss

    s = wrap(step)
    return [[s(data(T, i)), *state(m)] for i in range(3)]


@breaks
def retain_grad(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        y = m[0](x)
        y.retain_grad()
        loss = m[2](y).square().mean()
        loss.backward()
        return y.grad

    s = wrap(step)
    return [[s(data(T, i)), *state(m)] for i in range(3)]


@breaks
def history_outside(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(y: Any) -> Any:
        loss = y.square().mean()
        loss.backward()
        return loss

    s = wrap(step)
    return [[s(m(data(T, i))), *state(m)] for i in range(3)]


@breaks
def history_mixed(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    w = T.nn.Parameter(T.ones(3))

    def step(y: Any) -> Any:
        loss = (y * w).square().mean()
        loss.backward()
        return loss

    s = wrap(step)
    return [[s(m(data(T, i))), w.grad, *state(m)] for i in range(3)]


@breaks
def anomaly(T: Any, wrap: Wrap) -> Any:
    w = T.nn.Parameter(T.zeros(3))

    def step(x: Any) -> Any:
        loss = (T.sqrt(w) * x).sum()
        loss.backward()
        return loss

    s = wrap(step)
    out = [s(T.zeros(3)), w.grad]
    with T.autograd.detect_anomaly(check_nan=True):
        try:
            s(T.zeros(3))
            out.append("none")
        except RuntimeError:
            out.append("error")
    return out


@program
def exception_mid(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any, bad: Any) -> Any:
        loss = m(x).square().mean()
        loss.backward()
        if bad:
            raise ValueError("no")
        return loss

    s = wrap(step)
    out: list[Any] = []
    for i in range(5):
        try:
            out.append(s(data(T, i), i == 2))
        except ValueError:
            out.append("ValueError")
        out.append(state(m))
    return out


@program
def batches(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        for p in m.parameters():
            p.grad = None
        loss = m(x).square().mean()
        loss.backward()
        return loss

    s = wrap(step)
    return [[s(data(T, i, b=3 + i)), *state(m)] for i in range(6)]


@program
def dropout_eval(T: Any, wrap: Wrap) -> Any:
    m = T.nn.Sequential(mlp(T), T.nn.BatchNorm1d(3))

    def step(x: Any) -> Any:
        loss = (m(x) * x[:, :3]).square().mean()
        loss.backward()
        return loss

    s = wrap(step)
    out: list[Any] = []
    for i in range(4):
        m.train(i % 2 == 0)
        out.append([s(data(T, i)), *state(m), m[1].running_mean, m[1].running_var, m[1].num_batches_tracked])
    return out
