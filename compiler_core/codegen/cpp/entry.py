"""The entry function of a program: its steps, one call each, over the addresses of its buffers.

In: a `Program`, and how a kernel is called. Out: the lines of the functions that run it.

    few steps    one function
    many         parts of `PART_STEPS` steps each, static functions; the entry calls them

Routine calls that differ in addresses alone are calls of one function (shared_call.py).

Each step is a block that declares the buffers it uses: declared once for all steps, they lived across every call, and a
compiler spent most of its time on where to keep them. Its register allocation takes more than linear time in the length
of a function too: parts keep the time of a deep model's entry proportional to its layers.
With DC_PROFILE defined, every step adds its time to `ENTRY_seconds[step]`; events are steps too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from compiler_core.codegen.cpp.many_sizes import TABLE
from compiler_core.codegen.cpp.names import with_identifiers
from compiler_core.codegen.cpp.routine import RoutinePrinter
from compiler_core.codegen.cpp.shared_call import SharedCalls
from compiler_core.codegen.cpp.types import storage_type
from compiler_core.events import FAILED
from compiler_core.loop_ir.ir import Buffer, KernelCall, Program, RoutineCall, Signal, Step, Wait, slots_of
from compiler_core.records import dataclass

PART_STEPS = 32  # steps of a part
ONE_PART = 96  # steps up to which an entry stays one function
_PARAMETERS = "void** args, char* arena, const void* const* lib, const dc_events* events"
_VISIBLE = 'extern "C" __attribute__((visibility("default")))'

PROFILE = """\
#ifdef DC_PROFILE
extern "C" int clock_gettime(int clock, void* time) noexcept;
#ifdef __APPLE__
enum { dc_monotonic = 6 };
#else
enum { dc_monotonic = 1 };
#endif
static double dc_now() {
  int64_t t[2];
  clock_gettime(dc_monotonic, t);
  return (double)t[0] + 1e-9 * (double)t[1];
}
#define DC_STEPS(entry, count) \\
  extern "C" __attribute__((visibility("default"))) double entry##_seconds[count]; \\
  double entry##_seconds[count]
#define DC_BEGIN double dc_last = dc_now();
#define DC_TICK(entry, step) { const double now = dc_now(); entry##_seconds[step] += now - dc_last; dc_last = now; }
#else
#define DC_STEPS(entry, count) static_assert(true)
#define DC_BEGIN
#define DC_TICK(entry, step)
#endif
"""


@dataclass
class EntryPrinter:
    """Prints one entry. call_kernel: the lines that run a kernel. shared: the functions of equal routine calls.
    opened: for many sizes (many_sizes.py)."""

    program: Program
    call_kernel: Callable[[KernelCall], Iterator[str]]
    shared: SharedCalls
    opened: bool = False

    def __post_init__(self) -> None:
        self.program = with_identifiers(self.program)  # the kernels in it are the same objects still
        # equal calls at one size may differ at another: few steps, opened, keep one text for all
        is_shared = not self.opened or len(self.program.steps) > ONE_PART
        self.routines = RoutinePrinter(self.program, self.shared if is_shared else None)
        addresses = dict(placed_buffers(self.program))
        buffers = {buffer.name: buffer for buffer in self.program.buffers}
        self.declared = {name: buffer_line(buffers[name], address) for name, address in addresses.items()}

    def lines(self) -> Iterator[str]:
        """The functions, the entry last."""
        name, steps = self.program.name, list(enumerate(self.program.steps))
        yield f"DC_STEPS({name}, {max(len(steps), 1)});"
        if len(steps) <= ONE_PART:
            yield from self._function(f"{_VISIBLE}\n", name, steps)
            return
        parts = [steps[first : first + PART_STEPS] for first in range(0, len(steps), PART_STEPS)]
        for number, part in enumerate(parts):
            yield from self._function("static ", f"{name}_part{number}", part)
        yield f"{_VISIBLE}\nint32_t {name}({_PARAMETERS}) {{"
        for number in range(len(parts)):
            yield f"  if (const int32_t status = {name}_part{number}(args, arena, lib, events)) return status;"
        yield from ("  return 0;", "}", "")

    def _function(self, kind: str, name: str, steps: Sequence[tuple[int, Step]]) -> Iterator[str]:
        """A function that runs `steps`."""
        self.routines.writes = False
        lines = [line for number, step in steps for line in self._block(number, step)]
        calls = "" if self.routines.writes else "DC_CALLS "
        yield f"{kind}int32_t {calls}{name}({_PARAMETERS}) {{"
        yield from TABLE if self.opened else ()
        yield from ("  DC_BEGIN", *lines, "  return 0;", "}", "")

    def _block(self, number: int, step: Step) -> Iterator[str]:
        if step.note:
            yield f"  // {step.note.splitlines()[0]}"
        if used := dict.fromkeys(slot.buffer for slot in slots_of(step)):
            yield from ("  {", *map(self.declared.__getitem__, used), *self._step(step), "  }")
        else:
            yield from self._step(step)
        yield f"  DC_TICK({self.program.name}, {number})"

    def _step(self, step: Step) -> Iterator[str]:
        match step:
            case KernelCall():
                yield from self.call_kernel(step)
            case RoutineCall():
                yield from self.routines.lines(step)
            case Signal(event, names):
                yield f"  if (events) events->signal(events->self, {event});  // {', '.join(names)}"
            case Wait(event, names):
                yield f"  if (events && events->wait(events->self, {event})) return {FAILED};  // {', '.join(names)}"


def placed_buffers(program: Program) -> Iterator[tuple[str, str]]:
    """Every buffer with the C++ expression of its address: args hold inputs, constants, outputs, in that order. What is
    lent lies behind the first of the stacked inputs."""
    constants = [b.name for b in program.buffers if b.kind == "constant"]
    for position, name in enumerate([*program.inputs, *constants, *program.outputs]):
        yield name, f"args[{position}]"
    first = next((b.name for b in program.buffers if b.kind == "stacked" and not b.offset), "")
    for buffer in program.buffers:
        if buffer.kind == "temp":
            yield buffer.name, f"(arena + {buffer.offset})"
        elif buffer.kind == "lent":
            yield buffer.name, f"((char*)args[{program.inputs.index(first)}] + {buffer.offset})"


def buffer_line(buffer: Buffer, address: str) -> str:
    """The line that declares `buffer`."""
    const = "const " if buffer.kind in ("input", "constant") else ""
    ctype = f"{const}{storage_type(buffer.dtype)}*"
    return f"  {ctype} const {buffer.name} = ({ctype}){address};  // {buffer.dtype.short}[{buffer.numel}]"
