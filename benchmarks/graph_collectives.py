"""Ranks: collectives inside compiled graphs. One JSON line by rank 0; ours only.

    distcompile-run -n 2 benchmarks/graph_collectives.py pair [--layers 4 --width 512 --tokens 256]
    distcompile-run -n 2 benchmarks/graph_collectives.py handmade --model gpt

pair: column and row linear layers with an all_reduce between pairs, forward and backward, eager and compiled; each also
with the all_reduce left out. exposed = step - step without: what communication adds. stood: how long a step stood in
its collectives, measured there, which other processes disturb less; of eager code that is each whole call. ratio:
compiled by eager, of what stood; breaks: graph breaks of the compiled one.
handmade: a whole step compiled as one graph, in which gradients are all-reduced in a loop, against a step of a compiled
DistributedDataParallel (`ratio`: its time by the handmade's, above 1 where the handmade is faster).
Both sides of a ratio are measured in turn, in one process, in trains; medians, means over ranks.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

from framework import F, World, identity, nn, torch
from models import make
from timing import train_ms

from distcompile import distributed as dist
from distcompile.distributed import _functional_collectives as funcol
from distcompile.distributed.in_graphs import GroupRunner


class Pair(nn.Module):  # type: ignore[misc]
    """width -> 4 width -> width, of which each rank has its part of the inner ones."""

    def __init__(self, width: int, ranks: int, *, talks: bool) -> None:
        super().__init__()
        self.column = nn.Linear(width, 4 * width // ranks)
        self.row = nn.Linear(4 * width // ranks, width, bias=False)
        self.talks = talks

    def forward(self, x: Any) -> Any:
        y = self.row(F.gelu(self.column(x)))
        return x + (funcol.all_reduce(y, "sum") if self.talks else y)


def pairs(options: argparse.Namespace, world: World) -> dict[str, Any]:
    """Times of the four."""
    x = torch.randn(options.tokens, options.width)
    steps: dict[str, Callable[[], None]] = {}
    breaks = 0
    for talks in (True, False):
        torch.manual_seed(world.rank)
        net = nn.Sequential(*[Pair(options.width, world.size, talks=talks) for _ in range(options.layers)])
        for mode in ("eager", "compiled"):
            function = torch.compile(net) if mode == "compiled" else net

            def step(function: Any = function, net: Any = net) -> None:
                net.zero_grad()
                function(x).square().mean().backward()

            step()
            steps[f"{mode}{'' if talks else '_alone'}"] = step
            breaks += len(function.explain().breaks) if mode == "compiled" else 0
    times = in_turn(steps, options, world)
    exposed = {mode: times[mode] - times[f"{mode}_alone"] for mode in ("eager", "compiled")}
    return {
        **{f"{name}_ms": round(ms, 3) for name, ms in times.items()},
        **{f"exposed_{mode}_ms": round(ms, 3) for mode, ms in exposed.items()},
        **(stood := stood_ms(steps, options, world)),
        "ratio": round(stood["stood_compiled_ms"] / stood["stood_eager_ms"], 3),
        "breaks": breaks,
    }


def stood_ms(steps: dict[str, Callable[[], None]], options: argparse.Namespace, world: World) -> dict[str, float]:
    """For how long a step stood in its collectives: the median of its steps, the mean over ranks."""
    eager: list[float] = []
    compiled: list[float] = []
    calls: list[float] = []
    run = GroupRunner.run

    def timed(*args: Any) -> Any:
        begun = time.perf_counter()
        found = run(*args)
        calls.append(1e3 * (time.perf_counter() - begun))
        return found

    for _ in range(options.rounds * options.train):
        with mock.patch.object(GroupRunner, "run", timed):
            steps["eager"]()
        eager.append(sum(calls))
        calls.clear()
        with dist.watch_collectives() as seen:
            steps["compiled"]()
        compiled.append(seen.exposed_ms)
    means = world.means([statistics.median(eager), statistics.median(compiled)])
    return {"stood_eager_ms": round(means[0], 3), "stood_compiled_ms": round(means[1], 3)}


def handmade(options: argparse.Namespace, world: World) -> dict[str, Any]:
    """Times of both."""
    steps = {"handmade": one_graph(options.model), "ddp": wrapped(options.model)}
    for step in steps.values():
        step()
    times = in_turn(steps, options, world)
    return {
        **{f"{name}_ms": round(ms, 3) for name, ms in times.items()},
        "ratio": round(times["ddp"] / times["handmade"], 3),
    }


def one_graph(name: str) -> Callable[[], None]:
    """A step that is one graph."""
    case = make(name)
    parameters = list(case.model.parameters())
    optimizer = case.optimizer(parameters)

    @torch.compile(fullgraph=True)  # type: ignore[untyped-decorator]
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = case.model(x, y)
        loss.backward()
        for parameter in parameters:
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
        optimizer.step()
        return loss.detach()

    return lambda: step(*case.batch)


def wrapped(name: str) -> Callable[[], None]:
    """The same step of a compiled DistributedDataParallel."""
    case = make(name)
    model = torch.compile(nn.parallel.DistributedDataParallel(case.model))
    optimizer = case.optimizer(case.model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        model(*case.batch).backward()
        optimizer.step()

    return step


def in_turn(steps: dict[str, Callable[[], None]], options: argparse.Namespace, world: World) -> dict[str, float]:
    """Milliseconds of each: the median of its trains, the mean over ranks."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(options.rounds):
        for name, step in steps.items():
            times[name] += train_ms(step, 2, options.train, done=world.barrier, before=world.barrier, warm_up=1)
    return dict(zip(times, world.means([statistics.median(all_of) for all_of in times.values()])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("pair", "handmade"))
    parser.add_argument("--model", default="gpt")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--train", type=int, default=4, help="steps of a train")
    options = parser.parse_args()
    world = World()
    measured = pairs(options, world) if options.what == "pair" else handmade(options, world)
    if world.rank == 0:
        print(json.dumps({**identity(), "what": options.what, "ranks": world.size, **measured}), flush=True)
    world.close()


if __name__ == "__main__":
    main()
