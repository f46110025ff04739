"""Tensors under a trace: the same program gives a graph that, interpreted, equals eager, writes and aliasing included.

The trace here is the smallest one that lifts cells; the real one is tested in tests/compiler_core/capture.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from compiler_core import dtype as dt
from compiler_core.errors import AutogradError, GraphBreak, GraphError
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import GraphBuilder, Node
from compiler_core.meta import TensorMeta
from compiler_core.ops.random.composite import Draw
from compiler_core.ops.registry import meta_of, use_trace
from compiler_core.tensor import Tensor, selection
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.making import creation, random_creation
from compiler_core.tensor.making.random import Generator, default_generator, manual_seed
from compiler_core.tensor.memory.cell import Cell, CellTrace

pytestmark = pytest.mark.usefixtures("counter_draws")
X = np.arange(1.0, 7.0).reshape(2, 3)
Program = Callable[..., Any]


class LiftingTrace(GraphBuilder):
    """Lifts every outside cell it meets to a placeholder, and remembers what was written to it."""

    def __init__(self) -> None:
        super().__init__("traced")
        self.nodes: dict[Cell, Any] = {}
        self.inputs: list[Any] = []
        self.draws = 0
        self.key: Any = None

    def read_cell(self, cell: Cell, handle: Tensor | None) -> Any:
        if cell not in self.nodes:
            self.inputs.append(cell.current())
            self.nodes[cell] = self.placeholder(f"x{len(self.inputs)}", meta_of(cell.current()))
        return self.nodes[cell]

    def write_cell(self, cell: Cell, node: Any) -> None:
        self.nodes[cell] = node

    def note_copy(self, node: Any) -> None:
        """Nothing is written between a forward and its backward."""

    def next_rng(self) -> tuple[Any, int]:
        if self.key is None:
            self.key = self.placeholder("key", TensorMeta((3,), dt.uint64), role="rng")
            self.inputs.append(None)
        self.draws += 1
        return self.key, self.draws - 1

    def draws_outside(self) -> bool:
        return False

    def outside_draw(self, draw: Draw) -> Any:
        raise NotImplementedError("all are made by the key")


def run_traced(program: Program, *tensors: Tensor) -> list[Any]:
    """What the graph of `program` computes: its results, then the last values of the tensors given."""
    trace = LiftingTrace()
    assert isinstance(trace, CellTrace)
    with use_trace(trace):
        results = program(*tensors)
        outputs = [t._read() for t in (results if isinstance(results, tuple) else (results,))]
        finals = [t._read() for t in tensors]
    graph = trace.build([*outputs, *finals])
    key = default_generator.take_keys(trace.draws)
    return interpret(graph, [key if a is None else a for a in trace.inputs])


def run_eager(program: Program, *tensors: Tensor) -> list[Any]:
    results = program(*tensors)
    return [np.asarray(t.detach()) for t in (*(results if isinstance(results, tuple) else (results,)), *tensors)]


def _view_write(x: Tensor, y: Tensor) -> Any:
    row = x[0]
    x.mul_(2.0)
    row.add_(y[1])
    return row, x.T[1:]


def _stale(x: Tensor, y: Tensor) -> Any:
    flat = x.reshape(-1)[1:4]
    y[:, 0] = 9.0
    x[1] = y[0]
    return flat, y.sum()


def _detached(x: Tensor, y: Tensor) -> Any:
    d = y.detach()
    d.sub_(1.0)
    z = y * 1.0
    z.detach()[0].zero_()
    return z, d


def _constants(x: Tensor, y: Tensor) -> Any:
    table = creation.tensor([[1.0, 2.0, 3.0]], dtype=dt.float64)
    table += 1.0
    return x * table + creation.arange(3) + creation.zeros(2, 3, dtype=dt.float64).fill_(0.5)


def _masks(x: Tensor, y: Tensor) -> Any:
    z = x.clone()
    z[z > 2.0] = 0.0
    z.masked_fill_(y > 4.0, -1.0)
    return z, x[creation.tensor([1, 0])]


def _draws(x: Tensor, y: Tensor) -> Any:
    noise = random_creation.rand(2, 3, dtype=dt.float64)
    return x + noise, random_creation.randn(2), creation.empty(3).uniform_(), x.new_zeros(4).bernoulli_(0.5)


PROGRAMS = [_view_write, _stale, _detached, _constants, _masks, _draws]


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_graph_equals_eager(program: Program) -> None:
    manual_seed(7)
    traced = run_traced(program, creation.tensor(X), creation.tensor(X + 1))
    manual_seed(7)
    eager = run_eager(program, creation.tensor(X), creation.tensor(X + 1))
    for a, b in zip(eager, traced, strict=True):
        np.testing.assert_array_equal(b, a)


def test_tracing_changes_nothing_outside() -> None:
    x = creation.tensor(X)
    before = x._read()
    run_traced(_view_write, x, creation.tensor(X))
    assert x._read() is before


def test_requires_grad_is_known_and_no_tape_is_made() -> None:
    x = creation.tensor(X, requires_grad=True)
    with use_trace(LiftingTrace()):
        y = x * 2.0
        with no_grad():
            z = y * 3.0
        assert y.requires_grad
        assert not y.is_leaf
        assert not z.requires_grad
        assert not y.detach().requires_grad
        assert not (y > 1.0).requires_grad
        assert y[0].requires_grad
        node = z._read()
        assert isinstance(node, Node)
        assert "detach" in {n.op.name for n in node.operands[:1] if hasattr(n, "op")}


def test_a_stale_view_from_outside_stays_outside() -> None:
    """A view that was not looked at since its base was written, first looked at under a trace."""
    base = creation.tensor(X, requires_grad=True) * 1.0
    row = base[0]
    base.mul_(2.0)
    with use_trace(LiftingTrace()):
        assert (row * 3.0).requires_grad
    assert isinstance(row._cell.value, np.ndarray)
    row.sum().backward()
    assert row.detach().tolist() == [2.0, 4.0, 6.0]


def _somewhere(x: Tensor) -> object:
    return x.item()  # the line that the error names


DATA = {
    "bool()": lambda x: bool(x.sum()), "float()": lambda x: float(x.sum()), "int()": lambda x: int(x.sum()),
    "item()": lambda x: x.sum().item(), "tolist()": lambda x: x.tolist(), "numpy()": lambda x: x.detach().numpy(),
    "printing": repr, "format()": lambda x: f"{x.sum():.2f}", "mask": lambda x: x[x > 1.0],
    "masked_select": lambda x: x.masked_select(x > 1.0), "array": np.asarray, "in": lambda x: 1.0 in x,
    "index": lambda x: [1, 2][x.sum().long()], "nonzero": lambda x: x.nonzero(),
    "bincount": lambda x: selection.bincount(x.long()),
    "own generator": lambda x: random_creation.rand(2, generator=Generator()),
    "seeding": lambda x: manual_seed(1), "deepcopy": lambda x: x.__deepcopy__({}),
    "pickling": lambda x: x.__reduce_ex__(2),
    "allclose": lambda x: x.allclose(x), "hook": lambda x: (x * 1.0).requires_grad_().register_hook(print),
    "tensor of tensors": lambda x: creation.tensor([x, x]),
}  # fmt: skip


@pytest.mark.parametrize("what", DATA)
def test_python_that_needs_data_breaks_the_graph_at_the_user_s_line(what: str) -> None:
    x = creation.tensor(X)
    with use_trace(LiftingTrace()), pytest.raises(GraphBreak) as broken:
        DATA[what](x)
    assert broken.value.where.startswith(__file__)
    assert broken.value.remedy


def test_the_break_names_the_exact_line() -> None:
    with use_trace(LiftingTrace()), pytest.raises(GraphBreak) as broken:
        _somewhere(creation.ones(1))
    assert broken.value.where == f"{__file__}:{_somewhere.__code__.co_firstlineno + 1}"


def test_a_traced_tensor_is_of_no_use_after_its_trace() -> None:
    with use_trace(LiftingTrace()):
        y = creation.tensor(X) * 2.0
    with pytest.raises(GraphError, match="after the trace ended"):
        y + 1.0
    with pytest.raises(GraphError, match="after the trace ended"):
        y.tolist()


def test_a_bare_builder_cannot_read_tensors() -> None:
    x = creation.ones(2)
    with use_trace(GraphBuilder("bare")), pytest.raises(GraphError, match="GraphBuilder records"):
        x + 1.0


def test_writes_that_a_graph_cannot_express() -> None:
    weight = creation.tensor(X, requires_grad=True)
    buffer = creation.tensor(X)
    with use_trace(LiftingTrace()):
        with pytest.raises(GraphBreak, match="made outside the compiled function"):
            buffer.add_(weight)
        with no_grad(), pytest.raises(GraphBreak, match="outside of autograd"):
            weight.mul_(0.9)
        (weight * 1.0).detach().zero_()
        with pytest.raises(AutogradError, match="written to in place"):
            weight.mul_(0.9)
        inner = weight * 1.0
        inner[0].mul_(2.0)
        assert inner.requires_grad
