"""`aot_compile`: an exported program as a package: native code, weights, and what is needed to call it, in one file.

In: an ExportedProgram, where the file goes, the sizes that it is to be compiled for. Out: the file's path.
Method: for each set of sizes the graph of these (graph/sizes.py), through the steps of the pipeline to C++. Sizes that
come to the same code share it, with their numbers in tables (codegen/cpp/many_sizes.py). Each such code becomes a
shared object with tables.py's unit, and the threads of runtime/pool.py. Of a program for a GPU: compiling_cuda.py.
Raises: PackageError for what a package cannot hold: branches and loops that Python runs, arrays of dtypes that files do
not have; CompilerNotFoundError without a C++ compiler; ShapeError for sizes that the program does not take.
"""

from __future__ import annotations

import math
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np

from compiler_core.codegen.cpp.many_sizes import ManySizes
from compiler_core.codegen.native_backend import NativeBackend, describe, generate
from compiler_core.errors import ShapeError
from compiler_core.graph.ir import Graph
from compiler_core.graph.parse import parse_attrs
from compiler_core.graph.print import print_graph
from compiler_core.graph.sizes import graph_at, symbols_of
from compiler_core.loop_ir.ir import Program
from compiler_core.meta import TensorMeta
from compiler_core.ops.routine import ROUTINES, Native
from compiler_core.pipeline import lay_out, simplify, simplify_joint
from compiler_core.runtime import pool
from compiler_core.runtime.build import build_library
from compiler_core.runtime.callback import Callback
from compiler_core.runtime.executor import EntryPoint
from compiler_core.runtime.toolchain import find_toolchain
from compiler_core.symbolic.expression import of_factor
from compiler_core.symbolic.size import SizeGuard, SizeSymbol, Sym, name_of
from distcompile.errors import ArgumentError, PackageError
from distcompile.export import ExportedProgram
from distcompile.export.exported_program import Place
from distcompile.export.graph_signature import ConstantArgument, OutputKind
from distcompile.package.container import VERSION, Array, dtype_name, placed, write
from distcompile.package.instances import GIVEN, HELD, KEY
from distcompile.package.libraries import LIBRARIES
from distcompile.package.load import cpu_features
from distcompile.package.tables import Placed, Tabled, unit
from distcompile.utils._pytree import treespec_dumps
from distcompile.version import __version__

Numbers = Mapping[SizeSymbol, int]
MOST_SIZES = 1024  # sets of them in one package
# of x86: what compilers make code for, as /proc/cpuinfo says it
_FEATURES = """
sse4_1 sse4_2 popcnt avx f16c fma avx2 bmi1 bmi2 abm movbe adx avx512f avx512cd avx512bw avx512dq avx512vl avx512ifma
avx512vbmi avx512_vbmi2 avx512_vnni avx512_bitalg avx512_vpopcntdq avx512_bf16 avx512_fp16 avx_vnni gfni vaes vpclmulqdq
"""


@dataclass(frozen=True)
class Made:
    """One instance: its graph, its C++, what it expects, its constants."""

    numbers: Numbers
    graph: Graph
    units: dict[str, str]
    entry: EntryPoint
    constants: list[Array]


def aot_compile(
    program: ExportedProgram, path: str | os.PathLike[str], *, sizes: Sequence[Mapping[str, int]] | Literal["all"] = ()
) -> str:
    """Compile `program` for this machine, and write it to `path`, with its weights. Returns the path.

    Args:
        program: an exported program.
        path: of the file, by custom `*.dcpkg`.
        sizes: the sets of sizes to compile for, each by the names of the program's sizes (`range_constraints`):
            `[{"batch": 1}, {"batch": 8}]`; "all": every set in their ranges, up to 1,024 of them. By default those of
            the example, and with one of them 1. In Python a package of the CPU runs at others too.

    Raises: see the head of this file.
    """
    if not isinstance(program, ExportedProgram):
        raise ArgumentError("aot_compile takes an exported program", got=type(program).__name__,
                            remedy="aot_compile(export(module, args), path)")  # fmt: skip
    wanted = list(_sizes(program, _every(program) if sizes == "all" else sizes))
    if not sizes:
        wanted += _with_ones(wanted[0])
    if program.dc_graph.on_gpu:
        from distcompile.package.compiling_cuda import compiled

        arrays, told = compiled(program, wanted)
    else:
        arrays, told = _compiled(program, wanted)
    write(Path(path), arrays, told | _manifest(program))
    return os.fspath(path)


def _compiled(program: ExportedProgram, wanted: Sequence[Numbers]) -> tuple[dict[str, Array], dict[str, Any]]:
    """Native code: what the file holds, and what is told of it."""
    graph = program.dc_graph
    opened = [*wanted, *sizes_near(wanted[0])] if symbols_of(graph) else []
    made = opened_at(graph, opened)[: len(wanted)] if opened else [made_at(graph, wanted[0])]
    groups: dict[str, list[Made]] = {}
    for one in made:
        groups.setdefault(code_digest(one.units), []).append(one)
    arrays = weights_of(program) | _constants(made)
    _, places, _ = placed(arrays)
    for number, group in enumerate(groups.values()):
        tables = [_tabled(program, one, places, arrays) for one in group]
        arrays[f"code:{number}"] = built(group[0].units, tables)
    entries = [one.entry for one in made]
    libraries = [("openblas", any(e.symbols for e in entries)), ("onednn", any(e.planned for e in entries))]
    by_python = sorted({name for one in made for name in called_back(one.entry)})
    return arrays, {
        "codes": list(groups),
        "opened": [{symbol.name: number for symbol, number in numbers.items()} for numbers in opened],
        "libraries": [name for name, needed in libraries if needed],
        **{f"{name}_at": LIBRARIES[name]()._name for name, needed in libraries if needed},  # for C++
        "python": by_python,
        "callbacks": [[callbacks_of(one.entry) for one in group] for group in groups.values()] if by_python else [],
        "results": [[results_of(program, one.numbers) for one in group] for group in groups.values()],
    }


# -- sizes


def _every(program: ExportedProgram) -> list[dict[str, int]]:
    """Every set of sizes that the program takes, that of the example first."""
    ranges = program.range_constraints
    count = math.prod(high - low + 1 for low, high in ranges.values())
    if not count <= MOST_SIZES:
        what, remedy = 'aot_compile(sizes="all"): the program takes too many', "narrower Dims (min=, max=), or a list"
        raise ArgumentError(what, expected=f"at most {MOST_SIZES} sets", got=f"{count:g}", remedy=remedy)
    symbols = {symbol.name: symbol for symbol in symbols_of(program.dc_graph)}
    each = product(*(range(int(low), int(high) + 1) for low, high in ranges.values()))
    found = [dict(zip(ranges, numbers)) for numbers in each]
    can_be = [one for one in found if _can_be({symbols[name]: number for name, number in one.items()})]
    return sorted(can_be, key=lambda one: one != program.example_sizes)


def _sizes(program: ExportedProgram, sizes: Sequence[Mapping[str, int]]) -> Iterator[Numbers]:
    symbols = sorted(symbols_of(program.dc_graph), key=lambda symbol: symbol.name)
    known = {symbol.name for symbol in symbols}
    for given in sizes or [program.example_sizes]:
        if set(given) != known:
            what, expected = "aot_compile(sizes=...): a number for each size of the program", ", ".join(sorted(known))
            raise ArgumentError(what, expected=expected or "none", got=", ".join(given) or "none")
        numbers = {symbol: given[symbol.name] for symbol in symbols}
        for symbol, number in numbers.items():
            low, high = program.range_constraints[symbol.name]
            if not low <= number <= high:
                raise ShapeError(f"{symbol.name} = {number}", expected=f"{low} to {high}")
        for guard in _guards(numbers):
            if not guard.holds(numbers.__getitem__):
                raise ShapeError(f"the program is right only where {guard.show(name_of)}", got=str(dict(given)))
        yield numbers


def _guards(numbers: Numbers) -> Iterator[SizeGuard]:
    for sizes in {symbol.sizes for symbol in numbers}:
        yield from (guard for guard in sizes.guards if guard.symbols <= numbers.keys())


def _can_be(numbers: Numbers) -> bool:
    ends = [(*symbol.sizes.ends_now(of_factor(symbol)), number) for symbol, number in numbers.items()]
    within = all(low <= number <= high for low, high, number in ends)
    return within and all(guard.holds(numbers.__getitem__) for guard in _guards(numbers))


def _with_ones(numbers: Numbers) -> Iterator[Numbers]:
    """The same, with one of them 1: of one row code is often another."""
    yield from (changed for symbol in numbers if _can_be(changed := {**numbers, symbol: 1}) and changed != numbers)


def sizes_near(numbers: Numbers) -> Iterator[Numbers]:
    """Some other sizes, to see what differs: the code is to serve all."""
    for step in (1, 2, 13):
        found = dict(numbers)
        for symbol, number in numbers.items():
            choices = ({**found, symbol: other} for other in (number + step, 2 * number + step, number - step))
            found = next(filter(_can_be, choices), found)
        if found != numbers:
            yield found


# -- code


def made_at(graph: Graph, numbers: Numbers, *, opened: bool = False) -> Made:
    """An instance. opened: its text is for many sizes."""
    sized = simplify(graph_at(graph, numbers, graph.name)[0])
    sized = lay_out(NativeBackend(), simplify_joint(sized))
    (lowered,), source = generate([sized], graph.name, opened=opened)
    entry = describe(lowered, sized, source.messages)
    if graphs := [callback.routine for callback in entry.callbacks if "graph " in callback.attrs]:
        raise PackageError(f"a package cannot hold what compiles a graph when it runs: {', '.join(sorted(graphs))}",
                           remedy="leave it out of the program, or run its module()")  # fmt: skip
    return Made(numbers, sized, dict(source.units), entry, _arrays_of(lowered))


def called_back(entry: EntryPoint) -> list[str]:
    """The routines that Python computes: no library is called first."""
    return [one.routine for one in entry.callbacks if _native_of(one) is None]


def callbacks_of(entry: EntryPoint) -> list[Any]:
    """What Python is called for, as JSON; nothing where libraries compute all."""
    return [callback.to_json() for callback in entry.callbacks] if called_back(entry) else []


def _native_of(callback: Callback) -> Native | None:
    """The C call that is made first, of a routine that calls back where it refuses its data."""
    return ROUTINES[callback.routine].native_for(callback.arrays[0].dtype, parse_attrs(callback.attrs))


def opened_at(graph: Graph, sizes: Sequence[Numbers], *more: Numbers) -> list[Made]:
    """Instances, with one code where sizes come to one. more: that change none of the codes of the others."""
    opened, made = ManySizes(), [made_at(graph, numbers, opened=True) for numbers in sizes]
    for one in made:
        opened.fill(one.units, lambda: [other.units for other in made])
    made += [made_at(graph, numbers, opened=True) for numbers in more]
    filled = [opened.fill(one.units) for one in made]
    return [
        replace(one, units=code.units, entry=replace(one.entry, numbers=code.numbers))
        for one, code in zip(made, filled, strict=True)
    ]


def code_digest(units: Mapping[str, str]) -> str:
    """What tells a code from another."""
    return sha256(repr(sorted(units.items())).encode()).hexdigest()


def _arrays_of(lowered: Program) -> list[Array]:
    found = [buffer for buffer in lowered.buffers if buffer.kind == "constant"]
    return [np.ascontiguousarray(buffer.array) for buffer in found]


def built(units: Mapping[str, str], tables: Sequence[Tabled]) -> Array:
    """The shared object of a code. Raises CompilerNotFoundError, CompilerFailedError."""
    every = {**units, "package": unit(tables), "pool": pool.SOURCE}
    with tempfile.TemporaryDirectory(prefix="distcompile-package-") as folder:
        made = Path(folder, "code.so")
        build_library(every, made, find_toolchain(), defines=[f"DC_SPINS={pool.SPINS}"])
        return np.frombuffer(made.read_bytes(), np.uint8)


# -- what the file holds


def weights_of(program: ExportedProgram) -> dict[str, Array]:
    """What the program holds, each under its name."""
    return {
        f"{spec.kind.name.lower()}:{spec.target}": np.ascontiguousarray(tensor.detach().cpu().numpy()).reshape(
            tensor.shape
        )
        for spec, tensor in program.held()
    }


def _constants(made: Sequence[Made]) -> dict[str, Array]:
    """Each once: instances share them."""
    return {_constant_name(array): array for one in made for array in one.constants}


def _constant_name(array: Array) -> str:
    return f"constant-of-code:{sha256(array.tobytes()).hexdigest()[:16]}:{array.dtype.name}:{array.size}"


def _tabled(program: ExportedProgram, one: Made, places: Mapping[str, int], arrays: Mapping[str, Array]) -> Tabled:
    constants = [
        Placed("", dtype_name(a.dtype), a.shape, a.nbytes, 1, places[_constant_name(a)]) for a in one.constants
    ]
    weights = list(arrays)[: len(program.held())]
    return Tabled(one.entry, inputs_of(program, one.graph, weights, places), constants, outputs_of(program, one.graph))


def inputs_of(
    program: ExportedProgram, graph: Graph, weights: Sequence[str], places: Mapping[str, int]
) -> list[Placed]:
    """What the inputs are of a graph of the program. places: of the weights, where they begin."""
    key = len(graph.inputs) - 1 if program.draws else -1
    named = [
        (weights[k], HELD, places[weights[k]]) if k < len(weights) else (node.source, KEY if k == key else GIVEN, 0)
        for k, node in enumerate(graph.inputs)
    ]
    return [_placed(name, node.meta, kind, at) for node, (name, kind, at) in zip(graph.inputs, named, strict=True)]


def outputs_of(program: ExportedProgram, graph: Graph) -> list[Placed]:
    """What the outputs are."""
    written = [_written_place(program, kind, name) for kind, name in program.written]
    named = [(graph.inputs[k].source, 1, k) for k in written]
    named += [(f"output{k}", 0, 0) for k in range(len(graph.outputs) - len(written))]
    return [_placed(name, node.meta, kind, at) for node, (name, kind, at) in zip(graph.outputs, named, strict=True)]


def _placed(name: str, meta: TensorMeta, kind: int, place: int) -> Placed:
    nbytes = meta.numel * meta.dtype.numpy.itemsize
    return Placed(name, dtype_name(meta.dtype.numpy), meta.shape, nbytes, kind, place)


def _written_place(program: ExportedProgram, kind: OutputKind, name: str) -> int:
    """Which input of the graph an output is the new value of."""
    if kind is OutputKind.USER_INPUT_MUTATION:
        return next(k for k, node in enumerate(program.dc_graph.inputs) if node.name == name)
    return next(k for k, (spec, _) in enumerate(program.held()) if spec.target == name)


def _manifest(program: ExportedProgram) -> dict[str, Any]:
    machine = platform.machine()
    features = cpu_features() & {*_FEATURES.split()} if machine in ("x86_64", "AMD64") else cpu_features()
    return {
        "version": VERSION,
        "made_by": f"distcompile {__version__}",
        "target": {"system": sys.platform, "machine": machine, "features": sorted(features)},
        "arguments": [_argument(spec.arg) for spec in program.user_specs],
        "in_spec": treespec_dumps(program.call_spec.in_spec),
        "out_spec": treespec_dumps(program.call_spec.out_spec),
        "draws": program.draws,
        "shard": program.shard,
        "graph": print_graph(program.dc_graph),
    }


def _argument(arg: Any) -> dict[str, Any]:
    return {"name": arg.name, "value": _plain(arg.value)} if isinstance(arg, ConstantArgument) else {"tensor": arg.name}


def results_of(program: ExportedProgram, numbers: Numbers) -> list[dict[str, Any]]:
    """Of each leaf of the result: the output that it is, or its value."""
    found: list[dict[str, Any]] = []
    for out in program.outputs:
        if isinstance(out, Place):
            found.append({"tensor": out.index})
        else:
            is_size = isinstance(out, Sym)
            found.append(
                {"value": out.at(numbers.__getitem__) if is_size else _plain(out)}
                | ({"size": repr(out)} if is_size else {})
            )
    return found


def _plain(value: Any) -> Any:
    if not isinstance(value, (int, float, bool, str, type(None))):
        raise PackageError(f"a package cannot hold {value!r} among its arguments and results")
    return value
