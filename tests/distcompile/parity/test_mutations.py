"""Every judge can fail: one thing is broken at a time, and must be found and named.

Broken here: an op's vjp, a user's backward, a kernel, capture, a reduction, one rank's data, a hook, the finite.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from collectives import Communicator, Work, run_ranks
from collectives.call import Task
from compiler_core.backend import Executable, find_backend
from compiler_core.config import config
from compiler_core.graph.ir import Call, Graph, Node
from compiler_core.graph.minify import largest_difference
from compiler_core.graph.parse import parse_graph
from compiler_core.ops import prims
from compiler_core.ops.registry import OPS
from distcompile import nn, parity
from distcompile.ddp import DistributedDataParallel
from distcompile.distributed import use_communicator
from distcompile.nn import functional as F
from distcompile.parity import Judges, ParityReport

BISECT = Judges(bisect=True, samples=2)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        dc.manual_seed(0)
        self.first, self.second = nn.Linear(5, 7), nn.Linear(7, 3)

    def forward(self, x: dc.Tensor) -> dc.Tensor:
        hidden = self.first(x)
        hidden = dc.tanh(hidden)  # MARKED
        return self.second(hidden)


def marked_line() -> str:
    lines = Path(__file__).read_text().splitlines()
    return f"{__file__}:{next(k for k, line in enumerate(lines, 1) if line.endswith('# MARKED'))}"


def inputs(seed: int = 0, rows: int = 6) -> dc.Tensor:
    return dc.from_numpy(np.random.default_rng(seed).standard_normal((rows, 5)).astype(np.float32))


def mean(y: dc.Tensor, *_: Any) -> dc.Tensor:
    return (y * y).mean()


@contextmanager
def op_with(name: str, **rules: Any) -> Iterator[None]:
    """An op with other rules, for a while."""
    op = OPS[name]
    before = {rule: getattr(op, rule) for rule in rules}
    for rule, value in rules.items():
        object.__setattr__(op, rule, value)
    try:
        yield
    finally:
        for rule, value in before.items():
            object.__setattr__(op, rule, value)


def test_nothing_broken_holds_before_all_judges() -> None:
    report = parity.check(Model(), inputs(), loss=mean, judges=Judges(bisect=True, steps=3))
    assert report.ok, str(report)
    assert report.findings == ()
    assert report.limits() == []
    assert "samples by finite differences, 3 training steps" in report.verdict()


def test_a_wrong_vjp_is_found_and_named() -> None:
    def wrong(g: Any, out: Any, x: Any) -> tuple[Any]:
        return (prims.mul(g, out),)

    with op_with("tanh", vjp=wrong):
        report = parity.check(Model(), inputs(), loss=mean, judges=BISECT)
    failing = [row.parameter for row in report.rows if row.failure]
    assert failing == ["first.weight", "first.bias"]  # what is behind the tanh, and only that
    assert all("differences: backward gives" in row.failure for row in report.rows if row.failure)
    assert all(not row.local.failure for row in report.rows)  # all references that share the rule are content
    (finding,) = report.findings
    assert (finding.op, finding.location) == ("tanh", marked_line())


class Wrong(dc.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: dc.Tensor) -> dc.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: dc.Tensor) -> dc.Tensor:
        (x,) = ctx.saved_tensors
        return g * x * 2.02  # one per cent


def test_a_users_wrong_backward_does_not_hold() -> None:
    class Custom(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(5, 3)

        def forward(self, x: dc.Tensor) -> dc.Tensor:
            return Wrong.apply(self.inner(x))

    report = parity.check(Custom(), inputs(), loss=lambda y, x: y.sum(), judges=BISECT)
    assert [row.parameter for row in report.rows if row.failure] == ["inner.weight", "inner.bias"]
    assert [finding.op for finding in report.findings] == ["Wrong"]
    assert "test_mutations.py" in report.findings[0].location


class WithOtherKernel:
    """The native backend, with a wrong kernel for one op."""

    name, announces = "mutant", False

    def __init__(self, op: str, instead: str) -> None:
        self.op, self.instead = op, instead

    def lay_out(self, graph: Graph) -> Graph:
        return graph

    def compile(self, graphs: Sequence[Graph], name: str) -> Sequence[Executable]:
        return find_backend("codegen").compile([self._mutated(graph) for graph in graphs], name)

    def _mutated(self, graph: Graph) -> Graph:
        new: dict[Node, Node] = {}
        for node in graph.nodes:
            copy = node
            if isinstance(node, Call):
                op = OPS[self.instead] if node.op.name == self.op else node.op
                args = tuple(new[arg] for arg in node.args)
                copy = Call(node.name, node.meta, op=op, args=args, attrs=node.attrs, location=node.location)
            new[node] = copy
        return replace(graph, nodes=tuple(new.values()), outputs=tuple(new[node] for node in graph.outputs))


def test_a_wrong_kernel_is_found_down_to_op_and_line() -> None:
    report = parity.check(Model(), inputs(), loss=mean, backend=WithOtherKernel("tanh", "sin"), judges=BISECT)
    assert report.rows[0].failure  # the loss already
    (finding,) = report.findings
    assert (finding.op, finding.location) == ("tanh", marked_line())
    assert "forward" in finding.what
    assert "also alone" in finding.detail
    assert "tanh" in finding.graph


def test_a_wrong_kernel_of_the_backward_is_found_in_its_graph() -> None:
    report = parity.check(Model(), inputs(), loss=mean, backend=WithOtherKernel("sub", "add"), judges=BISECT)
    (finding,) = report.findings
    assert finding.op == "sub"  # of 1 - tanh^2
    assert "backward" in finding.what
    assert finding.location == marked_line()


class CapturedOtherwise(Model):
    def forward(self, x: dc.Tensor) -> dc.Tensor:
        from compiler_core.ops.registry import current_trace

        y = super().forward(x)
        return y * 1.01 if current_trace() is not None else y


def test_what_capture_does_wrong_is_named_as_captures() -> None:
    report = parity.check(CapturedOtherwise(), inputs(), loss=mean, judges=BISECT)
    (finding,) = report.findings
    assert finding.stage == "eager"
    assert "captured graph" in finding.what


# -- several ranks


class Faulty(Communicator):
    """A communicator whose all-reduce of floats is wrong: on all ranks alike, or on one."""

    def __init__(self, inner: Communicator, only_rank: int | None) -> None:
        self.inner, self.only_rank = inner, only_rank
        self.rank, self.world_size, self.transport = inner.rank, inner.world_size, inner.transport

    def launch(self, task: Task) -> Work:
        work = self.inner.launch(task)
        if task.call.kind == "all_reduce" and task.call.dtype == "float32" and not task.held:
            work.wait()
            if self.only_rank in (None, self.rank):
                task.target[-1] += 0.5
                task.target[0] += 0.5
        return work

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


for name in ("all_gather_object", "broadcast_object", "launch_send", "launch_receive", "subgroup", "close", "abort"):
    setattr(Faulty, name, lambda self, *args, _name=name, **options: getattr(self.inner, _name)(*args, **options))
Faulty.__abstractmethods__ = frozenset()


def on_two(check: Any, world_size: int = 2) -> list[ParityReport]:
    def run(communicator: Communicator) -> ParityReport:
        with use_communicator(communicator):
            return check(communicator)

    return run_ranks(world_size, run, timeout_s=120)


@pytest.mark.parametrize("only_rank", [None, 1])
def test_a_wrong_reduction_is_told_from_the_compiler(only_rank: int | None) -> None:
    def check(communicator: Communicator) -> ParityReport:
        faulty = Faulty(communicator, only_rank)
        x = inputs(communicator.rank)
        return parity.check(Model(), x, loss=mean, group=faulty, judges=BISECT, broadcast_buffers=False)

    report = on_two(check)[only_rank or 0]
    assert not report.ok
    assert all(not row.local.failure for row in report.rows)
    assert any("reduced: error" in row.failure for row in report.rows)
    if only_rank is not None:
        assert any("different bits" in row.failure for row in report.rows)
    assert [finding.stage for finding in report.findings] == ["reduction"]


def test_one_ranks_wrong_data_is_found_by_the_joined_batch() -> None:
    whole = inputs(3, rows=8)

    def check(communicator: Communicator) -> ParityReport:
        part = whole[4 * communicator.rank : 4 * communicator.rank + 4]
        if communicator.rank == 1:
            part = whole[:4]  # the same as rank 0's: a sampler that was not told the rank
        return parity.check(Model(), part, loss=mean, judges=Judges(joined_inputs=(whole,)))

    report = on_two(check)[0]
    assert not report.ok
    assert "row 4 of the joined batch is not what its rank was given" in report.verdict()


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_ranks_agree_with_one_rank_on_the_joined_batch(world_size: int) -> None:
    def right(communicator: Communicator) -> ParityReport:
        x = inputs(communicator.rank, rows=5)
        return parity.check(Model(), x, loss=mean, judges=Judges(samples=1, steps=2))

    report = on_two(right, world_size)[0]
    assert report.ok, str(report)
    assert report.joined is not None
    assert report.joined.note == ""
    assert report.joined.error < 1e-5


def test_where_the_joined_batch_cannot_be_the_same_it_is_said_why() -> None:
    def summed(communicator: Communicator) -> ParityReport:
        return parity.check(Model(), inputs(communicator.rank), loss=lambda y, x: y.sum())

    report = on_two(summed)[0]
    assert report.ok
    assert any("the loss is a sum over the batch" in limit for limit in report.limits())


def test_a_lost_hook_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(communicator: Communicator) -> ParityReport:
        model = Model()
        model.first.weight.register_hook(lambda g: g * 2)
        return parity.check(model, inputs(communicator.rank), loss=mean, judges=BISECT)

    report = on_two(check)[0]
    assert report.ok, str(report)
    assert any("its gradient passes a hook" in limit for limit in report.limits())
    checked = importlib.import_module("distcompile.parity.check")  # the name in the package is the function

    def losing(module: Any, **options: Any) -> Any:
        """A compiled reducer that does not run the hooks of parameters."""
        if isinstance(module, DistributedDataParallel):
            module.module.first.weight._hooks.grad.clear()
        return dc.compile(module, **options)

    monkeypatch.setattr(checked, "compile", losing)
    report = on_two(check)[0]
    assert [row.parameter for row in report.rows if row.failure] == ["first.weight"]
    assert report.findings[0].what == "the compiled reducer"
    assert "hooks" in report.findings[0].detail


def test_training_that_drifts_is_found_with_step_and_parameter() -> None:
    class Drifting(dc.optim.SGD):
        """Wrong from the third step on: stands in for a fused update's bug."""

        def step(self, closure: Any = None) -> Any:
            self.count = getattr(self, "count", 0) + 1
            result = super().step(closure)
            weight = self.param_groups[0]["params"][2]
            if self.count >= 3 and self.number == 3:
                with dc.no_grad():
                    weight.mul_(1.001)
            return result

    made: list[Drifting] = []

    def make(parameters: Any) -> dc.optim.Optimizer:
        made.append(Drifting(parameters, lr=0.01))
        made[-1].number = len(made)  # the third is the compiled one's
        return made[-1]

    report = parity.check(Model(), inputs(), loss=mean, judges=Judges(steps=5, optimizer=make, samples=None))
    assert report.training is not None
    assert report.training.failure.startswith("second.weight after step 2")
    assert not report.ok
    assert "training (" in report.verdict()


# -- what is not finite


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_gradients_that_are_not_finite_do_not_hold(value: float) -> None:
    class Overflowing(nn.Module):
        """Finite in float64, not in float32, eager and compiled alike."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(dc.ones(3))

        def forward(self, x: dc.Tensor) -> dc.Tensor:
            big = self.weight * 1e20
            product = big * big if not np.isnan(value) else big * big - big * big * 2.0
            return (product * (1.0 if value != -np.inf else -1.0)).sum() * x.sum()

    report = parity.check(Overflowing(), dc.ones(2))
    row = report.rows[1]
    assert not report.ok
    assert "(eager too)" in row.failure or "NaN" in row.failure or "infinite" in row.failure


def test_a_loss_that_is_nan_everywhere_proves_nothing() -> None:
    report = parity.check(Model(), inputs(), loss=lambda y, x: (y * float("nan")).sum())
    assert not report.ok
    assert "proves nothing" in report.verdict()


def test_a_kink_is_marked_and_not_failed() -> None:
    class Kinked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(dc.zeros(4))

        def forward(self, x: dc.Tensor) -> dc.Tensor:
            return F.relu(self.weight).sum() * x.sum()

    report = parity.check(Kinked(), dc.ones(2))
    assert report.ok, str(report)
    assert any("a kink" in limit for limit in report.limits())


def test_without_differences_the_report_says_what_that_means() -> None:
    report = parity.check(Model(), inputs(), loss=mean, judges=Judges(samples=None))
    assert report.ok
    assert any("a wrong backward rule that eager shares would not be seen" in limit for limit in report.limits())


def test_the_page_needs_nothing_and_names_the_line(tmp_path) -> None:
    report = parity.check(Model(), inputs(), loss=mean, backend=WithOtherKernel("tanh", "sin"), judges=BISECT)
    report.to_html(tmp_path / "parity.html")
    page = (tmp_path / "parity.html").read_text()
    assert "<script" not in page
    assert "http" not in page
    assert marked_line() in page
    assert report.to_json(tmp_path / "parity.json") == (tmp_path / "parity.json").read_text()


def test_a_fault_that_needs_company_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_at_0(lives: Sequence[Any]) -> tuple[dict[str, int], int]:
        return {life.name: 0 for life in lives}, max((life.nbytes for life in lives), default=0)

    class Many(Model):
        def forward(self, x: dc.Tensor) -> dc.Tensor:
            hidden = dc.tanh(self.first(x))
            turned = dc.exp(hidden.flip(1)) * hidden.sum(1, keepdim=True)
            return self.second(hidden * turned.cumsum(0) - turned.mean(0))

    monkeypatch.setattr(importlib.import_module("compiler_core.schedule.lending"), "plan_memory", all_at_0)
    with config.patch(use_cache=False):
        report = parity.check(Many(), inputs(), loss=mean, judges=BISECT)
        finding = report.findings[0]
        graph = parse_graph(finding.graph)
        assert len(graph.calls) > 1
        assert finding.op in [call.op.name for call in graph.calls]
        assert largest_difference(graph, "codegen") > 1e-3
