# ruff: noqa
"""Small programs: classes, descriptors, `super`, metaclasses, `match`. See programs_basic.py."""

import abc
import collections
import dataclasses
import enum
import functools
import typing

from bytecode_oracle import note


class Base:
    def __init__(self, x):
        self.x = note(x)

    def value(self):
        return self.x

    @classmethod
    def make(cls, *args):
        return cls(*args)

    @staticmethod
    def double(x):
        return 2 * x

    @property
    def twice(self):
        return self.double(self.x)

    @twice.setter
    def twice(self, value):
        self.x = value / 2

    @twice.deleter
    def twice(self):
        del self.x

    def __repr__(self):
        return f"{type(self).__name__}({self.x})"


class Derived(Base):
    def __init__(self, x, y=0):
        super().__init__(x + 1)
        self.y = y

    def value(self):
        return super().value() * 10, super(Derived, self).x if False else self.y

    @classmethod
    def make(cls, *args):
        return super().make(*args)


def instances():
    a, b = Base(1), Derived(2, y=3)
    a.twice = 10
    out = [
        a.value(),
        b.value(),
        a.twice,
        b.twice,
        Derived.make(5, 6).value(),
        Base.double(4),
        b.double(5),
        repr([a, b]),
    ]
    del a.twice
    return out, hasattr(a, "x"), isinstance(b, Base), type(b).__mro__[1] is Base


def missing_attribute():
    Base(1).nothing


def property_that_fails():
    a = Base(1)
    del a.x
    return a.twice


def diamond():
    class A:
        def go(self):
            return ["A"]

    class B(A):
        def go(self):
            return ["B"] + super().go()

    class C(A):
        def go(self):
            return ["C"] + super().go()

    class D(B, C):
        def go(self):
            f = super().go
            return ["D"] + f()

    return D().go(), [c.__name__ for c in D.__mro__]


def super_in_odd_places():
    class A:
        kind = "A.kind"

        def __init__(self, *args, **kwargs):
            self.args = args, kwargs

        def __getitem__(self, i):
            return ("A", i)

    class B(A):
        kind = "B.kind"

        def __init__(self, *args, **kwargs):
            super().__init__(*args, extra=1, **kwargs)

        def __getitem__(self, i):
            return [super(B, self).__getitem__(i), super().__getitem__(i + 1), super().kind]

        def captured(self):
            def inner():
                return self.kind, __class__.__name__

            self.tag = super
            return inner(), super().__init__, (lambda: super(B, self).kind)()

        def in_comprehension(self):
            return [super(B, self).kind for _ in range(2)]

        def no_first(*args):
            return super().kind

        def reassigned(self):
            self = B()
            return super().kind

        def deleted(self):
            del self
            return super().kind

        def nested(self):
            def inner(x):
                return super().kind

            return inner(self)

        def nested_wrong(self):
            return (lambda: super().kind)()

    b = B(1, k=2)
    out = [b.args, b[3], b.captured()[0], b.captured()[2], b.in_comprehension(), b.reassigned(), b.nested()]
    for f in (b.no_first, b.deleted, b.nested_wrong):
        try:
            out.append(f())
        except Exception as e:
            out.append((type(e), str(e)))
    return out


def init_returns_something():
    class Bad:
        def __init__(self):
            return 5

    Bad()


def init_wrong_arguments():
    Derived(1, 2, 3)


def no_arguments_taken():
    class Plain:
        pass

    Plain(1)


def new_and_init():
    class Single:
        instance = None

        def __new__(cls, x):
            note(("new", x))
            if cls.instance is None:
                cls.instance = super().__new__(cls)
            return cls.instance

        def __init__(self, x):
            note(("init", x))
            self.x = x

    class Other:
        def __new__(cls, x):
            return x

        def __init__(self, x):
            note("never")

    return Single(1) is Single(2), Single(3).x, Other(5)


def subclass_of_builtin():
    class Point(tuple):
        def __new__(cls, x, y):
            return super().__new__(cls, (x, y))

        x = property(lambda self: self[0])

    class Names(dict):
        def __missing__(self, key):
            self[key] = value = key.upper()
            return value

        def __setitem__(self, key, value):
            super().__setitem__(key, value + "!")

    class Text(str):
        def __add__(self, other):
            return Text("+" + str.__add__(self, other))

    class Number(int):
        def __eq__(self, other):
            return note("eq") and int.__eq__(self, other)

        __hash__ = int.__hash__

    n = Names()
    return Point(1, 2).x, n["a"], n, Text("a") + "b" + "c", Number(3) == 3, Number(3) + 1, Number(3) in [3]


def operators():
    class V:
        def __init__(self, *v):
            self.v = v

        def __add__(self, o):
            return V(*(a + b for a, b in zip(self.v, o.v))) if isinstance(o, V) else NotImplemented

        def __radd__(self, o):
            return ("radd", o)

        def __iadd__(self, o):
            self.v += o.v
            return self

        def __matmul__(self, o):
            return sum(a * b for a, b in zip(self.v, o.v))

        def __neg__(self):
            return V(*(-a for a in self.v))

        def __eq__(self, o):
            return self.v == o.v if isinstance(o, V) else NotImplemented

        def __lt__(self, o):
            return "less"

        def __len__(self):
            return len(self.v)

        def __getitem__(self, i):
            return V(*self.v[i]) if isinstance(i, slice) else self.v[i]

        def __setitem__(self, i, x):
            note(("set", i, x))

        def __delitem__(self, i):
            note(("del", i))

        def __contains__(self, x):
            return "yes" if x in self.v else ""

        def __call__(self, x, *, k=1):
            return x * k

        def __index__(self):
            return 1

        def __format__(self, spec):
            return f"<{spec}>"

        def __pow__(self, o, m=None):
            return (o, m)

        __ror__ = lambda self, o: ("ror", o)

    a, b = V(1, 2), V(3, 4)
    out = [(a + b).v, 5 + a, a @ b, (-a).v, a == V(1, 2), a != b, a < b, a > b, bool(V()), len(a), a[0], a[:1].v]
    a[1] = 2
    a[1:2] = 3
    del a[0], a[::2]
    c = a
    c += b
    out += [
        1 in a,
        9 in a,
        9 not in a,
        a(3),
        a(3, k=2),
        [7, 8][a],
        f"{a:x}{a}",
        a**2,
        c is a,
        a.v,
        {} | a,
        "ok" if a else "",
    ]
    try:
        a + 1
    except TypeError as e:
        out.append(str(e))
    return out


def truth_protocols():
    class Bool:
        def __init__(self, v):
            self.v = v

        def __bool__(self):
            return note(self.v)

    class Len:
        def __init__(self, v):
            self.v = v

        def __len__(self):
            return self.v

    out = [not Bool(True), Bool(False) or 1, "y" if Len(0) else "n", not Len(2), bool(Len(3))]
    for bad in (Bool(1), Len(-1), Len("x")):
        try:
            if bad:
                pass
        except Exception as e:
            out.append((type(e), str(e)))
    return out


def comparisons_not_bool():
    class Odd:
        def __eq__(self, other):
            return [1]

        def __lt__(self, other):
            return []

    a = Odd()
    if a == 1:
        note("equal")
    if a < 1:
        note("less")
    return a == 1, a < 1, 1 if a != 2 else 0, a == a == 1


def getattr_protocols():
    class Lazy:
        here = 1

        def __getattr__(self, name):
            if name.startswith("x"):
                return name
            raise AttributeError(f"no {name}")

        def __setattr__(self, name, value):
            note(("set", name))
            object.__setattr__(self, name, value)

        def __delattr__(self, name):
            note(("del", name))

    a = Lazy()
    a.z = 3
    del a.z
    out = [a.here, a.xy, a.z, getattr(a, "missing", "default")]
    try:
        a.missing
    except AttributeError as e:
        out.append(str(e))
    return out


def getattribute():
    class Wrapped:
        def __init__(self):
            self.a = 1

        def __getattribute__(self, name):
            note(name)
            return object.__getattribute__(self, name)

        def method(self):
            return self.a

    return Wrapped().method()
