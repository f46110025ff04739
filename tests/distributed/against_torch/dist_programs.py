"""Small programs for torch.distributed's names, written once and run by torch (gloo) and by distcompile.

Each takes (torch, dist) and returns plain lists; errors are returned by the base class that both have. `worlds.py`
starts the ranks.
"""

from __future__ import annotations

import importlib
import json
import warnings
from collections.abc import Callable
from typing import Any

Program = Callable[[Any, Any], Any]


def error_of(call: Callable[[], Any]) -> str:
    """Whether the call raises a ValueError or a RuntimeError (torch's ValueErrors are ours too)."""
    try:
        call()
    except ValueError:
        return "ValueError"
    except RuntimeError:
        return "RuntimeError"
    return "none"


def data(torch: Any, dist: Any, *shape: int, dtype: str = "float32") -> Any:
    """Small whole numbers that differ by rank and place."""
    size = 1
    for extent in shape:
        size *= extent
    values = [(3 * dist.get_rank() + 7 * k) % 5 + 1 for k in range(size)]
    return torch.tensor(values, dtype=getattr(torch, dtype)).reshape(*shape)


def reductions(torch: Any, dist: Any) -> Any:
    result: dict[str, Any] = {}
    ops = dist.ReduceOp
    for dtype in ("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool"):
        names = ["SUM", "PRODUCT", "MIN", "MAX"]
        names += ["BAND", "BOR", "BXOR"] if dtype in ("int64", "int32", "uint8") else []
        for name in names:
            x = data(torch, dist, 2, 3).gt(2) if dtype == "bool" else data(torch, dist, 2, 3, dtype=dtype)
            dist.all_reduce(x, op=getattr(ops, name))
            result[f"{name} {dtype}"] = x.to(torch.float64).tolist()
    x = data(torch, dist, 4)
    dist.reduce(x, dst=1, op=ops.MAX)
    result["reduce"] = x.tolist() if dist.get_rank() == 1 else None
    return result


def moves(torch: Any, dist: Any) -> Any:
    rank, world = dist.get_rank(), dist.get_world_size()
    x = data(torch, dist, 3)
    dist.broadcast(x, src=2)
    gathered = [torch.zeros(2, 2) for _ in range(world)]
    dist.all_gather(gathered, data(torch, dist, 2, 2))
    flat = torch.zeros(world * 2)
    dist.all_gather_into_tensor(flat, data(torch, dist, 2))
    stacked = torch.zeros(world, 2)
    dist.all_gather_into_tensor(stacked, data(torch, dist, 1, 2))
    on_root = [torch.zeros(2) for _ in range(world)] if rank == 1 else None
    dist.gather(data(torch, dist, 2), on_root, dst=1)
    part = torch.zeros(2)
    dist.scatter(part, [torch.full((2,), 10.0 * r) for r in range(world)] if rank == 0 else None, src=0)
    swapped = torch.zeros(world, 2)
    dist.all_to_all_single(swapped, data(torch, dist, world, 2))
    sent = [(rank + r) % 3 for r in range(world)]
    uneven = torch.zeros(sum(sent), 2)
    dist.all_to_all_single(uneven, data(torch, dist, sum(sent), 2), sent, sent)
    tensors = [x, *gathered, flat, stacked, *(on_root or []), part, swapped, uneven]
    return [tensor.tolist() for tensor in tensors]


def scalars(torch: Any, dist: Any) -> Any:
    """Every form on 0-d tensors, again and again: what is taken before the collective has ended is another value."""
    rank, world = dist.get_rank(), dist.get_world_size()
    found = []
    for turn in range(20):
        x = torch.tensor(10.0 * turn + rank)
        gathered = [torch.zeros(()) for _ in range(world)]
        dist.all_gather(gathered, x)
        on_root = [torch.zeros(()) for _ in range(world)] if rank == 1 else None
        dist.gather(x, on_root, dst=1)
        part, reduced = torch.zeros(()), torch.zeros(())
        dist.scatter(part, [x + r for r in range(world)] if rank == 0 else None, src=0)
        dist.reduce_scatter(reduced, [x + r for r in range(world)])
        swapped = [torch.zeros(()) for _ in range(world)]
        dist.all_to_all(swapped, [x + r for r in range(world)])
        y, z = x.clone(), x.clone()
        dist.broadcast(y, src=2)
        works = [dist.all_reduce(z, async_op=True), dist.isend(x, (rank + 1) % world)]
        works.append(dist.irecv(part, (rank - 1) % world))
        for work in works:
            work.wait()
        found.append(torch.stack([*gathered, *(on_root or []), part, reduced, *swapped, y, z]).tolist())
    return found


def complex_numbers(torch: Any, dist: Any) -> Any:
    """What torch's gloo takes of them; test_complex_collectives.py has the rest."""
    world, found = dist.get_world_size(), []
    for real, dtype in ((torch.float32, torch.complex64), (torch.float64, torch.complex128)):
        x = torch.complex(data(torch, dist, 2, 3).to(real), -data(torch, dist, 3, 2).reshape(2, 3).to(real))
        for op in ("SUM", "AVG"):
            y = x.clone()
            dist.all_reduce(y, op=getattr(dist.ReduceOp, op))
            found.append(y)
        y, z = x.clone(), x.clone()
        dist.broadcast(y, src=1)
        dist.reduce(z, dst=0)
        parts, joined = [torch.zeros(2, 3, dtype=dtype) for _ in range(world)], torch.zeros(2 * world, 3, dtype=dtype)
        dist.all_gather(parts, x)
        dist.all_gather_into_tensor(joined, x)
        found += [y, *parts, joined, *([z] if dist.get_rank() == 0 else [])]
    no_order = error_of(lambda: dist.all_reduce(torch.zeros(2, dtype=torch.complex64), op=dist.ReduceOp.MAX))
    return [torch.view_as_real(tensor).tolist() for tensor in found], no_order


def scattered_sums(torch: Any, dist: Any) -> Any:
    world = dist.get_world_size()
    part = torch.zeros(2)
    dist.reduce_scatter(part, [data(torch, dist, 2) * (r + 1) for r in range(world)])
    whole = torch.zeros(1, 3)
    dist.reduce_scatter_tensor(whole, data(torch, dist, world, 3), op=dist.ReduceOp.MAX)
    return [part.tolist(), whole.tolist()]


def views(torch: Any, dist: Any) -> Any:
    """A contiguous view is written through; what shares its memory changes with it."""
    whole = torch.zeros(3, 4)
    row = whole[1]
    row.fill_(dist.get_rank() + 1.0)
    dist.all_reduce(row)
    gathered = torch.zeros(dist.get_world_size(), 2)
    dist.all_gather(list(gathered.unbind(0)), data(torch, dist, 2))
    return [whole.tolist(), gathered.tolist()]


def messages(torch: Any, dist: Any) -> Any:
    rank, world = dist.get_rank(), dist.get_world_size()
    result: list[Any] = []
    got = torch.zeros(3)
    if rank == 0:
        dist.send(data(torch, dist, 3), dst=1)
        dist.send(torch.full((3,), 9.0), dst=1, tag=4)
    elif rank == 1:
        result.append(dist.recv(got, src=0))
        result.append(dist.recv(got, src=0, tag=4))
        result.append(got.tolist())
    following, before = (rank + 1) % world, (rank - 1) % world
    ring = torch.zeros(2)
    operations = [
        dist.P2POp(dist.isend, data(torch, dist, 2), following),
        dist.P2POp(dist.irecv, ring, before),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    result.append(ring.tolist())
    if rank == 0:
        senders = [dist.recv(torch.zeros(1)) for _ in range(world - 1)]
        result.append(sorted(senders))
    else:
        dist.send(torch.ones(1), dst=0)
    dist.barrier()
    return result


def objects(torch: Any, dist: Any) -> Any:
    rank, world = dist.get_rank(), dist.get_world_size()
    everyones: list[Any] = [None] * world
    dist.all_gather_object(everyones, {"rank": rank, "text": "x" * rank})
    told = ["a", rank] if rank == 1 else [None, None]
    dist.broadcast_object_list(told, src=1)
    on_root: list[Any] | None = [None] * world if rank == 0 else None
    dist.gather_object(["of", rank, "y" * 50 * rank], on_root, dst=0)
    mine = [None]
    dist.scatter_object_list(mine, [{"for": r} for r in range(world)] if rank == 2 else None, src=2)
    received: list[Any] = [None, None]
    if rank == 0:
        dist.send_object_list([1, "two"], dst=1)
    elif rank == 1:
        dist.recv_object_list(received, src=0)
    return [everyones, told, on_root, mine, received]


def groups(torch: Any, dist: Any) -> Any:
    rank = dist.get_rank()
    pair = dist.new_group([2, 0])
    alone = [dist.new_group([r]) for r in range(dist.get_world_size())][rank]
    result: list[Any] = [dist.get_rank(pair), dist.get_world_size(pair), dist.get_rank(alone)]
    if rank in (0, 2):
        x = data(torch, dist, 2)
        dist.all_reduce(x, group=pair)
        y = data(torch, dist, 2)
        dist.broadcast(y, src=2, group=pair)
        z = torch.full((1,), float(rank))
        dist.broadcast(z, group=pair, group_src=1)
        listed: list[Any] = [None, None]
        dist.all_gather_object(listed, rank, group=pair)
        result += [x.tolist(), y.tolist(), z.tolist(), listed, dist.get_process_group_ranks(pair)]
        result += [dist.get_group_rank(pair, 2), dist.get_global_rank(pair, 1)]
        result.append(error_of(lambda: dist.broadcast(y, src=1, group=pair)))
        result.append(error_of(lambda: dist.get_group_rank(pair, 1)))
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result.append(dist.all_reduce(data(torch, dist, 2), group=pair))
    dist.barrier()
    return result


def handles(torch: Any, dist: Any) -> Any:
    x = data(torch, dist, 2)
    work = dist.all_reduce(x, async_op=True)
    doubled = work.get_future().then(lambda future: [t.tolist() for t in future.value()] + ["then"])
    work.wait()
    seen = doubled.wait()
    again = dist.all_reduce(data(torch, dist, 2), async_op=True)
    again.wait()
    return [x.tolist(), seen, again.is_completed()]


def local_mistakes(torch: Any, dist: Any) -> Any:
    world, rank = dist.get_world_size(), dist.get_rank()
    x = data(torch, dist, 2)
    listed = [torch.zeros(2) for _ in range(world)]
    return [
        error_of(lambda: dist.send(x, dst=rank)),
        error_of(lambda: dist.gather(x, None if rank == 0 else listed, dst=0)),
        error_of(lambda: dist.scatter(x, None if rank == 0 else listed, src=0)),
        error_of(lambda: dist.P2POp(dist.all_reduce, x, 0)),
    ]


def gradients(torch: Any, dist: Any) -> Any:
    """torch.distributed.nn.functional: results, and gradients of losses that differ by rank."""
    F = importlib.import_module(f"{dist.__name__}.nn.functional")
    rank, world = dist.get_rank(), dist.get_world_size()
    weights = [data(torch, dist, 2, 3) * (k + 1) for k in range(world)]
    calls: dict[str, Callable[[Any], Any]] = {
        "broadcast": lambda x: F.broadcast(x, 1),
        "reduce": lambda x: F.reduce(x, 2),
        "gather": lambda x: F.gather(x, 1),
        "scatter": lambda x: F.scatter([x * (k + 1) for k in range(world)], 1),
        "all_gather": lambda x: F.all_gather(x),
        "all_reduce": lambda x: F.all_reduce(x),
        "all_to_all": lambda x: F.all_to_all([torch.zeros(2, 3) for _ in range(world)], [x * k for k in range(world)]),
        "all_to_all_single": lambda x: F.all_to_all_single(
            torch.zeros(2 * world, 3), torch.cat([x * k for k in range(world)])
        ),
    }
    result: dict[str, Any] = {}
    for name, call in calls.items():
        x = data(torch, dist, 2, 3).requires_grad_()
        made = call(x)
        parts = made if isinstance(made, tuple) else (made,) if name != "all_to_all_single" else made.chunk(world)
        shown = name not in ("reduce", "gather") or rank == {"reduce": 2, "gather": 1}[name]
        sum((part * w).sum() for part, w in zip(parts, weights)).backward()
        result[name] = [part.tolist() for part in parts] if shown else None, x.grad.tolist()
    x = data(torch, dist, 3).requires_grad_()
    (first,) = torch.autograd.grad((F.all_reduce(x) ** 3).sum() * (rank + 1), x, create_graph=True)
    first.sum().backward()
    result["twice"] = first.tolist(), x.grad.tolist()
    return result


def functional(torch: Any, dist: Any) -> Any:
    """torch.distributed._functional_collectives: results, and gradients of losses that differ by rank."""
    F = importlib.import_module(f"{dist.__name__}._functional_collectives")
    world, group = dist.get_world_size(), dist.group.WORLD
    calls: dict[str, Callable[[Any], Any]] = {
        "all_reduce": lambda x: F.all_reduce(x, "sum", group),
        "all_gather along 0": lambda x: F.all_gather_tensor(x, 0, group),
        "all_gather along 1": lambda x: F.all_gather_tensor(x, 1, group),
        "reduce_scatter along 0": lambda x: F.reduce_scatter_tensor(x, "sum", 0, group),
        "reduce_scatter along 1": lambda x: F.reduce_scatter_tensor(x, "sum", 1, group),
        "all_to_all": lambda x: F.all_to_all_single(x, [world] * world, [world] * world, group),
    }
    result: dict[str, Any] = {}
    for name, call in calls.items():
        x = data(torch, dist, world * world, 2 * world).requires_grad_()
        made = F.wait_tensor(call(x * 1))
        (made * data(torch, dist, *made.shape)).sum().backward()
        result[name] = made.tolist(), x.grad.tolist()
    x = data(torch, dist, 3)
    for op in ("max", "min"):
        result[op] = F.wait_tensor(F.all_reduce(x, op, group)).tolist()
    result["broadcast"] = F.wait_tensor(F.broadcast(x, 1, group)).tolist()
    return result


PROGRAMS: list[Program] = [
    reductions,
    moves,
    scalars,
    complex_numbers,
    scattered_sums,
    views,
    messages,
    objects,
    groups,
    handles,
]
PROGRAMS += [local_mistakes, gradients, functional]


def run_all(torch: Any, dist: Any) -> dict[str, Any]:
    results: dict[str, Any] = json.loads(json.dumps({p.__name__: p(torch, dist) for p in PROGRAMS}))
    return results
