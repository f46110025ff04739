"""Programs that step an optimizer where they are compiled, each for any library with torch's names.

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
    return v.detach().cpu().numpy().copy() if hasattr(v, "detach") else v


def st(m: Any, *optimizers: Any) -> list[Any]:
    """Parameters, gradients, rates, and what the optimizers keep."""
    out = [show(p) for p in m.parameters()] + [show(p.grad) for p in m.parameters()]
    for o in optimizers:
        for g in o.param_groups:
            out.append(float(g["lr"]))
            for p in g["params"]:
                out += [show(v) for _, v in sorted(o.state.get(p, {}).items())]
    return out


@program
def sched_inside(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o = T.optim.AdamW(m.parameters(), lr=0.1)
    s = T.optim.lr_scheduler.CosineAnnealingLR(o, 10)

    def step(x: Any) -> Any:
        o.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        o.step()
        s.step()
        return loss

    c = wrap(step)
    out: list[Any] = []
    for i in range(6):
        out.append([c(data(T, i)), *st(m, o), s.get_last_lr()])
    return out


@program
def sched_kinds(T: Any, wrap: Wrap) -> Any:

    def of(make: Any) -> Any:
        m = mlp(T)
        o = T.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
        s = make(T.optim.lr_scheduler, o)

        def step(x: Any) -> Any:
            o.zero_grad()
            loss = m(x).square().mean()
            loss.backward()
            o.step()
            s.step()
            return loss

        c = wrap(step)
        return [[c(data(T, i)), *st(m, o)] for i in range(4)]

    return [
        of(lambda k, o: k.StepLR(o, 2)),
        of(lambda k, o: k.ExponentialLR(o, 0.9)),
        of(lambda k, o: k.LambdaLR(o, lambda e: 1 / (e + 1))),
        of(lambda k, o: k.LinearLR(o)),
        of(lambda k, o: k.OneCycleLR(o, 0.1, total_steps=20)),
    ]


@program
def clip(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o = T.optim.Adam(m.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        o.zero_grad()
        loss = (9 * m(x)).square().mean()
        loss.backward()
        n = T.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        o.step()
        return (loss, n)

    c = wrap(step)
    return [[*c(data(T, i)), *st(m, o)] for i in range(4)]


@program
def zero_after(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o = T.optim.Adam(m.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        loss = m(x).square().mean()
        loss.backward()
        o.step()
        o.zero_grad()
        return loss

    c = wrap(step)
    return [[c(data(T, i)), *st(m, o)] for i in range(4)]


@program
def zero_keep(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o = T.optim.SGD(m.parameters(), lr=0.1, momentum=0.5, nesterov=True)

    def step(x: Any) -> Any:
        o.zero_grad(set_to_none=False)
        loss = m(x).square().mean()
        loss.backward()
        o.step()
        return loss

    c = wrap(step)
    out: list[Any] = []
    for i in range(4):
        before = [p.grad for p in m.parameters()]
        out.append([c(data(T, i)), *st(m, o), [a is p.grad for a, p in zip(before, m.parameters())]])
    return out


@program
def accumulate4(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o = T.optim.AdamW(m.parameters(), lr=0.1)

    def step(xs: Any) -> Any:
        o.zero_grad()
        t = 0.0
        for x in xs:
            loss = m(x).square().mean() / len(xs)
            loss.backward()
            t = t + loss.detach()
        o.step()
        return t

    c = wrap(step)
    return [[c([data(T, 4 * i + k) for k in range(4)]), *st(m, o)] for i in range(3)]


@program
def accumulate_flag(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o = T.optim.AdamW(m.parameters(), lr=0.1)

    def step(x: Any, last: Any) -> Any:
        loss = m(x).square().mean()
        loss.backward()
        if last:
            o.step()
            o.zero_grad()
        return loss

    c = wrap(step)
    return [[c(data(T, i), i % 3 == 2), *st(m, o)] for i in range(9)]


@program
def gan2(T: Any, wrap: Wrap) -> Any:
    g, d = (mlp(T, 1), mlp(T, 2, n=3))
    og, od = (T.optim.Adam(g.parameters(), lr=0.01), T.optim.Adam(d.parameters(), lr=0.01, betas=(0.5, 0.9)))

    def step(z: Any, x: Any) -> Any:
        od.zero_grad()
        f = g(z)
        ld = d(x).mean() - d(f.detach()).mean()
        ld.backward()
        od.step()
        og.zero_grad()
        loss = d(f).mean()
        loss.backward()
        og.step()
        return (ld, loss)

    c = wrap(step)
    return [[*c(data(T, i), data(T, i + 5, n=3)), *st(g, og), *st(d, od)] for i in range(5)]


@program
def lr_outside(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o = T.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    s = T.optim.lr_scheduler.StepLR(o, 2, 0.5)

    def step(x: Any) -> Any:
        o.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        o.step()
        return loss

    c = wrap(step)
    out: list[Any] = []
    for i in range(7):
        out.append([c(data(T, i)), *st(m, o)])
        s.step()
        if i == 3:
            o.param_groups[0]["weight_decay"] = 0.01
        if i == 5:
            o.param_groups[0]["momentum"] = 0.8
    return out


@program
def load_state(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o = T.optim.Adam(m.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        o.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        o.step()
        return loss

    c = wrap(step)
    out = [[c(data(T, i)), *st(m, o)] for i in range(2)]
    import copy

    sd = copy.deepcopy(o.state_dict())
    ms = copy.deepcopy(m.state_dict())
    out += [[c(data(T, i)), *st(m, o)] for i in range(2)]
    o.load_state_dict(sd)
    m.load_state_dict(ms)
    return out + [[c(data(T, i)), *st(m, o)] for i in range(3)]


@program
def clear_state(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o = T.optim.Adam(m.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        o.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        o.step()
        return loss

    c = wrap(step)
    out = [[c(data(T, i)), *st(m, o)] for i in range(2)]
    o.state.clear()
    return out + [[c(data(T, i)), *st(m, o)] for i in range(2)]


@program
def add_group(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o = T.optim.Adam(m[0].parameters(), lr=0.1)

    def step(x: Any) -> Any:
        m.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        o.step()
        return loss

    c = wrap(step)
    out = [[c(data(T, i)), *st(m, o)] for i in range(2)]
    o.add_param_group({"params": m[2].parameters(), "lr": 0.01})
    return out + [[c(data(T, i)), *st(m, o)] for i in range(3)]


@program
def frozen2(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o = T.optim.AdamW(m.parameters(), lr=0.1)
    m[0].weight.requires_grad_(False)

    def step(x: Any) -> Any:
        o.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        o.step()
        return loss

    c = wrap(step)
    out = [[c(data(T, i)), *st(m, o)] for i in range(2)]
    m[0].weight.requires_grad_(True)
    return out + [[c(data(T, i)), *st(m, o)] for i in range(3)]


@program
def no_grads(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o = T.optim.AdamW(m.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        o.step()
        return m(x)

    c = wrap(step)
    return [[c(data(T, i)), *st(m, o)] for i in range(2)]


@program
def grads_given(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o = T.optim.AdamW(m.parameters(), lr=0.1)
    c = wrap(lambda: o.step())
    out: list[Any] = []
    for i in range(4):
        o.zero_grad()
        m(data(T, i)).square().mean().backward()
        c()
        out.append(st(m, o))
    return out


@program
def compiled_method(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o = T.optim.Adam(m.parameters(), lr=0.1)
    c = wrap(o.step)
    out: list[Any] = []
    for i in range(4):
        o.zero_grad()
        m(data(T, i)).square().mean().backward()
        c()
        out.append(st(m, o))
    return out


@program
def two_steps(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o = T.optim.Adam(m.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        for _ in range(2):
            o.zero_grad()
            loss = m(x).square().mean()
            loss.backward()
            o.step()
        return loss

    c = wrap(step)
    return [[c(data(T, i)), *st(m, o)] for i in range(4)]


@program
def exception2(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o = T.optim.Adam(m.parameters(), lr=0.1)

    def step(x: Any, bad: Any) -> Any:
        o.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        o.step()
        if bad:
            raise ValueError
        return loss

    c = wrap(step)
    out: list[Any] = []
    for i in range(6):
        try:
            out.append(c(data(T, i), i in (0, 3)))
        except ValueError:
            out.append("ValueError")
        out.append(st(m, o))
    return out


@program
def exception3(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o = T.optim.Adam(m.parameters(), lr=0.1)

    def step(x: Any, bad: Any) -> Any:
        o.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        if bad:
            raise ValueError
        o.step()
        return loss

    c = wrap(step)
    out: list[Any] = []
    for i in range(6):
        try:
            out.append(c(data(T, i), i in (0, 3)))
        except ValueError:
            out.append("ValueError")
        out.append(st(m, o))
    return out


@program
def sizes(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o = T.optim.Adam(m.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        o.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        o.step()
        return loss

    c = wrap(step)
    return [[c(data(T, i, b=3 + i % 4)), *st(m, o)] for i in range(8)]
