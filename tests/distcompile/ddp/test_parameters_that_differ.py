"""Parameters that ranks hold alike, or are meant to have each for itself: what is compared; what is left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ddp_models import (
    DistributedDataParallel,
    Net,
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
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.tensor import Tensor
from distcompile.ddp.errors import LedgerError, ModelMismatchError, NoGradientsError
from distcompile.ddp.ledger import Ledger
from distcompile.distributed import all_reduce
from distcompile.nn import Embedding, Linear, Sequential
from distcompile.nn.module import Module
from distcompile.optim import SGD, Adam
from distcompile.utils.checkpoint import checkpoint

BACKENDS = [None, "aot_eager", "codegen"]
TINY_MB = 1e-6
Change = Callable[[DistributedDataParallel, int], None]


def wrapped(
    model: Module, backend: str | None, **options: Any
) -> tuple[DistributedDataParallel, Callable[..., Tensor]]:
    ddp = DistributedDataParallel(model, **options)
    return ddp, compile(ddp, backend=backend) if backend else ddp


def train(communicator: Communicator, backend: str | None, change: Change, *, at: int, steps: int = 5) -> Module:
    """Some steps; before step `at`, change(ddp, rank)."""
    ddp, run = wrapped(Net(), backend, bucket_cap_mb=TINY_MB)
    optimizer = SGD(ddp.parameters(), lr=0.01)
    for step in range(steps):
        optimizer.zero_grad()
        if step == at:
            change(ddp, communicator.rank)
        loss_of(run(shard(batch(step), communicator))).backward()
        optimizer.step()
    return ddp.module


def load(ddp: DistributedDataParallel, factor: float) -> None:
    ddp.load_state_dict({name: value * factor for name, value in ddp.state_dict().items()})


def write(ddp: DistributedDataParallel, factor: float) -> None:
    with no_grad():
        for parameter in ddp.parameters():
            parameter.mul_(factor)


DIFFERENT: dict[str, tuple[Change, int]] = {
    "loaded before the first step": (lambda ddp, rank: load(ddp, 1 + rank / 10), 0),
    "loaded later": (lambda ddp, rank: load(ddp, 1 + rank / 10), 3),
    "loaded on one rank": (lambda ddp, rank: load(ddp, 0.5) if rank else None, 3),
    "loaded into the module": (lambda ddp, rank: ddp.module.load_state_dict(Net(rank).state_dict()) and None, 2),
    "written before the first step": (lambda ddp, rank: write(ddp, 1 + rank / 10), 0),
    "written later": (lambda ddp, rank: write(ddp, 1 + rank / 10), 3),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", DIFFERENT)
def test_other_values_on_a_rank_are_named_on_all(name: str, backend: str | None) -> None:
    change, at = DIFFERENT[name]

    def step(communicator: Communicator) -> str:
        with pytest.raises(LedgerError) as caught:
            train(communicator, backend, change, at=at)
        return str(caught.value)

    for text in on_ranks(3, step):
        assert "ranks hold different parameters: 'w1', 'b1', 'w2'" in text
        assert "loaded, or written to, after wrapping" in text


ALIKE: dict[str, Change] = {
    "loaded": lambda ddp, rank: load(ddp, 0.5),
    "written": lambda ddp, rank: write(ddp, 0.5),
    "rounded otherwise": lambda ddp, rank: load(ddp, 1 + 1e-9 * rank),
}


@pytest.mark.parametrize("name", ALIKE)
def test_the_same_values_on_all_ranks_are_not_refused(name: str) -> None:
    on_ranks(2, lambda communicator: train(communicator, "codegen", ALIKE[name], at=2))


def test_parameters_are_compared_after_a_change_and_never_else(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    compare = Ledger.compare_parameters

    def counted(self: Ledger, *args: Any, **kwargs: Any) -> None:
        compared.append(self.communicator.rank)
        compare(self, *args, **kwargs)

    monkeypatch.setattr(Ledger, "compare_parameters", counted)
    for make in (lambda p: SGD(p, lr=0.1, momentum=0.9), lambda p: Adam(p, lr=0.1)):

        def step(communicator: Communicator, make: Any = make) -> None:
            ddp, run = wrapped(Net(), "aot_eager")
            optimizer = make(ddp.parameters())
            counts, teacher = [], Net()
            for seed in range(8):
                teacher.load_state_dict(ddp.module.state_dict())  # of another module, at every step
                if seed == 4:
                    load(ddp, 0.5)
                optimizer.zero_grad()
                loss_of(run(shard(batch(seed), communicator))).backward()
                optimizer.step()
                counts.append(compared.count(communicator.rank))
            assert counts[3] == 0
            assert counts[4] == counts[-1] == 1

        compared.clear()
        on_ranks(2, step)


def test_where_a_hook_says_what_ranks_share_nothing_is_compared() -> None:
    def step(communicator: Communicator) -> None:
        ddp, run = wrapped(Net(), None)
        ddp.register_comm_hook(None, lambda state, bucket: all_reduce(bucket.buffer(), async_op=True).get_future())  # type: ignore[union-attr]
        for seed in range(3):
            write(ddp, 1 + communicator.rank / 10)
            loss_of(run(shard(batch(seed), communicator))).backward()

    on_ranks(2, step)


# --- left alone -------------------------------------------------------------------------------------------------------


class Sharded(Net):
    """Net, and rows of a table that this rank has for itself."""

    def __init__(self, rows: int, names: list[str]) -> None:
        super().__init__()
        self.table = Embedding(rows, 5, dtype=self.w1.dtype)
        self.table.weight = type(self.w1)(self.table.weight.detach() * 0 + 0.5)
        self.bias = weight(9, 3)
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(self, names)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + self.table.weight[0]) + self.bias


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["bias", ".bias"])
def test_parameters_that_are_left_alone_keep_their_own_gradients(name: str, backend: str | None) -> None:
    names = ["table.weight", name]

    def step(communicator: Communicator) -> None:
        rank = communicator.rank
        model = Sharded(4 + rank, names)
        with no_grad():
            model.bias.mul_(rank + 1.0)
        ddp, run = wrapped(model, backend, bucket_cap_mb=TINY_MB)
        for seed in range(3):
            ddp.zero_grad()
            loss_of(run(shard(batch(seed), communicator))).backward()
            alone: list[dict[str, np.ndarray]] = []
            for other in range(2):
                twin = Sharded(4 + other, names)
                with no_grad():
                    twin.bias.mul_(other + 1.0)
                alone.append(joined_gradients(twin, np.split(batch(seed), 2)[other]))
            mean = {key: (alone[0][key] + alone[1][key]) / 2 for key in ("w1", "b1", "w2")}
            check_close(gradients(model), {**mean, **{key: alone[rank][key] for key in ("table.weight", "bias")}})
        assert sorted(ddp.bucket_plan.names) == ["b1", "w1", "w2"]

    on_ranks(2, step)


def test_what_is_left_alone_is_neither_compared_nor_trained_for() -> None:
    def other_sizes(communicator: Communicator) -> None:
        DistributedDataParallel(Sharded(4 + communicator.rank, []))

    def nothing_else(communicator: Communicator) -> None:
        model = Sequential(Linear(2, 2))
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ["0.weight", "0.bias"])
        DistributedDataParallel(model)

    with pytest.raises(ModelMismatchError, match=r"table\.weight"):
        on_ranks(2, other_sizes)
    with pytest.raises(NoGradientsError):
        on_ranks(2, nothing_else)


# --- weights that re-entrant checkpoints share ------------------------------------------------------------------------


class Repeated(Net):
    """times: checkpoints in each call of forward, in turn."""

    def __init__(self, times: list[int]) -> None:
        super().__init__()
        self.times = times

    def block(self, x: Tensor) -> Tensor:
        return (x @ self.w1).tanh()

    def forward(self, x: Tensor) -> Tensor:
        y = x @ self.w1 + self.b1
        for _ in range(self.times.pop(0) if len(self.times) > 1 else self.times[0]):
            y = checkpoint(self.block, y, use_reentrant=True)
        return y @ self.w2


@pytest.mark.parametrize("cap_mb", [None, TINY_MB])
@pytest.mark.parametrize("times", [[3], [3, 2]])
def test_a_static_graph_reduces_them_once(times: list[int], cap_mb: float | None) -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Repeated(list(times)), static_graph=True, bucket_cap_mb=cap_mb)
        for seed in range(4):
            alone = Repeated([(times * 4)[seed] if len(times) == 1 else times[min(seed, 1)]])
            ddp.zero_grad()
            loss_of(ddp(shard(batch(seed), communicator))).backward()
            check_close(gradients(ddp.module), joined_gradients(alone, batch(seed)))

    on_ranks(2, step)


@pytest.mark.parametrize("options", [{}, {"find_unused_parameters": True}, {"static_graph": True}])
def test_what_comes_more_often_than_is_known_is_named(options: dict[str, bool]) -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Repeated([2, 3]), **options)  # type: ignore[arg-type]

        def train() -> None:
            for seed in range(2):
                loss_of(ddp(shard(batch(seed), communicator))).backward()

        with pytest.raises(LedgerError, match=r"(?s)'w1' was reduced twice.*static_graph=True"):
            train()

    on_ranks(2, step)
