"""Generators as data: batches, windows, pipelines that yield tensors; partly consumed, closed, and sent to."""

from __future__ import annotations

import itertools

from tests.programs.harness import attempt, program


@program
def batches_from_a_generator(torch, compile):
    def batches(n, size):
        for start in range(0, n, size):
            yield torch.arange(float(start), float(min(start + size, n)))

    @compile
    def total(n, size):
        out = torch.zeros(())
        count = 0
        for batch in batches(n, size):
            out = out + batch.sum()
            count += 1
        return out, count

    yield total(5, 2)
    yield total(6, 4)
    yield total(5, 2)


@program
def generator_expressions(torch, compile):
    @compile
    def run(xs):
        squares = (x * x for x in xs)
        first = next(squares)
        rest = sum(squares)
        return first, rest, any(x.dim() == 2 for x in xs), all(x.shape[0] > 1 for x in xs)

    yield run([torch.ones(2) * k for k in range(4)])
    yield run((torch.ones(1), torch.ones(1)))


@program
def generator_passed_in(torch, compile):
    @compile
    def consume_two(source):
        return next(source) + next(source, torch.zeros(2))

    def source(n):
        for k in range(n):
            yield torch.full((2,), float(k))

    stream = source(5)
    yield consume_two(stream)
    yield consume_two(stream)
    yield consume_two(stream)
    yield attempt(consume_two, stream)


@program
def generator_returned(torch, compile):
    @compile
    def powers(x):
        y = x * 2

        def stream():
            z = y
            for _ in range(3):
                yield z
                z = z * x

        return stream()

    for k in (2.0, 3.0):
        yield list(powers(torch.tensor([k])))


@program
def chain_of_generators(torch, compile):
    log = []

    def read(xs):
        for k, x in enumerate(xs):
            log.append(f"read {k}")
            yield x

    def scale(stream, s):
        for x in stream:
            log.append("scale")
            yield x * s

    def pairs(stream):
        a = None
        for x in stream:
            if a is not None:
                yield a + x
                a = None
            else:
                a = x

    @compile
    def run(xs, s):
        return [y for y in pairs(scale(read(xs), s))]

    xs = [torch.ones(1) * k for k in range(5)]
    yield run(xs, 2.0)
    yield log
    yield run(xs[:4], 3.0)
    yield len(log)


@program
def yield_from_and_return_value(torch, compile):
    def inner(x):
        yield x
        yield x + 1
        return "inner done"

    def outer(x):
        result = yield from inner(x)
        yield result
        yield from (x * k for k in range(2))

    @compile
    def run(x):
        return list(outer(x))

    yield run(torch.ones(1))
    yield run(torch.zeros(1))


@program
def generator_with_finally(torch, compile):
    log = []

    def stream(x):
        try:
            while True:
                yield x
                x = x * 2
        finally:
            log.append("closed")

    @compile
    def run(x, n):
        it = stream(x)
        taken = list(itertools.islice(it, n))
        it.close()
        log.append(n)
        return taken

    yield run(torch.ones(1), 3)
    yield run(torch.ones(1), 2)
    yield log


@program
def send_to_a_coroutine(torch, compile):
    def averager():
        total, count, value = torch.zeros(2), 0, None
        while True:
            x = yield value
            total = total + x
            count += 1
            value = total / count

    @compile
    def run(xs):
        avg = averager()
        next(avg)
        return [avg.send(x) for x in xs]

    yield run([torch.ones(2) * k for k in range(3)])
    yield run([torch.ones(2) * k for k in (5, 7, 9)])


@program
def parameters_as_generators(torch, compile):
    nn = torch.nn
    net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    with torch.no_grad():
        for p in net.parameters():
            p.fill_(0.5)

    @compile
    def penalty(l2):
        return sum(l2 * p.pow(2).sum() for p in net.parameters()), [n for n, _ in net.named_parameters()]

    yield penalty(0.1)
    yield penalty(0.2)
    net.append(nn.Linear(1, 1, bias=False))
    with torch.no_grad():
        net[2].weight.fill_(2.0)
    yield penalty(0.2)


@program
def iterator_class(torch, compile):
    class Windows:
        def __init__(self, x, size):
            self.x, self.size, self.at = x, size, 0

        def __iter__(self):
            return self

        def __next__(self):
            if self.at + self.size > len(self.x):
                raise StopIteration
            self.at += 1
            return self.x[self.at - 1 : self.at - 1 + self.size]

        def __len__(self):
            return max(0, len(self.x) - self.size + 1)

    @compile
    def moving_average(x, size):
        windows = Windows(x, size)
        expected = len(windows)
        means = [w.mean() for w in windows]
        assert len(means) == expected
        return torch.stack(means)

    yield moving_average(torch.arange(6.0), 2)
    yield moving_average(torch.arange(6.0) ** 2, 3)
    yield attempt(moving_average, torch.arange(2.0), 3)


@program
def sequence_protocol(torch, compile):
    class Dataset:
        def __init__(self, n):
            self.n = n

        def __getitem__(self, i):
            if i >= self.n:
                raise IndexError(i)
            return torch.full((2,), float(i)), i % 2

        def __len__(self):
            return self.n

    @compile
    def collate(data):
        xs, ys = zip(*[data[i] for i in range(len(data))])
        again = [y for _, y in data]
        return torch.stack(xs), list(ys), again

    yield collate(Dataset(3))
    yield collate(Dataset(4))
    yield attempt(collate, Dataset(0))


@program
def enumerate_zip_reversed(torch, compile):
    @compile
    def run(xs, names):
        out = {}
        for k, (name, x) in enumerate(zip(names, xs), start=1):
            out[name] = x * k
        rev = [n for n in reversed(out)]
        best = max(out, key=len)
        first, *middle, last = out.values()
        return out, rev, best, first - last, len(middle)

    xs = [torch.ones(1) * k for k in range(3)]
    yield run(xs, ["a", "bbb", "cc"])
    yield run(xs, ["x", "y", "z"])
    yield run(xs, "pq")
