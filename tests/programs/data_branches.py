"""Decisions on data: branches, loops until convergence, early exits, .item() and .tolist()."""

from __future__ import annotations

from tests.programs.harness import attempt, leaf_tensor, program


@program
def branch_on_the_sum(torch, compile):
    @compile
    def run(x):
        y = x * 2
        if y.sum() > 0:
            z = y + 1
        else:
            z = y - 1
        return z * z

    for k in (1.0, -1.0, 2.0, -3.0):
        yield run(torch.full((2,), k))


@program
def loop_until_small(torch, compile):
    @compile
    def shrink(x, eps):
        steps = 0
        while x.abs().max() > eps:
            x = x / 2
            steps += 1
        return x, steps

    yield shrink(torch.tensor([1.0, 3.0]), 1.0)
    yield shrink(torch.tensor([10.0, 3.0]), 1.0)
    yield shrink(torch.tensor([0.1]), 1.0)
    yield shrink(torch.tensor([20.0, -3.0]), 0.5)


@program
def newton_with_tolerance(torch, compile):
    def f(x):
        return x**2 - 3

    @compile
    def solve(x):
        for k in range(20):
            step = f(x) / (2 * x)
            x = x - step
            if abs(step.item()) < 1e-4:
                return x, k
        raise ArithmeticError("no convergence")

    yield solve(torch.tensor(1.0))
    yield solve(torch.tensor(2.0))
    yield attempt(solve, torch.tensor(float("nan")))


@program
def early_exit_by_confidence(torch, compile):
    nn = torch.nn

    class Cascade(nn.Module):
        def __init__(self):
            super().__init__()
            self.stages = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
            for k, s in enumerate(self.stages):
                nn.init.constant_(s.bias, 0.1)
                with torch.no_grad():
                    s.weight.copy_(torch.eye(2) * (k + 1))

        def forward(self, x, threshold):
            for k, stage in enumerate(self.stages):
                x = stage(x)
                if x.softmax(-1).max() > threshold:
                    break
            return x, k

    f = compile(Cascade())
    for t in (0.6, 0.99, 0.6):
        for scale in (1.0, 3.0):
            yield f(torch.tensor([[1.0, 0.0]]) * scale, t)


@program
def item_as_a_number(torch, compile):
    @compile
    def run(x):
        k = int(x[0].item())
        rest = x[1:]
        return rest * k, float(rest.mean()), bool(rest[0] > 1), k

    yield run(torch.tensor([2.0, 1.0, 3.0]))
    yield run(torch.tensor([5.0, 2.0, 3.0]))
    yield run(torch.tensor([2.0, 1.0, 3.0]))


@program
def to_lists(torch, compile):
    @compile
    def run(lengths, x):
        parts = x.split(lengths.tolist())
        return [p.sum() for p in parts], lengths.tolist(), [int(v) for v in lengths]

    yield run(torch.tensor([1, 3]), torch.arange(4.0))
    yield run(torch.tensor([2, 2]), torch.arange(4.0))
    yield run(torch.tensor([1, 1, 2]), torch.arange(4.0))


@program
def nan_guard(torch, compile):
    skipped = []

    @compile
    def step(w, g, k):
        if not torch.isfinite(g).all():
            skipped.append(k)
            return w
        return w - 0.1 * g

    w = torch.ones(2)
    for k, bad in enumerate((1.0, float("inf"), 2.0, float("nan"))):
        w = step(w, torch.tensor([bad, 1.0]), k)
        yield w
    yield skipped


@program
def python_loop_over_data(torch, compile):
    @compile
    def collect(tokens, stop):
        out = []
        for t in tokens:
            if t == stop:
                break
            out.append(t * 2)
        return torch.stack(out) if out else torch.empty(0), len(out)

    yield collect(torch.tensor([1, 2, 0, 4]), 0)
    yield collect(torch.tensor([1, 2, 3, 4]), 0)
    yield collect(torch.tensor([0, 2]), 0)


@program
def assertion_on_data(torch, compile):
    @compile
    def normalise(p):
        assert (p >= 0).all(), "negative"
        return p / p.sum()

    yield normalise(torch.tensor([1.0, 3.0]))
    yield attempt(normalise, torch.tensor([1.0, -3.0]))
    yield normalise(torch.tensor([2.0, 2.0]))


@program
def branch_inside_a_callee_with_gradients(torch, compile):
    def clipped(g):
        n = g.norm()
        return g / n if n > 1 else g

    @compile
    def run(w, x):
        h = torch.tanh(w * x)
        h = clipped(h * 3)
        return (h**2).sum()

    for k in (0.1, 5.0, 0.2):
        w = leaf_tensor(torch, [1.0, 2.0])
        loss = run(w, torch.full((2,), k))
        loss.backward()
        yield loss, w


@program
def equality_and_membership(torch, compile):
    @compile
    def run(x, known):
        if torch.equal(x, known[0]):
            return "first", x
        if any(torch.allclose(x, k) for k in known):
            return "known", x * 2
        return "new", x * 3

    known = [torch.ones(2), torch.zeros(2)]
    yield run(torch.ones(2), known)
    yield run(torch.zeros(2), known)
    yield run(torch.ones(2) * 5, known)
    known.append(torch.ones(2) * 5)
    yield run(torch.ones(2) * 5, known)


@program
def sorting_by_value(torch, compile):
    @compile
    def run(xs):
        best = max(xs, key=lambda x: x.sum().item())
        order = sorted(range(len(xs)), key=lambda k: float(xs[k].min()))
        return best, order, sum(1 for x in xs if x.sum() > 2)

    yield run([torch.tensor([1.0, 2.0]), torch.tensor([5.0, -1.0]), torch.tensor([0.0, 0.5])])
    yield run([torch.tensor([9.0, 2.0]), torch.tensor([5.0, -1.0]), torch.tensor([0.0, 0.5])])


@program
def line_search(torch, compile):
    @compile
    def search(x, g, f, t=1.0):
        base = f(x)
        tried = []
        while True:
            candidate = x - t * g
            tried.append(t)
            if f(candidate) <= base - 0.5 * t * (g * g).sum():
                return candidate, tried
            t *= 0.5
            if t < 1e-3:
                return x, tried

    f = lambda x: (x**2).sum() * 3
    for start in (1.0, 2.0):
        x = torch.full((2,), start)
        yield search(x, 6 * x, f)


@program
def numpy_in_the_middle(torch, compile):
    @compile
    def run(x):
        y = x.tanh()
        a = y.numpy().round(1)
        return torch.from_numpy(a) + y, float(a.max())

    yield run(torch.tensor([0.5, 1.5]))
    yield run(torch.tensor([-0.5, 2.5]))
