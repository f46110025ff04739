"""Code that meets other sizes at each call, 1 and 0 among them: asked for, counted with, kept, and written to."""

from __future__ import annotations

import collections
import contextlib
import math

import numpy as np

from tests.programs.harness import attempt, program

SIZES = (5, 7, 3, 1, 0, 16, 5, 2)
FROM_ONE = tuple(n for n in SIZES if n)


def rows(torch, n, width=4):
    """f32[n, width] that takes gradients, the same at each call of one n."""
    return (torch.arange(float(n * width)).reshape(n, width) * 0.37 + 0.1).sin().requires_grad_()


def met(torch, f, make=rows, sizes=SIZES):
    """Of each size: what a call gives, and the gradients of all that it may be differentiated by."""
    for n in sizes:
        args = make(torch, n)
        args = args if isinstance(args, tuple) else (args,)
        found = attempt(f, *args)
        outs = [t for t in _flat(found) if isinstance(t, torch.Tensor) and t.requires_grad]
        if outs:
            torch.stack([(t * t).sum() for t in outs]).sum().backward()
        yield found, args


def _flat(value):
    if isinstance(value, (list, tuple)):
        return [part for item in value for part in _flat(item)]
    return [value]


@program(codegen=True)
def a_perceptron(torch, compile):
    nn = torch.nn
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 2))
    yield from met(torch, compile(net))
    yield [p.grad for p in net.parameters()]


@program(codegen=True)
def images_that_grow(torch, compile):
    nn = torch.nn
    net = nn.Sequential(nn.Conv2d(1, 3, 3, stride=2, padding=1), nn.BatchNorm2d(3), nn.ReLU(),
                        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2))  # fmt: skip
    f = compile(net)
    for side in (6, 9, 4, 12, 1, 6):
        out = f(torch.arange(2.0 * side * side).reshape(2, 1, side, side).sin())
        out.sum().backward()
        yield out
    yield [p.grad for p in net.parameters()], net[1].running_mean


@program
def an_lstm_over_other_lengths(torch, compile):
    net = torch.nn.LSTM(4, 3, batch_first=True)
    f = compile(lambda x: net(x)[0])
    yield from met(torch, f, lambda torch, n: rows(torch, 2 * n).reshape(2, n, 4), FROM_ONE)
    yield [p.grad for p in net.parameters()]


@program
def masked_attention(torch, compile):
    @compile
    def attend(x, mask):
        q, k, v = x.chunk(3, -1)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    def make(torch, n):
        return rows(torch, n, 12).reshape(1, n, 12), torch.ones(n, n).tril().bool()

    yield from met(torch, attend, make, FROM_ONE)


@program(codegen=True)
def causal_attention_by_a_buffer(torch, compile):
    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mask", torch.ones(16, 16).tril())

        def forward(self, x):
            t, c = x.shape
            weights = (x @ x.t()) * (1.0 / math.sqrt(x.size(-1)))
            return weights.masked_fill(self.mask[:t, :t] == 0, float("-inf")).softmax(-1) @ x

    yield from met(torch, compile(Attention()))


@program
def keys_that_grow_in_the_module(torch, compile):
    class Decoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.keys = None

        def forward(self, x):
            self.keys = x.detach() if self.keys is None else torch.cat([self.keys, x.detach()])
            return (x @ self.keys.t()).softmax(-1) @ self.keys

    net = Decoder()
    yield from met(torch, compile(net), sizes=(1, 1, 1, 3, 1, 2, 1))
    yield net.keys


@program
def a_buffer_that_starts_empty(torch, compile):
    class Seen(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("rows", torch.zeros(0, 4))

        def forward(self, x):
            self.rows = torch.cat([self.rows, x.detach()])
            return x * self.rows.mean(0), self.rows.shape[0]

    yield from met(torch, compile(Seen()))


@program
def loops_over_rows(torch, compile):
    @compile
    def run(x):
        total = x.sum()
        for i in range(x.shape[0]):
            total = total + i * x[i].sum()
        return total, [row * 2 for row in x]

    yield from met(torch, run)


@program
def a_while_over_halves(torch, compile):
    @compile
    def run(x):
        n = x.shape[0]
        while n > 1:
            half = n // 2
            x = x[:half] + x[half : 2 * half]
            n = x.shape[0]
        return x

    yield from met(torch, run)


@program
def branches(torch, compile):
    @compile
    def run(x):
        if x.shape[0] == x.shape[1]:
            return x @ x
        return x * 2 if x.shape[0] < 6 else x.sin() if x.size(0) % 2 else x.cos()

    yield from met(torch, run, sizes=(5, 7, 3, 1, 0, 16, 4, 2))


@program
def fractions(torch, compile):
    @compile
    def run(x):
        n = x.shape[0]
        return x * (1 / max(n, 1)) + 1.0 / (len(x) + 1), n / 7, math.sqrt(n), round(n / 3, 2), divmod(n, 3), n**2

    yield from met(torch, run)


@program
def keys_of_a_dict(torch, compile):
    kept = {}

    @compile
    def run(x):
        n = x.shape[0]
        if n not in kept:
            kept[n] = torch.arange(n).float()
        return x * kept[n][:, None], {n: x + 1}

    yield from met(torch, run)
    yield kept


@program
def in_texts(torch, compile):
    @compile
    def run(x):
        n = x.shape[0]
        return x * 2, f"{n} of {tuple(x.shape)}", "ab" * min(n, 2), n in (5, 7), tuple(x.shape) == (5, 4)

    yield from met(torch, run)


@program
def numpys_functions(torch, compile):
    @compile
    def run(x):
        ramp = np.arange(x.shape[0], dtype=np.float32)
        return x * torch.from_numpy(ramp)[:, None], float(np.ones(tuple(x.shape)).sum())

    yield from met(torch, run)


@program
def generators(torch, compile):
    @compile
    def run(x):
        def halves():
            yield x[: x.shape[0] // 2]
            yield x[x.shape[0] // 2 :]

        def chunks(k):
            for i in range(0, x.shape[0], k):
                yield x[i : i + k].sum(0)

        return [half.sum() * half.shape[0] for half in halves()], sum(chunks(2), torch.zeros(4))

    yield from met(torch, run)


@program
def exceptions(torch, compile):
    @compile
    def run(x):
        n = x.shape[0]
        if n > 6:
            raise KeyError(f"too many: {n}")
        try:
            if n % 2:
                raise IndexError(n)
            return x + 1
        except IndexError as error:
            return x * 2, error.args

    yield from met(torch, run)


@program(codegen=True)
def writes_in_place(torch, compile):
    @compile
    def run(x):
        y = x.detach()
        y[: x.shape[0] // 2].mul_(3)
        y[-1:] = 0
        return y.sum(0)

    yield from met(torch, run)


@program
def views(torch, compile):
    @compile
    def run(x):
        n, c = x.shape
        pairs = x.view(n, 2, c // 2).permute(1, 0, 2).contiguous().view(2 * n, c // 2)
        return x.view(-1, 2) * 2, x.t().flatten()[: x.numel() // 2].sum(), pairs

    yield from met(torch, run)


@program(codegen=True)
def several_that_change_together(torch, compile):
    @compile
    def run(batch, others, n):
        return batch["x"] * others[0] + others[1].t() * n

    def make(torch, n):
        return {"x": rows(torch, n)}, [rows(torch, n), rows(torch, 4, n)], n

    yield from met(torch, run, make)


@program
def one_longer_than_the_other(torch, compile):
    @compile
    def run(a, b):
        return torch.cat([a, b]), a.shape[0] + b.shape[0], b[1:] - a

    yield from met(torch, run, lambda torch, n: (rows(torch, n), rows(torch, n + 1)))


@program
def kept_between_calls(torch, compile):
    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.last, self.table = 0, None

        def forward(self, x):
            n = x.shape[0]
            out = x * self.last
            if self.table is None or n > self.table.shape[0]:
                self.table = torch.arange(n).float()[:, None].cos()
            self.last = n
            return out + self.table[:n]

    net = Module()
    yield from met(torch, compile(net))
    yield net.last, net.table


@program
def the_history(torch, compile):
    history = []

    @compile
    def run(x):
        history.append(x.shape[0])
        return x * sum(history), len(history)

    yield from met(torch, run)
    yield history


@program(codegen=True)
def a_loss_over_classes(torch, compile):
    net = torch.nn.Linear(4, 3)

    @compile
    def run(x, y):
        return torch.nn.functional.cross_entropy(net(x), y)

    yield from met(torch, run, lambda torch, n: (rows(torch, n), torch.arange(n) % 3), FROM_ONE)
    yield [p.grad for p in net.parameters()]


@program
def what_the_data_selects(torch, compile):
    @compile
    def run(x):
        chosen = x[x > 0]
        count = int((x > 0).sum())
        return chosen.sum(), x.flatten()[:count].sum(), count

    yield from met(torch, run)


@program
def around_a_break(torch, compile):
    @compile
    def run(x):
        y = x * 2
        print(end=".")
        n = y.shape[0]
        return y + n, n

    yield from met(torch, run)


@program
def in_tuples(torch, compile):
    Pair = collections.namedtuple("Pair", "tensor rows")

    @compile
    def run(x):
        return tuple(Pair(x * 2, x.shape[0])), sorted([x.shape[0], 4, 6]), max(x.shape), list(x.shape)

    yield from met(torch, run)


@program
def padding_and_pieces(torch, compile):
    @compile
    def run(x):
        n = x.shape[0]
        padded = torch.nn.functional.pad(x, (0, 0, 0, -n % 8)).reshape(-1, 8, 4).sum(1)
        first, rest = x.split([n // 2, n - n // 2])
        return padded, first.sum(), rest * 2

    yield from met(torch, run)


@program
def a_function_with_its_own_gradient(torch, compile):
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.rows = x.shape[0]
            ctx.save_for_backward(x)
            return x * x.shape[0]

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return gradient * ctx.rows + 0 * x

    yield from met(torch, compile(lambda x: Scaled.apply(x) * 2))


@program
def hooks(torch, compile):
    net, seen = torch.nn.Linear(4, 4), []
    net.register_forward_hook(lambda module, args, out: out * out.shape[0])

    @compile
    def run(x):
        y = net(x)
        y.register_hook(lambda g: g * 0.5)
        seen.append(y.shape[0])
        return y.sin()

    yield from met(torch, run)
    yield seen, [p.grad for p in net.parameters()]


@program
def made_of_sizes(torch, compile):
    @compile
    def run(x):
        n = x.shape[0]
        return x.new_zeros(n, 2).expand(3, -1, -1).sum() + torch.ones_like(x).sum(), torch.eye(n), torch.tensor([n, 3])

    yield from met(torch, run)


@program
def sorted_and_summed(torch, compile):
    @compile
    def run(x):
        n = x.shape[0]
        return x.cumsum(0), x.t().topk(min(2, n), -1)[0], torch.einsum("ij,kj->ik", x, x)

    yield from met(torch, run)


@program
def under_no_grad_and_back(torch, compile):
    @compile
    def run(x):
        with torch.no_grad() if x.shape[0] % 2 else contextlib.nullcontext():
            y = x * x.shape[0]
        return y + 1, y.requires_grad

    yield from met(torch, run)
