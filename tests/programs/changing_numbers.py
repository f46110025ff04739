"""Ints, floats, strings, sizes and dtypes that change from call to call; global counters."""

from __future__ import annotations

import math

from tests.programs.harness import attempt, program

COUNT = 0
TABLE = {"scale": 1.0}
NAMES = []


@program
def step_number_changes(torch, compile):
    @compile
    def warm_up(x, step):
        lr = min(1.0, (step + 1) / 10)
        return x * lr

    for step in range(14):
        yield warm_up(torch.ones(2), step)


@program
def temperature_changes(torch, compile):
    @compile
    def sharpen(x, t):
        return (x / t).softmax(-1)

    t = 2.0
    for _ in range(12):
        yield sharpen(torch.tensor([1.0, 2.0]), t)
        t *= 0.9


@program
def integer_index_changes(torch, compile):
    @compile
    def pick(x, k):
        return x[k] * 2 + x[: k + 1].sum()

    x = torch.arange(12.0)
    for k in range(12):
        yield pick(x, k)
    yield attempt(pick, x, 99)


@program
def number_of_layers_changes(torch, compile):
    @compile
    def repeat(x, n):
        for k in range(n):
            x = x + k
        return x

    for n in (1, 3, 2, 0, 3):
        yield repeat(torch.zeros(2), n)


@program
def global_counter(torch, compile):
    global COUNT
    COUNT = 0

    @compile
    def step(x):
        global COUNT
        COUNT += 1
        return x * COUNT

    for _ in range(12):
        yield step(torch.ones(1))
    yield COUNT


@program
def globals_of_every_kind(torch, compile):
    TABLE.clear()
    TABLE["scale"] = 1.0
    NAMES.clear()

    @compile
    def step(x, name):
        NAMES.append(name)
        TABLE["scale"] *= 2
        TABLE[name] = len(NAMES)
        return x * TABLE["scale"]

    for name in "abca":
        yield step(torch.ones(1), name)
    yield dict(TABLE), list(NAMES)


@program
def new_and_deleted_globals(torch, compile):
    names = globals()
    names.pop("LATE", None)

    @compile
    def step(x):
        global LATE
        try:
            LATE += 1
        except NameError:
            LATE = 10
        return x + LATE

    for k in range(4):
        if k == 2:
            del names["LATE"]
        yield step(torch.zeros(1))
    yield names.pop("LATE")


@program
def batch_sizes_change(torch, compile):
    @compile
    def centre(x):
        return (x - x.mean(0)) / x.shape[0]

    for n in (2, 3, 4, 2, 5):
        yield centre(torch.arange(float(n * 2)).reshape(n, 2))


@program
def dtypes_change(torch, compile):
    @compile
    def run(x, y):
        return x + y, (x * y).dtype

    for a in (torch.float32, torch.int64, torch.float64, torch.bool):
        yield run(torch.ones(2, dtype=a), torch.ones(2))
        yield run(torch.ones(2, dtype=a), 2)
        yield run(torch.ones(2, dtype=a), 2.5)


@program
def kinds_of_argument_change(torch, compile):
    @compile
    def run(x):
        return x * 2 if isinstance(x, (int, float, str)) else (x + 1 if x is not None else 0)

    for x in (3, torch.ones(1), 2.5, "ab", None, torch.ones(1, dtype=torch.int64), True, 3):
        yield run(x)


@program
def arithmetic_on_numbers(torch, compile):
    @compile
    def run(x, n, r):
        a = n // 3 + n % 3 - (n << 1) + (n ^ 5)
        b = round(r, 1) + math.floor(r) + abs(-r) ** 0.5
        c = divmod(n, 4)
        parity = "even" if n % 2 == 0 else "odd"
        return x * a + b, c, parity, f"{r:.2f}", int(r), n / 2, -n

    for n in range(10):
        yield run(torch.ones(1), n, n * 1.37)


@program
def cosine_schedule_in_python(torch, compile):
    class Cosine:
        def __init__(self, base, total):
            self.base, self.total, self.last = base, total, 0

        def value(self):
            self.last += 1
            t = self.last / self.total
            return self.base * 0.5 * (1 + math.cos(math.pi * min(t, 1.0)))

    schedule = Cosine(1.0, 6)

    @compile
    def step(x):
        lr = schedule.value()
        return x - lr * x, lr

    x = torch.ones(2)
    for _ in range(10):
        x, lr = step(x)
        yield x, lr


@program
def strings_change(torch, compile):
    @compile
    def run(x, text):
        return x * len(text), text.upper() + "!"

    for text in ("a", "bb", "ccc", "dddd"):
        yield run(torch.ones(1), text)


@program
def anneal_until(torch, compile):
    class Anneal(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.beta, self.step = 0.0, 0

        def forward(self, recon, kl):
            self.step += 1
            self.beta = min(1.0, self.beta + 0.25) if self.step > 2 else 0.0
            return recon + self.beta * kl

    m = Anneal()
    f = compile(m)
    for _ in range(9):
        yield f(torch.ones(1), torch.full((1,), 2.0))
        yield m.beta
