"""Steps with collectives in the middle, as users write them: run by torch (gloo), and by ours as they are and compiled.

Each takes a `Side` of ddp_programs.py, which runs them, and returns plain lists.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

STEPS = 3


def lists(value: Any) -> Any:
    return value.detach().double().tolist() if hasattr(value, "detach") else value


def repeated(side: Any, step: Callable[[Any], Any], *shape: int) -> list[Any]:
    """What `step` returns of batches, again and again."""
    run, found = side.compiled(step), []
    for number in range(STEPS):
        result = run(side.batch(number, *(shape or (3,))))
        found += [lists(part) for part in (result if isinstance(result, tuple) else (result,))]
    return found


def data_parallelism_by_hand(side: Any) -> Any:
    torch, dist, world = side.torch, side.dist, side.dist.get_world_size()
    model = side.filled(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        handles = [dist.all_reduce(parameter.grad, async_op=True) for parameter in model.parameters()]
        for handle, parameter in zip(handles, model.parameters()):
            handle.wait()
            parameter.grad.div_(world)
        optimizer.step()
        return loss

    return [*repeated(side, step, 4, 3), *map(lists, model.parameters())]


def sharded_optimizer_by_hand(side: Any) -> Any:
    """Gradients flat, reduced and scattered; each rank's part stepped, and gathered."""
    torch, dist, world = side.torch, side.dist, side.dist.get_world_size()
    model = side.filled(torch.nn.Linear(3, 3))

    def step(x: Any) -> Any:
        loss = model(x).square().mean()
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        part, joined = torch.zeros(flat.numel() // world), torch.zeros(flat.numel())
        dist.reduce_scatter_tensor(part, flat)
        values = torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])
        mine = values.view(world, -1)[dist.get_rank()] - 0.1 * part / world
        dist.all_gather_into_tensor(joined, mine.contiguous())
        begin = 0
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(joined[begin : begin + parameter.numel()].view_as(parameter))
                begin += parameter.numel()
        return loss

    return [*repeated(side, step, 4, 3), *map(lists, model.parameters())]


def layers_in_parallel(side: Any) -> Any:
    """Half of the columns, then of the rows, on each rank: collectives within autograd."""
    torch, dist = side.torch, side.dist

    class Copied(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            gradient = gradient.clone()
            dist.all_reduce(gradient)
            return gradient

    class Summed(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            x = x.clone()
            dist.all_reduce(x)
            return x

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient

    up = (torch.arange(12.0).reshape(3, 4) * 0.1 - 0.5 + 0.01 * side.rank).requires_grad_()
    down = (torch.arange(8.0).reshape(4, 2) * 0.1 - 0.3).requires_grad_()
    run, found = side.compiled(lambda x: Summed.apply(torch.relu(Copied.apply(x) @ up) @ down)), []
    for number in range(STEPS):
        x = (side.batch(number, 4, 3) / (side.rank + 1)).requires_grad_()
        run(x).square().mean().backward()
        found += [lists(x.grad), lists(up.grad), lists(down.grad)]
    return found


def a_loss_over_parts_of_the_classes(side: Any) -> Any:
    torch, dist = side.torch, side.dist

    def loss(logits: Any) -> Any:
        target = torch.tensor([0, 1, 2, 3])
        most = logits.max(dim=-1).values
        dist.all_reduce(most, op=dist.ReduceOp.MAX)
        total = (logits - most[:, None]).exp().sum(-1)
        dist.all_reduce(total)
        place = target - side.rank * logits.shape[1]
        inside = (place >= 0) & (place < logits.shape[1])
        own = logits.gather(1, place.clamp(0, logits.shape[1] - 1)[:, None])[:, 0] - most
        own = torch.where(inside, own, torch.zeros_like(own))
        dist.all_reduce(own)
        return (total.log() - own).mean()

    return repeated(side, loss, 4, 3)


def rows_to_experts_and_back(side: Any) -> Any:
    torch, dist, world = side.torch, side.dist, side.dist.get_world_size()

    def step(x: Any) -> Any:
        counts = [(side.rank + other) % 3 + 1 for other in range(world)]
        x = x[: sum(counts)]
        sent, received = torch.tensor(counts), torch.zeros(world, dtype=torch.int64)
        dist.all_to_all_single(received, sent)
        rows, back = torch.zeros(int(received.sum()), x.shape[1]), torch.zeros_like(x)
        dist.all_to_all_single(rows, x, received.tolist(), counts)
        dist.all_to_all_single(back, rows * (side.rank + 1), counts, received.tolist())
        return back

    return repeated(side, step, 12, 2)


def a_ring_of_messages(side: Any) -> Any:
    torch, dist, rank, world = side.torch, side.dist, side.rank, side.dist.get_world_size()

    def step(x: Any) -> Any:
        total, now = x.clone(), x.clone()
        for _ in range(world - 1):
            following = torch.empty_like(now)
            sent = dist.P2POp(dist.isend, now, (rank + 1) % world)
            for work in dist.batch_isend_irecv([sent, dist.P2POp(dist.irecv, following, (rank - 1) % world)]):
                work.wait()
            total += following
            now = following
        return total

    return repeated(side, step)


def until_all_are_done(side: Any) -> Any:
    dist = side.dist

    def step(x: Any) -> Any:
        count = 0
        while True:
            x, count = x * 0.5, count + 1
            done = (x.abs().max() < 0.05).float()
            dist.all_reduce(done, op=dist.ReduceOp.MIN)
            if done.item() > 0:
                return x + count

    return repeated(side, step)


def two_calls_under_way(side: Any) -> Any:
    """The handle of one call is waited for in a later one."""
    dist, under_way = side.dist, deque()  # type: ignore[var-annotated]

    def step(x: Any) -> Any:
        y = x + 1
        under_way.append((y, dist.all_reduce(y, async_op=True)))
        if len(under_way) < 2:
            return x
        y, handle = under_way.popleft()
        handle.wait()
        return y * 2

    found = repeated(side, step)
    under_way.pop()[1].wait()
    return found


def groups_within_groups(side: Any) -> Any:
    dist, world = side.dist, side.dist.get_world_size()
    alone = [dist.new_group([rank]) for rank in range(world)][side.rank]
    first = dist.new_group([0])

    def step(x: Any) -> Any:
        y, z = x * 2, x * 3
        dist.all_reduce(y, group=alone)
        handle = dist.all_reduce(z, group=first, async_op=True)
        if handle is not None:
            handle.wait()
        dist.all_reduce(y)
        return y * dist.get_world_size(alone) + z, dist.get_rank(first)

    return repeated(side, step)


def memory_that_is_shared(side: Any) -> Any:
    """Views see what a collective writes, and are written through; so are arguments."""
    dist = side.dist

    def step(x: Any) -> Any:
        y, z = x * 2, x * 3
        head, tail = y[:2], z[1:]
        dist.all_reduce(y)
        dist.all_reduce(tail)
        dist.all_reduce(x, async_op=True).wait()
        return head + 1, z, x * 1

    return repeated(side, step)


def a_gradient_past_a_collective(side: Any) -> Any:
    torch, dist = side.torch, side.dist
    w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)

    def step(x: Any) -> Any:
        y = w * x
        dist.all_reduce(y)
        (gradient,) = torch.autograd.grad((y * y).sum(), w)
        return gradient, y

    return repeated(side, step)


def in_blocks_and_generators(side: Any) -> Any:
    dist, world = side.dist, side.dist.get_world_size()

    @contextmanager
    def averaged(x: Any) -> Iterator[Any]:
        yield x
        dist.all_reduce(x)
        x /= world

    def started(values: Any) -> Iterator[Any]:
        for value in values:
            yield value, dist.all_reduce(value, async_op=True)

    def step(x: Any) -> Any:
        y = x * 1
        with averaged(y):
            y *= 2
        pairs = list(started([x * k for k in (1, 2)]))
        waits = sum(1 for _, handle in pairs if handle.wait() or True)
        return y + sum(value for value, _ in pairs) * waits

    return repeated(side, step)


PROGRAMS: list[Callable[[Any], Any]] = [
    data_parallelism_by_hand,
    sharded_optimizer_by_hand,
    layers_in_parallel,
    a_loss_over_parts_of_the_classes,
    rows_to_experts_and_back,
    a_ring_of_messages,
    until_all_are_done,
    two_calls_under_way,
    groups_within_groups,
    memory_that_is_shared,
    a_gradient_past_a_collective,
    in_blocks_and_generators,
]
