"""Functions traced with sizes that are symbols: which guards that makes, and whether the graph is right at other sizes.

In: a function of our Tensors, and its operands as text: `f32[b, 4]`, `i64[b] < 7`, or `n` for a size itself. Out:
`symbolically`, the guards as text. It substitutes 5 sets of sizes that satisfy them, and asserts that the graph gives
the same bits as the function traced with those sizes as ints, and, where nothing is drawn, as eager code.
A guard that fixes a size raises AssertionError, which names whose line asked for the number, unless it is allowed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import distcompile
from compiler_core import dtype as dt
from compiler_core.capture.trace import RNG_KEY, CaptureTrace
from compiler_core.dtype import DType
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph, Node
from compiler_core.graph.sizes import graph_at
from compiler_core.graph.verify import verify
from compiler_core.meta import TensorMeta
from compiler_core.ops.registry import Array, use_trace
from compiler_core.symbolic.size import SizeGuard, Sizes, SizeSymbol, Sym
from compiler_core.tensor.tensor import Tensor

HINTS = (5, 7, 11, 13, 17)  # of the symbols, in the order of their names' first use
OTHERS = (2, 3, 4, 6, 7, 10, 13, 5, 9, 12, 16, 24, 31)
KEY = np.array([1234, 7, 0], np.uint64)


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor of this dtype and shape, of numbers below `below`; a size itself, where there is no dtype."""

    dtype: DType | None
    shape: tuple[str | int, ...]
    below: int

    @staticmethod
    def parse(text: str) -> Operand:
        found = re.fullmatch(r"(\w+)\[(.*)\](?: < (\d+))?", text)
        if found is None:
            return Operand(None, (text,), 0)
        short, shape, below = found.groups()
        sizes = tuple(int(n) if n.isdigit() else n for n in shape.replace(" ", "").split(",") if n)
        return Operand(dt.by_name(short), sizes, int(below or 2))

    @property
    def names(self) -> list[str]:
        return [n for n in self.shape if isinstance(n, str)]

    def array(self, sizes: Mapping[str, int], rng: np.random.Generator) -> Array:
        shape = tuple(n if isinstance(n, int) else sizes[n] for n in self.shape)
        assert self.dtype is not None
        if self.dtype.is_inexact:
            return rng.uniform(-2.0, 2.0, shape).astype(self.dtype.numpy)
        return rng.integers(0, self.below, shape).astype(self.dtype.numpy)


@dataclass(frozen=True, slots=True)
class Traced:
    """What a trace gave. lifted: arrays of tensors from outside. made: the results' tree, of outputs and numbers."""

    graph: Graph
    lifted: dict[str, Array]
    made: Any
    draws: bool


def symbolically(
    function: Callable[..., Any], *operands: str, fixes: bool = False, hints: Sequence[int] = HINTS
) -> list[str]:
    """The guards that the function makes of these operands, in order. See the head of this file."""
    given = [Operand.parse(text) for text in operands]
    names = list(dict.fromkeys(name for operand in given for name in operand.names))
    sizes = Sizes()
    syms = {name: sizes.new(hint, text=name, name=name) for name, hint in zip(names, hints, strict=False)}
    traced = trace(function, given, syms)
    fixed = [guard for guard in sizes.guards if guard.fixes]
    assert fixes or not fixed, "\n".join(f"{guard} is fixed by {guard.asked}" for guard in fixed)
    symbols = {name: symbol for name, sym in syms.items() for symbol in sym.symbols}
    for numbers in itertools.islice(_satisfying(sizes.guards, symbols), 5):
        _compare(function, given, traced, numbers, symbols)
    return [str(guard) for guard in sizes.guards]


def trace(function: Callable[..., Any], operands: Sequence[Operand], sizes: Mapping[str, Any]) -> Traced:
    """The function's graph, of operands with these sizes, ints or Syms."""
    recording = CaptureTrace("traced", ())
    with use_trace(recording):
        arguments: list[Any] = []
        for k, operand in enumerate(operands):
            shape = tuple(sizes[n] if isinstance(n, str) else n for n in operand.shape)
            if operand.dtype is None:
                arguments.append(shape[0])
                continue
            arguments.append(Tensor._wrap(recording.placeholder(f"x{k}", TensorMeta(shape, operand.dtype))))
        nodes: list[Node] = []
        made = _outputs(function(*arguments), nodes)
    graph = verify(recording.build(nodes))
    lifted = {lift.placeholder.name: lift.cell.current() for lift in recording.lifted.values()}
    recording.leave()
    return Traced(graph, lifted, made, recording.rng is not None)


def _outputs(result: Any, nodes: list[Node]) -> Any:
    """The tree of results: tensors as their places among the outputs, noted in `nodes`."""
    if isinstance(result, Tensor):
        nodes.append(result._read())
        return Place(len(nodes) - 1)
    if isinstance(result, list | tuple):
        return [_outputs(part, nodes) for part in result]
    return result


@dataclass(frozen=True, slots=True)
class Place:
    """An output of the graph."""

    number: int


def _satisfying(guards: Sequence[SizeGuard], symbols: Mapping[str, SizeSymbol]) -> Iterator[dict[str, int]]:
    """Sizes for which all guards hold, those of the trace first."""
    hints = {name: symbol.hint for name, symbol in symbols.items()}
    rolled = [OTHERS[k:] + OTHERS[:k] for k in range(len(symbols))]
    straight = [dict(zip(symbols, numbers, strict=True)) for numbers in zip(*rolled, strict=True)] if symbols else []
    every = (dict(zip(symbols, numbers, strict=True)) for numbers in itertools.product(OTHERS, repeat=len(symbols)))
    for numbers in itertools.chain([hints], straight, every):
        values = {symbols[name]: n for name, n in numbers.items()}
        if all(guard.holds(values.__getitem__) for guard in guards):
            yield numbers


def _compare(
    function: Callable[..., Any],
    operands: Sequence[Operand],
    traced: Traced,
    numbers: dict[str, int],
    symbols: Mapping[str, SizeSymbol],
) -> None:
    values = {symbols[name]: n for name, n in numbers.items()}
    rng = np.random.default_rng(0)
    arrays = {f"x{k}": o.array(numbers, rng) for k, o in enumerate(operands) if o.dtype is not None}
    graph, _ = graph_at(traced.graph, values, "at")
    found = _run(replace(traced, graph=verify(graph)), arrays)
    static = trace(function, operands, numbers)
    wanted = _run(static, arrays)
    _assert_equal(_at(traced.made, found, values), _at(static.made, wanted, {}), f"static trace at {numbers}")
    if not traced.draws:
        arguments = [
            distcompile.from_numpy(arrays[f"x{k}"].copy()) if o.dtype is not None else numbers[o.names[0]]
            for k, o in enumerate(operands)
        ]
        nodes: list[Any] = []
        tree = _outputs(function(*arguments), nodes)
        _assert_equal(_at(traced.made, found, values), _at(tree, nodes, {}), f"eager code at {numbers}", close=True)


def _run(traced: Traced, arrays: Mapping[str, Array]) -> list[Array]:
    inputs = [
        KEY if node.meta == RNG_KEY and node.role == "rng" else {**arrays, **traced.lifted}[node.name]
        for node in traced.graph.inputs
    ]
    return interpret(traced.graph, inputs)


def _at(tree: Any, outputs: Sequence[Array], sizes: Mapping[SizeSymbol, int]) -> Any:
    if isinstance(tree, Place):
        return outputs[tree.number]
    if isinstance(tree, list):
        return [_at(part, outputs, sizes) for part in tree]
    return tree.at(sizes.__getitem__) if isinstance(tree, Sym) else tree


def _assert_equal(found: Any, wanted: Any, what: str, *, close: bool = False) -> None:
    if isinstance(wanted, list):
        assert len(found) == len(wanted), f"{what}: {len(found)} results, not {len(wanted)}"
        for a, b in zip(found, wanted, strict=True):
            _assert_equal(a, b, what, close=close)
    elif isinstance(wanted, np.ndarray):
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype), f"{what}: {found.shape} {found.dtype}"
        if close and wanted.dtype.kind in "fc":  # composites that eager code computes whole round otherwise
            np.testing.assert_allclose(found, wanted, 2e-5, 1e-5, err_msg=what)
        else:
            np.testing.assert_array_equal(found, wanted, err_msg=what)
    else:
        assert found == wanted, f"{what}: {found}, not {wanted}"
