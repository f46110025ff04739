"""Builds loop IR programs, runs them as C++ and by the interpreter, and compares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from compiler_core.codegen.cpp.program import print_source
from compiler_core.codegen.cpp.routine import library_of, scratch_nbytes
from compiler_core.config import config
from compiler_core.dtype import DType, of
from compiler_core.loop_ir.expr import Expr
from compiler_core.loop_ir.interpret import interpret_program
from compiler_core.loop_ir.ir import Buffer, Kernel, KernelCall, Loop, LoopKind, Param, Program, Slot, Stmt, Store
from compiler_core.meta import TensorMeta
from compiler_core.ops.registry import Array
from compiler_core.runtime.build import build_library
from compiler_core.runtime.executor import EntryPoint, NativeExecutable, load_library
from compiler_core.runtime.toolchain import find_toolchain
from compiler_core.symbolic.index import Axis, Index, Variable, named_axis, of_axis

AXES = [Axis(f"i{k}", 1 << 40) for k in range(3)]
I0, I1, I2 = map(of_axis, AXES)


def over(name: str, extent: int, kind: LoopKind, body: Sequence[Stmt]) -> Loop:
    """A loop; in its body I0, I1 or I2 is its axis if it has that name."""
    axis = named_axis(name, extent)
    return Loop(axis, kind, tuple(bound(stmt, axis) for stmt in body))


def bound(part: Any, axis: Axis) -> Any:
    """`part` of a kernel with `axis` in place of I0, I1 or I2, whichever has its name."""

    def chosen(variable: Variable) -> Variable:
        return axis if variable in AXES and variable.name == axis.name else variable

    if isinstance(part, Index):
        return part.renamed(chosen)
    if isinstance(part, tuple):
        return tuple(bound(inner, axis) for inner in part)
    if is_dataclass(part) and not isinstance(part, Axis | DType):
        return replace(part, **{one.name: bound(getattr(part, one.name), axis) for one in fields(part)})
    return part


def program_of(kernel: Kernel, name: str = "program") -> Program:
    """A program of one call; every read-only Param is an input, every other an output."""
    kinds = {"in": "input", "out": "output", "inout": "output"}
    buffers = tuple(Buffer(f"b_{p.name}", p.dtype, p.numel, kinds[p.access]) for p in kernel.params)
    call = KernelCall(kernel, tuple(Slot(b.name) for b in buffers), "a note  user.py:1")
    inputs = tuple(b.name for b in buffers if b.kind == "input")
    return Program(name, buffers, (call,), inputs, tuple(b.name for b in buffers if b.kind == "output"))


def kernel_of(inputs: Sequence[DType], numels: Sequence[int], out: DType, numel: int, body: Sequence[Stmt]) -> Kernel:
    """A kernel with inputs p0, p1, ... and the output `out`."""
    params = [Param(f"p{k}", d, n, "in") for k, (d, n) in enumerate(zip(inputs, numels, strict=True))]
    return Kernel("k", (*params, Param("out", out, numel, "out")), tuple(body))


def pointwise(inputs: Sequence[DType], numel: int, value: Expr, kind: LoopKind = "vector") -> Kernel:
    """out[i0] = value, over `numel` elements."""
    body = (over("i0", numel, kind, (Store("out", I0, value),)),)
    return kernel_of(inputs, [numel] * len(inputs), value.dtype, numel, body)


def compile_programs(programs: Sequence[Program], folder: Path, *, threads: int = 1) -> list[NativeExecutable]:
    """Native executables that take and give flat arrays."""
    source = print_source(programs)
    place = folder / f"library{len(list(folder.iterdir()))}.so"  # a loaded file must not be written over
    build_library(source.units, place, find_toolchain())
    with config.patch(num_threads=threads):
        library = load_library(place)
    return [NativeExecutable(_entry(p, source.messages), library, _constants(p)) for p in programs]


def _entry(program: Program, messages: tuple[str, ...]) -> EntryPoint:
    buffers = {b.name: TensorMeta((b.numel,), b.dtype) for b in program.buffers}
    ins, outs = (tuple(buffers[n] for n in names) for names in (program.inputs, program.outputs))
    library, scratch = library_of(program), scratch_nbytes(program)
    return EntryPoint(program.name, ins, outs, program.arena_nbytes, messages, (), (), *library, scratch)


def _constants(program: Program) -> list[Array]:
    return [b.array for b in program.buffers if b.kind == "constant" and b.array is not None]


def check(program: Program, inputs: Sequence[Array], folder: Path, *, ulp: float = 8) -> list[Array]:
    """Run both ways and compare: exactly, but for floats, which may be `ulp` units in the last place apart."""
    (native,) = compile_programs([program], folder)
    got = native(inputs)
    with np.errstate(all="ignore"):
        expected = interpret_program(program, inputs)
    for g, e in zip(got, expected, strict=True):
        assert_close(g, e, ulp=ulp)
    return got


def assert_close(got: Array, expected: Array, *, ulp: float = 8) -> None:
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    if got.dtype.kind == "c":  # by the larger part
        wide = [x.astype(np.complex128) for x in (got, expected)]
        digits = 52 if of(got.dtype).itemsize == 16 else 23
        np.testing.assert_allclose(*wide, rtol=ulp * 2.0**-digits, atol=ulp * 2.0**-digits)
        return
    dtype = of(got.dtype)
    if not dtype.is_floating_point:
        np.testing.assert_array_equal(got, expected)
        return
    digits = {"f64": 52, "f32": 23, "f16": 10, "bf16": 7}[dtype.short]
    tiny = {"f64": 1e-300, "f32": 1e-37, "f16": 1e-7, "bf16": 1e-37}[dtype.short]
    np.testing.assert_allclose(got.astype(np.float64), expected.astype(np.float64), rtol=ulp * 2.0**-digits, atol=tiny)
