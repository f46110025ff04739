"""Each op with sizes that the call decides: what infer says of symbols is what it says of numbers.

Each dim of a sample of 2 or more becomes a symbol of its own, and so do attributes that are sizes. Then infer's result,
at the sample's sizes and at others for which its guards hold, is that of the numbers; so is the joint graph's, after
the passes, which assume nothing. Which dims an op fixes, and why, stands in FIXES.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from cases import Case, all_cases, assert_near, by_op, check_each, draw

from compiler_core.aot.joint import Joint, make_joint
from compiler_core.dtype import float64, of
from compiler_core.graph.input_sizes import numbers_of
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph, GraphBuilder
from compiler_core.graph.passes import SIMPLIFY, SIMPLIFY_JOINT, run_passes
from compiler_core.graph.verify import verify
from compiler_core.meta import TensorMeta
from compiler_core.ops.registry import Attrs
from compiler_core.symbolic.expression import of_factor
from compiler_core.symbolic.size import Sizes, SizeSymbol, Sym, at_sizes, value_at

# op -> why its samples fix a dim. Attributes that are no sizes stay numbers, and sizes of 0 and 1 do
FIXES = {
    "cond": "the graphs are of one size",
    "cond_select": "the graphs are of one size",
    "convolution": "channels are the weight's, of which there is 1 for each group",
    "all_to_all_uneven": "the rows are told by numbers",
    "convolution_inner": "channels are the weight's, of which there is 1 for each group",
    "convolution_last": "channels are the weight's, of which there is 1 for each group",
    "recurrent": "the runs are attributes",
    "recurrent_backward": "the runs are attributes",
    "slice_scatter": "the slice is of numbers",
    "scan": "the graph is of one size",
    "while_loop": "the graphs are of one size",
    "while_loop_gradient": "the graphs are of one size",
    "view_as_complex": "the last dim is 2",
    "windows_add": "the kernel is an attribute",
    "windows_put": "1 window fits",
}
# attributes that are sizes, each on its own
FRESH = {
    "check_index": "size",
    "convolution_inner_input": "size",
    "convolution_input": "size",
    "convolution_last_input": "size",
    "full": "shape",
    "iota": "shape",
    "irfft": "size",
    "philox": "shape",
    "windows_add": "size",
    "windows_put": "size",
}


def _first_of_each_sample(cases: Sequence[Case]) -> list[Case]:
    found: dict[tuple[str, str], Case] = {}
    for case in cases:
        key = (case.op.name, case.name.split("-")[1])
        if case.variant == "plain" and (key not in found or case.dtype is float64):
            found[key] = case
    return list(found.values())


CASES = _first_of_each_sample(all_cases())


def _is_key(array: np.ndarray[Any, Any]) -> bool:
    """Whether it is three words by which an op draws."""
    return array.dtype == np.uint64 and array.shape == (3,)


class Symbolic:
    """A case with symbols for its sizes."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.sizes = Sizes()
        self.shapes = [tuple(map(self.fresh, () if _is_key(a) else a.shape)) or a.shape for a in case.arrays]
        self.attrs = self._attrs(dict(case.sample.attrs))
        self.metas = [TensorMeta(shape, of(array.dtype)) for shape, array in zip(self.shapes, case.arrays)]

    def fresh(self, n: int) -> Any:
        return self.sizes.new(n) if n >= 2 else n

    def _attrs(self, attrs: Attrs) -> Attrs:
        name, shape = self.case.op.name, [a.shape for a in self.case.arrays][:1]
        if key := FRESH.get(name):
            attrs[key] = tuple(map(self.fresh, attrs[key])) if isinstance(attrs[key], tuple) else self.fresh(attrs[key])
        elif name == "expand":
            new = dict(enumerate(self.shapes[0], len(attrs["shape"]) - len(shape[0])))
            old = dict(enumerate(shape[0], len(attrs["shape"]) - len(shape[0])))
            attrs["shape"] = tuple(new[d] if old.get(d) == n else self.fresh(n) for d, n in enumerate(attrs["shape"]))
        elif name == "reshape" and 0 not in shape[0]:
            attrs["shape"] = _reshaped(self.shapes[0], shape[0], attrs["shape"])
        elif name in ("slice", "slice_scatter"):
            ends = zip(attrs["stops"], shape[0], self.shapes[0])
            attrs["stops"] = tuple(symbol if stop == n else stop for stop, n, symbol in ends)
        return attrs

    @property
    def hints(self) -> dict[SizeSymbol, int]:
        return {symbol: int(symbol.hint or 0) for symbol in self.sizes.symbols}

    def fixed(self) -> list[SizeSymbol]:
        return [s for s in self.sizes.symbols if not isinstance(self.sizes.normal(of_factor(s)), Sym)]

    def others(self) -> list[dict[SizeSymbol, int]]:
        """Other sizes for which the guards hold; as many as there are among some that are tried."""
        rng = random.Random(self.case.name)
        return [numbers for _ in range(40) if (numbers := self._drawn(rng)) is not None][:3]

    def _drawn(self, rng: random.Random) -> dict[SizeSymbol, int] | None:
        drawn = {symbol: n + rng.choice([0, 0, 1, 2, 3, 4, 8]) for symbol, n in self.hints.items()}
        numbers = {s: value_at(self.sizes.normal(of_factor(s)), drawn.__getitem__) for s in self.sizes.symbols}
        right = min(numbers.values(), default=2) >= 2 and numbers != self.hints
        return numbers if right and all(g.holds(numbers.__getitem__) for g in self.sizes.guards) else None

    def graph(self) -> Graph:
        builder = GraphBuilder("g")
        args = [builder.placeholder(f"x{k}", meta) for k, meta in enumerate(self.metas)]
        return builder.build([builder.call(self.case.op, args, self.attrs)])

    def graph_at(self, numbers: dict[SizeSymbol, int]) -> Graph:
        """Made of numbers."""
        builder = GraphBuilder("g")
        metas = [meta.with_shape(at_sizes(meta.shape, numbers)) for meta in self.metas]
        args = [builder.placeholder(f"x{k}", meta) for k, meta in enumerate(metas)]
        attrs = {key: at_sizes(value, numbers) for key, value in self.attrs.items()}
        return builder.build([builder.call(self.case.op, args, attrs)])


def _reshaped(symbols: Sequence[Any], old: Sequence[int], new: Sequence[int]) -> tuple[Any, ...]:
    """`new` in terms of the old dims: of joined ones the product; of one that is split the first is a quotient."""
    left, shape = list(zip(old, symbols)), []
    groups: list[tuple[list[int], list[Any]]] = []
    for n in new:
        if not groups or math.prod(groups[-1][0]) == _product(groups[-1][1]):
            groups.append(([], []))
        groups[-1][0].append(n)
        while left and _product(groups[-1][1]) < math.prod(groups[-1][0]):
            groups[-1][1].append(left.pop(0))
    for numbers, taken in groups:
        rest = math.prod(numbers[1:])
        shape += [math.prod(symbol for _, symbol in taken) // rest, *numbers[1:]]
    return tuple(shape)


def _product(taken: Sequence[tuple[int, Any]]) -> int:
    return math.prod(n for n, _ in taken)


def infers_as_of_numbers(case: Case) -> None:
    made = Symbolic(case)
    meta = case.op.infer(*made.metas, **made.attrs)
    assert bool(made.fixed()) <= (case.op.name in FIXES), [str(guard) for guard in made.sizes.guards]
    for numbers in [made.hints, *made.others()]:
        assert meta.with_shape(at_sizes(meta.shape, numbers)) == made.graph_at(numbers).outputs[0].meta, numbers
    graph = made.graph()
    verify(graph)
    verify(run_passes(graph, SIMPLIFY))


def gradient_is_as_of_numbers(case: Case) -> None:
    made = Symbolic(case)
    joint = _joint(made.graph())
    made.sizes.close()
    joint = verify(run_passes(verify(joint.graph), SIMPLIFY_JOINT))
    for numbers in [made.hints, *made.others()[:1]]:
        expected = _joint(made.graph_at(numbers)).graph
        arrays = _arrays(case, expected, numbers == made.hints)
        if arrays is None:
            continue
        assert numbers_of(joint, [array.shape for array in arrays]).items() <= numbers.items()
        for got, want in zip(interpret(joint, arrays), interpret(expected, arrays), strict=True):
            assert_near(np.asarray(got), np.asarray(want))


def _joint(graph: Graph) -> Joint:
    return make_joint(graph, [node.dtype.is_inexact for node in graph.inputs])


def _arrays(case: Case, graph: Graph, as_sampled: bool) -> list[np.ndarray[Any, Any]] | None:
    """Operands and tangents; None where the sample alone knows which operands are right."""
    if case.sample.make is not None and not as_sampled:
        return None
    rng, low, high = np.random.default_rng(0), case.sample.low, case.sample.high
    drawn = [draw(rng, node.shape, node.dtype, low, high) for node in graph.inputs]
    return [*case.arrays, *drawn[len(case.arrays) :]] if as_sampled else drawn


@pytest.mark.parametrize("cases", by_op(CASES))
def test_infer_of_symbols_is_infer_of_numbers(cases: tuple[Case, ...]) -> None:
    check_each(infers_as_of_numbers, cases)


@pytest.mark.parametrize("cases", by_op([c for c in CASES if c.has_cotangents() and c.op.name != "custom_gradient"]))
def test_gradients_of_symbols_are_those_of_numbers(cases: tuple[Case, ...]) -> None:
    check_each(gradient_is_as_of_numbers, cases)


def test_each_reason_is_needed() -> None:
    fixing = set()
    for case in CASES:
        made = Symbolic(case)
        case.op.infer(*made.metas, **made.attrs)
        if made.fixed():
            fixing.add(case.op.name)
    assert fixing == set(FIXES)
