"""`parity.check` on real models: it passes right ones, fails wrong ones, leaves the model and the generator alone."""

from __future__ import annotations

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
