"""Programs that use many parts of the language, and change what was there before. See `replay_programs`."""

from __future__ import annotations

from typing import Any

import distcompile as torch
from distcompile import nn
from tests.compiler_core.capture.replay.replay_programs import Box, program


@program
def class_made_inside(log: list[Any]) -> Any:

    def function(x):

        class A:
            y = x * 2
            n = len(log)

            def get(self):
                return self.y + self.n

        log.append(A.n)
        return A().get()

    return (function, None)


@program
def nested_class_kept(log: list[Any]) -> Any:
    box = Box(c=None)

    def function(x):
        if box.c is None:

            class A:
                count = 0

                def hit(self):
                    type(self).count += 1
                    return type(self).count

            box.c = A
        return x * box.c().hit()

    return (function, lambda: box.c.count)


@program
def del_attr_and_items(log: list[Any]) -> Any:
    box = Box(n=0, items=[1, 2, 3, 4, 5, 6, 7, 8], table={"a": 1, "b": 2, "c": 3, "d": 4})

    def function(x):
        box.t = x
        box.n += 1
        y = box.t + box.n
        del box.t
        del box.items[0], box.items[-1:]
        box.table.pop(next(iter(box.table)))
        log.append(hasattr(box, "t"))
        return y + len(box.items) + sum(box.table.values())

    return (function, box)


@program
def global_func_replaced(log: list[Any]) -> Any:
    box = Box(fn=lambda x: x * 2)

    def function(x):
        y = box.fn(x)
        old = box.fn
        box.fn = lambda z: old(z) + 1
        return y

    return (function, None)


@program
def star_args(log: list[Any]) -> Any:

    def g(*args, k=1, **kw):
        log.append((len(args), k, sorted(kw)))
        kw["z"] = args
        return args[0] * k + len(kw)

    def function(x):
        a = [x, x * 2]
        d = {"k": len(log), "q": 1}
        r = g(*a, **d)
        d["new"] = 1
        return r + g(x)

    return (function, None)


@program
def exceptions_types(log: list[Any]) -> Any:

    def function(x):
        try:
            [][5]
        except IndexError as e:
            log.append(str(e))
        try:
            {}["k"]
        except KeyError as e:
            log.append(repr(e))
        try:
            x = x.nope
        except AttributeError as e:
            log.append(type(e).__name__)
        try:
            int("z")
        except ValueError as e:
            log.append(str(e))
        try:
            x @ torch.ones(5)
        except RuntimeError:
            log.append("sizes")
        return x + 1

    return (function, None)


@program
def raise_with_state(log: list[Any]) -> Any:
    box = Box(n=0, buf=torch.zeros(3))

    def function(x):
        box.n += 1
        box.buf.add_(x)
        if box.n == 2:
            raise RuntimeError(f"at {box.n}")
        box.buf.mul_(2)
        return box.buf + box.n

    return (function, box)


@program
def chained_compare_walrus(log: list[Any]) -> Any:
    box = Box(n=0)

    def function(x):
        if 0 <= (m := box.n) < 2:
            log.append(m)
        box.n = m + 1
        while (k := len(log)) < 5 and k < box.n * 2:
            log.append(k)
        return x * m + (y if (y := k) else 1)

    return (function, box)


@program
def dict_order_and_del(log: list[Any]) -> Any:
    d = {}

    def function(x):
        k = f"k{len(log)}"
        d[k] = x.sum()
        d.pop("z", None)
        d["z"] = 1
        log.append(list(d))
        return x + len(d)

    return (function, d)


@program
def nonlocal_list_of_fns(log: list[Any]) -> Any:
    fns = []

    def function(x):
        for i in range(2):

            def g(y, i=i):
                return y * i + x + len(fns)

            fns.append(g)
        return sum(h(x) for h in fns)

    return (function, None)


@program
def module_list_append(log: list[Any]) -> Any:
    m = nn.ModuleList([nn.Linear(3, 3)])

    def function(x):
        for layer in m:
            x = layer(x)
        if len(m) < 3:
            m.append(nn.Identity())
        return x * len(m)

    return (function, lambda: len(m))


@program
def buffer_registered(log: list[Any]) -> Any:

    class M(nn.Module):
        def forward(self, x):
            if not hasattr(self, "buf"):
                self.register_buffer("buf", torch.zeros(3))
            self.buf = self.buf * 0.5 + x
            return self.buf

    m = M()
    return (m, lambda: (list(m.state_dict()), m.buf))


@program
def train_mode_ctx(log: list[Any]) -> Any:
    m = nn.Dropout(0.5)

    def function(x):
        was = m.training
        m.eval()
        try:
            y = m(x)
        finally:
            m.train(was)
        log.append(m.training)
        return y

    return (function, None)


@program
def string_ops(log: list[Any]) -> Any:
    box = Box(s="a,b", n=1)

    def function(x):
        parts = box.s.split(",")
        parts.append(str(box.n))
        box.s = ",".join(parts)
        box.n += len(parts)
        log.append(box.s.upper()[-3:])
        log.append(f"box.n={box.n!r}")
        log.append("%d-%s" % (box.n, box.s[:2]))  # noqa: UP031
        return x * len(box.s)

    return (function, box)


@program
def int_overflow_bits(log: list[Any]) -> Any:
    box = Box(n=1)

    def function(x):
        box.n = (box.n << 3 | 1) & 255
        box.n ^= 5
        log.append((divmod(box.n, 7), -box.n // 2, box.n**2 % 11, abs(-box.n), round(box.n / 3, 2), bin(box.n)))
        return x * box.n

    return (function, box)


@program
def ternary_mix(log: list[Any]) -> Any:
    a = [1, 2, 3]
    b = iter([5, 6, 7, 8, 9, 10])

    def function(x):
        a.append(next(b))
        m = max(a)
        a.remove(min(a))
        a[:] = sorted(a, reverse=True)
        return x * m + sum(i * j for i, j in zip(a, a[1:]))  # noqa: RUF007

    return (function, a)


@program
def property_cache(log: list[Any]) -> Any:

    class C:
        def __init__(s):
            s._v = None
            s.n = 0

        @property
        def v(s):
            if s._v is None:
                log.append("compute")
                s._v = torch.ones(3) * (s.n + 1)
            return s._v

        def reset(s):
            s._v = None
            s.n += 1

    c = C()

    def function(x):
        y = c.v * x
        if c.n < 1:
            c.reset()
        return y + c.v

    return (function, lambda: c.n)


@program
def super_chain(log: list[Any]) -> Any:

    class A:
        n = 0

        def go(s, x):
            log.append("A")
            s.n += 1
            return x + s.n

    class B(A):
        def go(s, x):
            log.append("B")
            return super().go(x) * 2

    class C(A):
        def go(s, x):
            log.append("C")
            s.m = x
            return super().go(x) - 1

    class D(B, C):
        pass

    d = D()
    return (lambda x: d.go(x), lambda: vars(d))
