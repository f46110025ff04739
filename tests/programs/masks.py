"""Masks, boolean indexing, sorting, writes in place, views of arguments."""

from __future__ import annotations

from tests.programs.harness import attempt, leaf_tensor, program


@program
def boolean_indexing(torch, compile):
    @compile
    def keep(x, limit):
        kept = x[x > limit]
        return kept, kept.shape[0], (x > limit).nonzero().flatten()

    yield keep(torch.tensor([1.0, 5.0, 3.0]), 2)
    yield keep(torch.tensor([1.0, 0.0, 3.0]), 2)
    yield keep(torch.tensor([7.0, 8.0, 9.0]), 2)


@program(codegen=True)
def masked_writes(torch, compile):
    @compile
    def clean(x, mask):
        y = x.clone()
        y[mask] = 0.0
        y[~mask] += 1
        y[0] = torch.where(mask[0], y[0], -y[0])
        x.masked_fill_(mask, -1.0)
        return y

    for k in range(3):
        x = torch.arange(4.0) + k
        yield clean(x, x > 2)
        yield x


@program
def writes_through_views_of_arguments(torch, compile):
    @compile
    def update(x, k):
        row = x[k]
        row.mul_(10)
        x[:, 0] += 1
        x.view(-1)[-1] = 99.0
        t = x.t()
        t[0].zero_()
        return row.sum(), t

    x = torch.arange(6.0).reshape(2, 3)
    for k in (0, 1, 0):
        yield update(x, k)
        yield x


@program
def unsqueeze_in_place_on_an_argument(torch, compile):
    @compile
    def run(x):
        x.unsqueeze_(0)
        x.add_(1)
        return x.sum(1)

    for n in (2, 3, 2):
        x = torch.arange(float(n))
        yield run(x)
        yield x, x.shape
        x.squeeze_(0)
        yield x


@program
def transpose_and_resize_in_place(torch, compile):
    @compile
    def run(x, y):
        x.t_()
        y.transpose_(0, 1).mul_(2)
        return x @ y.t()

    x, y = torch.arange(6.0).reshape(2, 3), torch.ones(2, 3)
    yield run(x, y)
    yield x, y
    yield attempt(run, x, y)
    yield run(torch.ones(2, 3), torch.ones(2, 3))


@program
def sort_and_topk(torch, compile):
    @compile
    def rank(scores, k):
        values, order = scores.sort(descending=True, dim=-1)
        top = torch.topk(scores, k)
        back = order.argsort(-1)
        return values, top.indices, torch.gather(values, -1, back), torch.equal(values[..., :k], top.values)

    yield rank(torch.tensor([[0.3, 0.9, 0.1], [2.0, 1.0, 3.0]]), 2)
    yield rank(torch.tensor([0.3, 0.9, 0.1]), 1)
    yield rank(torch.tensor([[5.0, 9.0, 1.0], [2.0, 1.0, 3.0]]), 2)


@program
def nucleus_sampling_mask(torch, compile):
    @compile
    def nucleus(logits, p):
        probs = logits.softmax(-1)
        sorted_probs, order = probs.sort(-1, descending=True)
        cumulative = sorted_probs.cumsum(-1)
        drop = cumulative - sorted_probs > p
        mask = torch.zeros_like(drop).scatter(-1, order, drop)
        return logits.masked_fill(mask, float("-inf")).softmax(-1)

    yield nucleus(torch.tensor([[1.0, 3.0, 2.0, 0.0]]), 0.8)
    yield nucleus(torch.tensor([[1.0, 3.0, 2.0, 0.0]]), 0.95)
    yield nucleus(torch.tensor([[0.0, 0.0, 0.0, 0.0]]), 0.5)


@program
def aliasing_of_two_arguments(torch, compile):
    @compile
    def run(a, b):
        a.add_(1)
        return b * 2

    x = torch.zeros(3)
    yield run(x, torch.ones(3))
    yield run(x, x)
    yield run(x, x[:2])
    yield run(x[1:], x)
    yield x


@program
def result_is_a_view_of_the_argument(torch, compile):
    @compile
    def halves(x):
        return x[: len(x) // 2], x[len(x) // 2 :], x

    x = torch.arange(4.0)
    for _ in range(2):
        a, b, same = halves(x)
        a.add_(100)
        b.zero_()
        yield x, same is x


@program
def accumulate_into_a_result_buffer(torch, compile):
    @compile
    def histogram(labels, weights, into):
        into.zero_()
        into.index_add_(0, labels, weights)
        into.scatter_add_(0, labels[:1], weights[:1] * 10)
        into.clamp_(max=20)
        return into

    into = torch.zeros(3)
    for k in range(3):
        out = histogram(torch.tensor([0, 2, 2]), torch.ones(3) * k, into)
        yield out is into, into


@program
def out_arguments(torch, compile):
    buffer = torch.empty(2)

    @compile
    def run(x):
        torch.add(x, 1, out=buffer)
        y = torch.mul(buffer, 2)
        torch.sub(y, x, out=y)
        return y

    yield run(torch.ones(2))
    yield buffer
    yield run(torch.ones(2) * 5)
    yield buffer


@program
def copy_and_swap(torch, compile):
    @compile
    def swap(a, b):
        tmp = a.clone()
        a.copy_(b)
        b.copy_(tmp)
        a[0], a[1] = a[1].clone(), a[0].clone()

    a, b = torch.arange(3.0), torch.arange(3.0) * 10
    for _ in range(3):
        yield swap(a, b)
        yield a, b


@program
def in_place_operators(torch, compile):
    @compile
    def run(x, y):
        before = x
        x += 1
        y = y + 1
        z = y
        y -= 0.5
        y *= x
        z **= 2
        y /= 2
        return before is x, y is z, y

    x, y = torch.ones(2), torch.ones(2) * 3
    for _ in range(3):
        yield run(x, y)
        yield x, y


@program
def gradients_through_writes(torch, compile):
    @compile
    def run(x):
        y = x * 2
        y[0] = 0.0
        y[1:].mul_(x[1:])
        z = torch.zeros(3)
        z[:2] = y[1:]
        return (z.sum() + y.sum()) * 1

    x = leaf_tensor(torch, [1.0, 2.0, 3.0])
    for _ in range(2):
        loss = run(x)
        loss.backward()
        yield loss, x


@program
def leaf_written_to(torch, compile):
    @compile
    def run(w, x):
        w.add_(x)
        return w.sum()

    w = leaf_tensor(torch, [1.0, 2.0])
    yield attempt(run, w, torch.ones(2))
    with torch.no_grad():
        yield run(w, torch.ones(2))
    yield w


@program
def advanced_indices(torch, compile):
    @compile
    def run(x, rows, cols):
        picked = x[rows, cols]
        x[rows] = x[rows] * 2
        x[[0, 1], [1, 0]] = torch.tensor([7.0, 8.0])
        return picked, x[:, None, cols].shape, x[..., [True, False, True]]

    x = torch.arange(6.0).reshape(2, 3)
    yield run(x, torch.tensor([0, 1, 1]), torch.tensor([2, 0, 1]))
    yield x
    yield run(x, torch.tensor([1]), torch.tensor([1]))


@program
def detach_clone_and_share(torch, compile):
    @compile
    def run(w):
        d = w.detach()
        c = w.clone()
        c.add_(1)
        d.mul_(2)
        return d, c, w * 1

    w = leaf_tensor(torch, [1.0, 2.0])
    for _ in range(2):
        d, c, y = run(w)
        yield d, c, y
        yield w
        d.add_(10)
        yield w
