"""Whole steps with averages of a model, with the scale read, and with inner leaves.

In: `T`, the library, and `wrap`, which compiles a function or leaves it alone. Out: numbers, equal wherever it runs.
"""

from __future__ import annotations

from typing import Any

from whole_step_programs import Wrap, breaks, data, mlp, program, show, st


def averaged(T: Any, wrap: Wrap, **how: Any) -> Any:
    m = mlp(T)
    average = T.optim.swa_utils.AveragedModel(m, **how)
    o = T.optim.Adam(m.parameters(), lr=0.01)

    def step(x: Any) -> Any:
        o.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        o.step()
        average.update_parameters(m)
        return loss.detach()

    c = wrap(step)
    return [[c(data(T, i)), *st(m, o), *map(show, average.state_dict().values())] for i in range(5)]


@program
def mean_of_weights(T: Any, wrap: Wrap) -> Any:
    return averaged(T, wrap)


@program
def ema_of_weights(T: Any, wrap: Wrap) -> Any:
    return averaged(T, wrap, multi_avg_fn=T.optim.swa_utils.get_ema_multi_avg_fn(0.9))


@program
def ema_of_buffers(T: Any, wrap: Wrap) -> Any:
    return averaged(T, wrap, avg_fn=T.optim.swa_utils.get_ema_avg_fn(0.9), use_buffers=True)


@program
def average_by_the_count(T: Any, wrap: Wrap) -> Any:
    return averaged(T, wrap, avg_fn=lambda a, p, n: a + (p - a) * (-n / 3.0).exp() / (n + 1))


@program
def scale_is_read_in_the_step(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o = T.optim.AdamW(m.parameters(), lr=0.01)
    s = T.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

    def step(x: Any) -> Any:
        o.zero_grad()
        loss = m(x).square().mean()
        s.scale(loss).backward()
        s.step(o)
        scale = s.get_scale()
        s.update()
        return [loss.detach(), scale]

    c = wrap(step)
    return [[*c(data(T, i)), *st(m, o)] for i in range(5)]


@breaks
def schedule_by_the_scale(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o = T.optim.SGD(m.parameters(), lr=0.1)
    schedule = T.optim.lr_scheduler.StepLR(o, 2)
    s = T.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

    def step(x: Any) -> Any:
        o.zero_grad()
        s.scale(m(x).square().mean()).backward()
        s.step(o)
        scale = s.get_scale()
        s.update()
        if scale <= s.get_scale():
            schedule.step()
        return scale

    c = wrap(step)
    return [[c(data(T, i)), *st(m, o)] for i in range(5)]


@program
def sharpness_aware(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o = T.optim.SGD(m.parameters(), lr=0.01, momentum=0.9)

    def step(x: Any) -> Any:
        o.zero_grad()
        m(x).square().mean().backward()
        with T.no_grad():
            norm = T.stack([p.grad.norm() for p in m.parameters()]).norm()
            moved = [p.grad * (0.05 / (norm + 1e-12)) for p in m.parameters()]
            for p, by in zip(m.parameters(), moved):
                p.add_(by)
        o.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        with T.no_grad():
            for p, by in zip(m.parameters(), moved):
                p.sub_(by)
        o.step()
        return loss.detach()

    c = wrap(step)
    return [[c(data(T, i)), *st(m, o)] for i in range(4)]


@program
def learned_steps(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o = T.optim.Adam(m.parameters(), lr=0.01)

    def step(x: Any) -> Any:
        o.zero_grad()
        own, total = dict(m.named_parameters()), 0
        for part in x.chunk(2):
            loss = T.func.functional_call(m, own, (part,)).square().mean()
            slopes = T.autograd.grad(loss, list(own.values()), create_graph=True)
            fast = {n: p - 0.1 * g for (n, p), g in zip(own.items(), slopes)}
            total = total + T.func.functional_call(m, fast, (part * 2,)).square().mean()
        total.backward()
        o.step()
        return total.detach()

    c = wrap(step)
    return [[c(data(T, i)), *st(m, o)] for i in range(4)]


@program
def one_vector(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        loss = m(x).square().mean()
        slopes = T.autograd.grad(loss, list(m.parameters()))
        vector = T.nn.utils.parameters_to_vector(m.parameters())
        with T.no_grad():
            new = vector - 0.1 * T.cat([g.reshape(-1) for g in slopes])
            T.nn.utils.vector_to_parameters(new, m.parameters())
        return loss.detach()

    c = wrap(step)
    return [[c(data(T, i)), *map(show, m.parameters())] for i in range(4)]
