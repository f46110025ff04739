"""The host function of each program: C++ that launches its kernels and calls cuBLAS, in order, on one stream.

In: programs, the module of their kernels, their plans (plan.py). Out: `print_launcher`: one translation unit; `opened`:
for many sizes, to be filled (codegen/cpp/many_sizes.py).

    int32_t ENTRY(void** args, char* arena, const void* const* lib, dc_gpu* gpu)
        args: addresses on the device of inputs, constants, outputs, in that order; arena: the block of plan.py.
        0: all is enqueued.
        events.FAILED, callback.RAISED: as on the CPU. CALL_FAILED: `gpu` says which call returned what, at which step

Nothing of CUDA's is included or linked: the functions come by address, their forms are those of the driver's manual.
A signal is given when the work before it is enqueued: who hears it records an event on the stream. A wait is asked
before the work behind it is enqueued: who hears it makes the stream wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import count

from compiler_core.codegen.cpp.entry import buffer_line, placed_buffers
from compiler_core.codegen.cpp.helpers import TYPES
from compiler_core.codegen.cpp.many_sizes import REAL, TABLE
from compiler_core.codegen.cpp.names import with_identifiers
from compiler_core.codegen.cpp.routine import c_array, call_back, slot_text
from compiler_core.codegen.cuda.cubins import EXTRA
from compiler_core.codegen.cuda.plan import LaunchPlan, cuda_call_of, launched_name, product_of, scratch_of
from compiler_core.codegen.triton.module import Launch, TritonModule
from compiler_core.events import FAILED
from compiler_core.loop_ir.ir import KernelCall, Program, RoutineCall, Signal, Step, Wait, slots_of
from compiler_core.ops.routine import CCall
from compiler_core.records import dataclass
from compiler_core.runtime.cuda.entry import CALL_FAILED

ONE_PART = 96  # steps up to which an entry stays one function, as codegen/cpp/entry.py
PART_STEPS = 32
_PARAMETERS = "void** args, char* arena, const void* const* lib, dc_gpu* gpu"
_VISIBLE = 'extern "C" __attribute__((visibility("default")))'

PRELUDE = f"""\
struct dc_events {{ void* self; void (*signal)(void* self, int64_t k); int32_t (*wait)(void* self, int64_t k); }};
// One call's surroundings: where work goes; cuBLAS's handle, and 0 and 1 as f32 and f64 on the device; whether f32 may
// be multiplied in tf32; who hears events; what cuBLASLt is given, two rows a product, and its memory; cuDNN's handle;
// if steps are measured, cuEventRecord and an event for the end of each; of copies to and from the host the stream
// (ops/host_copies.py), and two events for each. Out: the call that failed, what it returned,
// the step of the program.
// of a kernel: threads of a block, bytes of shared memory, whether it may come while the kernel before it ends
struct dc_block {{ uint32_t threads, shared, overlaps; }};
struct dc_product {{ void *description, *a, *b, *d; uint64_t algorithm[8]; }};  // cuBLASLt's; null: it has none
struct dc_gpu {{
  void* stream; void* blas; const void* units; int64_t tf32; const dc_events* events;
  const char* call; int64_t code; int64_t step; const dc_block* blocks;
  const dc_product* products; void* workspace; uint64_t workspace_nbytes; void* dnn;
  int32_t (*record)(void* event, void* stream); void* const* marks; void* const* copies;
}};
static inline void dc_mark(const dc_gpu* gpu, int32_t step) {{
  if (gpu->marks) gpu->record(gpu->marks[step], gpu->stream);
}}
static inline int32_t dc_done(dc_gpu* gpu, int32_t step, const char* call, int32_t code) {{
  if (code == 0) return 0;
  gpu->call = call;
  gpu->code = code;
  gpu->step = step;
  return {CALL_FAILED};
}}
typedef int32_t (*dc_memset)(const void*, uint32_t, uint64_t, void*);
struct dc_attribute {{ uint32_t id, none; uint32_t value[16]; }};  // CUlaunchAttribute
struct dc_config {{ uint32_t grid[3], block[3], shared; void* stream; dc_attribute* attributes; uint32_t count; }};
// `programs` blocks; the arguments are addresses, or a number's bits. More than the kernel takes may be given: Triton's
// own come last.
template <class... A>
static inline int32_t dc_launch(dc_gpu* gpu, int32_t step, const void* launch, const void* launch_with,
                                const void* function, dc_block block, uint32_t programs, A... arguments) {{
  typedef int32_t (*call)(const void*, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, void*,
                          void**, void**);
  typedef int32_t (*call_with)(const dc_config*, const void*, void**, void**);
  const void* values[] = {{arguments...}};
  void* places[sizeof...(A)];
  for (uint64_t k = 0; k < sizeof...(A); ++k) places[k] = &values[k];
  if (block.overlaps) {{
    dc_attribute overlap = {{6, 0, {{1}}}};  // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    const dc_config config = {{{{programs, 1, 1}}, {{block.threads, 1, 1}}, block.shared, gpu->stream, &overlap, 1}};
    return dc_done(gpu, step, "cuLaunchKernelEx", ((call_with)launch_with)(&config, function, places, nullptr));
  }}
  return dc_done(gpu, step, "cuLaunchKernel",
                 ((call)launch)(function, programs, 1, 1, block.threads, 1, 1, block.shared, gpu->stream, places,
                                nullptr));
}}
"""


@dataclass
class LauncherPrinter:
    """Prints the entry of one program."""

    program: Program
    plan: LaunchPlan
    launches: Mapping[str, tuple[Launch, ...]]
    helpers: dict[str, None] = field(default_factory=dict)  # of the library calls, once each, added to
    opened: bool = False

    def __post_init__(self) -> None:
        self.program = with_identifiers(self.program)  # the kernels in it are the same objects still
        self.addresses = dict(placed_buffers(self.program))
        self._backs = count(len(self.plan.symbols))
        self._plans = count(len(self.plan.symbols) + len(self.plan.callbacks))

    def lines(self) -> Iterator[str]:
        """The functions, the entry last."""
        name, steps = self.program.name, list(enumerate(self.program.steps))
        if len(steps) <= ONE_PART:
            yield from self._function(f"{_VISIBLE}\nint32_t {name}", self.addresses, steps, is_first=True)
            return
        parts = [steps[first : first + PART_STEPS] for first in range(0, len(steps), PART_STEPS)]
        for number, part in enumerate(parts):
            used = dict.fromkeys(slot.buffer for _, step in part for slot in slots_of(step))
            yield from self._function(f"static int32_t {name}_part{number}", used, part, is_first=number == 0)
        yield f"{_VISIBLE}\nint32_t {name}({_PARAMETERS}) {{"
        for number in range(len(parts)):
            yield f"  if (const int32_t status = {name}_part{number}(args, arena, lib, gpu)) return status;"
        yield from ("  return 0;", "}", "")

    def _function(
        self, head: str, used: Mapping[str, object], steps: Sequence[tuple[int, Step]], *, is_first: bool
    ) -> Iterator[str]:
        yield f"{head}({_PARAMETERS}) {{"
        yield from TABLE if self.opened else ()
        buffers = {buffer.name: buffer for buffer in self.program.buffers}
        yield from (buffer_line(buffers[name], self.addresses[name]) for name in used)
        if is_first and self.plan.status >= 0:
            clear = f"((dc_memset){self._symbol('cuMemsetD32Async')})(arena + {self.plan.status}, 0, 1, gpu->stream)"
            yield f'  if (const int32_t status = dc_done(gpu, 0, "cuMemsetD32Async", {clear})) return status;'
        for number, step in steps:
            if step.note:
                yield f"  // {step.note.splitlines()[0]}"
            yield from self._step(number, step)
            yield f"  dc_mark(gpu, {number});"
        yield from ("  return 0;", "}", "")

    def _step(self, number: int, step: Step) -> Iterator[str]:
        match step:
            case KernelCall() | RoutineCall() if name := launched_name(step):
                for launch in self.launches[name]:
                    yield from self._launch(number, step, launch)
            case RoutineCall():
                yield from self._routine(number, step)
            case Signal(event, names):
                heard = "if (const dc_events* const events = gpu->events)"
                yield f"  {heard} events->signal(events->self, {event});  // {', '.join(names)}"
            case Wait(event, names):
                heard = "if (const dc_events* const events = gpu->events)"
                yield f"  {heard} if (events->wait(events->self, {event})) return {FAILED};  // {', '.join(names)}"

    # -- kernels

    def _launch(self, number: int, step: Step, launch: Launch) -> Iterator[str]:
        if not launch.programs:
            return
        place = self.plan.functions.index(launch.function)
        function = f"lib[{self._first_function + place}] /* {launch.function} */, gpu->blocks[{place}]"
        yield f"  if (const int32_t status = dc_launch(gpu, {number}, {self._symbol('cuLaunchKernel')},"
        yield f"          {self._symbol('cuLaunchKernelEx')}, {function},"
        yield f"          {', '.join([str(launch.programs), *self._arguments(step, launch)])})) return status;"

    def _arguments(self, step: Step, launch: Launch) -> Iterator[str]:
        yield from map(slot_text, slots_of(step))
        offsets, _ = scratch_of(launch)
        yield from (f"arena + {self.plan.scratch + offset}" for offset in offsets)
        if launch.has_status:
            yield f"arena + {self.plan.status}"
        yield from (f"(const void*){number}" for number in launch.numbers)
        yield from ["(const void*)nullptr"] * EXTRA

    @property
    def _first_function(self) -> int:
        return len(self.plan.symbols) + len(self.plan.callbacks) + len(self.plan.planned)

    # -- routines

    def _symbol(self, name: str) -> str:
        return f"lib[{self.plan.symbols.index(name)}] /* {name} */"

    def _routine(self, number: int, step: RoutineCall) -> Iterator[str]:
        call = cuda_call_of(step)
        if call is None:
            yield from call_back(step, next(self._backs))
            return
        self.helpers[call.helper] = None
        arrays = tuple(map(c_array, (*step.operands, step.result)))
        *operands, result = arrays
        attrs = dict(step.attrs)
        found = product_of(step)
        place = f"gpu->products + {2 * self.plan.products.index(found)}" if found else ""
        plan = f"lib[{next(self._plans)}]" if call.planned else ""
        scratch = f"arena + {self.plan.scratch}" if call.scratch(attrs) else "nullptr"
        given, gpu = tuple(operands), f"gpu, {number}"
        made = CCall(given, result, attrs, self._symbol, plan, scratch, device=gpu, product=place)
        yield from call.emit(made)


def print_launcher(
    programs: Sequence[Program], plans: Sequence[LaunchPlan], module: TritonModule, *, opened: bool = False
) -> str:
    """The text of the functions that run `programs`, whose names differ and are C++ identifiers."""
    helpers: dict[str, None] = {}
    bodies: list[str] = []
    for program, plan in zip(programs, plans, strict=True):
        bodies += LauncherPrinter(program, plan, module.launches, helpers, opened).lines()
    return "\n".join([TYPES, PRELUDE, *[REAL] * opened, *helpers, *bodies])
