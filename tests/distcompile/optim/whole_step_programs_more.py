"""More programs that step an optimizer where they are compiled.

In: `T`, the library, and `wrap`, which compiles a function or leaves it alone. Out: numbers, equal wherever it runs.
"""

from __future__ import annotations

from typing import Any

from whole_step_programs import Wrap, breaks, data, mlp, program, show, st


@program
def closure(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o = T.optim.SGD(m.parameters(), lr=0.1)

    def step(x: Any) -> Any:

        def again() -> Any:
            o.zero_grad()
            loss = m(x).square().mean()
            loss.backward()
            return loss

        return o.step(again)

    c = wrap(step)
    return [[c(data(T, i)), *st(m, o)] for i in range(3)]


@breaks
def hooks(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o = T.optim.SGD(m.parameters(), lr=0.1)
    n = []
    o.register_step_pre_hook(lambda *a: n.append(1))
    o.register_step_post_hook(lambda *a: n.append(2))

    def step(x: Any) -> Any:
        o.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        o.step()
        return loss

    c = wrap(step)
    return [[c(data(T, i)), *st(m, o), list(n)] for i in range(3)]


@program
def dampening(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o = T.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, dampening=0.5)

    def step(x: Any) -> Any:
        o.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        o.step()
        return loss

    c = wrap(step)
    return [[c(data(T, i)), *st(m, o)] for i in range(3)]


@program
def ema(T: Any, wrap: Wrap) -> Any:
    m, e = (mlp(T), mlp(T, 3))
    o = T.optim.Adam(m.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        o.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        o.step()
        with T.no_grad():
            for a, b in zip(e.parameters(), m.parameters()):
                a.mul_(0.9).add_(b, alpha=0.1)
        return loss

    c = wrap(step)
    return [[c(data(T, i)), *st(m, o), *st(e)] for i in range(4)]


@program
def dropout_bn(T: Any, wrap: Wrap) -> Any:
    m = T.nn.Sequential(mlp(T), T.nn.BatchNorm1d(3))
    o = T.optim.SGD(m.parameters(), lr=0.01)

    def step(x: Any) -> Any:
        o.zero_grad()
        loss = (m(x) * x[:, :3]).square().mean()
        loss.backward()
        o.step()
        return loss

    c = wrap(step)
    return [[c(data(T, i)), *st(m, o), m[1].running_mean, m[1].running_var] for i in range(4)]


@program
def returns_grads(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o = T.optim.Adam(m.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        o.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        g = [p.grad for p in m.parameters()]
        o.step()
        o.zero_grad()
        return (loss, g, [p.detach().clone() for p in m.parameters()])

    c = wrap(step)
    return [[*c(data(T, i)), *st(m, o)] for i in range(3)]


@program
def alias_params(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o = T.optim.Adam(m.parameters(), lr=0.1)
    held = [p.detach() for p in m.parameters()]

    def step(x: Any) -> Any:
        o.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        o.step()
        return loss

    c = wrap(step)
    out: list[Any] = []
    for i in range(3):
        out.append([c(data(T, i)), show(held), *st(m, o)])
    hs = [o.state[p]["exp_avg"] for p in m.parameters()]
    c(data(T, 7))
    out.append([show(hs), [h is o.state[p]["exp_avg"] for h, p in zip(hs, m.parameters())]])
    return out


@program
def old_value(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o = T.optim.SGD(m.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        o.zero_grad()
        w = m[0].weight.clone()
        v = m[0].weight.detach()
        loss = m(x).square().mean()
        loss.backward()
        o.step()
        return (w, v, v is m[0].weight)

    c = wrap(step)
    return [[*c(data(T, i)), *st(m, o)] for i in range(3)]


@program
def grad_edit(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o = T.optim.SGD(m.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        o.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        for p in m.parameters():
            p.grad.mul_(2)
            p.grad = p.grad.clamp(-1, 1)
        o.step()
        return loss

    c = wrap(step)
    return [[c(data(T, i)), *st(m, o)] for i in range(3)]


@breaks
def reads_step(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o = T.optim.Adam(m.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        o.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        o.step()
        return (loss, o.state[m[0].weight]["step"] * 1)

    c = wrap(step)
    return [[*c(data(T, i)), *st(m, o)] for i in range(3)]


@breaks
def reads_step_before(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o = T.optim.Adam(m.parameters(), lr=0.1)
    m(data(T, 0)).sum().backward()
    o.step()

    def step(x: Any) -> Any:
        n = o.state[m[0].weight]["step"] * 1
        o.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        o.step()
        return (loss, n)

    c = wrap(step)
    return [[*c(data(T, i)), *st(m, o)] for i in range(3)]


@program
def tied2(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    m[2].weight = T.nn.Parameter(m[0].weight.detach()[:3, :].repeat(1, 2)[:, :5].clone())
    w = m[0].weight
    o = T.optim.AdamW([{"params": [w]}, {"params": [m[0].bias, m[2].weight, m[2].bias], "weight_decay": 0.0}], lr=0.1)

    def step(x: Any) -> Any:
        o.zero_grad()
        loss = (m(x) @ w[:3]).square().mean()
        loss.backward()
        o.step()
        return loss

    c = wrap(step)
    return [[c(data(T, i)), *st(m, o)] for i in range(3)]


@program
def bf16(T: Any, wrap: Wrap) -> Any:
    m = mlp(T).to(T.bfloat16)
    o = T.optim.AdamW(m.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        o.zero_grad()
        loss = m(x.to(T.bfloat16)).float().square().mean()
        loss.backward()
        o.step()
        return loss

    c = wrap(step)
    return [[c(data(T, i))] for i in range(3)]


@breaks
def hook_then(T: Any, wrap: Wrap) -> Any:
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
    m[0].weight.register_hook(lambda g: g * 0.5)
    return out + [[c(data(T, i)), *st(m, o)] for i in range(2)]


@program
def param_swap(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o = T.optim.SGD(m.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        o.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        o.step()
        return loss

    c = wrap(step)
    out = [[c(data(T, i)), *st(m, o)] for i in range(2)]
    m[0].weight.data = m[0].weight.data * 2
    return out + [[c(data(T, i)), *st(m, o)] for i in range(2)]


@program
def new_optimizer(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    box = [T.optim.Adam(m.parameters(), lr=0.1)]

    def step(x: Any) -> Any:
        o = box[0]
        o.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        o.step()
        return loss

    c = wrap(step)
    out = [[c(data(T, i)), *st(m, box[0])] for i in range(2)]
    box[0] = T.optim.Adam(m.parameters(), lr=0.05)
    return out + [[c(data(T, i)), *st(m, box[0])] for i in range(2)]


@breaks
def lbfgs(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o = T.optim.LBFGS(m.parameters(), lr=0.1, max_iter=3)

    def step(x: Any) -> Any:

        def again() -> Any:
            o.zero_grad()
            loss = m(x).square().mean()
            loss.backward()
            return loss

        return o.step(again)

    c = wrap(step)
    return [[c(data(T, i)), *[show(p) for p in m.parameters()]] for i in range(2)]


@program
def own_optimizer(T: Any, wrap: Wrap) -> Any:

    class Lion(T.optim.Optimizer):
        def __init__(self, ps: Any, lr: Any) -> Any:
            super().__init__(ps, {"lr": lr, "b": 0.9})

        @T.no_grad()
        def step(self, closure: Any = None) -> Any:
            for g in self.param_groups:
                for p in g["params"]:
                    if p.grad is None:
                        continue
                    s = self.state[p]
                    if len(s) == 0:
                        s["m"] = T.zeros_like(p)
                    u = s["m"].clone().mul_(g["b"]).add_(p.grad, alpha=1 - g["b"]).sign_()
                    p.add_(u, alpha=-g["lr"])
                    s["m"].mul_(0.99).add_(p.grad, alpha=0.01)

    m = mlp(T)
    o = Lion(m.parameters(), 0.01)

    def step(x: Any) -> Any:
        o.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        o.step()
        return loss

    c = wrap(step)
    return [[c(data(T, i)), *st(m, o)] for i in range(4)]


@program
def in_class(T: Any, wrap: Wrap) -> Any:

    class Trainer:
        def __init__(self) -> Any:
            self.m = mlp(T)
            self.o = T.optim.AdamW(self.m.parameters(), lr=0.1)
            self.n = 0
            self.total = 0.0

        def step(self, x: Any) -> Any:
            self.n += 1
            self.o.zero_grad()
            loss = self.m(x).square().mean()
            loss.backward()
            self.o.step()
            return loss

    t = Trainer()
    c = wrap(t.step)
    return [[c(data(T, i)), *st(t.m, t.o), t.n] for i in range(4)]
