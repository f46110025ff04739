"""Steps that talk to other ranks in the middle: functions of (dist, x), run compiled and as they are.

Each returns a Tensor, or several. `outside` forms are also given a handle that was made before the call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import distcompile as dc
from distcompile import distributed as dist
from distcompile.distributed.nn import functional as dist_nn
from distcompile.futures import collect_all, wait_all

Form = Callable[[Any], Any]
FORMS: list[Form] = []


def form(function: Form) -> Form:
    FORMS.append(function)
    return function


def neighbours() -> tuple[int, int]:
    rank, world = dist.get_rank(), dist.get_world_size()
    return (rank + 1) % world, (rank - 1) % world


def places(x: Any) -> list[Any]:
    return [dc.zeros_like(x) for _ in range(dist.get_world_size())]


@form
def reduced(x: Any) -> Any:
    y = x * 2
    dist.all_reduce(y, async_op=True).wait()
    return y + 1


@form
def reduced_under_a_name(x: Any) -> Any:
    y = x * 2
    handle = dist.all_reduce(y, async_op=True)
    z = x.sin()
    handle.wait()
    return y + z


@form
def synchronized(x: Any) -> Any:
    y = x * 2
    dist.all_reduce(y, async_op=True).synchronize()
    return y


@form
def sent_around(x: Any) -> Any:
    y = x * 2
    dist.broadcast(y, 0, async_op=True).wait()
    return y + x


@form
def reduced_to_one(x: Any) -> Any:
    y = x * 2
    dist.reduce(y, 0, async_op=True).wait()
    return y + 1


@form
def gathered(x: Any) -> Any:
    parts = places(x)
    dist.all_gather(parts, x * 2, async_op=True).wait()
    return sum(parts)


@form
def gathered_scalars(x: Any) -> Any:
    parts = places(x.sum())
    dist.all_gather(parts, x.sum(), async_op=True).wait()
    return dc.stack(parts)


@form
def gathered_on_one(x: Any) -> Any:
    parts = places(x) if dist.get_rank() == 0 else None
    dist.gather(x * 2, parts, async_op=True).wait()
    return sum(parts) if parts else x


@form
def scattered(x: Any) -> Any:
    y = dc.zeros_like(x)
    parts = [x * k for k in range(dist.get_world_size())] if dist.get_rank() == 0 else None
    dist.scatter(y, parts, async_op=True).wait()
    return y


@form
def reduced_and_scattered(x: Any) -> Any:
    y = dc.zeros_like(x)
    dist.reduce_scatter(y, [x * k for k in range(dist.get_world_size())], async_op=True).wait()
    return y


@form
def exchanged(x: Any) -> Any:
    parts = places(x)
    dist.all_to_all(parts, [x * k for k in range(dist.get_world_size())], async_op=True).wait()
    return sum(parts)


@form
def waited_by_a_future(x: Any) -> Any:
    y = x * 2
    found = dist.all_reduce(y, async_op=True).get_future().wait()
    return found[0] + y


@form
def followed_by_a_function(x: Any) -> Any:
    future = dist.all_reduce(x * 2, async_op=True).get_future()
    return future.then(lambda done: done.value()[0] * 3).wait() + x


@form
def all_futures(x: Any) -> Any:
    futures = [dist.all_reduce(x * k, async_op=True).get_future() for k in range(1, 4)]
    first = collect_all(futures[:2]).wait()
    return sum(future.value()[0] for future in first) + wait_all(futures)[2][0]


@form
def asked_for_the_result(x: Any) -> Any:
    return dist.all_reduce(x * 2, async_op=True).result()[0] + x


@form
def asked_until_it_is_done(x: Any) -> Any:
    y = x * 2
    handle = dist.all_reduce(y, async_op=True)
    while not handle.is_completed():
        pass
    return y + (1 if handle.is_success() else 2)


@form
def sent_and_received(x: Any) -> Any:
    y, (after, before) = dc.zeros_like(x), neighbours()
    sent, received = dist.isend(x * 2, after), dist.irecv(y, before)
    received.wait()
    sent.wait()
    return y + received.source_rank()


@form
def sent_in_a_batch(x: Any) -> Any:
    y, (after, before) = dc.zeros_like(x), neighbours()
    for handle in dist.batch_isend_irecv([dist.P2POp(dist.isend, x * 2, after), dist.P2POp(dist.irecv, y, before)]):
        handle.wait()
    return y + 1


@form
def kept_in_containers(x: Any) -> Any:
    values = {name: x * k for k, name in enumerate("abc")}
    handles = {name: [dist.all_reduce(y, async_op=True)] for name, y in values.items()}
    [[handle.wait() for handle in row] for row in handles.values()]
    return sum(values.values())


@form
def waited_by_map(x: Any) -> Any:
    values = [x, x * 2]
    list(map(dist.Work.wait, [dist.all_reduce(y, async_op=True) for y in values]))
    return values[0] + values[1]


@form
def waited_by_a_tree_map(x: Any) -> Any:
    values = [x * 3, x * 2]
    dc.utils._pytree.tree_map(lambda handle: handle.wait(), [dist.all_reduce(y, async_op=True) for y in values])
    return values[0] + values[1]


@form
def by_a_generator(x: Any) -> Any:
    def started() -> Any:
        for k in range(3):
            y = x * k
            yield y, dist.all_reduce(y, async_op=True)

    total = x
    for y, handle in started():
        handle.wait()
        total = total + y
    return total


class Averaged:
    """A handle and its tensor."""

    def __init__(self, x: Any) -> None:
        self.x, self.handle = x, dist.all_reduce(x, async_op=True)

    def __enter__(self) -> Any:
        self.handle.wait()
        return self.x.div_(dist.get_world_size())

    def __exit__(self, *error: object) -> None:
        self.handle = None


@form
def in_an_object(x: Any) -> Any:
    with Averaged(x * 2) as mean:
        return mean + 1


@form
def objects_and_barriers(x: Any) -> Any:
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, dist.get_rank() + 1)
    dist.barrier(async_op=True).wait()
    return x * sum(found)


@form
def with_gradients(x: Any) -> Any:
    y = dist_nn.all_gather(x * 2)
    z = dist_nn.all_reduce(x)
    return sum(y) + z + sum(dist_nn.gather(x * 3)) + dist_nn.gather(x.sum())[1] + dist_nn.all_gather(x.sum())[1]


@form
def on_the_group_itself(x: Any) -> Any:
    array = (x * 2).numpy().copy()
    dist.group.WORLD.all_reduce_async(array).wait()  # type: ignore[union-attr]
    return dc.from_numpy(array)


def finished_outside(handle: Any, x: Any) -> Any:
    """A handle that was made before."""
    handle.wait()
    return x + 1


def future_finished_outside(future: Any, x: Any) -> Any:
    """A Future that was made before."""
    return future.wait()[0] + x
