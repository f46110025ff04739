"""On MPI ranks: random training programs, ranks that run a step differently, faults, and a soak.

Run by test_under_mpi.py. The programs are those of tests/distcompile/ddp/random_training.py.
"""

from __future__ import annotations

import gc
import os
import resource
import sys
from pathlib import Path

import numpy as np
import pytest

from collectives import Communicator
from compiler_core.capture import compile
from compiler_core.config import config
from distcompile import nn, optim
from distcompile.ddp.errors import LedgerError
from distcompile.random import manual_seed

sys.path.insert(0, str(Path(__file__).parents[2] / "distcompile" / "ddp"))
from ddp_models import DistributedDataParallel, Net, batch, check_close, gradients, joined_gradients, loss_of, wrap
from random_training import check, make_program, train

pytestmark = [
    pytest.mark.mpi(min_size=2),
    pytest.mark.filterwarnings("ignore::compiler_core.log.DistCompileWarning"),
]


def program_for(world: Communicator, seed: int, **options: object):  # type: ignore[no-untyped-def]
    """The first program from `seed` on that is for this many ranks."""
    while (program := make_program(seed, **options)).world != world.world_size:  # type: ignore[arg-type]
        seed += 1
    return program


@pytest.mark.parametrize("seed", [0, 100, 200])
def test_random_training_is_right(world: Communicator, seed: int) -> None:
    program = program_for(world, seed, backends=("aot_eager", "codegen"))
    check(program, train(program, world))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 2000, 200))
def test_random_training_is_right_for_long(world: Communicator, seed: int) -> None:
    program = program_for(world, seed, backends=("aot_eager", "codegen"), steps=6)
    check(program, train(program, world))


def test_one_rank_eager_another_compiled(world: Communicator) -> None:
    ddp = DistributedDataParallel(Net(), bucket_cap_mb=1e-6, process_group=world)
    run = compile(ddp, backend="codegen")
    for seed in range(5):
        rows = np.array_split(batch(seed, 4 * world.world_size), world.world_size)[world.rank]
        ddp.zero_grad()
        is_odd = seed % world.world_size == world.rank
        loss_of((ddp if is_odd else run)(wrap(rows))).backward()
        check_close(gradients(ddp.module), joined_gradients(Net(), batch(seed, 4 * world.world_size)))


def test_a_skipped_backward_that_parts_the_ranks_is_named_on_all(world: Communicator) -> None:
    ddp = DistributedDataParallel(Net(), bucket_cap_mb=1e-6, process_group=world)
    x = wrap(batch(1))
    loss_of(ddp(x)).backward()
    if world.rank == 1:
        ddp(x)  # its backward never comes
        optim.SGD(ddp.parameters(), lr=0.1).step()
    with pytest.raises(LedgerError, match=r"rank\(s\) \[1\]: backward 2, of training forward 3"):
        loss_of(ddp(x)).backward()


class Normed(nn.Module):
    """53 BatchNorms: 159 buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.BatchNorm1d(4) for _ in range(53)))

    def forward(self, x):  # type: ignore[no-untyped-def]
        return self.layers(x)


def test_buffers_travel_in_one_message_and_only_when_written(world: Communicator) -> None:
    manual_seed(world.rank)
    ddp = DistributedDataParallel(Normed(), process_group=world)
    sync, sent = ddp._buffer_sync, []
    send = sync._send
    sync._send = lambda draft, root: (sent.append(len(sync.travelling)), send(draft, root))  # type: ignore[method-assign]
    x = wrap(np.random.default_rng(world.rank).normal(size=(6, 4)).astype(np.float32))
    for step in range(3):
        ddp(x).sum().backward()
        assert sent == [159] * step  # written by the forward before, each time in one message
    ddp.eval()
    with_grad = ddp(x)
    copies = [b.clone() for b in ddp.buffers()]  # what an array shares may have been written to, and is sent again
    values = world.all_gather_object([b.numpy().tobytes() for b in copies])
    assert all(one == values[0] for one in values)
    ddp(x)
    with_grad.sum().backward()  # two forwards in eval: what the first saved was not touched
    assert len(sent) == 3


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


def resident_kib() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() // 1024


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_soak_of_600_steps(world: Communicator) -> None:
    """Recompiles, eager steps, accumulation, kept gradients, plans proposed and joins: no leak, no drift."""
    with config.patch(recompile_limit=4):
        _soak(world, steps=600)


def _soak(world: Communicator, steps: int) -> None:
    ddp, alone = DistributedDataParallel(Net(), bucket_cap_mb=1e-6, process_group=world), Net()
    run = compile(ddp, backend="codegen")
    optimizers = [optim.SGD(model.parameters(), lr=1e-3) for model in (ddp.module, alone)]
    kept: list[object] = []
    baseline = (0, 0)
    for step in range(steps):
        size = 3 + step % 3 if step % 7 == 0 else 4
        arrays = [batch(step * 8 + rank, size) for rank in range(world.world_size)]
        forward = ddp if step % 11 == world.rank else run
        ddp.zero_grad(set_to_none=step % 2 == 0)
        alone.zero_grad()
        if step % 5 == 0:
            with ddp.no_sync():
                loss_of(run(wrap(arrays[world.rank]))).backward()
        with ddp.join(enable=step % 50 == 0):
            loss_of(forward(wrap(arrays[world.rank]))).backward()
        for array in arrays:
            (loss_of(alone(wrap(array))) * ((2.0 if step % 5 == 0 else 1.0) / world.world_size)).backward()
        kept = [*kept[-3:], ddp.module.w1.grad]
        for optimizer in optimizers:
            optimizer.step()
        if step == steps // 4:
            gc.collect()
            baseline = descriptors(), resident_kib()
    check_close(
        {n: np.array(p._cell.current()) for n, p in ddp.module.named_parameters()},
        {n: np.array(p._cell.current()) for n, p in alone.named_parameters()},
    )
    gc.collect()
    assert descriptors() <= baseline[0] + 2
    assert resident_kib() <= baseline[1] + 32 * 1024
