"""Graphs for a CUDA device: kernels as cubins, one host function a graph; what backend "codegen" does with such graphs.

In: graphs that are compiled together. Out: a `CudaExecutable` per graph (none of those with complex kernels).

    key        the graphs' text, the knobs that change code, the device's capability, Triton's version, the C++
               compiler, the compiler_core source
    hit        load the shared object and the cubins; Triton is not imported
    miss       lower and schedule, print Triton and C++, compile both, publish; of N ranks one does this
Of a graph that comes in many sizes both are one for all of them, where they can be (triton/many_sizes.py,
cpp/many_sizes.py): a miss then lowers, and finds the cubins and the library of another size.
An artefact holds `launcher.so` and its source, `kernels.py`, the cubins, `constants.bin`, and a manifest.
Needs no GPU: only calling an executable does. Raises: CompilerNotFoundError, CompilerFailedError, LoweringError,
BackendError where Triton is not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from compiler_core import cuda, log
from compiler_core.backend import INTERPRETERS, NATIVE, Backend, Executable, come_in_many_sizes, sizes_are_round
from compiler_core.codegen.cuda.convolutions import by_cudnn, library_for
from compiler_core.codegen.native_backend import (
    NativeBackend,
    made_elsewhere,
    share_library,
    with_symbols,
)
from compiler_core.config import config
from compiler_core.errors import BackendError, NoComplexError
from compiler_core.graph.ir import OF_BACKWARDS, Graph
from compiler_core.graph.passes import (
    SIMPLIFY_JOINT,
    AttentionComposed,
    AttentionSums,
    ChannelsLast,
    ColumnSums,
    FewPlaces,
    GpuProducts,
    LongRows,
    PoolingComposed,
    attends_f32,
    run_passes,
)
from compiler_core.graph.print import print_graph
from compiler_core.ops.routine import ROUTINES, Strided
from compiler_core.runtime.cache import Entry, Manifest, generator_fingerprint, load_or_build, make_key
from compiler_core.runtime.constants import read_constants, write_constants
from compiler_core.runtime.cuda.entry import CudaEntry, CudaFunction
from compiler_core.runtime.cuda.executable import CudaExecutable
from compiler_core.runtime.cuda.graphs import Replaying
from compiler_core.runtime.executor import load_library
from compiler_core.runtime.profiler import StepCost
from compiler_core.runtime.toolchain import Toolchain, find_toolchain
from compiler_core.steps import compiling, record

if TYPE_CHECKING:
    from compiler_core.codegen.cuda.cubins import Cubin
    from compiler_core.codegen.cuda.plan import LaunchPlan
    from compiler_core.codegen.cuda.workers import Workers
    from compiler_core.codegen.triton.module import TritonModule
    from compiler_core.codegen.triton.tiles import Tile
    from compiler_core.loop_ir.ir import Kernel, Program
    from compiler_core.runtime.cuda.products import Choices

LIBRARY, SOURCE, CONSTANTS = "launcher.so", "launcher.cpp", "constants.bin"
DEFAULT_CAPABILITY = 90  # sm_90, Hopper: what is compiled for where there is no device to ask


def device_capability() -> int:
    """Of the current device: 90 for sm_90. Where there is none: that of Hopper."""
    return DEFAULT_CAPABILITY if cuda.why_not() else int(cuda.module().cuda.Device().compute_capability)


class CudaBackend:
    """Compiles for a CUDA device. capability: None: the current device's. tuned: tiles are measured (tune.py)."""

    name = "codegen"
    announces = hosts = True

    def __init__(self, capability: int | None = None, *, tuned: bool = False) -> None:
        self.capability = device_capability() if capability is None else capability
        self.tuned = tuned

    def lay_out(self, graph: Graph) -> Graph:
        """Attention that kernels do not take as products and a softmax, sums of its gradients by those that do;
        convolutions that kernels take with channels last, and pooling beside them; the backward of other pooling as
        loops. Products of odd sizes padded; reductions of few long rows in two steps.
        """
        attention = AttentionSums().apply(AttentionComposed(kernels=True).apply(graph))
        last = ChannelsLast(_judge, weights=True).apply(attention)
        made = PoolingComposed().apply(last)
        summed = ColumnSums().apply(made if made is last else run_passes(made, SIMPLIFY_JOINT))
        return LongRows().apply(FewPlaces().apply(GpuProducts().apply(summed)))

    def compile(self, graphs: Sequence[Graph], name: str) -> Sequence[Executable]:
        """Executables of `graphs`, in order. `name` goes into log and dump.

        Graphs with a kernel that would compute with complex numbers run op by op on the device.
        """
        try:
            return _load(self.artefact(graphs, name), _number(graphs))
        except NoComplexError as error:
            log.warn_once(f"complex {name}", f"{name} runs op by op: {error.what}")
            return INTERPRETERS["aot_eager"].compile(graphs, name)

    def artefact(self, graphs: Sequence[Graph], name: str) -> Entry:
        """The files of what `graphs` are compiled to. Raises NoComplexError for kernels of complex numbers."""
        toolchain, opened = host_toolchain(), come_in_many_sizes() and not self.tuned

        def build(folder: Path) -> Manifest:
            make = partial(_build, folder, graphs, name, toolchain, self.capability, tuned=self.tuned)
            try:
                return make(opened=opened)
            except BackendError as error:
                if not opened:
                    raise
                made = make(opened=False)
                what = "kernels are compiled for each size: where sizes are variables, Triton refuses one"
                log.warn_once(f"many sizes {error.got}", f"{what}: {error.got}")
                return made

        tuned_for = _tuned_for(_number(graphs)) if self.tuned else ""
        key = artefact_key(graphs, toolchain, self.capability, tuned_for, opened=opened)
        return load_or_build(key, build)


def _judge(name: str, attrs: Mapping[str, Any], arrays: tuple[Strided, ...]) -> bool:
    """Whether the kernels of a routine take a call on these arrays (the last one: its result)."""
    kernels = ROUTINES[name].kernels
    why = "it has no kernels" if kernels is None else kernels.refuses(arrays[:-1], attrs)
    if why:
        log.emit("fusion", f"{name} is windows and products: {why}")
    return not why


class TunedBackend:
    """Backend "tuned", and mode "max-autotune-no-cudagraphs": kernels of a CUDA device are cut as measured.

    Graphs of the CPU are compiled as by "codegen".
    """

    name = "tuned"
    announces = launches = hosts = True

    def lay_out(self, graph: Graph) -> Graph:
        return NativeBackend().lay_out(graph)

    def compile(self, graphs: Sequence[Graph], name: str) -> Sequence[Executable]:
        """Executables of `graphs`, in order. `name` goes into log and dump."""
        return NativeBackend(tuned=True).compile(graphs, name)


class CudaGraphsBackend:
    """Backend "cudagraphs", and mode "reduce-overhead": programs of a CUDA device are replayed as CUDA graphs.

    Graphs of the CPU are compiled as by "codegen". A graph that is replayed tells nobody how far it is: where buckets
    of gradients leave, the backward is cut into several.
    """

    name = "cudagraphs"
    announces, launches, hosts = False, True, True
    inner: Backend = NativeBackend()

    def lay_out(self, graph: Graph) -> Graph:
        return self.inner.lay_out(graph)

    def compile(self, graphs: Sequence[Graph], name: str) -> Sequence[Executable]:
        """Executables of `graphs`, in order. `name` goes into log and dump."""
        made = self.inner.compile(graphs, name)
        return [Replaying(run) if isinstance(run, CudaExecutable) else run for run in made]


class TunedGraphsBackend(CudaGraphsBackend):
    """Backend "tuned-cudagraphs", and mode "max-autotune": both."""

    name = "tuned-cudagraphs"
    inner = TunedBackend()


def _number(graphs: Sequence[Graph]) -> int | None:
    """The device that the graphs are of; None: the current one at each call."""
    number = graphs[0].device.partition(":")[2] if graphs else ""
    return int(number) if number else None


def host_toolchain() -> Toolchain:
    """The C++ compiler with flags for code that only calls: quick to compile."""
    found = find_toolchain()
    return replace(found, flags=(*found.flags, "-O1"))


def _tuned_for(number: int | None) -> str:
    """The kind of device that tiles are measured on; there may be none."""
    if cuda.why_not():
        return "no device"
    place = cuda.current() if number is None else number
    return str(cuda.module().cuda.runtime.getDeviceProperties(place)["name"].decode())


def artefact_key(
    graphs: Sequence[Graph], toolchain: Toolchain, capability: int, tuned_for: str = "", *, opened: bool = False
) -> str:
    """The cache key of `graphs` compiled together. Computed from text; needs no lowering, and no Triton.

    tuned_for: the kind of device whose measured tiles are in it, "" for the rule's.
    """
    libraries = library_for(graphs, capability)
    if cuda.precision.tf32 and any(map(attends_f32, graphs)):  # cuBLAS is told at each call
        libraries += ", tf32"
    return make_key(
        {
            # one artefact serves all devices of a kind
            "graphs": "\n".join(print_graph(replace(graph, device="cuda")) for graph in graphs),
            "many sizes": str(opened),
            "knobs": repr(config.codegen_key()),
            "toolchain": toolchain.key(),
            "generator": generator_fingerprint(),
            "target": f"cuda {capability}, Triton {_triton_version()}, tuned for {tuned_for or 'none'}, {libraries}",
        }
    )


def _triton_version() -> str:
    """Without importing it; "none" where it is missing, which matters on a miss only."""
    try:
        return version("triton")
    except PackageNotFoundError:
        return "none"


def _build(
    folder: Path, graphs: Sequence[Graph], name: str, tools: Toolchain, capability: int, *, tuned: bool, opened: bool
) -> Manifest:
    """Everything that a cache hit skips. The heavy imports are here. opened: the code is one that sizes may share."""
    from compiler_core.codegen.cuda.cubins import Wanted, compile_cubins, share_cubins
    from compiler_core.codegen.cuda.launcher import print_launcher
    from compiler_core.codegen.cuda.plan import aligned_parameters, make_plan
    from compiler_core.codegen.cuda.workers import Workers
    from compiler_core.runtime.cuda.products import choose_on

    with Workers(folder, early=not opened) as workers:
        programs = _programs(graphs, name, capability, opened=opened)
        said: list[str] = []
        where = (capability, workers, _number(graphs), said)
        tiles = _measured_tiles(name, folder, programs, where) if tuned else {}
        module = _emitted(name, programs, tiles, partial(_at_other_sizes, name, capability) if opened else None)
        aligned = aligned_parameters(programs, module)
        launches = list({one.function: one for made in module.launches.values() for one in made}.values())
        wanted = [Wanted(launch, aligned[launch.function]) for launch in launches]
        plans = [make_plan(program, graph, module) for program, graph in zip(programs, graphs, strict=True)]
        source = print_launcher(programs, plans, module, opened=opened)
        record(name, "emit", lambda: source, part="launcher", artefact="code")
        products = list(dict.fromkeys(product for plan in plans for product in plan.products))
        compile_them = partial(share_cubins, version=_triton_version()) if opened else compile_cubins
        cubins_of = partial(compile_them, module, wanted, capability, folder, workers)
        build = partial(_build_launcher, source, folder, tools, opened=opened)
        measure = partial(choose_on, products if config.measure else [], _number(graphs), by_class=opened)
        compiled, numbers, chosen = _side_by_side(name, cubins_of, build, measure)
    cubins = {launch.function: cubin for launch, cubin in zip(launches, compiled, strict=True)}
    offsets = write_constants(folder / CONSTANTS, programs)
    parts = zip(programs, graphs, plans, offsets, strict=True)
    return {
        "entries": [_row(*part, module, cubins, chosen, numbers) for part in parts],
        "cubins": {function: cubin.to_json() for function, cubin in cubins.items()},
        "tuning": said + chosen.said,
    }


def _build_launcher(source: str, folder: Path, toolchain: Toolchain, *, opened: bool) -> tuple[int, ...]:
    """Put the library and its source into the folder. The numbers of code for many sizes."""
    from compiler_core.runtime.build import build_library

    units: dict[str, str] = {"launcher": source}
    numbers: tuple[int, ...] = ()
    if opened:
        units, numbers = share_library(units, folder / LIBRARY, toolchain)
    else:
        build_library(units, folder / LIBRARY, toolchain)
    (folder / SOURCE).write_text(units["launcher"])
    return numbers


def _programs(graphs: Sequence[Graph], name: str, capability: int, *, opened: bool) -> list[Program]:
    """The graphs, lowered and scheduled for a GPU; what cuDNN computes is left to it where that is asked for."""
    from compiler_core.lowering.target import GPU
    from compiler_core.schedule.from_graphs import lower_and_schedule

    target = replace(GPU, many_sizes=opened, stacked=_stacked(graphs))
    programs = with_symbols(lower_and_schedule(graphs, name, target), named=not opened)
    if library_for(graphs, capability):
        with compiling(name, "cudnn"):
            programs = [by_cudnn(program) for program in programs]
    return programs


def _stacked(graphs: Sequence[Graph]) -> frozenset[str]:
    """What a forward, compiled with what comes after it, makes: it is told of a stack in which that is to lie."""
    first, *others = graphs
    is_forward = not any(node.role in OF_BACKWARDS for node in first.inputs)
    return frozenset(node.name for node in first.outputs) if others and is_forward else frozenset()


def _emitted(
    name: str, programs: Sequence[Program], tiles: dict[str, Tile], others: Callable[[], Iterable[TritonModule]] | None
) -> TritonModule:
    """The kernels as Triton's, with those written by hand that the programs call. others: of one that sizes may share,
    the modules at other sizes."""
    from compiler_core.codegen.triton import many_sizes

    with compiling(name, "emit"):
        module = _printed(programs, tiles)
        if others is not None:
            module = many_sizes.opened(module, many_sizes.SEEN, others, are_round=sizes_are_round())
    record(name, "emit", lambda: module.source, part="triton", artefact="code")
    return module


def _kernels(programs: Sequence[Program]) -> list[Kernel]:
    return list(dict.fromkeys(kernel for program in programs for kernel in program.kernels))


def _printed(programs: Sequence[Program], tiles: dict[str, Tile]) -> TritonModule:
    from compiler_core.codegen.triton.handwritten import with_routines
    from compiler_core.codegen.triton.module import print_module
    from compiler_core.loop_ir.ir import RoutineCall

    calls = [step for program in programs for step in program.steps if isinstance(step, RoutineCall)]
    return with_routines(print_module(_kernels(programs), tiles), calls)


def _at_other_sizes(name: str, capability: int) -> list[TritonModule]:
    return made_elsewhere(name, lambda graphs: _printed(_programs(graphs, name, capability, opened=True), {}))


def _side_by_side(
    name: str,
    compile_cubins: Callable[[], list[Cubin]],
    build: Callable[[], tuple[int, ...]],
    measure: Callable[[], Choices],
) -> tuple[list[Cubin], tuple[int, ...], Choices]:
    """Cubins are compiled here while two threads build the launcher and measure the products' algorithms."""
    with ThreadPoolExecutor(2) as beside:
        built, measured = beside.submit(build), beside.submit(measure)
        with compiling(name, "cubins"):
            compiled = compile_cubins()
        with compiling(name, "build"):
            numbers = built.result()
        with compiling(name, "measure"):
            chosen = measured.result()
    return compiled, numbers, chosen


def _measured_tiles(
    name: str,
    folder: Path,
    programs: Sequence[Program],
    where: tuple[int, Workers, int | None, list[str]],
) -> dict[str, Tile]:
    """where: the capability, what compiles, the device that measures, and the lines that are to be said of it."""
    from compiler_core.codegen.cuda.plan import aligned_parameters
    from compiler_core.codegen.cuda.tune import choose_tiles
    from compiler_core.codegen.triton.module import print_module

    capability, workers, number, said = where
    with compiling(name, "tune"), TemporaryDirectory(dir=folder) as apart:
        kernels = _kernels(programs)
        aligned = aligned_parameters(programs, print_module(kernels))
        return choose_tiles(kernels, aligned, capability, Path(apart), workers, number, _triton_version(), said.append)


def _row(
    program: Program,
    graph: Graph,
    plan: LaunchPlan,
    constants: Any,
    module: TritonModule,
    cubins: dict[str, Cubin],
    chosen: Choices,
    numbers: tuple[int, ...],
) -> dict[str, Any]:
    """What the artefact keeps of one program."""
    from compiler_core.codegen.step_costs import step_costs

    entry = replace(
        _describe(program, graph, plan, module, cubins),
        choices=tuple(chosen.algorithms.get(product) for product in plan.products),
        measured_on=chosen.place,
        numbers=numbers,
    )
    return entry.to_json() | {"constants": constants, "costs": [cost.to_json() for cost in step_costs(program)]}


def _describe(
    program: Program, graph: Graph, plan: LaunchPlan, module: TritonModule, cubins: dict[str, Cubin]
) -> CudaEntry:
    from compiler_core.graph.effects import has_only_collectives
    from compiler_core.schedule.over_inputs import over_inputs

    may_be = (
        () if plan.callbacks else over_inputs(program, lambda _: False, only_collectives=has_only_collectives(graph))
    )
    return CudaEntry(
        program.name,
        tuple(node.meta for node in graph.inputs),
        tuple(node.meta for node in graph.outputs),
        plan.nbytes,
        plan.status,
        plan.host,
        plan.workspace,
        plan.staged,
        module.messages,
        tuple(_step_text(step) for step in program.steps),
        plan.symbols,
        plan.callbacks,
        tuple(
            CudaFunction(c.file, c.name, c.shared, c.threads, c.overlaps)
            for c in map(cubins.__getitem__, plan.functions)
        ),
        tuple(place for event in graph.signals for place in event),
        tuple(place for event in graph.waits for place in event),
        tuple(
            k for k, buffer in enumerate(program.buffers[: len(graph.inputs)]) if buffer.kind in ("spent", "stacked")
        ),
        plan.products,
        planned=plan.planned,
        stack=tuple((k, b.offset) for k, b in enumerate(program.buffers[: len(graph.inputs)]) if b.kind == "stacked"),
        over_inputs=tuple(pair for pair in may_be if pair[0] not in graph.hosted),
        fetched=tuple(k for k, node in enumerate(graph.inputs) if node.role == "hosted"),
        sent=graph.hosted,
    )


def _step_text(step: Any) -> str:
    """What a step is called, and the first line of its note, which ends in the user's line."""
    kind = getattr(step, "kernel", None) or getattr(step, "routine", None)
    note = step.note.splitlines()[0] if step.note else ""
    return f"{kind.name if kind is not None else type(step).__name__.lower()} ({note})"


def _load(entry: Entry, number: int | None) -> list[CudaExecutable]:
    for line in entry.manifest["tuning"]:
        log.emit("tuning", line)
    library = load_library(entry.file(LIBRARY))
    data = entry.read(CONSTANTS)
    files = {row[0] for row in entry.manifest["cubins"].values()}
    cubins = {file: entry.read(file) for file in files}
    return [
        CudaExecutable(
            CudaEntry.from_json(row),
            library,
            cubins,
            read_constants(data, row["constants"]),
            number,
            [StepCost(*cost) for cost in row["costs"]],
        )
        for row in entry.manifest["entries"]
    ]


NATIVE["cudagraphs"].fill(CudaGraphsBackend)
NATIVE["tuned"].fill(TunedBackend)
NATIVE["tuned-cudagraphs"].fill(TunedGraphsBackend)
