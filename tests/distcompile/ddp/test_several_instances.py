"""Several DDP instances in one process, with parameters in common and graph breaks: each reduces its own forwards'."""

from __future__ import annotations

import gc
from collections.abc import Callable

import numpy as np
import pytest
from ddp_models import (
    DistributedDataParallel,
    batch,
    check_close,
    gradients,
    joined_gradients,
    loss_of,
    on_ranks,
    shard,
    weight,
)

from collectives import Communicator
from compiler_core.capture import compile
from compiler_core.errors import GraphBreak
from compiler_core.log import DistCompileWarning
from compiler_core.tensor.tensor import Tensor
from distcompile.nn.module import Module

pytestmark = pytest.mark.filterwarnings(f"error::{DistCompileWarning.__module__}.{DistCompileWarning.__name__}")
BACKENDS = [None, "eager", "aot_eager", "codegen"]
TINY_MB = 1e-6
Run = Callable[[Tensor], Tensor]


class Tuned(Module):
    """A body, frozen unless it is told to learn, then a break, then a head: no graph before the break is on the tape.

    fails: what comes after the break.
    """

    fails = False

    def __init__(self, *, learns: bool = False) -> None:
        super().__init__()
        self.body, self.head = weight(1, 5, 5), weight(2, 5, 5)
        self.body.requires_grad_(learns)

    def forward(self, x: Tensor) -> Tensor:
        h = (x @ self.body).tanh()
        if h.abs().sum() > 1e9:
            h = h * 2.0
        if self.fails:
            raise ValueError("behind the break")
        return h @ self.head


class Topped(Module):
    """A module that others have too, and a parameter of its own."""

    def __init__(self, inner: Module, seed: int = 3) -> None:
        super().__init__()
        self.inner, self.top = inner, weight(seed, 5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) @ self.top


class Straight(Tuned):
    """Without the break."""

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.body).tanh() @ self.head


def wrapped(model: Module, backend: str | None) -> tuple[DistributedDataParallel, Run]:
    ddp = DistributedDataParallel(model, bucket_cap_mb=TINY_MB)
    return ddp, compile(ddp, backend=backend) if backend else ddp


def trains(run: Run, model: Module, alone: Module, seed: int, communicator: Communicator) -> None:
    """One step gives the gradients that one rank gets on the joined batch; `alone` is the part of `model` that runs."""
    model.zero_grad()
    alone.zero_grad()
    loss_of(run(shard(batch(seed), communicator))).backward()
    check_close(gradients(model), joined_gradients(alone, batch(seed)))


@pytest.mark.parametrize("first", BACKENDS)
@pytest.mark.parametrize("frozen", ["before both", "before the second", "after both"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_second_instance_of_a_partly_frozen_module(backend: str | None, frozen: str, first: str | None) -> None:
    """The first, which still trains the body where it was frozen later, has no part in the second's steps."""

    def step(communicator: Communicator) -> None:
        model = Tuned(learns=frozen != "before both")
        one, run_one = wrapped(model, first)
        model.body.requires_grad_(frozen == "after both")
        two, run_two = wrapped(model, backend)
        model.body.requires_grad_(False)
        for seed in range(3):
            trains(run_two, model, Tuned(), seed, communicator)
        assert (one._books.round, two._books.round) == (0, 3)
        for seed in range(2):
            trains(run_one, model, Tuned(), seed, communicator)
            trains(run_two, model, Tuned(), seed, communicator)
        assert (one._books.round, two._books.round) == (2, 5)

    on_ranks(2, step)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_part_of_a_module_that_another_instance_has_whole(backend: str | None) -> None:
    def step(communicator: Communicator) -> None:
        part = Tuned()
        whole = Topped(part)
        _, run_whole = wrapped(whole, backend)
        _, run_part = wrapped(part, backend)
        for seed in range(3):
            trains(run_part, part, Tuned(), seed, communicator)
            assert whole.top.grad is None
            trains(run_whole, whole, Topped(Tuned()), seed, communicator)
            whole.zero_grad()

    on_ranks(2, step)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_forward_that_an_exception_ended_behind_its_break(backend: str | None) -> None:
    def step(communicator: Communicator) -> None:
        part = Tuned()
        whole = Topped(part)
        failing, run_whole = wrapped(whole, backend)
        _, run_part = wrapped(part, backend)
        for seed in range(3):
            part.fails = True
            with pytest.raises(ValueError, match="behind"):
                run_whole(shard(batch(seed), communicator))
            part.fails = False
            trains(run_part, part, Tuned(), seed, communicator)
        assert failing._books.round == 0

    on_ranks(2, step)


@pytest.mark.parametrize("backend", BACKENDS)
def test_backwards_long_after_their_forwards(backend: str | None) -> None:
    """Forwards without gradients in between are of no account."""

    def step(communicator: Communicator) -> None:
        part = Tuned()
        _, run_whole = wrapped(Topped(part), backend)
        _, run_part = wrapped(part, backend)
        losses = []
        for seed in range(70):
            losses.append(loss_of(run_part(shard(batch(seed), communicator))))
            if seed % 10 == 0:
                run_whole.eval()
                run_whole(shard(batch(seed), communicator)).detach()
        for seed in (0, 69):
            part.zero_grad()
            losses[seed].backward()
            check_close(gradients(part), joined_gradients(Tuned(), batch(seed)))

    on_ranks(2, step)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_instance_dropped_before_its_backward(backend: str | None) -> None:
    """It is averaged all the same, while another one has the module too."""

    def step(communicator: Communicator) -> None:
        part = Tuned()
        other, _ = wrapped(Topped(part), backend)
        ddp, run = wrapped(part, backend)
        loss = loss_of(run(shard(batch(), communicator)))
        del ddp, run
        for _ in range(3):
            gc.collect()
        loss.backward()
        check_close(gradients(part), joined_gradients(Tuned(), batch()))
        assert other._books.round == 0

    on_ranks(2, step)


@pytest.mark.parametrize("inner", [Tuned, Straight])
@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_forwards_in_one_compiled_function_whose_losses_have_backwards_of_their_own(
    backend: str, inner: type[Tuned]
) -> None:
    """The graph ends where the second begins: of one with both, nobody knew whose backward it is."""

    def step(communicator: Communicator) -> None:
        part = inner()
        whole = Topped(part)
        ddps = [DistributedDataParallel(model, bucket_cap_mb=TINY_MB) for model in (part, whole)]

        @compile(backend=backend)
        def losses(x: Tensor) -> list[Tensor]:
            return [loss_of(ddp(x)) for ddp in (*ddps, ddps[0])]

        alone = [Tuned(), Topped(Tuned()), Tuned()]
        for seed in range(2):
            for k, model in enumerate((part, whole, part)):
                whole.zero_grad()
                alone[k].zero_grad()
                losses(shard(batch(seed), communicator))[k].backward()
                check_close(gradients(model), joined_gradients(alone[k], batch(seed)))
                assert (whole.top.grad is None) == (k != 1)

    on_ranks(2, step)


def test_as_one_graph_they_are_refused_by_name() -> None:
    def step(communicator: Communicator) -> None:
        part = Straight()
        one, other = DistributedDataParallel(part), DistributedDataParallel(Topped(part))
        run = compile(lambda x: loss_of(one(x)) + loss_of(other(x)), backend="aot_eager", fullgraph=True)
        with pytest.raises(GraphBreak, match="share parameters"):
            run(shard(batch(), communicator))

    on_ranks(2, step)


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_that_train_in_turns_one_frozen_meanwhile(backend: str | None) -> None:
    """As adversaries do: one's gradients go through the other."""

    def steps(maker: Module, judge: Module, runs: list[Run], data: Callable[[int], Tensor]) -> list[np.ndarray]:
        found: list[np.ndarray] = []
        make, tell = runs
        for seed in range(3):
            for trained, model in ((True, judge), (False, maker)):
                judge.requires_grad_(trained)
                maker.zero_grad()
                judge.zero_grad()
                made = make(data(seed))
                (loss_of(tell(data(seed))) + loss_of(tell(made.detach() if trained else made))).backward()
                found += gradients(model).values()
        return found

    def step(communicator: Communicator) -> None:
        models = [Tuned(learns=True), Topped(Tuned(learns=True))]
        runs = [wrapped(model, backend)[1] for model in models]
        alone = [Tuned(learns=True), Topped(Tuned(learns=True))]
        mine = steps(*models, runs, lambda seed: shard(batch(seed), communicator))
        for actual, wanted in zip(mine, steps(*alone, list(alone), lambda seed: batch_of(seed)), strict=True):
            np.testing.assert_allclose(actual, wanted, rtol=1e-10, atol=1e-12)

    on_ranks(2, step)


def batch_of(seed: int) -> Tensor:
    return Tensor._wrap(batch(seed))
