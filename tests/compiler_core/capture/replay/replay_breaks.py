"""Programs in which the graph breaks inside operators, protocols, comprehensions, generators. See `replay_programs`."""

from __future__ import annotations

import functools
from typing import Any

from tests.compiler_core.capture.replay.replay_programs import Box, program


@program
def break_everywhere(log: list[Any]) -> Any:
    box = Box(n=0, d={})

    def h(x, k):
        box.d[k] = x * k
        print("h", k)
        box.n += k
        return box.d[k]

    def function(x):
        tot = [h(x, i) for i in range(3)]
        d = {i: h(x, i) for i in (4, 5)}
        s = sum(h(x, i) for i in (6, 7))
        print("mid", len(box.d))
        return (tot, d, s + box.n)

    return (function, box)


@program
def break_in_property(log: list[Any]) -> Any:

    class A:
        def __init__(s):
            s._n = 0

        @property
        def n(s):
            print("get", s._n)
            s._n += 1
            return s._n

        @n.setter
        def n(s, v):
            print("set", v)
            s._n = v

        def __getitem__(s, k):
            print("item", k)
            return k * 2

        def __len__(s):
            print("len")
            return 3

        def __contains__(s, k):
            print("in", k)
            return k < 2

        def __iter__(s):
            for i in range(3):
                print("it", i)
                yield i

        def __add__(s, o):
            print("add")
            return o + 1

        def __eq__(s, o):
            print("eq")
            return True

        def __hash__(s):
            return 1

        def __bool__(s):
            print("bool")
            return True

        def __call__(s, *a):
            print("call", len(a))
            return len(a)

        def __enter__(s):
            print("enter")
            return s

        def __exit__(s, *a):
            print("exit", a[0])
            return True

        def __format__(s, spec):
            print("fmt", spec)
            return "A"

    a = A()

    def function(x):
        y = x * a.n
        a.n = 5
        y = y + a[2] + len(a)
        if 1 in a and a == 3 and a:
            y = y + 1
        for i in a:
            y = y + i
        y = a + y
        y = y * a(1, 2)
        with a as b:
            y = y + b.n
            raise KeyError
        log.append(f"{a:>3}")
        i, j, k = a
        return (y + i + j + k, [*a], max(a))

    return (function, lambda: a._n)


@program
def break_in_sort_key_and_map(log: list[Any]) -> Any:

    def key(v):
        print("k", v)
        return -v

    def function(x):
        a = sorted([1, 3, 2], key=key)
        b = list(map(lambda v: print("m", v) or v, a))  # noqa: C417
        c = [*filter(lambda v: print("f", v) or v > 1, b)]
        d = functools.reduce(lambda u, v: print("r", u, v) or u + v, c)
        m = min(a, key=key)
        e = any(print("a", v) or v > 2 for v in a)
        return x * d + m + e

    return (function, None)


@program
def break_in_init_new(log: list[Any]) -> Any:

    class A:
        def __new__(cls, *a):
            print("new")
            return super().__new__(cls)

        def __init__(s, v):
            print("init")
            s.v = v

        def __del__(s):
            pass

    class B(A):
        def __init__(s, v):
            super().__init__(v * 2)
            print("B")
            s.w = 1

    def function(x):
        b = B(x)
        c = B(b.v)
        log.append(c.w)
        return c.v

    return (function, None)


@program
def break_in_decorator_args(log: list[Any]) -> Any:

    def deco(tag):

        def d(fn):

            @functools.wraps(fn)
            def w(*a, **k):
                print(tag, "in")
                r = fn(*a, **k)
                print(tag, "out")
                return r

            return w

        return d

    @deco("A")
    @deco("B")
    def g(x, y=2):
        print("g")
        return x * y

    def function(x):
        return g(g(x, y=3)) + g(x)

    return (function, None)


@program
def cause_of_an_exception_from_before_the_break(log: list[Any]) -> Any:

    def function(x):
        try:
            try:
                raise ValueError("a")
            except ValueError as e:
                error = KeyError("b")
                print("between")
                raise error from e
        except KeyError as k:
            print("caught")
            print(type(k.__cause__).__name__, k.__suppress_context__)
        return x + 1

    return (function, lambda: ())


@program
def break_try_nest(log: list[Any]) -> Any:

    def function(x):
        r = []
        for i in range(3):
            try:
                try:
                    print("t", i)
                    if i == 1:
                        raise ValueError(i)
                    if i == 2:
                        continue
                    r.append(x * i)
                except ValueError as e:
                    print("e", e)
                    raise KeyError(i) from e
                finally:
                    print("fin", i)
                    r.append(i)
            except KeyError as k:
                print("k", k, type(k.__cause__).__name__)
                r.append(x)
            else:
                print("else", i)
        return r

    return (function, None)


@program
def break_in_gen_send(log: list[Any]) -> Any:

    def g():
        t = 0
        while True:
            v = yield t
            print("got")
            if v is None:
                return "end"
            t = t + v

    def wrap():
        r = yield from g()
        log.append(r)
        yield "last"

    def function(x):
        w = wrap()
        next(w)
        a = w.send(x)
        print("a")
        b = w.send(x * 2)
        c = w.send(None)
        return (a, b, c)

    return (function, None)


@program
def break_closure_cells(log: list[Any]) -> Any:

    def function(x):
        n = 0
        acc = []

        def inc(k):
            nonlocal n
            n += k
            print("n", n)
            acc.append(x * n)
            return lambda: (n, acc[-1])

        l1 = inc(1)
        print("b")
        l2 = inc(2)
        n += 10
        print("c", l1()[0])
        return (l1(), l2(), acc, n)

    return (function, None)


@program
def break_kwonly_defaults(log: list[Any]) -> Any:

    def g(a, /, b, *c, d=len(log), e=[], **k):  # noqa: B006, B008
        e.append(len(c))
        print(sorted(k), d)
        return a * b + len(e) + d

    def function(x):
        return g(x, 2, 3, 4, d=5, z=1) + g(x, 1)

    return (function, None)


@program
def break_match(log: list[Any]) -> Any:

    def function(x):
        out = []
        for v in ({"t": 1, "x": x}, [1, 2, 3], (x,), "s", 5, None):
            match v:
                case {"t": t, **rest}:
                    print("map", t, sorted(rest))
                    out.append(rest["x"] * t)
                case [_, *r]:
                    print("seq", len(r))
                    out.append(len(r))
                case str() as s:
                    print(s)
                case int(n) if n > 3:
                    print("int")
                    out.append(n)
                case _:
                    print("none")
        return out

    return (function, None)


@program
def break_while_data(log: list[Any]) -> Any:

    def function(x):
        n = 0
        while x.sum() < 50:
            x = x * 2 + 1
            n += 1
            log.append(n)
            if n > 5:
                break
        else:
            log.append("else")
        return (x, n)

    return (function, None)


@program
def break_star_unpack(log: list[Any]) -> Any:

    def function(x):

        def g(*a, **k):
            print(len(a), sorted(k))
            return a[0]

        t = (x, 1)
        d = {"u": 2}
        a = g(*t, *[2, 3], **d, **{"v": 1})
        (b, *c), q = [[x * 2, 1, 2], 3]
        print(len(c))
        z = {**d, "w": b}
        row = [*c, *t]
        return (a + b + q, len(row), z["w"])

    return (function, None)


@program
def break_chain_cmp(log: list[Any]) -> Any:

    class V:
        def __init__(s, v):
            s.v = v

        def __lt__(s, o):
            print("lt", s.v, o.v)
            return s.v < o.v

    def function(x):
        r = []
        r.append(V(1) < V(2) < V(3))
        r.append(not V(3) < V(2))
        r.append(sorted([V(3), V(1), V(2)])[0].v)
        return x * sum(map(int, r))

    return (function, None)


@program
def break_in_iadd_attr(log: list[Any]) -> Any:

    class L(list):
        def __iadd__(s, o):
            print("iadd")
            s.extend(o)
            return s

    b = Box(l=L([1]), d={"k": L([2])})

    def function(x):
        b.l += [len(b.l)]
        b.d["k"] += [1]
        return x * len(b.l) + len(b.d["k"])

    return (function, b)
