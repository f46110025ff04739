"""`parity.check` on real models: it passes right ones, fails wrong ones, leaves the model and the generator alone."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import distcompile as dc
from collectives import Communicator, run_ranks
from distcompile import nn, parity
from distcompile.distributed import use_communicator
from distcompile.parity import ParityError, ParityTargetError


def mlp() -> nn.Module:
    dc.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Dropout(0.3), nn.Linear(16, 3))


def inputs() -> dc.Tensor:
    return dc.from_numpy(np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "codegen"])
def test_a_right_model_passes_alone(backend: str) -> None:
    report = parity.check(mlp(), inputs(), backend=backend)
    assert report.ok, str(report)
    assert [row.parameter for row in report.rows] == ["(loss)", *dict(mlp().named_parameters())]
    assert all(row.local.eager_error > 0 for row in report.rows[1:2])  # float32 against float64: never exact


def test_ranks_check_together() -> None:
    def step(communicator: Communicator) -> parity.ParityReport:
        with use_communicator(communicator):
            return parity.check(mlp(), inputs(), bucket_cap_mb=1e-5)

    for report in run_ranks(2, step, timeout_s=60):
        assert report.ok, str(report)
        assert report.world_size == 2


class Breaking(nn.Module):
    """Three graphs, with a weight that the first and the last use, and a parameter that only the one between does."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        dc.manual_seed(0)
        self.first, self.last, self.factor = nn.Linear(6, 6), nn.Linear(6, 3), factor
        self.gain = nn.Parameter(dc.ones(6) * 0.5)

    def forward(self, x: dc.Tensor) -> dc.Tensor:
        h = self.first(x).tanh()
        print(end="")
        h = nn.functional.dropout(h * self.gain, 0.3, self.training)
        if h.sum() < 1e9:
            h = h @ self.first.weight
        y = self.last(h)
        return y * self.factor if dc.compiler.is_compiling() else y


def test_a_model_whose_graph_breaks_is_checked_graph_by_graph() -> None:
    def step(communicator: Communicator) -> parity.ParityReport:
        with use_communicator(communicator):
            return parity.check(Breaking(), inputs()[communicator.rank :], bucket_cap_mb=1e-5)

    for report in run_ranks(2, step, timeout_s=60):
        assert report.ok, str(report)
    wrong = parity.check(Breaking(1.01), inputs(), loss=lambda y, x: y.sum())
    assert not wrong.ok
    assert {"first.weight", "gain", "last.bias"} <= {row.parameter for row in wrong.rows if row.failure}


class CompiledDiffers(nn.Module):
    """Wrong when compiled, on the ranks named; stands in for a compiler's bug."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.inner, self.factor = nn.Linear(6, 3), factor

    def forward(self, x: dc.Tensor) -> dc.Tensor:
        from compiler_core.ops.registry import current_trace

        y = self.inner(x)
        return y * self.factor if current_trace() is not None else y


def test_a_wrong_gradient_is_named_and_can_raise() -> None:
    with pytest.raises(ParityError, match=r"first: \(loss\)"):
        parity.check(CompiledDiffers(1.001), inputs(), raise_on_failure=True)
    report = parity.check(CompiledDiffers(1.001), inputs(), loss=lambda y, x: y.sum())
    failing = {row.parameter for row in report.rows if row.failure}
    assert {"inner.weight", "inner.bias"} <= failing
    assert "reduced: error" in report.rows[1].failure


def test_an_error_of_rounding_size_is_no_failure() -> None:
    assert parity.check(CompiledDiffers(1.0 + 2.0**-22), inputs()).ok


def test_a_fault_on_one_rank_fails_all_ranks() -> None:
    def step(communicator: Communicator) -> parity.ParityReport:
        with use_communicator(communicator):
            x = inputs()[communicator.rank :]  # batches of other sizes: literals are not compared between ranks
            return parity.check(CompiledDiffers(1.01 if communicator.rank == 1 else 1.0 + 2.0**-22), x)

    reports = run_ranks(2, step, timeout_s=60)
    assert [report.ok for report in reports] == [False, False]
    assert {report.rank for report in reports} == {1}


def test_the_model_and_the_generator_stay_as_they_are() -> None:
    model = mlp()
    before = {name: p.detach().numpy().copy() for name, p in model.named_parameters()}
    state = dc.get_rng_state().numpy().copy()
    parity.check(model, inputs(), backend="aot_eager")
    np.testing.assert_array_equal(dc.get_rng_state().numpy(), state)
    for name, p in model.named_parameters():
        np.testing.assert_array_equal(p.detach().numpy(), before[name])
        assert p.grad is None


def test_a_module_without_tensor_output_needs_a_loss() -> None:
    class Silent(nn.Linear):
        def forward(self, x: dc.Tensor) -> dc.Tensor:
            return None  # type: ignore[return-value]

    with pytest.raises(ParityTargetError, match="no Tensor"):
        parity.check(Silent(6, 2), inputs())


class Holder:
    """A loss that is an object, or a method of one."""

    def __init__(self, targets: dc.Tensor) -> None:
        self.targets = targets

    def __call__(self, output: dc.Tensor, *inputs: dc.Tensor) -> dc.Tensor:
        return dc.nn.functional.cross_entropy(output, self.targets)

    def loss(self, output: dc.Tensor, *inputs: dc.Tensor) -> dc.Tensor:
        return self(output)


def of_targets(targets: dc.Tensor, output: dc.Tensor, *inputs: dc.Tensor) -> dc.Tensor:
    return dc.nn.functional.cross_entropy(output, targets)


def closing(y: dc.Tensor) -> dict[str, parity.case.Loss]:
    """Losses that hold their targets, in all the ways there are."""
    inner = functools.partial(of_targets, y)
    names = {"cross_entropy": dc.nn.functional.cross_entropy, "y": y}
    weighted = nn.CrossEntropyLoss(weight=dc.tensor([0.5, 1.0, 2.0]))
    return {
        "closure": lambda output, x: dc.nn.functional.cross_entropy(output, y),
        "default": lambda output, x, y=y: dc.nn.functional.cross_entropy(output, y),
        "partial": inner,
        "nested": lambda output, x: inner(output, x),
        "object": Holder(y),
        "method": Holder(y).loss,
        "global": eval("lambda output, x: cross_entropy(output, y)", names),
        "weights": lambda output, x: weighted(output, y),
    }


@pytest.mark.parametrize("name", list(closing(dc.zeros(1))))
def test_a_loss_that_holds_its_targets_is_judged_on_the_joined_batch(name: str) -> None:
    def check(communicator: Communicator) -> parity.ParityReport:
        rng = np.random.default_rng(communicator.rank)
        x = dc.from_numpy(rng.standard_normal((8, 6)).astype(np.float32))
        y = dc.from_numpy(rng.integers(0, 3, 8))
        with use_communicator(communicator):
            return parity.check(nn.Linear(6, 3), x, loss=closing(y)[name], judges=parity.Judges(samples=None))

    for report in run_ranks(2, check, timeout_s=60):
        assert report.ok, str(report)
        assert report.joined is not None
        assert (report.joined.word, report.joined.error < 1e-6) == ("holds", True)


def test_and_what_cannot_be_separated_is_still_told() -> None:
    """BatchNorm's statistics of the joined batch are others, whatever the loss holds."""

    def check(communicator: Communicator) -> parity.ParityReport:
        rng = np.random.default_rng(communicator.rank)
        x = dc.from_numpy(rng.standard_normal((8, 6)).astype(np.float32))
        y = dc.from_numpy(rng.integers(0, 6, 8))
        with use_communicator(communicator):
            model = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6))
            return parity.check(model, x, loss=closing(y)["closure"], judges=parity.Judges(samples=None))

    for report in run_ranks(2, check, timeout_s=60):
        assert report.ok, str(report)
        assert report.joined is not None
        assert "not separable over the batch" in report.joined.note


def test_an_output_without_rows_says_what_to_write() -> None:
    def check(communicator: Communicator) -> parity.ParityReport:
        y = dc.ones(6) * communicator.rank

        class Mean(nn.Linear):
            def forward(self, x: dc.Tensor) -> dc.Tensor:
                return super().forward(x).mean(0)

        with use_communicator(communicator):
            return parity.check(Mean(6, 6), dc.ones(8, 6), loss=lambda o, x: ((o - y) ** 2).mean())

    for report in run_ranks(2, check, timeout_s=60):
        assert report.joined is not None
        assert "loss(output, x, targets)" in report.joined.note


@pytest.mark.parametrize("part", ["module", "parameter"])
def test_a_loss_that_closes_over_the_module_is_a_named_error(part: str) -> None:
    model = nn.Linear(6, 3)
    held = model if part == "module" else model.weight
    with pytest.raises(ParityTargetError, match=r"closes over the module that is checked"):
        parity.check(model, inputs(), loss=lambda o, x: o.sum() + getattr(held, "weight", held).sum())
    assert model.weight.grad is None


@pytest.mark.parametrize(("samples", "steps"), [(None, 0), (0, 2)])
def test_what_is_judged_is_said_with_a_growing_share(samples: int | None, steps: int) -> None:
    said: list[tuple[str, float]] = []
    judges = parity.Judges(samples=samples, steps=steps)
    parity.check(mlp(), inputs(), judges=judges, say=lambda what, share: said.append((what, share)))
    shares = [share for _, share in said]
    assert shares == sorted(shares)
    assert shares[0] == 0.0
    assert shares[-1] == pytest.approx(1 - 1 / len(said))
    names = [what.removeprefix("parity: differences of ") for what, _ in said if "differences" in what]
    assert names == ([] if samples is None else [name for name, _ in mlp().named_parameters()])
