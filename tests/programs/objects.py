"""Classes of one's own: properties, descriptors, __getattr__, super, mixins, slots, metaclasses, copies."""

from __future__ import annotations

import abc
import copy
import weakref

from tests.programs.harness import attempt, program


@program
def properties_with_setters(torch, compile):
    class Temperature:
        def __init__(self, value):
            self._value, self.writes = value, 0

        @property
        def value(self):
            return self._value * 2

        @value.setter
        def value(self, new):
            self.writes += 1
            self._value = new

        @value.deleter
        def value(self):
            self._value = 0.0

    t = Temperature(1.0)

    @compile
    def run(x):
        y = x / t.value
        t.value = t.value + 1
        if t.writes > 2:
            del t.value
            t.value = 5.0
        return y

    for _ in range(4):
        yield run(torch.ones(2))
        yield t._value, t.writes


@program
def descriptors(torch, compile):
    class Positive:
        def __set_name__(self, owner, name):
            self.name = "_" + name

        def __get__(self, obj, kind=None):
            return self if obj is None else getattr(obj, self.name, 1.0)

        def __set__(self, obj, value):
            if value <= 0:
                raise ValueError(f"{self.name} must be positive")
            setattr(obj, self.name, value)

    class Scaler:
        scale = Positive()
        sharp = Positive()

        def __call__(self, x):
            return (x * self.scale) ** self.sharp

    s = Scaler()

    @compile
    def run(x, scale=None):
        if scale is not None:
            s.scale = scale
        return s(x)

    x = torch.arange(3.0)
    yield run(x)
    yield run(x, 2.0)
    yield attempt(run, x, -1.0)
    s.sharp = 2
    yield run(x)
    yield sorted(vars(s).items())


@program
def super_and_mixins(torch, compile):
    class Base(torch.nn.Module):
        order = ()

        def forward(self, x):
            return x * self.factor()

        def factor(self):
            return 1.0

    class Doubling:
        def factor(self):
            return 2 * super().factor()

    class Shifting:
        def forward(self, x):
            return super().forward(x + 1) - 1

    class Net(Shifting, Doubling, Base):
        def factor(self):
            return super().factor() + 0.5

    m = Net()
    f = compile(m)
    yield f(torch.arange(3.0))
    yield f(torch.ones(2))
    Doubling.factor = lambda self: 10.0
    yield f(torch.ones(2))
    yield [k.__name__ for k in Net.__mro__[:4]]


@program
def class_and_static_methods(torch, compile):
    class Norm:
        eps = 1e-3
        made = []

        @classmethod
        def create(cls, p):
            cls.made.append(p)
            return cls(p)

        @staticmethod
        def power(x, p):
            return x.abs() ** p

        def __init__(self, p):
            self.p = p

        def __call__(self, x):
            return self.power(x, self.p).sum() ** (1 / self.p) + self.eps

    class Loose(Norm):
        eps = 1.0

    @compile
    def run(x, p, kind=Norm):
        return kind.create(p)(x)

    yield run(torch.tensor([3.0, 4.0]), 2)
    yield run(torch.tensor([3.0, 4.0]), 1)
    yield run(torch.tensor([3.0, 4.0]), 2, Loose)
    Norm.eps = 0.0
    yield run(torch.tensor([3.0, 4.0]), 2)
    yield Norm.made


@program
def getattr_fallback(torch, compile):
    class Params:
        def __init__(self, **values):
            self.values = values
            self.asked = []

        def __getattr__(self, name):
            if name.startswith("__") or name not in self.values:
                raise AttributeError(name)
            self.asked.append(name)
            return self.values[name]

    p = Params(scale=2.0, shift=1.0)

    @compile
    def run(x):
        return x * p.scale + p.shift + getattr(p, "missing", 0.5) + hasattr(p, "shift")

    yield run(torch.ones(1))
    p.values["missing"] = 3.0
    yield run(torch.ones(1))
    yield p.asked


@program
def slots_and_copies(torch, compile):
    class Node:
        __slots__ = ("children", "value")

        def __init__(self, value, *children):
            self.value, self.children = value, list(children)

    @compile
    def doubled(tree):
        new = copy.copy(tree)
        new.children = [doubled_inner(c) for c in tree.children]
        new.value = tree.value * 2
        return new

    def doubled_inner(node):
        return Node(node.value * 2, *map(doubled_inner, node.children))

    tree = Node(torch.ones(1), Node(torch.zeros(1)), Node(torch.ones(2), Node(torch.ones(1) * 7)))
    for _ in range(2):
        tree = doubled(tree)
        yield tree.value, [c.value for c in tree.children], tree.children[1].children[0].value
    yield attempt(setattr, tree, "other", 1)


@program
def abstract_base_and_template_method(torch, compile):
    class Layer(abc.ABC):
        @abc.abstractmethod
        def transform(self, x): ...

        def __call__(self, x):
            y = self.transform(x)
            return y if y.shape == x.shape else y.expand(x.shape)

    class Sum(Layer):
        def transform(self, x):
            return x.sum()

    class Flip(Layer):
        def transform(self, x):
            return x.flip(0)

    @compile
    def run(layers, x):
        for kind in layers:
            x = kind()(x)
        return x

    x = torch.arange(3.0)
    yield run([Flip, Sum], x)
    yield run((Flip,), x)
    yield attempt(run, [Layer], x)


@program
def linked_list_is_built_and_walked(torch, compile):
    class Cell:
        def __init__(self, head, tail=None):
            self.head, self.tail = head, tail

        def __iter__(self):
            cell = self
            while cell is not None:
                yield cell.head
                cell = cell.tail

        def __len__(self):
            return sum(1 for _ in self)

    @compile
    def run(xs):
        stack = None
        for x in xs:
            stack = Cell(x, stack)
        total = sum(k * x for k, x in enumerate(stack))
        return stack, total, len(stack)

    stack, total, n = run([torch.ones(1) * k for k in range(4)])
    yield total, n, list(stack)
    stack, total, n = run([torch.ones(1) * k for k in range(2)])
    yield total, n, stack.tail.tail is None


@program
def objects_compared_by_identity(torch, compile):
    @compile
    def run(x, y, z):
        same = x is y
        others = [t for t in (y, z) if t is not x]
        return x if same else x + y, len(others), z is None

    a, b = torch.ones(2), torch.ones(2)
    yield run(a, a, None)
    yield run(a, b, a)
    yield run(a, a, b)
    yield run(b, b, None)


@program
def attribute_dictionaries(torch, compile):
    class AttrDict(dict):
        def __getattr__(self, name):
            try:
                return self[name]
            except KeyError:
                raise AttributeError(name) from None

        def __setattr__(self, name, value):
            self[name] = value

    cfg = AttrDict(lr=0.1, model=AttrDict(width=2))

    @compile
    def run(x):
        cfg.steps = cfg.get("steps", 0) + 1
        cfg.model.width += 1
        return x * cfg.lr * cfg.model.width

    for _ in range(3):
        yield run(torch.ones(2))
    yield sorted(cfg), cfg.steps, cfg.model
    yield attempt(lambda: cfg.nothing)


@program
def class_registry_by_init_subclass(torch, compile):
    class Plugin:
        known = {}

        def __init_subclass__(cls, name, **kwargs):
            super().__init_subclass__(**kwargs)
            Plugin.known[name] = cls

        def __init__(self, k):
            self.k = k

    class Add(Plugin, name="add"):
        def run(self, x):
            return x + self.k

    class Mul(Plugin, name="mul"):
        def run(self, x):
            return x * self.k

    @compile
    def run(x, program):
        for name, k in program:
            x = Plugin.known[name](k).run(x)
        return x

    yield run(torch.ones(2), [("add", 1), ("mul", 3)])
    yield run(torch.ones(2), [("mul", 3), ("add", 1)])
    Plugin.known["add"] = Mul
    yield run(torch.ones(2), [("mul", 3), ("add", 1)])


@program
def callable_objects_and_bound_methods(torch, compile):
    class Schedule:
        def __init__(self, start):
            self.step, self.start = 0, start

        def __call__(self):
            self.step += 1
            return self.start / self.step

        def peek(self):
            return self.start

    schedule = Schedule(12.0)
    actions = [schedule, schedule.peek, schedule.__call__]

    @compile
    def run(x, k):
        return x * actions[k]()

    for k in (0, 1, 0, 2, 1, 0):
        yield run(torch.ones(1), k)
    yield schedule.step


@program
def weak_references(torch, compile):
    class Owner:
        def __init__(self, scale):
            self.scale = scale

    owner = Owner(2.0)
    ref = weakref.ref(owner)

    @compile
    def run(x):
        o = ref()
        return x if o is None else x * o.scale

    yield run(torch.ones(1))
    owner.scale = 3.0
    yield run(torch.ones(1))


@program
def tensor_attributes(torch, compile):
    @compile
    def tag(x, name):
        x.note = name
        y = x * 2
        y.origin = name
        return y, getattr(x, "count", 0)

    x = torch.ones(2)
    y, count = tag(x, "first")
    yield y, count, x.note, y.origin
    x.count = 5
    y, count = tag(x, "second")
    yield y, count, x.note, y.origin
