"""overlap="step": the same bits as overlap="backward", whatever reads a value when, and however slow a bucket is."""

from __future__ import annotations

import copy
import gc
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from ddp_models import DistributedDataParallel, on_ranks, wrap

from collectives import Communicator
from collectives.call import Task
from collectives.errors import CollectiveError
from collectives.threaded import ThreadedWorld
from collectives.work import LocalWork
from compiler_core.capture import compile
from compiler_core.errors import DTypeError
from compiler_core.log import DistCompileWarning
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.making.random import manual_seed
from compiler_core.tensor.memory.cell import Cell
from compiler_core.tensor.memory.fence import ParameterEvents, fence_of, promise, settle_all
from compiler_core.tensor.tensor import Tensor
from distcompile import nn, optim
from distcompile.errors import ArgumentError
from distcompile.nn.utils import clip_grad_norm_
from distcompile.optim.update_rules import deferred
from tests.sharing import some

WIDTH, TINY_MB = 6, 1e-6


class Tower(nn.Module):
    """Residual layers with norms, a tied weight at both ends, and one parameter that is used twice."""

    def __init__(self, layers: int = 3) -> None:
        super().__init__()
        manual_seed(3)
        self.first = nn.Linear(WIDTH, WIDTH)
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(layers)])
        self.norm = nn.LayerNorm(WIDTH)
        self.gain = nn.Parameter(wrap(np.full((WIDTH,), 0.5, np.float32)))

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x) * self.gain
        for layer in self.layers:
            h = h + layer(h)
        return (self.norm(h) @ self.first.weight * self.gain).pow(2).mean()


OPTIMIZERS: dict[str, Callable[[list[Tensor]], optim.Optimizer]] = {
    "sgd": lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: optim.Adam(p, lr=0.01),
    "adamw": lambda p: optim.AdamW(p, lr=0.01),
    "groups": lambda p: optim.AdamW([{"params": p[:3], "lr": 0.1}, {"params": p[3:], "weight_decay": 0.5}], lr=0.01),
    "unfused": lambda p: optim.AdamW(p, lr=0.01, fused=False),
}


def data(step: int, rank: int) -> Tensor:
    return wrap(np.random.default_rng(100 * step + rank).standard_normal((4, WIDTH)).astype(np.float32))


class Trainer:
    """A wrapped, compiled model with its optimizer, and the ways in which users look at it."""

    def __init__(self, overlap: str, optimizer: str, backend: str | None, cap_mb: float = TINY_MB) -> None:
        self.ddp = DistributedDataParallel(Tower(), bucket_cap_mb=cap_mb, overlap=overlap)
        self.run = self.ddp if backend is None else compile(self.ddp, backend=backend, fullgraph=True)
        self.optimizer = OPTIMIZERS[optimizer](list(self.ddp.parameters()))
        self.schedule = optim.lr_scheduler.StepLR(self.optimizer, 2, 0.7)
        self.rank = self.ddp.process_group.rank

    def step(self, number: int, *, accumulate: bool = False, to_none: bool = True, clip: bool = False) -> Tensor:
        self.optimizer.zero_grad(set_to_none=to_none)
        if accumulate:
            with self.ddp.no_sync():
                self.run(data(number + 50, self.rank)).backward()
        loss = self.run(data(number, self.rank))
        loss.backward()
        if clip:
            clip_grad_norm_(list(self.ddp.parameters()), 0.05)
        self.optimizer.step()
        self.schedule.step()
        return loss

    def bits(self) -> bytes:
        parameters = [p.detach().clone().numpy().tobytes() for p in self.ddp.parameters()]
        state = [np.array(t).tobytes() for entries in self.optimizer.state.values() for t in entries.values()]
        return b"".join([*parameters, *state])


READERS: dict[str, Callable[[Trainer], object]] = {
    "parameter": lambda t: t.ddp.module.gain._cell.current().tobytes(),
    "gradients": lambda t: [p.grad.numpy().tobytes() for p in t.ddp.parameters() if p.grad is not None],
    "one gradient": lambda t: None if (g := t.ddp.module.first.bias.grad) is None else g.numpy().tobytes(),
    "state_dict": lambda t: {k: v.numpy().tobytes() for k, v in t.ddp.state_dict().items()},
    "optimizer state": lambda t: len(t.optimizer.state_dict()["state"]),
    "bits": Trainer.bits,
    "deepcopy": lambda t: [p.detach().numpy().tobytes() for p in copy.deepcopy(t.ddp.module).parameters()],
    "eval": lambda t: evaluate(t.run, t),
    "eager eval": lambda t: evaluate(t.ddp, t),
    "foreign optimizer": lambda t: foreign_step(t),
    "write": lambda t: write(t),
    "load": lambda t: t.ddp.load_state_dict(copy.deepcopy(t.ddp.state_dict())),
    "scaler": lambda t: [bool(np.isfinite(p.grad.numpy()).all()) for p in t.ddp.parameters() if p.grad is not None],
    "exception": lambda t: exception_in_forward(t),
    "recompile": lambda t: float(t.run(wrap(np.ones((2, WIDTH), np.float32))).detach().numpy()),
    "nothing": lambda t: None,
}


def evaluate(run: Callable[[Tensor], Tensor], trainer: Trainer) -> bytes:
    with no_grad():
        return run(data(7, trainer.rank)).numpy().tobytes()


def foreign_step(trainer: Trainer) -> None:
    """An optimizer of the user's own, on one parameter."""
    gain = trainer.ddp.module.gain
    if gain.grad is not None:
        with no_grad():
            gain.sub_(gain.grad * 0.01)


def write(trainer: Trainer) -> None:
    with no_grad():
        trainer.ddp.module.norm.weight.mul_(0.99)


def exception_in_forward(trainer: Trainer) -> str:
    with pytest.raises(Exception, match=r".") as caught:
        trainer.run(wrap(np.ones((2, WIDTH + 1), np.float32)))
    return type(caught.value).__name__


@contextmanager
def slow_buckets(seconds: float) -> Iterator[None]:
    """Buckets end late, in a thread of their own, and hold NaN until then: whoever reads too early shows it."""
    match = ThreadedWorld._match

    def late(self: ThreadedWorld, arrived: list[tuple[Task, LocalWork]]) -> None:
        if not arrived[0][0].label.startswith("bucket"):
            match(self, arrived)
            return
        kept = [(replace(task, source=task.source.copy()), work) for task, work in arrived]
        for task, _ in arrived:
            task.target.fill(np.nan)

        def end() -> None:
            time.sleep(seconds)
            match(self, kept)

        threading.Thread(target=end).start()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ThreadedWorld, "_match", late)
        yield


def compare(world_size: int, steps: int, make: Callable[[str], Trainer], act: Callable[[Trainer, int], object]) -> None:
    """Both ways side by side on each rank, the same acts: all results and bits are equal, on all ranks."""

    def rank(communicator: Communicator) -> bytes:
        found = {}
        for overlap in ("backward", "step"):
            trainer = make(overlap)
            found[overlap] = [(act(trainer, number), None)[0] for number in range(steps)], trainer.bits()
        assert found["step"] == found["backward"]
        return found["step"][1]

    results = on_ranks(world_size, rank)
    assert len(set(results)) == 1


@pytest.mark.parametrize(("optimizer", "world_size"), [*((name, 2) for name in OPTIMIZERS), ("adamw", 1), ("sgd", 3)])
def test_the_same_bits_over_many_steps(optimizer: str, world_size: int) -> None:
    compare(
        world_size, 8, lambda o: Trainer(o, optimizer, "codegen"), lambda t, n: t.step(n).detach().numpy().tobytes()
    )


@pytest.mark.parametrize("backend", [None, "eager", "aot_eager", "codegen"])
@pytest.mark.parametrize("cap_mb", [TINY_MB, 2e-4])
def test_every_backend_and_bucket_size(backend: str | None, cap_mb: float) -> None:
    compare(2, 4, lambda o: Trainer(o, "adamw", backend, cap_mb), lambda t, n: t.step(n).detach().numpy().tobytes())


@pytest.mark.parametrize("seed", some(range(24), 5))
def test_random_readers_at_random_places(seed: int) -> None:
    def act(trainer: Trainer, number: int) -> object:
        rng = random.Random(1000 * seed + number)
        seen: list[object] = []

        def look() -> None:
            for name in rng.sample(list(READERS), rng.choice([0, 0, 1, 2])):
                seen.append((name, READERS[name](trainer)))

        kinds = {"accumulate": rng.random() < 0.3, "to_none": rng.random() < 0.7, "clip": rng.random() < 0.2}
        trainer.step(number, **kinds)
        look()
        return seen

    rng = random.Random(seed)
    optimizer, backend = rng.choice(list(OPTIMIZERS)), rng.choice(["codegen", "codegen", "aot_eager", None])
    with slow_buckets(0.002 if seed % 2 else 0.0):  # 0: a thread that ends when it likes
        compare(2, 6, lambda o: Trainer(o, optimizer, backend), act)


def test_values_do_wait_for_each_other() -> None:
    """Not only right: the backward returns before its buckets are there, and the forward runs ahead."""

    def rank(communicator: Communicator) -> None:
        trainer = Trainer("step", "adamw", "codegen")
        trainer.step(0)
        trainer.optimizer.zero_grad()
        loss = trainer.run(data(1, trainer.rank))
        loss.backward()
        pending = [p for p in trainer.ddp.parameters() if fence_of(p.grad._cell) is not None]
        assert len(pending) == len(list(trainer.ddp.parameters()))
        trainer.optimizer.step()
        assert all(fence_of(p._cell) is not None for p in trainer.ddp.parameters())
        trainer.optimizer.zero_grad()
        trainer.run(data(2, trainer.rank))
        assert all(fence_of(p._cell) is None for p in trainer.ddp.parameters())
        report = trainer.ddp.overlap_report()
        assert len(report.rows) == len(trainer.ddp.bucket_plan.buckets) > 4
        assert {span.kind for span in trainer.ddp._books.recorder.spans()} >= {"wait", "update"}

    with slow_buckets(0.02):
        on_ranks(2, rank)


def test_the_forward_starts_before_anything_has_arrived() -> None:
    """Nothing that runs before the forward reads a value: all fences are settled from inside of it."""
    inside: dict[int, int] = {}  # rank -> fences that were settled from inside its forwards
    wait = ParameterEvents.wait

    def count(self: ParameterEvents, event: int) -> None:
        fences = set(self._fences.values())
        before = sum(fence.is_settled for fence in fences)
        wait(self, event)
        rank = next(iter(fences)).owner.rank if fences else -1
        inside[rank] = inside.get(rank, 0) + sum(fence.is_settled for fence in fences) - before

    def rank(communicator: Communicator) -> None:
        trainer = Trainer("step", "adamw", "codegen")
        for number in range(4):
            trainer.step(number)
        buckets = len(trainer.ddp.bucket_plan.buckets)
        assert inside[communicator.rank] == 3 * buckets
        settle_all(communicator)

    with slow_buckets(0.01), pytest.MonkeyPatch.context() as patch:
        patch.setattr(ParameterEvents, "wait", count)
        on_ranks(2, rank)


def test_buckets_that_are_needed_first_may_leave_first() -> None:
    def rank(communicator: Communicator) -> tuple[int, ...]:
        trainer = Trainer("step", "sgd", "codegen")
        trainer.step(0)
        plan, use = trainer.ddp.bucket_plan, trainer.ddp._strategy.first_use
        assert sorted(plan.launch_order) == list(range(len(plan.buckets)))
        assert set(use) == set(plan.names)
        assert use["first.weight"] < use["layers.0.0.weight"] < use["layers.2.0.weight"]
        trainer.step(1)
        return plan.launch_order

    orders = on_ranks(2, rank)
    assert orders[0] == orders[1]


def test_clipping_by_norm_says_once_that_it_waits() -> None:
    def rank(communicator: Communicator) -> None:
        trainer = Trainer("step", "sgd", "codegen")
        for number in range(3):
            trainer.step(number, clip=True)

    with pytest.warns(DistCompileWarning, match="the total norm needs all gradients") as caught:
        on_ranks(2, rank)
    assert sum("total norm" in str(w.message) for w in caught) == 1


def test_a_bucket_that_fails_fails_its_readers_and_nobody_sees_its_values() -> None:
    failing: set[int] = set()  # ranks whose buckets fail from now on
    finish = LocalWork.finish

    def fail(self: LocalWork, error: CollectiveError | None = None, *, skipped: bool = False) -> None:
        is_bad = self.rank in failing and "bucket" in self.what
        finish(self, CollectiveError("the link is gone") if is_bad else error, skipped=skipped)

    def rank(communicator: Communicator) -> None:
        trainer = Trainer("step", "sgd", "codegen")
        trainer.step(0)
        trainer.bits()
        trainer.optimizer.zero_grad()
        loss = trainer.run(data(1, trainer.rank))
        failing.add(trainer.rank)
        loss.backward()
        trainer.optimizer.step()
        for _ in range(2):
            with pytest.raises(CollectiveError, match="the link is gone"):
                trainer.run(data(2, trainer.rank))
            with pytest.raises(CollectiveError, match="the link is gone"):
                trainer.bits()

    with pytest.MonkeyPatch.context() as patch:  # here, not in each rank's thread: these would undo each other's
        patch.setattr(LocalWork, "finish", fail)
        on_ranks(2, rank)
    gc.collect()  # what nobody can read any more waits for nothing


def test_state_that_does_not_fit_is_an_error_of_the_step_and_changes_nothing() -> None:
    """A model converted between two steps: the update cannot be made, and is not promised either."""

    def rank(communicator: Communicator) -> None:
        trainer = Trainer("step", "adamw", "codegen")
        trainer.step(0)
        trainer.ddp.double()
        trainer.optimizer.zero_grad()
        trainer.run(data(1, trainer.rank).double()).backward()
        before = trainer.bits()
        with pytest.raises(DTypeError, match="has another dtype"):
            trainer.optimizer.step()
        assert trainer.bits() == before
        trainer.run(data(2, trainer.rank).double()).backward()

    on_ranks(2, rank)


def test_a_signal_handler_within_the_step_sees_old_or_new_values() -> None:
    """As would another thread: no promised place is seen while it is still empty."""
    watched: dict[Cell, list[bytes]] = {}

    def promise_and_read(cell: Cell, array: np.ndarray) -> None:
        promise(cell, array)
        if cell in watched:
            watched[cell].append(cell.current().tobytes())

    def rank(communicator: Communicator) -> None:
        trainer = Trainer("step", "sgd", "codegen")
        gain = trainer.ddp.module.gain
        trainer.optimizer.zero_grad()
        trainer.run(data(0, trainer.rank)).backward()
        alias = gain._cell.current()  # seen by somebody: the new value needs another place
        watched[gain._cell] = [alias.tobytes()]
        trainer.optimizer.step()
        old, *seen = watched[gain._cell]
        new = gain._cell.current().tobytes()
        assert new != old
        assert seen
        assert set(seen) <= {old, new}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deferred, "promise", promise_and_read)
        on_ranks(2, rank)


def test_an_unknown_overlap_is_refused() -> None:
    def rank(communicator: Communicator) -> None:
        with pytest.raises(ArgumentError, match="unknown overlap 'always'"):
            DistributedDataParallel(Tower(), overlap="always")

    on_ranks(1, rank)


def test_nothing_waits_when_all_is_read() -> None:
    def rank(communicator: Communicator) -> None:
        trainer = Trainer("step", "adamw", "codegen")
        for number in range(3):
            trainer.step(number)
        assert any(fence_of(p._cell) is not None for p in trainer.ddp.parameters())
        settle_all(communicator)
        assert all(fence_of(p._cell) is None for p in trainer.ddp.parameters())

    on_ranks(2, rank)
