"""Programs whose whole step has a GradScaler in it.

In: `T`, the library, and `wrap`, which compiles a function or leaves it alone. Out: numbers, equal wherever it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from whole_step_programs import Wrap, breaks, data, mlp, program, st


def scaler_of(T: Any, **options: Any) -> Any:
    return T.amp.GradScaler("cpu", **{"init_scale": 8.0, "growth_interval": 2, **options})


def batch(T: Any, i: int, *bad: int) -> Any:
    """One that overflows where its number is among `bad`."""
    x = data(T, i)
    if i in bad:
        x[0, 0] = float("inf")
    return x


def trained(T: Any, wrap: Wrap, make: Callable[[Any], Any], bad: tuple[int, ...] = (1, 4), **options: Any) -> Any:
    """Eight steps; what they leave."""
    m = mlp(T)
    o, s = make(m.parameters()), scaler_of(T, **options)

    def step(x: Any) -> Any:
        o.zero_grad()
        loss = m(x).square().mean()
        s.scale(loss).backward()
        s.step(o)
        s.update()
        return loss.detach()

    c = wrap(step)
    out = []
    for i in range(8):
        loss = c(batch(T, i, *bad))
        out.append([0.0 if i in bad else loss, *st(m)[:4], *st(m, o)[8:], s.get_scale(), s._get_growth_tracker()])
    return out


@program
def scaler(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o = T.optim.SGD(m.parameters(), lr=0.1)
    s = scaler_of(T)

    def step(x: Any) -> Any:
        o.zero_grad()
        loss = m(x).square().mean()
        s.scale(loss).backward()
        s.unscale_(o)
        T.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        s.step(o)
        s.update()
        return loss

    c = wrap(step)
    return [[c(data(T, i)), *st(m, o), s.get_scale()] for i in range(5)]


@program
def scaled_sgd(T: Any, wrap: Wrap) -> Any:
    return trained(T, wrap, lambda p: T.optim.SGD(p, lr=0.1), bad=(0, 1, 4))


@program
def scaled_adamw(T: Any, wrap: Wrap) -> Any:
    return trained(T, wrap, lambda p: T.optim.AdamW(p, lr=0.1))


@program
def scaled_nadam(T: Any, wrap: Wrap) -> Any:
    return trained(T, wrap, lambda p: T.optim.NAdam(p, lr=0.1))


@program
def scaled_asgd(T: Any, wrap: Wrap) -> Any:
    return trained(T, wrap, lambda p: T.optim.ASGD(p, lr=0.1, t0=2))


@program
def odd_factors(T: Any, wrap: Wrap) -> Any:
    factors = {"growth_factor": 1.7, "backoff_factor": 0.3, "init_scale": 3.0}
    return trained(T, wrap, lambda p: T.optim.Adam(p, lr=0.1), **factors)


@program
def scale_at_its_limit(T: Any, wrap: Wrap) -> Any:
    s = scaler_of(T, init_scale=2.0**126, growth_interval=1)
    w = T.ones(3, requires_grad=True)
    o = T.optim.SGD([w], lr=0.5)

    def step() -> None:
        o.zero_grad()
        s.scale(w.sum() * 2.0**-100).backward()
        s.step(o)
        s.update()

    c = wrap(step)
    return [[c(), w, s.get_scale() / 2.0**126, s._get_growth_tracker()] for _ in range(4)]


@program
def two_scaled_optimizers(T: Any, wrap: Wrap) -> Any:
    a, b = mlp(T), mlp(T, 1)
    oa, ob = T.optim.Adam(a.parameters(), lr=0.1), T.optim.SGD(b.parameters(), lr=0.1, momentum=0.9)
    s = scaler_of(T)

    def step(x: Any, y: Any) -> Any:
        oa.zero_grad()
        ob.zero_grad()
        losses = s.scale([a(x).square().mean(), b(y).square().mean()])
        for loss in losses:
            loss.backward()
        s.step(oa)
        s.step(ob)
        s.update()

    c = wrap(step)
    out = []
    for i in range(6):
        c(batch(T, i, 2), batch(T, i + 10, 13))
        out.append([*st(a)[:4], *st(b)[:4], *st(a, oa)[8:], *st(b, ob)[8:], s.get_scale(), s._get_growth_tracker()])
    return out


@program
def scaled_accumulation(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o, s = T.optim.AdamW(m.parameters(), lr=0.1), scaler_of(T)

    def step(xs: Any) -> None:
        o.zero_grad()
        for x in xs:
            s.scale(m(x).square().mean() / 2).backward()
        s.unscale_(o)
        T.nn.utils.clip_grad_norm_(m.parameters(), 0.5)
        s.step(o)
        s.update()

    c = wrap(step)
    out = []
    for i in range(5):
        c([batch(T, i, 2), data(T, i + 10)])
        out.append([*st(m)[:4], *st(m, o)[8:], s.get_scale()])
    return out


@program
def scaler_with_a_loaded_state(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o, s = T.optim.AdamW(m.parameters(), lr=0.1), scaler_of(T)

    def step(x: Any) -> None:
        o.zero_grad()
        s.scale(m(x).square().mean()).backward()
        s.step(o)
        s.update()

    c = wrap(step)
    out: list[Any] = []
    for i in range(6):
        c(batch(T, i, 4))
        out.append([*st(m)[:4], s.get_scale()])
        if i == 2:
            s.load_state_dict({**s.state_dict(), "scale": 64.0, "_growth_tracker": 1})
    return [*out, *s.state_dict().values()]


@program
def scaler_in_part(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o, s = T.optim.Adam(m.parameters(), lr=0.1), scaler_of(T)

    def step(x: Any) -> None:
        o.zero_grad()
        s.scale(m(x).square().mean()).backward()
        s.unscale_(o)

    c = wrap(step)
    out = []
    for i in range(5):
        c(batch(T, i, 3))
        s.step(o)
        s.update()
        out.append([*st(m)[:4], *st(m, o)[8:], s.get_scale()])
    return out


@program
def scaler_under_autocast(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o, s = T.optim.AdamW(m.parameters(), lr=1e-3), scaler_of(T, init_scale=256.0)
    y = T.tensor([0, 1, 2, 1, 0, 2])

    def step(x: Any) -> Any:
        o.zero_grad()
        with T.autocast("cpu", dtype=T.bfloat16):
            loss = T.nn.functional.cross_entropy(m(x), y)
        s.scale(loss).backward()
        s.unscale_(o)
        T.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        s.step(o)
        s.update()

    c = wrap(step)
    out = []
    for i in range(5):
        c(batch(T, i, 1))
        steps = [int(v["step"]) for v in o.state.values()]
        out.append([s.get_scale(), s._get_growth_tracker(), *steps])
    return out


@breaks
def scale_is_read(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o, s = T.optim.Adam(m.parameters(), lr=0.1), scaler_of(T)

    def step(x: Any) -> bool:
        before = s.get_scale()
        o.zero_grad()
        s.scale(m(x).square().mean()).backward()
        s.step(o)
        s.update()
        return s.get_scale() < before

    c = wrap(step)
    return [[bool(c(batch(T, i, 3))), *st(m)[:4], s.get_scale()] for i in range(6)]


@breaks
def scaler_of_an_own_optimizer(T: Any, wrap: Wrap) -> Any:
    class Signs(T.optim.Optimizer):
        @T.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    p.add_(p.grad.sign(), alpha=-group["lr"])

    return trained(T, wrap, lambda p: Signs(p, {"lr": 0.1}))


@breaks
def scaler_and_step_hooks(T: Any, wrap: Wrap) -> Any:
    seen: list[int] = []

    def make(p: Any) -> Any:
        o = T.optim.Adam(p, lr=0.1)
        o.register_step_post_hook(lambda *a: seen.append(1))
        return o

    return [*trained(T, wrap, make), len(seen)]


@breaks
def two_scaled_steps(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)
    o, s = T.optim.Adam(m.parameters(), lr=0.1), scaler_of(T)

    def step(*xs: Any) -> None:
        for x in xs:
            o.zero_grad()
            s.scale(m(x).square().mean()).backward()
            s.step(o)
            s.update()

    c = wrap(step)
    out = []
    for i in range(4):
        c(batch(T, i, 3), batch(T, i + 20, 21))
        out.append([*st(m)[:4], *st(m, o)[8:], s.get_scale()])
    return out


@breaks
def scaler_of_a_dampened_momentum(T: Any, wrap: Wrap) -> Any:
    return trained(T, wrap, lambda p: T.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5))


@program
def scaled_adafactor(T: Any, wrap: Wrap) -> Any:
    return trained(T, wrap, lambda p: T.optim.Adafactor(p, lr=0.1))


@program
def first_steps_that_are_left_out(T: Any, wrap: Wrap) -> Any:
    """The state of the first step that is made starts from the rate of then."""
    out = []
    for make in (
        lambda p: T.optim.Rprop(p, lr=0.1),
        lambda p: T.optim.ASGD(p, lr=0.1),
        lambda p: T.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: T.optim.NAdam(p, lr=0.1),
    ):
        m = mlp(T)
        o, s = make(m.parameters()), scaler_of(T)
        schedule = T.optim.lr_scheduler.ExponentialLR(o, 0.5)

        def step(x: Any, m: Any = m, o: Any = o, s: Any = s, schedule: Any = schedule) -> None:
            o.zero_grad()
            s.scale(m(x).square().mean()).backward()
            s.step(o)
            s.update()
            schedule.step()

        c = wrap(step)
        for i in range(5):
            c(batch(T, i, 0, 1))
            out.append([*st(m)[:4], s.get_scale()])
    return out
