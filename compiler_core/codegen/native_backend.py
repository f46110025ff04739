"""The backend "codegen": graphs to one shared object, one native call per graph; on the CPU, by C++.

In: graphs that are compiled together (a forward, or the segments of a backward). Out: an `Executable` per graph.

    key        the graphs' text, the knobs that change code, the compiler, the CPU, the compiler_core source
    hit        load the shared object; nothing is lowered
    miss       lower and schedule, print C++, compile, publish; of N ranks one does this and the others wait
Of a graph that comes in many sizes the C++ is one for all of them, where it can be (cpp/many_sizes.py): a miss then
lowers, and finds the library of another size. The first lowers it at a few other sizes too, to see what differs.
Who asks for a dump or a log of the stages behind the key gets them on a hit too: they are made again, only to be shown.
An artefact holds `kernels.so`, the units of source, `constants.bin`, and a manifest with the entry points.
Raises: CompilerNotFoundError, CompilerFailedError, LoweringError.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from compiler_core import log
from compiler_core.backend import NATIVE, Executable, at_other_sizes, come_in_many_sizes
from compiler_core.codegen.failed import explained
from compiler_core.config import available_cores, config
from compiler_core.dtype import bfloat16
from compiler_core.errors import BackendError, CompilerFailedError, DistCompileError
from compiler_core.graph.ir import Graph
from compiler_core.graph.passes import SIMPLIFY_JOINT, ChannelsLast, PoolingComposed, run_passes
from compiler_core.graph.print import print_attrs, print_graph
from compiler_core.ops.routine import Strided
from compiler_core.runtime.cache import Entry, Manifest, generator_fingerprint, load_or_build, make_key
from compiler_core.runtime.callback import Callback
from compiler_core.runtime.constants import read_constants, write_constants
from compiler_core.runtime.executor import EntryPoint, NativeExecutable, load_library
from compiler_core.runtime.lasting_memory import is_pooled
from compiler_core.runtime.profiler import ProfileSource, StepCost
from compiler_core.runtime.toolchain import Toolchain, find_toolchain, multiplies_bf16
from compiler_core.steps import compiling, record, unrecorded
from compiler_core.tensor.memory.ownership import POOLS

if TYPE_CHECKING:
    from compiler_core.codegen.cpp.many_sizes import ManySizes
    from compiler_core.codegen.cpp.program import Source
    from compiler_core.codegen.cuda_backend import CudaBackend
    from compiler_core.loop_ir.ir import Program
    from compiler_core.runtime import onednn

LIBRARY = "kernels.so"
CONSTANTS = "constants.bin"
Made = TypeVar("Made")
_LOCK = Lock()
_sizes_seen: ManySizes | None = None  # by this process
POOLS.append(is_pooled)


class NativeBackend:
    """Backend "codegen". Stateless: what it makes is kept in the artefact cache.

    tuned: kernels of a CUDA device are cut as measured; the CPU's are as they are.
    """

    name = "codegen"
    announces = launches = hosts = True

    def __init__(self, *, tuned: bool = False) -> None:
        self.tuned = tuned

    def lay_out(self, graph: Graph) -> Graph:
        """Convolutions as oneDNN's, and channels last around them, where it has them; otherwise said once."""
        if graph.on_gpu:
            return _of_device([graph]).lay_out(graph)
        composed = PoolingComposed(routines=True).apply(graph)
        if composed is not graph:
            composed = run_passes(composed, SIMPLIFY_JOINT)
        return ChannelsLast(_judge).apply(composed)

    def compile(self, graphs: Sequence[Graph], name: str) -> Sequence[Executable]:
        """Executables of `graphs`, in order; those of a CUDA device by codegen/cuda_backend.py.

        `name` goes into log and dump.
        """
        if any(graph.on_gpu for graph in graphs):
            return _of_device(graphs, tuned=self.tuned).compile(graphs, name)
        toolchain, opened = find_toolchain(), come_in_many_sizes()
        builds: list[Path] = []

        def build(folder: Path) -> Manifest:
            builds.append(folder)
            return _build(folder, graphs, name, toolchain, opened=opened)

        entry = load_or_build(artefact_key(graphs, toolchain, opened=opened), build)
        if not builds and _is_shown():
            generate(graphs, name)
        return _load(entry, toolchain, graphs)


def _of_device(graphs: Sequence[Graph], *, tuned: bool = False) -> CudaBackend:
    """What compiles graphs of a CUDA device. Raises BackendError where they are of two devices."""
    from compiler_core.codegen.cuda_backend import CudaBackend

    places = sorted({graph.device for graph in graphs})
    if len(places) > 1:
        raise BackendError(f"{graphs[0].name} is compiled for {' and '.join(places)} at once")
    return CudaBackend(tuned=tuned)


def _judge(routine: str, attrs: Mapping[str, Any], arrays: tuple[Strided, ...]) -> onednn.Yes | onednn.No:
    """Whether oneDNN computes a convolution."""
    from compiler_core.runtime import onednn

    return onednn.told_verdict(Callback(routine, print_attrs(attrs), arrays))


def _is_shown() -> bool:
    """Whether somebody wants to see stages that a cache hit skips."""
    behind = ("definitions", "fusion", "memory", "loop_ir", "code")
    return bool(config.dump_dir) or any(log.is_on(artefact) for artefact in behind)


def artefact_key(graphs: Sequence[Graph], toolchain: Toolchain, *, opened: bool = False) -> str:
    """The cache key of `graphs` compiled together. Computed from text; needs no lowering."""
    return make_key(
        {
            "graphs": "\n".join(print_graph(graph) for graph in graphs),
            "many sizes": str(opened),
            "knobs": repr(config.codegen_key()),
            "toolchain": toolchain.key(),
            "generator": generator_fingerprint(),
        }
    )


def generate(graphs: Sequence[Graph], name: str, *, opened: bool = False) -> tuple[list[Program], Source]:
    """Graphs to programs to C++ text, every stage recorded. The heavy imports are here.

    opened: text for many sizes, to be filled (codegen/cpp/many_sizes.py).
    """
    from compiler_core.codegen.cpp.program import print_source
    from compiler_core.lowering.target import CPU
    from compiler_core.schedule.from_graphs import lower_and_schedule

    target = replace(CPU, many_sizes=opened, halves=frozenset({bfloat16} if multiplies_bf16() else ()))
    programs = with_symbols(lower_and_schedule(graphs, name, target), named=not opened)
    with compiling(name, "emit"):
        source = print_source(programs, opened=opened, units=available_cores())
    for stem, text in source.units.items():
        record(name, "emit", partial(str, text), part=stem, artefact="code")
    return programs, source


def _build(folder: Path, graphs: Sequence[Graph], name: str, toolchain: Toolchain, *, opened: bool = False) -> Manifest:
    """Everything that a cache hit skips. opened: the library is one that other sizes may share."""
    programs, source = generate(graphs, name, opened=opened)
    return _build_programs(folder, programs, source, graphs, name, toolchain, opened=opened)


def run_programs(programs: Sequence[Program], graphs: Sequence[Graph], folder: Path) -> list[NativeExecutable]:
    """Native code of programs that somebody else made for `graphs`, built in `folder`, which must last."""
    from compiler_core.codegen.cpp.program import print_source

    toolchain, named = find_toolchain(), with_symbols(programs)
    with compiling(graphs[0].name, "emit"):
        source = print_source(named)
    manifest = _build_programs(folder, named, source, graphs, graphs[0].name, toolchain)
    return _load(Entry(folder, manifest), toolchain, graphs)


def _build_programs(
    folder: Path,
    programs: Sequence[Program],
    source: Source,
    graphs: Sequence[Graph],
    name: str,
    toolchain: Toolchain,
    *,
    opened: bool = False,
) -> Manifest:
    from compiler_core.codegen.step_costs import step_costs
    from compiler_core.runtime.build import build_library

    with compiling(name, "build"):
        if opened:
            others = partial(made_elsewhere, name, lambda graphs: generate(graphs, name, opened=True)[1].units)
            units, numbers = share_library(source.units, folder / LIBRARY, toolchain, others)
        else:
            units, numbers = source.units, ()
            build_library(units, folder / LIBRARY, toolchain)
    for stem, text in units.items():
        (folder / f"{stem}.cpp").write_text(text)
    offsets = write_constants(folder / CONSTANTS, programs)
    rows = [
        replace(describe(program, graph, source.messages), numbers=numbers).to_json()
        | {"constants": at, "costs": [cost.to_json() for cost in step_costs(program)]}
        for program, graph, at in zip(programs, graphs, offsets, strict=True)
    ]
    return {"entries": rows, "units": list(units)}


def made_elsewhere(name: str, generate: Callable[[Sequence[Graph]], Made]) -> list[Made]:
    """The sources of what is compiled, as they would be at some other sizes. generate: of graphs."""
    made: list[Made] = []
    with unrecorded():
        for graphs in at_other_sizes():
            try:
                made.append(generate(graphs()))
            except DistCompileError as error:  # these sizes may never come
                log.emit("recompiles", f"{name} is not looked at for other sizes: {error}")
    return made


def share_library(
    units: Mapping[str, str],
    place: Path,
    toolchain: Toolchain,
    others: Callable[[], Iterable[Mapping[str, str]]] = tuple,
) -> tuple[dict[str, str], tuple[int, ...]]:
    """Put at `place` the library of the code that stands for a source; that code, and its numbers for this source.

    others: see `ManySizes.fill`. It is built once, then another name of the same file, so it is loaded once.
    """
    from compiler_core.codegen.cpp.many_sizes import ManySizes, plain

    global _sizes_seen
    with _LOCK:
        _sizes_seen = _sizes_seen or ManySizes()
    filled = _sizes_seen.fill(units, others)
    try:
        _link_library(filled.units, place, toolchain)
    except CompilerFailedError as error:
        if not filled.numbers:
            raise
        what = "code is compiled for each size: where sizes are variables, the C++ compiler refuses it"
        log.warn_once(f"many sizes {error.got}", f"{what}: {error.got}")
        constant = plain(units)
        _link_library(constant, place, toolchain)
        return constant, ()
    return filled.units, filled.numbers


def _link_library(units: Mapping[str, str], place: Path, toolchain: Toolchain) -> None:
    from compiler_core.runtime.build import build_library

    def build(folder: Path) -> Manifest:
        build_library(units, folder / LIBRARY, toolchain)
        return {}

    key = make_key({"code": json.dumps(dict(units)), "toolchain": toolchain.key()})
    load_or_build(key, build).link(LIBRARY, place)


def with_symbols(programs: Sequence[Program], *, named: bool = True) -> list[Program]:
    """The programs under names that are C++ identifiers, all different, and clash with nothing. named: by their own."""
    stems = ["".join(c if c.isalnum() else "_" for c in program.name) if named else "" for program in programs]
    return [replace(p, name=f"run{k}_{stem}") for k, (p, stem) in enumerate(zip(programs, stems, strict=True))]


def describe(program: Program, graph: Graph, messages: tuple[str, ...]) -> EntryPoint:
    """What the generated function of a program expects."""
    from compiler_core.codegen.cpp.routine import library_of, scratch_nbytes, scratch_share
    from compiler_core.graph.effects import has_only_collectives
    from compiler_core.schedule.over_inputs import over_inputs

    inputs = tuple(node.meta for node in graph.inputs)
    outputs = tuple(node.meta for node in graph.outputs)
    announced = tuple(place for event in graph.signals for place in event)
    awaited = tuple(place for event in graph.waits for place in event)
    library, scratch = library_of(program), scratch_nbytes(program)
    return EntryPoint(
        program.name,
        inputs,
        outputs,
        program.arena_nbytes,
        messages,
        announced,
        awaited,
        *library,
        scratch,
        scratch_share=scratch_share(program),
        over_inputs=over_inputs(program, only_collectives=has_only_collectives(graph)),
        spent=tuple(k for k, buffer in enumerate(program.buffers[: len(inputs)]) if buffer.kind == "spent"),
    )


def _load(entry: Entry, toolchain: Toolchain, graphs: Sequence[Graph]) -> list[NativeExecutable]:
    library = load_library(entry.file(LIBRARY))
    data = entry.read(CONSTANTS)
    units = tuple(entry.file(f"{stem}.cpp") for stem in entry.manifest["units"])
    source = ProfileSource(entry.folder.name, units, toolchain)
    rows = entry.manifest["entries"]
    return [_executable(row, graph, library, data, source) for row, graph in zip(rows, graphs, strict=True)]


def _executable(
    row: dict[str, Any], graph: Graph, library: ctypes.CDLL, data: bytes, source: ProfileSource
) -> NativeExecutable:
    constants = read_constants(data, row["constants"])
    costs = [StepCost(*cost) for cost in row["costs"]]
    entry = EntryPoint.from_json(row)
    explain = partial(explained, graph)
    return NativeExecutable(entry, library, constants, costs=costs, profile_source=source, explain=explain)


NATIVE["codegen"].fill(NativeBackend)
