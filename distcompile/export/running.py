"""One run of an exported program on Tensors, op by op.

In: a program, what it holds, and the tensors of a call. Out: the graph's outputs; the result that is made of them.
Captured code runs this as it is: the ops record themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from compiler_core.errors import DTypeError, ShapeError
from compiler_core.graph.input_sizes import Numbers, numbers_of
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Call, Node
from compiler_core.ops.registry import bind, current_trace, meta_of
from compiler_core.symbolic.size import Sym, at_sizes
from compiler_core.tensor.making.random import keys_for
from compiler_core.tensor.making.random_state import current_shard
from compiler_core.tensor.memory.cell import cell_trace
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import NotSupportedError
from distcompile.export.exported_program import ExportedProgram, Place


def run(program: ExportedProgram, held: Sequence[Tensor], given: Sequence[Tensor]) -> list[Any]:
    """The graph's outputs, and its symbols' numbers behind them. Raises ShapeError, DTypeError."""
    check(program, given, len(held))
    key, first = keys(program)
    inputs = [*held, *given, *key]
    sizes = bool(key) or any(isinstance(out, Sym) for out in program.outputs)
    numbers = numbers_of(program.dc_graph, [value.shape for value in inputs]) if sizes else {}
    draws = partial(_numbered, first, numbers) if first else None
    values = interpret(program.dc_graph, inputs, override=draws)  # no Tensor: what is computed of no input
    return [*(value if isinstance(value, Tensor) else Tensor._wrap(value) for value in values), numbers]


def result(program: ExportedProgram, values: Sequence[Any], written: Sequence[Tensor]) -> Any:
    """The result of a call. written: the tensors that have the first values now: who returns such a value returns the
    tensor."""
    *outputs, numbers = values
    same = {id(value): tensor for value, tensor in zip(outputs, written)}
    return program.call_spec.out_spec.unflatten(
        [_leaf(out, outputs, same, numbers) for out in program.outputs],
    )


def _leaf(out: Any, values: Sequence[Any], same: dict[int, Tensor], numbers: Numbers) -> Any:
    if isinstance(out, Place):
        return same.get(id(values[out.index]), values[out.index])
    return out.at(numbers.__getitem__) if isinstance(out, Sym) else out


def check(program: ExportedProgram, given: Sequence[Tensor], first: int) -> None:
    """Raises ShapeError, DTypeError for a tensor unlike the input of the graph that it is. Sizes that are symbols are
    looked at where the graph is run."""
    for tensor, node in zip(given, program.dc_graph.inputs[first:]):
        meta = meta_of(tensor)
        if meta.dtype != node.dtype:
            raise DTypeError(f"{node.source}: the program was exported with another dtype", expected=str(node.meta),
                             got=str(meta))  # fmt: skip
        sizes = list(zip(meta.shape, node.shape))
        if len(meta.shape) != len(node.shape) or any(not _may_be(b, a) for a, b in sizes):
            remedy = "export it with dynamic_shapes that let this size change"
            raise ShapeError(f"{node.source}: the program was exported with another shape", expected=str(node.meta),
                             got=str(meta), remedy=remedy)  # fmt: skip


def _may_be(expected: object, got: int) -> bool:
    return isinstance(expected, Sym) or expected == got


def keys(program: ExportedProgram) -> tuple[list[Any], int]:
    """The key of the draws of a call, where the graph takes one, and the number of the first under it.

    Under a trace it is the trace's, and its next draws are these.
    """
    trace = current_trace()
    if not program.draws:
        return [], 0
    if trace is None:
        return [keys_for(program.dc_graph.device, program.draws, program.shard)], 0
    traced = cell_trace(trace)
    if traced.draws_outside() or current_shard() != program.shard:
        what = "an exported program that draws random numbers, compiled under fallback_random, or for another shard"
        raise NotSupportedError(what, remedy="compile the module that it was made of")
    key, first = traced.next_rng()
    for _ in range(program.draws - 1):
        traced.next_rng()
    return [Tensor._wrap(key)], first


def _numbered(first: int, numbers: Numbers, call: Call, values: Mapping[Node, Any]) -> Mapping[Node, Any] | None:
    """A draw of the program's, counted from `first`; None for other calls."""
    if not call.op.random:
        return None
    attrs = {key: at_sizes(value, numbers) for key, value in call.attrs.items()}
    return {call: bind(call.op, *(values[arg] for arg in call.args), **attrs | {"stream": attrs["stream"] + first})}
