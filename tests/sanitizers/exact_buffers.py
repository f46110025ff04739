"""Generated code run on memory of its own for every buffer, so that AddressSanitizer sees each access outside of one.

In: graphs, or programs of the loop IR. Out: functions of arrays. Run under a preloaded libasan, with its flags in
DISTCOMPILE_CXX_FLAGS: the compiler then guards each access, and the allocator leaves no room behind a block.
Method: in the arena temps are neighbours, and what is written past one is another's byte, which no sanitizer can know.
So temps become outputs and constants inputs (`spread`); kernels stay what they are. Every array is a `posix_memalign`
of exactly its bytes, aligned as the loop IR promises, and is freed after the call. What only the arena could get wrong,
its size and the places in it, is `verify_program`'s and tests/compiler_core/schedule/test_memory_plan.py's.
"""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from native_harness import compile_programs

from compiler_core.dtype import DType
from compiler_core.graph.ir import Graph
from compiler_core.loop_ir.ir import Buffer, Program
from compiler_core.loop_ir.verify import verify_program
from compiler_core.ops.registry import Array
from compiler_core.runtime.executor import NativeExecutable
from compiler_core.schedule.from_graphs import lower_and_schedule

_libc = ctypes.CDLL(None)
_libc.posix_memalign.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_size_t]
_libc.free.argtypes = [ctypes.c_void_p]
ALIGNMENT = 64
KINDS = {"temp": "output", "constant": "input"}


def spread(program: Program) -> Program:
    """The same steps, on temps that are outputs and constants that are inputs, both after the program's own."""
    verify_program(program)
    buffers = tuple(replace(b, kind=KINDS.get(b.kind, b.kind), offset=0, array=None) for b in program.buffers)
    constants = tuple(b.name for b in program.buffers if b.kind == "constant")
    temps = tuple(b.name for b in program.buffers if b.kind == "temp")
    return replace(
        program,
        buffers=buffers,
        inputs=program.inputs + constants,
        outputs=program.outputs + temps,
        arena_nbytes=0,
    )


@contextmanager
def exact_arrays(wanted: Sequence[tuple[DType, int]]) -> Iterator[list[Array]]:
    """Flat arrays of (dtype, number of elements), each in a block that ends where it ends."""
    addresses = []
    try:
        for dtype, numel in wanted:
            address = ctypes.c_void_p()
            assert _libc.posix_memalign(address, ALIGNMENT, numel * dtype.itemsize) == 0
            addresses.append(address.value or 0)
        yield [
            np.ndarray((n,), d.numpy, (ctypes.c_char * (n * d.itemsize)).from_address(a))
            for (d, n), a in zip(wanted, addresses, strict=True)
        ]
    finally:
        for address in addresses:
            _libc.free(address)


def compile_exactly(programs: Sequence[Program]) -> list[Callable[[Sequence[Array]], list[Array]]]:
    """One shared object; each function takes the arrays of a program's inputs and gives flat ones of its outputs."""
    named = [replace(program, name=f"run{k}") for k, program in enumerate(programs)]
    with tempfile.TemporaryDirectory() as folder:
        natives = compile_programs([spread(program) for program in named], Path(folder))
    return [_runner(native, program) for native, program in zip(natives, named, strict=True)]


def _runner(native: NativeExecutable, program: Program) -> Callable[[Sequence[Array]], list[Array]]:
    spread_out = spread(program)
    buffers: dict[str, Buffer] = {buffer.name: buffer for buffer in spread_out.buffers}
    ins, outs = (
        [(buffers[n].dtype, buffers[n].numel) for n in names] for names in (spread_out.inputs, spread_out.outputs)
    )
    constants = [buffer.array for buffer in program.buffers if buffer.kind == "constant"]

    def run(arrays: Sequence[Array]) -> list[Array]:
        with exact_arrays(ins) as given, exact_arrays(outs) as results:
            for place, array in zip(given, [*arrays, *constants], strict=True):
                place[...] = np.asarray(array).ravel()
            native(given, results)
            return [result.copy() for result in results[: len(program.outputs)]]

    return run


def compile_graphs(graphs: Sequence[Graph]) -> list[Callable[..., list[Array]]]:
    """A function of arrays for each graph."""
    functions = compile_exactly(lower_and_schedule(graphs, "exact"))
    shapes = [[node.shape for node in graph.outputs] for graph in graphs]

    def shaped(
        function: Callable[[Sequence[Array]], list[Array]], wanted: list[tuple[int, ...]]
    ) -> Callable[..., list[Array]]:
        return lambda *arrays: [a.reshape(shape) for a, shape in zip(function(arrays), wanted, strict=True)]

    return [shaped(*pair) for pair in zip(functions, shapes, strict=True)]


def exact_backend(module: Any, example_inputs: Sequence[Any]) -> Callable[..., list[Array]]:
    """As a backend of `distcompile.compile`."""
    run = compile_graphs([module.ir])[0]
    return lambda *tensors: run(*(tensor.numpy() for tensor in tensors))
