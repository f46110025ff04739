"""Programs as training scripts and models have them, with state of their own. See `replay_programs`."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import distcompile as torch
from distcompile import nn
from tests.compiler_core.capture.replay.replay_programs import Box, program


@program
def autograd_function_state(log: list[Any]) -> Any:

    class F(torch.autograd.Function):
        calls = 0

        @staticmethod
        def forward(ctx, x, s):
            ctx.s = s
            F.calls += 1
            return x * s

        @staticmethod
        def backward(ctx, g):
            log.append("bw")
            return (g * ctx.s, None)

    w = torch.ones(3, requires_grad=True)

    def function(x):
        return F.apply(w * x, len(log) + 1).sum()

    return (function, lambda: F.calls)


@program
def ema_dict(log: list[Any]) -> Any:
    shadow = {}
    m = nn.Linear(3, 3)

    def function(x):
        y = m(x)
        with torch.no_grad():
            for n, p in m.named_parameters():
                if n not in shadow:
                    shadow[n] = p.detach().clone()
                else:
                    shadow[n].lerp_(p.detach(), 0.1)
        return y.sum()

    return (function, shadow)


@program
def lr_sched(log: list[Any]) -> Any:
    m = nn.Linear(3, 1)
    o = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
    s = torch.optim.lr_scheduler.StepLR(o, 1, 0.5)

    def function(x):
        o.zero_grad()
        loss = (m(x) ** 2).sum()
        loss.backward()
        o.step()
        s.step()
        log.append(o.param_groups[0]["lr"])
        return loss.detach()

    return (function, lambda: [p.detach() for p in m.parameters()])


@program
def state_dict_roundtrip(log: list[Any]) -> Any:
    m = nn.Linear(3, 3)
    best = {}

    def function(x):
        best.update({k: v.clone() for k, v in m.state_dict().items()})
        with torch.no_grad():
            m.weight.mul_(0.5)
        m.load_state_dict(best)
        return m(x).sum()

    return (function, lambda: list(m.parameters()))


@program
def grad_accum(log: list[Any]) -> Any:
    m = nn.Linear(3, 1)
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    st = Box(i=0)

    def function(x):
        loss = m(x).sum() / 2
        loss.backward()
        st.i += 1
        if st.i % 2 == 0:
            o.step()
            o.zero_grad()
            log.append("step")
        return loss.detach()

    return (function, lambda: [p.grad for p in m.parameters()])


@program
def metrics_meter(log: list[Any]) -> Any:

    class Meter:
        def __init__(s):
            s.reset()

        def reset(s):
            s.sum = 0.0
            s.n = 0

        def update(s, v, n=1):
            s.sum += v * n
            s.n += n

        @property
        def avg(s):
            return s.sum / max(1, s.n)

    m = Meter()

    def function(x):
        y = x * 2
        m.update(y.sum(), x.shape[0])
        if m.n > 6:
            log.append(float(m.avg))
            m.reset()
        return y

    return (function, lambda: (m.n, m.sum))


@program
def kv_cache(log: list[Any]) -> Any:

    class Att(nn.Module):
        def __init__(s):
            super().__init__()
            s.k = None
            s.len = 0

        def forward(s, x):
            k = x.unsqueeze(0)
            s.k = k if s.k is None else torch.cat([s.k, k])
            s.len += 1
            return (s.k * x).sum(-1)

    a = Att()
    return (a, lambda: (a.k, a.len))


@program
def kv_slot(log: list[Any]) -> Any:

    class Att(nn.Module):
        def __init__(s):
            super().__init__()
            s.register_buffer("c", torch.zeros(6, 3))
            s.pos = 0

        def forward(s, x):
            s.c[s.pos] = x
            s.pos += 1
            return s.c[: s.pos].sum(0)

    a = Att()
    return (a, lambda: (a.c, a.pos))


@program
def random_choice_branch(log: list[Any]) -> Any:

    def function(x):
        if random.random() < 0.5:
            log.append("a")
            return x * 2
        log.append("b")
        return x * random.choice([1, 2, 3])

    return (function, None)


@program
def hooks_added_inside(log: list[Any]) -> Any:
    m = nn.Linear(3, 3)
    st = Box(h=None)

    def function(x):
        if st.h is None:
            st.h = m.register_forward_hook(lambda mod, a, o: log.append("hook") or o * 2)
        elif len(log) == 2:
            st.h.remove()
            st.h = None
        return m(x).sum()

    return (function, None)


@program
def nested_compiled(log: list[Any]) -> Any:
    inner_state = []

    @torch.compile
    def inner(x):
        inner_state.append(1)
        return x * len(inner_state)

    def function(x):
        y = inner(x)
        log.append(len(inner_state))
        return y + inner(x)

    return (function, inner_state)


@program
def returns_same_object(log: list[Any]) -> Any:
    cfg = Box(n=1)
    out = []

    def function(x):
        out.append(x.sum())
        cfg.n += 1
        return (cfg, out, (cfg.n, out))

    return (function, (cfg, out))


@program
def mutable_global_default_dict_arg(log: list[Any]) -> Any:

    def g(x, cache={}):  # noqa: B006
        k = len(cache)
        cache[k] = x
        return sum(cache.values())

    return (lambda x: g(x), None)


@program
def generator_pipeline(log: list[Any]) -> Any:

    def src(x):
        for i in range(4):
            log.append(("s", i))
            yield (x * i)

    def mul(it):
        for v in it:
            log.append("m")
            yield (v * 2)

    def function(x):
        out = []
        for v in mul(src(x)):
            out.append(v)
            if len(out) == 2:
                break
        return out

    return (function, None)


@program
def ctx_in_gen(log: list[Any]) -> Any:

    @contextlib.contextmanager
    def cm(n):
        log.append(n)
        try:
            yield n
        finally:
            log.append(-n)

    def function(x):
        with contextlib.ExitStack() as s:
            vals = [s.enter_context(cm(i)) for i in (1, 2, 3)]
            s.callback(log.append, "cb")
            y = x * sum(vals)
            if len(log) > 12:
                raise ValueError("late")
        return y

    return (function, None)
