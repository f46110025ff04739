"""Runs definitions with NumPy: what each kind means, and the oracle of every pass over them.

In: `Defined`, and a flat or shaped array for each of its inputs, by name. Out: one array an output. Expressions are
evaluated as loop IR's are (loop_ir/interpret.py), for all elements at once. Memory starts out as garbage: an assembly
that its parts do not fill shows. Raises IndexError_ as the loop IR's interpreter does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from compiler_core.loop_ir import expr as x
from compiler_core.loop_ir import ir
from compiler_core.loop_ir.interpret import (
    GARBAGE,
    Best,
    Frame,
    evaluate,
    evaluate_index,
    identity,
    run_routine,
)
from compiler_core.lowering import definition as d
from compiler_core.meta import Shape, TensorMeta
from compiler_core.ops.registry import Array
from compiler_core.ops.routine import Strided
from compiler_core.symbolic.index import Index


def interpret_definitions(defined: d.Defined, inputs: Mapping[str, Array]) -> list[Array]:
    """The outputs, in order."""
    memory = {name: np.ascontiguousarray(inputs[name]).reshape(-1) for name in defined.inputs}
    memory |= {name: _garbage(defined.metas[name]) for name in defined.definitions}
    memory |= {name: memory[home] for name, home in defined.storage.items()}
    with np.errstate(all="ignore"):
        for definition in defined.definitions.values():
            _RUN[type(definition)](definition, memory)
    return [memory[name].reshape(defined.metas[name].shape) for name in defined.outputs]


def _garbage(meta: TensorMeta) -> Array:
    return np.full(meta.numel * meta.dtype.itemsize, GARBAGE, np.uint8).view(meta.dtype.numpy)


class _Domain:
    """The points of some axes, side by side."""

    def __init__(self, axes: d.Axes, memory: dict[str, Array]) -> None:
        self.shape: Shape = tuple(axis.extent for axis in axes)
        grid = np.meshgrid(*map(np.arange, self.shape), indexing="ij", sparse=True)
        self._frame = Frame(memory, axes=dict(zip(axes, grid)))

    def values(self, expr: x.Expr) -> Array:
        """One an element, in the shape of the axes."""
        return np.broadcast_to(np.asarray(evaluate(expr, self._frame, None)).astype(expr.dtype.numpy), self.shape)

    def places(self, index: Index) -> Array:
        return np.broadcast_to(np.asarray(evaluate_index(index, self._frame)), self.shape)


def _element(one: d.Element, memory: dict[str, Array]) -> None:
    if not one.numel:
        return
    domain = _Domain(one.axes, memory)
    values = domain.values(one.value)
    if one.part is None:
        memory[one.name][:] = values.ravel()
    else:
        memory[one.part.target][domain.places(one.part.index) + one.part.offset] = values


def _reduce(one: d.Reduce, memory: dict[str, Array]) -> None:
    domain = _Domain(one.axes, memory)
    values, places = domain.values(one.value).ravel(), domain.places(one.kept).ravel()
    if not ir.REDUCING[one.kind].is_place:
        result = np.full(one.numel, identity(one.kind, one.accumulate))
        ir.REDUCING[one.kind].ufunc.at(result, places, values)
        memory[one.name][:] = result.astype(one.dtype.numpy)
        return
    best = [Best(identity(one.kind, one.accumulate), one.kind) for _ in range(one.numel)]
    seen = np.zeros(one.numel, np.int64)
    for value, place in zip(values, places):
        best[place].offer(value, int(seen[place]))
        seen[place] += 1
    memory[one.name][:] = [found.at for found in best]


def _scatter(one: d.Scatter, memory: dict[str, Array]) -> None:
    target = memory[one.name]
    if not one.in_place:
        target[:] = _Domain(one.base_axes, memory).values(one.base).ravel()
    domain = _Domain(one.axes, memory)
    values, places = domain.values(one.value).ravel(), domain.places(one.target).ravel()
    if one.mode == "add":
        np.add.at(target, places, values)
    else:
        target[places] = values  # of several for one place, NumPy keeps the last


def _scan(one: d.Scan, memory: dict[str, Array]) -> None:
    domain, line = _Domain(one.axes, memory), one.axes.index(one.line)
    values = [np.moveaxis(domain.values(value), line, 0) for value in one.values]
    result = np.moveaxis(memory[one.name].reshape(domain.shape), line, 0)
    how, place = ir.REDUCING[one.kind], None
    carried = np.full(result.shape[1:], identity(one.kind, one.carried))
    for k in reversed(range(len(result))) if one.reverse else range(len(result)):
        if how.is_place:
            (value,) = (operand[k] for operand in values)
            better = ((value >= carried) if how.beats == ">" else (value <= carried)) | (value != value)
            place = np.where(better, k, 0 if place is None else place)
            carried = np.where(better, value, carried)
            result[k] = place
            continue
        *factor, term = (operand[k].astype(one.carried.numpy) for operand in values)
        is_first = k == (len(result) - 1 if one.reverse else 0)
        carried = term + (0 if is_first and factor else factor[0] * carried if factor else carried)
        result[k] = carried.astype(one.dtype.numpy)


def _gemm(one: d.Gemm, memory: dict[str, Array]) -> None:
    compute = one.dtype.compute.numpy
    a = _matrix(one.a, one.batch, one.m, one.k, memory).astype(compute)
    b = _matrix(one.b, one.batch, one.k, one.n, memory).astype(compute)
    out = _matrix(one.out, one.batch, one.m, one.n, memory)
    product = a @ b * np.asarray(one.alpha, compute)
    if one.scale:
        product = product * memory[one.scale].astype(compute)
    if one.onto:
        product = product + out.astype(compute)
    if one.bias:
        product = product + memory[one.bias].astype(compute)
    out[...] = product.astype(one.dtype.numpy)


def _matrix(operand: d.Operand, batch: tuple[int, ...], rows: int, columns: int, memory: dict[str, Array]) -> Array:
    flat = memory[operand.source][operand.offset :]
    strides = [step * flat.itemsize for step in (*operand.batch, operand.row, operand.col)]
    return np.lib.stride_tricks.as_strided(flat, (*batch, rows, columns), strides)


def _routine(one: d.LibraryCall, memory: dict[str, Array]) -> None:
    layout = Strided(one.dtype, one.shape, d.row_major(one.shape))
    run_routine(ir.RoutineCall(one.routine, one.operands, ir.View(ir.Slot(one.name), layout), one.attrs), memory)


def _assembly(one: d.Assembly, memory: dict[str, Array]) -> None:
    """Its parts are there."""


_RUN: dict[type, Callable[..., None]] = {
    d.Element: _element, d.Reduce: _reduce, d.Scatter: _scatter, d.Scan: _scan, d.Gemm: _gemm,
    d.LibraryCall: _routine, d.Assembly: _assembly,
}  # fmt: skip
