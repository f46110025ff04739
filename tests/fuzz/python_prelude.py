"""What every random program has at module level: globals, helpers, a class, a module; and lines for its forward."""

from __future__ import annotations

MODULE_LINES = [
    "self.count += 1",
    "t = t * self.w",
    "t = t + self.w",
    "t = t + self.mean",
    "self.mean.mul_(0.5).add_(t.detach(), alpha=0.5)",
    "LOG.append(self.count)",
    "t = t * 2 if self.flag else t",
    "if 'c' not in self.cache:\n    self.cache['c'] = t.detach()",
    "t = t + self.cache.get('c', 0)",
    "self.flag = self.count % 3 == 0",
    "t = self.inner(t)",
]

GLOBALS = """\
import contextlib, contextvars, copy, functools, itertools, math, operator
from collections import Counter, namedtuple
LOG = []
G = 2
GL = [1, 2]
GD = {"a": 1}
CELLS = [0]
n, flag, items, table, s = 2, True, [4, 1], {"a": 2, "t": 5}, "glob"
Pair = namedtuple("Pair", "first second")
CONTEXT = contextvars.ContextVar("CONTEXT", default=1)
class Stop(Exception):
    pass
def note(value):
    LOG.append(value)
    return value
@contextlib.contextmanager
def section(name):
    LOG.append("+" + name)
    try:
        yield name
    except Stop:
        LOG.append("stopped")
    finally:
        LOG.append("-" + name)
class Guard:
    def __init__(self, swallow):
        self.swallow = swallow
    def __enter__(self):
        LOG.append("enter")
        return self
    def __exit__(self, kind, error, trace):
        LOG.append(kind.__name__ if kind else "exit")
        return self.swallow and kind is ValueError"""

HELPERS = """\
def adder(a):
    return lambda b: (a + b) % 41
def counting():
    seen = 0
    def count(a):
        nonlocal seen
        seen += 1
        return seen + a
    return count
@functools.lru_cache(maxsize=None)
def cached(a):
    LOG.append(("cached", a))
    return a * 3 % 7
def recurse(k, a):
    return a if k <= 0 else recurse(k - 1, a * 2 % 23) + 1
def delegating(k):
    got = yield from numbers(k)
    yield 9
    return got
def zipped(values):
    for a, b in zip(values, values[1:]):
        yield a * b % 7"""

THING = """\
count = 0
weight = 3
def __init__(self, total):
    self.total = total
    self.items = [total]
def bump(self, k):
    self.total = (self.total + k) % 50
    return self.total
@property
def double(self):
    return self.total * 2
@double.setter
def double(self, value):
    self.total = value // 2
def __getattr__(self, name):
    if name.startswith("opt_"):
        return len(name)
    raise AttributeError(name)
def __len__(self):
    return len(self.items)
def __getitem__(self, k):
    return self.items[k % len(self.items)] if self.items else k
def __setitem__(self, k, value):
    self.items[k % 3 : k % 3 + 1] = [value]
def __iter__(self):
    return iter(list(self.items))
def __contains__(self, k):
    return k in self.items
def __eq__(self, other):
    return isinstance(other, Thing) and self.total == other.total
def __hash__(self):
    return 7
def __add__(self, k):
    return type(self)((self.total + k) % 50)
def __call__(self, t):
    return t * self.weight
@classmethod
def made(cls):
    cls.count += 1
    return cls(cls.count)"""

AFTER = """\
class Sub(Thing):
    weight = 2
    def bump(self, k):
        self.last = k
        return super().bump(k + 1)
obj = Thing(4)"""

TENSOR_GLOBALS = """\
GT = torch.ones(3)
TD = {}
MEMO = {}
x, y = torch.arange(3.0), torch.ones(3)
def scaler(a):
    return lambda t: t * a
def waves(t):
    for k in range(2):
        yield t * k
        LOG.append(k)"""

NET = """\
def __init__(self):
    super().__init__()
    self.w = torch.nn.Parameter(torch.tensor([0.5, -1.0, 1.5]))
    self.inner = torch.nn.Tanh()
    self.register_buffer("mean", torch.zeros(3))
    self.count, self.flag, self.cache = 0, False, {}"""

TENSOR_AFTER = """\
net = Net().requires_grad_(GRAD)"""
