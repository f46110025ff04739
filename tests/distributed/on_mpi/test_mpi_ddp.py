"""On MPI ranks: DDP, eager and compiled, equals one rank on the joined batch; ranks hold the same bits.

Run by test_under_mpi.py.
"""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

import distcompile as dc
from collectives import Communicator
from distcompile import nn, optim, parity
from distcompile.ddp import DistributedDataParallel
from distcompile.ddp.errors import RankDisagreementError
from distcompile.distributed import use_communicator

pytestmark = pytest.mark.mpi(min_size=2)
ENGINES = [name for name, package in (("onnxrt", "onnxruntime"), ("openxla", "jax")) if find_spec(package)]
BACKENDS = [None, "eager", "aot_eager", "codegen", *ENGINES]
PER_RANK, WIDTH, CLASSES = 4, 16, 5


class Model(nn.Module):
    """Embedding tied to the output layer, dropout, layer norm, a hidden layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(CLASSES, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.hidden = nn.Linear(WIDTH, WIDTH)
        self.drop = nn.Dropout(0.25)
        self.out = nn.Linear(WIDTH, CLASSES, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens: dc.Tensor) -> dc.Tensor:
        x = self.drop(self.embed(tokens))
        return self.out(x + nn.functional.gelu(self.hidden(self.norm(x))))


def tokens(ranks: int) -> np.ndarray:
    return np.random.default_rng(3).integers(0, CLASSES, (ranks * PER_RANK, 7))


def make_model() -> Model:
    dc.manual_seed(0)
    return Model()


def loss_of(logits: dc.Tensor, targets: dc.Tensor) -> dc.Tensor:
    return nn.functional.cross_entropy(logits.reshape(-1, CLASSES), targets.reshape(-1))


def train(run: nn.Module, model: nn.Module, batch: np.ndarray, steps: int) -> list[np.ndarray]:
    """Parameters after some steps of AdamW."""
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    dc.manual_seed(1)
    inputs, targets = dc.from_numpy(batch), dc.from_numpy((batch + 1) % CLASSES)
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(run(inputs), targets).backward()
        optimizer.step()
    return [p.detach().numpy().copy() for p in model.parameters()]


@pytest.mark.usefixtures("counter_draws")
@pytest.mark.parametrize("cap_mb", [25, 1e-6])
@pytest.mark.parametrize("backend", BACKENDS)
def test_training_equals_one_rank_on_the_joined_batch(world: Communicator, backend: str | None, cap_mb: float) -> None:
    batch = tokens(world.world_size)
    model = make_model()
    with use_communicator(world):
        ddp = DistributedDataParallel(model, bucket_cap_mb=cap_mb)
    run = dc.compile(ddp, backend=backend, fullgraph=True) if backend else ddp
    mine = train(run, ddp, batch[world.rank * PER_RANK : (world.rank + 1) * PER_RANK], steps=4)
    alone = make_model()
    expected = train(alone, alone, batch, steps=4)
    for actual, wanted in zip(mine, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=2e-4, atol=2e-6)
    everyones = world.all_gather_object([array.tobytes() for array in mine])
    assert all(one == everyones[0] for one in everyones)


def test_the_compiled_backward_overlaps_from_the_first_step(world: Communicator) -> None:
    with use_communicator(world):
        ddp = DistributedDataParallel(make_model(), bucket_cap_mb=1e-6)
    run = dc.compile(ddp, fullgraph=True)
    batch = dc.from_numpy(tokens(1))
    loss_of(run(batch), batch).backward()
    report = ddp.overlap_report()
    assert report.steps == 1
    assert len(report.rows) == len(ddp.bucket_plan.buckets) > 3
    first, last = report.rows[0], report.rows[-1]
    assert first.launch_ms < last.ready_ms  # on its way while later segments computed
    hashes = world.all_gather_object(ddp.bucket_plan.hash)
    assert len(set(hashes)) == 1
    job = ddp.overlap_report(all_ranks=True)  # ranks of one host share a clock: the truth is known
    assert len({world.broadcast_object(job.to_json()), job.to_json()}) == 1
    assert all(abs(rank.clock.offset_s) <= rank.clock.uncertainty_s for rank in job.ranks)
    assert [len(rank.steps) for rank in job.ranks] == [1] * world.world_size


def test_parity_holds_on_all_ranks(world: Communicator) -> None:
    batch = dc.from_numpy(tokens(1) + 0 * world.rank)
    with use_communicator(world):
        report = parity.check(make_model(), batch, loss=lambda y, x: loss_of(y, x))
    assert report.ok, str(report)
    assert report.world_size == world.world_size


def test_parity_fails_on_all_ranks_and_names_the_parameter(world: Communicator) -> None:
    class Wrong(nn.Module):
        """A linear layer whose gradient depends on being compiled (as a wrong compiler's would)."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: dc.Tensor) -> dc.Tensor:
            from compiler_core.ops.registry import current_trace

            factor = 1.001 if current_trace() is not None else 1.0
            return self.second(self.first(x)) + self.second.bias * (factor - 1.0)

    with use_communicator(world):
        report = parity.check(Wrong(), dc.ones(2, 3))
    assert not report.ok
    assert report.first_failure is not None


def test_ranks_that_capture_different_graphs_are_told(world: Communicator) -> None:
    class RankDependent(Model):
        def forward(self, tokens: dc.Tensor) -> dc.Tensor:
            y = super().forward(tokens)
            return y.tanh() if world.rank == 1 else y.sigmoid()

    dc.manual_seed(0)
    with use_communicator(world):
        run = dc.compile(DistributedDataParallel(RankDependent()))
    batch = dc.from_numpy(tokens(1))
    with pytest.raises(RankDisagreementError, match=r"test_mpi_ddp\.py:\d+"):
        loss_of(run(batch), batch).backward()


@pytest.mark.parametrize("cap_mb", [25, 1e-6])
@pytest.mark.parametrize("backend", BACKENDS)
def test_across_the_step_the_bits_are_those_of_the_backward(
    world: Communicator, backend: str | None, cap_mb: float
) -> None:
    batch = tokens(world.world_size)[world.rank * PER_RANK : (world.rank + 1) * PER_RANK]
    found = []
    for overlap in ("backward", "step"):
        model = make_model()
        with use_communicator(world):
            ddp = DistributedDataParallel(model, bucket_cap_mb=cap_mb, overlap=overlap)
        run = dc.compile(ddp, backend=backend, fullgraph=True) if backend else ddp
        found.append([array.tobytes() for array in train(run, ddp, batch, steps=6)])
    assert found[0] == found[1]
    everyones = world.all_gather_object(found[1])
    assert all(one == everyones[0] for one in everyones)


def test_looking_in_the_middle_of_a_step(world: Communicator) -> None:
    """Parameters, gradients, state dicts, evaluation right after step(), on a model large enough to travel a while."""
    seen = []
    for overlap in ("backward", "step"):
        dc.manual_seed(0)
        module = nn.Sequential(*(nn.Linear(256, 256) for _ in range(6)))
        with use_communicator(world):
            ddp = DistributedDataParallel(module, overlap=overlap)
        run, optimizer = dc.compile(ddp, fullgraph=True), optim.AdamW(ddp.parameters(), lr=1e-3)
        dc.manual_seed(1 + world.rank)
        x = dc.randn(4, 256)
        bits: list[bytes] = []
        for number in range(8):
            optimizer.zero_grad()
            run(x).pow(2).mean().backward()
            if number % 4 == 0:
                bits.append(module[5].weight.grad.numpy().tobytes())
            optimizer.step()
            if number % 4 == 1:
                bits += [value.numpy().tobytes() for value in ddp.state_dict().values()]
            elif number % 4 == 2:
                with dc.no_grad():
                    bits.append(run(x).numpy().tobytes())
            elif number % 4 == 3:
                bits.append(np.array(optimizer.state[module[0].weight]["exp_avg"]).tobytes())
        seen.append([*bits, *(p.detach().numpy().tobytes() for p in ddp.parameters())])
    assert seen[0] == seen[1]


class Tuned(nn.Module):
    """A frozen layer, a break, and a layer that learns."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.body.requires_grad_(False)

    def forward(self, x: dc.Tensor) -> dc.Tensor:
        h = self.body(x).tanh()
        return self.head(h * 2.0 if h.abs().sum() > 1e9 else h)


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_instances_with_a_part_in_common_and_graph_breaks(world: Communicator, backend: str | None) -> None:
    """Each reduces in its own steps: the whole has a layer that the part's steps do not use."""
    dc.manual_seed(0)
    joined = dc.randn(world.world_size * PER_RANK, WIDTH)
    mine = joined[world.rank * PER_RANK : (world.rank + 1) * PER_RANK]
    part, alone = Tuned(), Tuned()
    alone.load_state_dict(part.state_dict())
    whole = nn.Sequential(part, nn.Linear(CLASSES, CLASSES))
    with use_communicator(world):
        ddps = [DistributedDataParallel(model, bucket_cap_mb=1e-6) for model in (part, whole)]
    alones = [alone, nn.Sequential(alone, nn.Linear(CLASSES, CLASSES))]
    alones[1].load_state_dict(whole.state_dict())
    runs = [dc.compile(ddp, backend=backend) if backend else ddp for ddp in ddps]
    for step in range(4):
        which = step % 2
        for model in (whole, alones[1]):
            model.zero_grad()
        runs[which](mine).pow(2).mean().backward()
        alones[which](joined).pow(2).mean().backward()
        for actual, wanted in zip(whole.parameters(), alones[1].parameters(), strict=True):
            assert (actual.grad is None) == (wanted.grad is None)
            if wanted.grad is not None:
                np.testing.assert_allclose(actual.grad.numpy(), wanted.grad.numpy(), rtol=1e-4, atol=1e-6)
