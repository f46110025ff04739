"""Training with SyncBatchNorm, and with the optimizers of distcompile.distributed.optim, against one rank on the joined
batch: functions of one rank's communicator, run on threads and on MPI ranks alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

import distcompile as dc
from collectives import Communicator
from distcompile import nn
from distcompile.distributed import destroy_process_group, new_group, use_communicator
from distcompile.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, bf16_compress_hook
from distcompile.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from distcompile.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from distcompile.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from distcompile.nn.parallel import DistributedDataParallel
from distcompile.optim import SGD, Adam, AdamW

Maker: TypeAlias = Callable[[Any], Any]
PER_RANK, FEATURES, STEPS = 4, 6, 3


def make_model(sync: bool) -> nn.Module:
    dc.manual_seed(0)
    norm = nn.SyncBatchNorm(8) if sync else nn.BatchNorm1d(8)
    return nn.Sequential(nn.Linear(FEATURES, 8), norm, nn.ReLU(), nn.Linear(8, 3), nn.Tanh(), nn.Linear(3, 1))


def data(world_size: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((STEPS, world_size * PER_RANK, FEATURES)).astype(np.float32)


def train(
    model: nn.Module, batches: np.ndarray, compiled: bool, make_optimizer: Callable[[Any], Any]
) -> list[np.ndarray]:
    run = dc.compile(model) if compiled else model
    optimizer = make_optimizer(model.parameters())
    for batch in batches:
        optimizer.zero_grad()
        run(dc.from_numpy(batch)).square().mean().backward()
        optimizer.step()
    values = [*model.parameters(), *model.buffers()]
    return [value.detach().numpy().copy() for value in values]


def sgd(parameters: Any) -> Any:
    return SGD(parameters, lr=0.1, momentum=0.9)


def check_synchronised_training(world: Communicator, compiled: bool) -> None:
    batches = data(world.world_size)
    mine = slice(world.rank * PER_RANK, (world.rank + 1) * PER_RANK)
    with use_communicator(world):
        model = DistributedDataParallel(make_model(sync=True), bucket_cap_mb=1e-5)
        got = train(model, batches[:, mine], compiled, sgd)
    expected = train(make_model(sync=False), batches, False, sgd)
    for actual, wanted in zip(got, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=2e-4, atol=2e-5)
    everyones = world.all_gather_object([array.tobytes() for array in got])
    assert all(other == everyones[0] for other in everyones)


def synchronised_training_is_that_of_the_joined_batch(world: Communicator) -> None:
    check_synchronised_training(world, compiled=False)


def compiled_synchronised_training_is_that_of_the_joined_batch(world: Communicator) -> None:
    check_synchronised_training(world, compiled=True)


def zero_gives_the_bits_of_the_optimizer_alone(world: Communicator) -> None:
    check_zero(world, Adam, {"lr": 0.01})
    check_zero(world, AdamW, {"lr": 0.01, "weight_decay": 0.1})
    check_zero(world, SGD, {"lr": 0.1, "momentum": 0.9})


def check_zero(world: Communicator, kind: Any, options: dict[str, Any]) -> None:
    mine = data(world.world_size)[:, world.rank * PER_RANK : (world.rank + 1) * PER_RANK]
    made: list[ZeroRedundancyOptimizer] = []

    def make(parameters: Any) -> Any:
        made.append(ZeroRedundancyOptimizer(parameters, kind, **options))
        return made[0]

    with use_communicator(world):
        plain = train(DistributedDataParallel(make_model(sync=False)), mine, False, lambda p: kind(p, **options))
        model = DistributedDataParallel(make_model(sync=False))
        parted = train(model, mine, False, make)
        for a, b in zip(plain, parted, strict=True):
            np.testing.assert_array_equal(a, b)
        state_is_whole_where_it_was_brought(world, made[0], model, kind, options)


def state_is_whole_where_it_was_brought(
    world: Communicator, zero: ZeroRedundancyOptimizer, model: nn.Module, kind: Any, options: dict[str, Any]
) -> None:
    """Saved by one rank, loaded by all into a new partition, by the plain optimizer, and trained on: the same bits."""
    held = sum(len(entries) > 0 for entries in zero.optim.state.values())
    total = sum(world.all_gather_object(held))
    assert total == len(list(model.parameters()))
    assert world.world_size == 1 or held < total
    target = world.world_size - 1
    zero.consolidate_state_dict(to=target)
    state = world.broadcast_object(zero.state_dict() if world.rank == target else None, root=target)
    results = []
    for make in (
        lambda p: ZeroRedundancyOptimizer(p, kind, **options),
        lambda p: kind(p, **options),
    ):
        dc.manual_seed(0)
        copy = DistributedDataParallel(make_model(sync=False))
        copy.load_state_dict(world.broadcast_object(model.state_dict() if world.rank == 0 else None))

        def loaded(parameters: Any, make: Any = make) -> Any:
            optimizer = make(parameters)
            optimizer.load_state_dict(state)
            return optimizer

        mine = data(world.world_size)[:, world.rank * PER_RANK : (world.rank + 1) * PER_RANK]
        results.append(train(copy, mine, False, loaded))
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)


def subgroups_train_models_of_their_own(world: Communicator) -> None:
    """DDP over part of the ranks: the lower half trains one model, the upper half another, at the same time."""
    half = world.world_size // 2
    if world.world_size == 1:
        return
    with use_communicator(world):
        groups = [new_group(range(half)), new_group(range(half, world.world_size))]
        lower = world.rank < half
        group, start = groups[0 if lower else 1], 0 if lower else half
        size = half if lower else world.world_size - half
        batches = data(world.world_size)
        mine = slice(world.rank * PER_RANK, (world.rank + 1) * PER_RANK)
        for compiled in (False, True):
            model = DistributedDataParallel(make_model(sync=False).eval(), process_group=group)
            got = train(model, batches[:, mine], compiled, sgd)
            theirs = batches[:, start * PER_RANK : (start + size) * PER_RANK]
            for actual, wanted in zip(got, train(make_model(sync=False).eval(), theirs, False, sgd), strict=True):
                np.testing.assert_allclose(actual, wanted, rtol=2e-4, atol=2e-5)
        for made in groups:
            destroy_process_group(made)


def a_rank_that_has_finished_shadows_compressed_buckets_too(world: Communicator) -> None:
    """join() with communication hooks, native and in Python: one more batch on rank 0 than on the others."""
    batches = data(world.world_size)
    for hook in (bf16_compress_hook, lambda state, bucket: allreduce_hook(state, bucket)):
        with use_communicator(world):
            model = DistributedDataParallel(make_model(sync=False).eval())
            model.register_comm_hook(None, hook)
            optimizer = sgd(model.parameters())
            with model.join():
                for batch in batches[: STEPS if world.rank == 0 else STEPS - 1]:
                    optimizer.zero_grad()
                    model(dc.from_numpy(batch[:PER_RANK])).square().mean().backward()
                    optimizer.step()
        bits = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
        assert len(set(world.all_gather_object(bits))) == 1


def across_the_step_hooks_and_optimizers_give_the_same_bits(world: Communicator) -> None:
    """overlap="step" with a hook, with ZeRO, with local SGD: what waits, and when, makes no difference."""
    for hook, make in (
        (bf16_compress_hook, sgd),
        (lambda state, bucket: allreduce_hook(state, bucket), lambda p: ZeroRedundancyOptimizer(p, Adam, lr=0.01)),
        (powerSGD_hook, lambda p: PostLocalSGDOptimizer(SGD(p, lr=0.1), PeriodicModelAverager(2))),
    ):
        got = [trained_across(world, overlap, hook, make) for overlap in ("backward", "step")]
        assert got[0] == got[1], hook


def trained_across(world: Communicator, overlap: Any, hook: Any, make: Maker) -> list[bytes]:
    with use_communicator(world):
        state = PowerSGDState(None, start_powerSGD_iter=2, min_compression_rate=1) if hook is powerSGD_hook else None
        model = DistributedDataParallel(make_model(sync=False).eval(), bucket_cap_mb=1e-4, overlap=overlap)
        model.register_comm_hook(state, hook)
        mine = slice(world.rank * PER_RANK, (world.rank + 1) * PER_RANK)
        batches = np.concatenate([data(world.world_size)] * 2)[:, mine]
        return [value.tobytes() for value in train(model, batches, True, make)]


CASES: list[Callable[[Communicator], None]] = [
    synchronised_training_is_that_of_the_joined_batch,
    compiled_synchronised_training_is_that_of_the_joined_batch,
    zero_gives_the_bits_of_the_optimizer_alone,
    subgroups_train_models_of_their_own,
    a_rank_that_has_finished_shadows_compressed_buckets_too,
    across_the_step_hooks_and_optimizers_give_the_same_bits,
]
