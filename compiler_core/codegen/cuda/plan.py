"""What a program on a CUDA device is given besides its arguments: its block of device memory, and its table `lib`.

In: a `Program` and the module of its kernels. Out: `LaunchPlan`: the offsets of the block's parts, and the
table's rows.

    block    arena | status word | host inputs | scratch of the launch or call that needs most | cuBLAS's workspace
             each part starts on `ALIGNMENT` bytes; a part that is not needed has no bytes
    lib      addresses of the driver's and the libraries' functions, calls back, plans of cuDNN's, CUfunctions: each in
             order of first use
Host inputs: what may come as an array of the host's memory (0-d values, random keys, scales): copied there at a call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from compiler_core.codegen.triton.handwritten import call_name, has_kernels
from compiler_core.codegen.triton.module import Launch, TritonModule
from compiler_core.graph.ir import Graph, Placeholder
from compiler_core.graph.print import print_attrs
from compiler_core.loop_ir.ir import KernelCall, Program, RoutineCall, Step, slots_of
from compiler_core.ops.linear_algebra.gemm_product import Product
from compiler_core.ops.routine import CudaCall
from compiler_core.records import dataclass
from compiler_core.runtime.callback import Callback
from compiler_core.runtime.cuda.entry import WORKSPACE_NBYTES

ALIGNMENT = 256  # bytes: as CUDA's own allocations
STATUS_NBYTES = 4
_HOST_ROLES = ("rng", "scale")


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """Offsets into the block, in bytes; -1: there is no such part. staged: input -> its offset in the part of host
    inputs. scratch: at which offset scratch begins; nbytes: of the block. lib: see the file's head.
    products: cuBLASLt's, in order of first use."""

    status: int
    host: int
    staged: Mapping[int, int]
    scratch: int
    workspace: int
    nbytes: int
    symbols: tuple[str, ...]
    callbacks: tuple[Callback, ...]
    planned: tuple[Callback, ...]
    functions: tuple[str, ...]
    products: tuple[Product, ...]


def make_plan(program: Program, graph: Graph, module: TritonModule) -> LaunchPlan:
    """The plan of `program`, which computes `graph`."""
    launches = launches_of(program, module)
    routines = [step for step in program.steps if isinstance(step, RoutineCall)]
    symbols = symbols_of(program, launches)
    staged, host_nbytes = _staged(graph.inputs)
    at = _round_up(int(program.arena_nbytes))
    places: list[int] = []
    uses_cublas = any(name.startswith("cublas") for name in symbols)
    status_nbytes = STATUS_NBYTES if any(launch.has_status for launch in launches) else 0
    calls = [(step, call) for step in routines if not launched_name(step) and (call := cuda_call_of(step))]
    wanted = [scratch_of(launch)[1] for launch in launches] + [call.scratch(dict(step.attrs)) for step, call in calls]
    scratch_nbytes = max(wanted, default=0)
    for nbytes in (status_nbytes, host_nbytes, scratch_nbytes, WORKSPACE_NBYTES if uses_cublas else 0):
        places.append(at if nbytes else -1)
        at = _round_up(at + nbytes)
    backs = tuple(_callback(step) for step in routines if not launched_name(step) and cuda_call_of(step) is None)
    planned = tuple(_callback(step) for step, call in calls if call.planned)
    functions = tuple(dict.fromkeys(launch.function for launch in launches))
    status, host, scratch, workspace = places
    products = tuple(dict.fromkeys(found for step in program.steps if (found := product_of(step))))
    return LaunchPlan(status, host, staged, scratch, workspace, at, symbols, backs, planned, functions, products)


def launches_of(program: Program, module: TritonModule) -> list[Launch]:
    """The launches of `program`, in order."""
    names = [name for step in program.steps if (name := launched_name(step))]
    return [launch for name in names for launch in module.launches[name]]


def launched_name(step: Step) -> str:
    """Under what name `TritonModule.launches` has the launches of this step; "" if it launches nothing."""
    if isinstance(step, KernelCall):
        return step.kernel.name
    return call_name(step) if isinstance(step, RoutineCall) and has_kernels(step) else ""


def cuda_call_of(step: RoutineCall) -> CudaCall | None:
    """The library call of a routine that has no kernels; None: its definition is called back."""
    call = step.routine.cuda
    layouts = tuple(view.layout for view in step.operands)
    return call if call is not None and call.takes(layouts, step.result.layout, dict(step.attrs)) else None


def product_of(step: Step) -> Product | None:
    """What cuBLASLt is asked for, once for all equal steps: matrices that start on 16 bytes; None: nothing."""
    if not isinstance(step, RoutineCall) or launched_name(step) or (call := cuda_call_of(step)) is None:
        return None
    views = (*step.operands, step.result)
    is_aligned = all(int(v.slot.offset) * v.layout.dtype.itemsize % 16 == 0 for v in views if v.layout.shape)
    return (
        call.product(tuple(v.layout for v in step.operands), step.result.layout, dict(step.attrs))
        if is_aligned
        else None
    )


def symbols_of(program: Program, launches: Sequence[Launch]) -> tuple[str, ...]:
    """The C functions that `program` calls, once each, in order of first use."""
    names: list[str] = []
    if any(launch.has_status for launch in launches):
        names.append("cuMemsetD32Async")
    if launches:
        names += ["cuLaunchKernel", "cuLaunchKernelEx"]
    for step in program.steps:
        if isinstance(step, RoutineCall) and not launched_name(step) and (call := cuda_call_of(step)):
            names += call.symbols(tuple(view.layout for view in step.operands), step.result.layout, dict(step.attrs))
    return tuple(dict.fromkeys(names))


def scratch_of(launch: Launch) -> tuple[tuple[int, ...], int]:
    """The offsets of a launch's common and own scratch arrays in scratch memory, and how many bytes these take."""
    offsets, at = [], 0
    sizes = [(array, 1) for array in launch.common] + [(array, launch.programs) for array in launch.scratch]
    for array, times in sizes:
        offsets.append(at)
        at = _round_up(at + array.numel * times * array.dtype.itemsize)
    return tuple(offsets), at


def aligned_parameters(programs: Iterable[Program], module: TritonModule) -> dict[str, tuple[int, ...]]:
    """For each function, which parameters start on 16 bytes at every call; scratch and status always do.

    Inputs and outputs of a program do so as a whole: the executable sees to that. Of numbers: `Launch.multiples`.
    """
    unaligned: dict[str, set[int]] = {}
    for program in programs:
        sizes = {buffer.name: (buffer.offset, buffer.dtype.itemsize) for buffer in program.buffers}
        for step in program.steps:
            if name := launched_name(step):
                found = unaligned.setdefault(name, set())
                for place, slot in enumerate(slots_of(step)):
                    offset, itemsize = sizes[slot.buffer]
                    if (offset + int(slot.offset) * itemsize) % 16:
                        found.add(place)
    aligned: dict[str, tuple[int, ...]] = {}
    for name, launches in module.launches.items():
        for launch in launches:  # several calls may be of one function
            odd, among = unaligned.get(name, set()) | _odd(launch), range(len(launch.signature))
            aligned[launch.function] = tuple(k for k in aligned.get(launch.function, among) if k not in odd)
    return aligned


def _odd(launch: Launch) -> set[int]:
    """The places of numbers that are not compiled as multiples of 16. Numbers come last."""
    first = len(launch.signature) - len(launch.numbers)
    return {first + place for place in range(len(launch.numbers)) if place not in launch.multiples}


def _callback(step: RoutineCall) -> Callback:
    layouts = tuple(view.layout for view in (*step.operands, step.result))
    return Callback(step.routine.name, print_attrs(dict(step.attrs)), layouts)


def _staged(inputs: Sequence[Placeholder]) -> tuple[dict[int, int], int]:
    offsets: dict[int, int] = {}
    at = 0
    for k, node in enumerate(inputs):
        if not node.shape or node.role in _HOST_ROLES:
            offsets[k] = at
            at = at + -(-max(node.meta.nbytes, 1) // 16) * 16
    return offsets, at


def _round_up(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
