# ruff: noqa
"""Small programs: descriptors, metaclasses, class bodies, dataclasses, library decorators. See programs_basic.py."""

import abc
import dataclasses
import enum
import functools
import typing

from bytecode_oracle import note
from programs_classes import Base


def descriptors():
    class Typed:
        def __set_name__(self, owner, name):
            self.name = "_" + name

        def __get__(self, instance, owner):
            return self if instance is None else getattr(instance, self.name)

        def __set__(self, instance, value):
            if not isinstance(value, int):
                raise TypeError(f"{self.name} needs int")
            setattr(instance, self.name, value)

    class Has:
        a = Typed()
        b = Typed()

        def __init__(self, a, b):
            self.a, self.b = a, b

    h = Has(1, 2)
    h.a += 5
    out = [h.a, h.b, type(Has.a).__name__, vars(h)]
    try:
        Has("x", 1)
    except TypeError as e:
        out.append(str(e))
    return out


def slots():
    class S:
        __slots__ = ("a",)

        def __init__(self):
            self.a = 1

    s = S()
    try:
        s.b = 2
    except AttributeError as e:
        return s.a, str(e)


def metaclasses():
    class Meta(type):
        def __new__(mcs, name, bases, namespace, **options):
            note((name, sorted(k for k in namespace if not k.startswith("__")), options))
            return super().__new__(mcs, name, bases, namespace | {"added": 1})

        def __init__(cls, name, bases, namespace, **options):
            super().__init__(name, bases, namespace)

        def __call__(cls, *args):
            note("call")
            return super().__call__(*args)

        @classmethod
        def __prepare__(mcs, name, bases, **options):
            return {"prepared": 2}

        def __len__(cls):
            return 7

    class A(metaclass=Meta, flag=True):
        def __init__(self, x=0):
            self.x = x

    class B(A):
        y = A.added

    return A(3).x, A.added, A.prepared, B().y, len(A), type(B) is Meta


def init_subclass():
    class Plugin:
        registry = []

        def __init_subclass__(cls, /, tag=None, **kwargs):
            super().__init_subclass__(**kwargs)
            cls.registry.append((cls.__name__, tag))

    class One(Plugin, tag="one"):
        pass

    class Two(One):
        pass

    return Plugin.registry


def class_bodies():
    n = 3

    class Outer:
        a = 1
        b = [a, n]
        c = [x for x in range(n)]
        d = {k: v for k, v in zip("ab", range(n))}

        class Inner:
            e = n
            try:
                f = a
            except NameError as error:
                f = str(error)

        for i in range(2):
            pass
        if a:
            g = lambda self: self.a
        del i

        def method(self, default=a):
            return default, __class__

    o = Outer()
    return o.b, o.c, o.d, Outer.Inner.e, Outer.Inner.f, o.g(), o.method()[0], hasattr(o, "i"), Outer.__qualname__


def class_scope_shadows_cell():
    x = "function"

    class A:
        y = x
        x = "class"
        z = x
        del x
        w = x

    return A.y, A.z, A.w


def class_decorators():
    def register(cls):
        cls.extra = 5
        return cls

    @register
    class A:
        pass

    return A().extra


def data_classes():
    @dataclasses.dataclass(order=True)
    class P:
        x: int
        y: float = 2.0
        tags: list = dataclasses.field(default_factory=list, compare=False)

        def __post_init__(self):
            note(self.x)

    @dataclasses.dataclass(frozen=True)
    class Q(P if False else object):
        a: int

    p, q = P(1), P(1, 3.0)
    p.tags.append(1)
    out = [p, p < q, dataclasses.asdict(q), dataclasses.replace(p, x=5), P(2) == P(2), hash(Q(1)) == hash(Q(1))]
    try:
        Q(1).a = 2
    except dataclasses.FrozenInstanceError as e:
        out.append(str(e))
    return [repr(x) for x in out]


def enums():
    class Color(enum.Enum):
        RED = 1
        BLUE = enum.auto()

        @property
        def nice(self):
            return self.name.lower()

    class Flags(enum.IntFlag):
        A = 1
        B = 2

    return Color.RED.nice, Color(2).name, [c.value for c in Color], Flags.A | Flags.B == 3, Color["RED"] is Color.RED


def abstract_classes():
    class Shape(abc.ABC):
        @abc.abstractmethod
        def area(self): ...

    class Square(Shape):
        def area(self):
            return 4

    try:
        Shape()
    except TypeError as e:
        note(str(e)[:40])
    return Square().area(), issubclass(Square, Shape)


def named_tuples():
    class P(typing.NamedTuple):
        x: int
        y: int = 5

    p = P(1)
    return p, p._replace(y=2), p.x


def functools_tools():
    @functools.lru_cache(None)
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    @functools.wraps(fib)
    def wrapped(*a):
        return fib(*a)

    @functools.singledispatch
    def kind(x):
        return "object"

    @kind.register
    def _(x: int):
        return "int"

    class C:
        @functools.cached_property
        def slow(self):
            return note("computed")

        @functools.partialmethod
        def nothing(self):
            pass

    c = C()
    add = functools.partial(lambda a, b, c=0: (a, b, c), 1, c=3)
    return wrapped(20), kind(1), kind("x"), c.slow, c.slow, add(2), functools.reduce(lambda a, b: a * b, range(1, 6))


def bound_methods():
    a = Base(3)
    f = a.value
    a.x = 4
    g = Base.value
    h = a.__class__.double
    return (
        f(),
        g(a),
        h(5),
        f == a.value,
        f.__self__ is a,
        list(map(a.double, [1, 2])),
        str.upper("x"),
        "x".join(["a"] * 2),
    )


def callable_instances():
    class Adder:
        def __init__(self, n):
            self.n = n

        def __call__(self, *args, **kwargs):
            return self.n + sum(args) + len(kwargs)

    class Nested:
        __call__ = Adder(10)

    return Adder(1)(2, 3, k=4), list(map(Adder(1), [1, 2])), Nested()(1)


def weird_class_attribute():
    class Proxy:
        @property
        def __class__(self):
            note("class asked")
            return int

    p = Proxy()
    x = [p, (p, p)]
    for y in x:
        pass
    return type(p) is Proxy, isinstance(p, int)
