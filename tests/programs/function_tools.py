"""functools, itertools and operator in tensor code."""

from __future__ import annotations

import functools
import itertools
import math
import operator

from tests.programs.harness import attempt, program


@program
def partial_application(torch, compile):
    def affine(x, scale, shift=0.0, *, power=1):
        return (x * scale + shift) ** power

    double = functools.partial(affine, scale=2.0)
    square = functools.partial(double, power=2)

    @compile
    def run(x, fn):
        return fn(x), fn(x, shift=1.0)

    x = torch.arange(3.0)
    yield run(x, double)
    yield run(x, square)
    yield run(x, functools.partial(affine, scale=-1.0))
    yield compile(functools.partial(affine, x, shift=1.0))(3.0)


@program
def reduce_over_layers(torch, compile):
    layers = [torch.sin, torch.relu, functools.partial(torch.pow, exponent=2)]

    @compile
    def run(x, xs):
        y = functools.reduce(lambda acc, f: f(acc), layers, x)
        total = functools.reduce(operator.add, xs)
        product = functools.reduce(torch.mul, xs, torch.ones(1))
        return y, total, product

    yield run(torch.ones(2), [torch.ones(1) * k for k in (1, 2, 3)])
    layers.append(torch.exp)
    yield run(torch.ones(2), [torch.ones(1) * k for k in (4, 5)])
    yield attempt(run, torch.ones(2), [])


@program
def wraps_and_signatures(torch, compile):
    calls = []

    def logged(prefix):
        def decorate(fn):
            @functools.wraps(fn)
            def wrapper(*args, **kwargs):
                calls.append(f"{prefix}{fn.__name__}({len(args)}, {sorted(kwargs)})")
                return fn(*args, **kwargs)

            return wrapper

        return decorate

    @logged("> ")
    def scale(x, factor=2.0):
        """Scale x."""
        return x * factor

    @compile
    def run(x):
        return scale(x), scale(x, factor=3.0), scale.__name__, scale.__doc__

    yield run(torch.ones(1))
    yield run(torch.ones(2))
    yield calls


@program
def partialmethod_and_attrgetter(torch, compile):
    class Box:
        def __init__(self, x):
            self.inner = {"x": x}

        def apply(self, fn, scale):
            return fn(self.inner["x"]) * scale

        relu = functools.partialmethod(apply, torch.relu)
        tanh2 = functools.partialmethod(apply, torch.tanh, scale=2.0)

    get = operator.attrgetter("inner")
    pick = operator.itemgetter("x")
    call = operator.methodcaller("sum", dim=0)

    @compile
    def run(x):
        box = Box(x)
        return box.relu(3.0), box.tanh2(), call(pick(get(box)))

    yield run(torch.tensor([-1.0, 2.0]))
    yield run(torch.tensor([5.0]))


@program
def lru_cache_of_numbers(torch, compile):
    @functools.lru_cache(maxsize=8)
    def fibonacci(n):
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    @functools.cache
    def frequencies(n):
        return tuple(10000 ** (-k / n) for k in range(n))

    @compile
    def run(x, n):
        return x * fibonacci(n) + torch.tensor(frequencies(3)).sum()

    yield run(torch.ones(2), 7)
    yield run(torch.ones(2), 8)
    yield run(torch.ones(2), 7)


@program
def itertools_products(torch, compile):
    @compile
    def run(xs, n):
        pairs = [a * b for a, b in itertools.combinations(xs, 2)]
        grid = [(i, j) for i, j in itertools.product(range(n), repeat=2) if i != j]
        order = list(itertools.permutations("ab"))
        chained = torch.stack(list(itertools.chain(xs, pairs)))
        return chained.sum(0), grid, order, list(itertools.chain.from_iterable([[1], [2, 3]]))

    xs = [torch.ones(1) * k for k in range(1, 4)]
    yield run(xs, 2)
    yield run(xs, 3)
    yield run(xs[:2], 1)


@program
def itertools_windows_and_accumulate(torch, compile):
    @compile
    def run(xs):
        sums = list(itertools.accumulate(xs))
        maxima = list(itertools.accumulate(xs, torch.maximum))
        diffs = [b - a for a, b in itertools.pairwise(xs)]
        head = list(itertools.takewhile(lambda p: p[0] < 2, enumerate(xs)))
        tail = list(itertools.islice(xs, 1, None, 2))
        return sums, maxima, diffs, [x for _, x in head], tail

    yield run([torch.tensor([1.0, 5.0]), torch.tensor([4.0, 2.0]), torch.tensor([3.0, 3.0])])
    yield run([torch.tensor([1.0])])


@program
def groupby_and_starmap(torch, compile):
    @compile
    def run(items):
        groups = {k: [x for _, x in g] for k, g in itertools.groupby(items, key=operator.itemgetter(0))}
        merged = {k: torch.stack(v).sum(0) for k, v in groups.items()}
        scaled = list(itertools.starmap(lambda name, x: x * len(name), items))
        padded = list(itertools.zip_longest(groups, "xyz", fillvalue="-"))
        return merged, scaled, padded

    yield run([("a", torch.ones(1)), ("a", torch.ones(1) * 2), ("bb", torch.ones(1) * 3)])
    yield run([("bb", torch.ones(1) * 5)])


@program
def count_cycle_and_repeat(torch, compile):
    numbers = itertools.count(10)

    @compile
    def run(xs):
        signs = itertools.cycle([1, -1])
        alternating = sum(s * x for s, x in zip(signs, xs))
        same = list(map(operator.mul, xs, itertools.repeat(2)))
        return alternating, same, next(numbers)

    for _ in range(3):
        yield run([torch.ones(1) * k for k in (1, 2, 3)])
    yield next(numbers)


@program
def map_filter_sorted(torch, compile):
    @compile
    def run(table, limit):
        big = dict(filter(lambda kv: kv[1].shape[0] > limit, table.items()))
        names = sorted(big, key=lambda n: (-big[n].shape[0], n))
        total = sum(map(torch.sum, big.values()), start=torch.zeros(()))
        biggest = max(table, key=lambda n: table[n].shape[0])
        return names, total, biggest, min(map(len, table)), math.prod(t.shape[0] for t in big.values())

    table = {"b": torch.ones(3), "a": torch.ones(3), "long": torch.ones(5), "s": torch.ones(1)}
    yield run(table, 2)
    yield run(table, 3)
    yield run(table, 9)


@program
def memoised_method(torch, compile):
    class Kernel:
        def __init__(self, width):
            self.width = width

        @functools.lru_cache
        def weights(self, n):
            return torch.linspace(-1, 1, n) * self.width

        def __call__(self, x):
            return x * self.weights(x.shape[0])

    a, b = Kernel(1.0), Kernel(2.0)
    run = compile(lambda k, x: k(x))
    yield run(a, torch.ones(3))
    yield run(b, torch.ones(3))
    yield run(a, torch.ones(3) * 2)
    yield a.weights(3) is a.weights(3)
