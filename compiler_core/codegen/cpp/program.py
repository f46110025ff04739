"""Programs of the loop IR as C++ translation units that share their kernels.

In: the `Program`s of one compilation. Out: `Source`: the text of each unit, and the messages of failed checks.

    unit "main"   prelude, kernels, declarations of the others, routines' helpers, one entry function per program
    unit "more"   prelude, the other kernels: only if there are enough to be worth a second compiler process
Invariants: kernels that are the same object become one function; a message has one number in the whole source; the text
depends on the programs alone, so equal programs give equal source.
With DC_PROFILE defined, every step adds its time to `ENTRY_seconds[step]`; events are steps too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from compiler_core.codegen.cpp.helpers import TYPES, helper_text, libm_declarations
from compiler_core.codegen.cpp.names import with_identifiers
from compiler_core.codegen.cpp.routine import RoutinePrinter, natives_of, routine_helpers, slot_text
from compiler_core.codegen.cpp.scalars import Used
from compiler_core.codegen.cpp.statements import KernelPrinter, signature
from compiler_core.codegen.cpp.types import storage_type
from compiler_core.events import FAILED
from compiler_core.loop_ir.ir import Buffer, Kernel, KernelCall, Program, RoutineCall, Signal, Step, Wait
from compiler_core.ops.routine import Native
from compiler_core.runtime.executor import CALL_HELPER

SPLIT_LINES = 150  # kernel lines above which a second unit pays

_PROFILE = """\
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
# where a library is given the pool (runtime/pool.py); until then loops run where they stand
_POOL = """\
static void dc_alone(int64_t n, int64_t, int64_t, dc_body run, void* f) { run(f, 0, n); }
extern "C" __attribute__((visibility("default"))) void (*dc_pool)(int64_t, int64_t, int64_t, dc_body, void*);
void (*dc_pool)(int64_t, int64_t, int64_t, dc_body, void*) = dc_alone;
"""


@dataclass(frozen=True, slots=True)
class Source:
    """units: file stem -> text. messages[k]: what check k says, the same for all entries."""

    units: dict[str, str]
    messages: tuple[str, ...]


@dataclass
class _Printed:
    """One kernel as text, with what it uses and the name it got."""

    kernel: Kernel
    name: str
    text: str
    used: Used


@dataclass
class SourcePrinter:
    """Collects kernels and messages over all programs."""

    messages: dict[str, int] = field(default_factory=dict)
    printed: dict[int, _Printed] = field(default_factory=dict)  # id of the kernel object -> text
    names: set[str] = field(default_factory=set)

    @staticmethod
    def of(programs: Sequence[Program]) -> SourcePrinter:
        """A printer that holds the kernels of `programs`."""
        printer = SourcePrinter()
        for program in programs:
            printer.add_kernels(program)
        return printer

    def number(self, message: str) -> int:
        return self.messages.setdefault(message, len(self.messages))

    def add_kernels(self, program: Program) -> None:
        for step in program.steps:
            if isinstance(step, KernelCall) and id(step.kernel) not in self.printed:
                self.printed[id(step.kernel)] = self._print(step.kernel, step.note)

    def _print(self, kernel: Kernel, note: str) -> _Printed:
        name = self._unique(kernel.name)
        printer = KernelPrinter(kernel, self.number)
        comment = "".join(f"// {line}\n" for line in note.splitlines())
        return _Printed(kernel, name, comment + printer.text(name), printer.used)

    def _unique(self, stem: str) -> str:
        stem = "k_" + "".join(c if c.isalnum() else "_" for c in stem)
        name, count = stem, 1
        while name in self.names:
            count += 1
            name = f"{stem}_{count}"
        self.names.add(name)
        return name

    def entry(self, program: Program) -> Iterator[str]:
        """The function that runs `program`."""
        program = with_identifiers(program)
        yield f"DC_STEPS({program.name}, {max(len(program.steps), 1)});"
        yield 'extern "C" __attribute__((visibility("default")))'
        yield f"int32_t {program.name}(void** args, char* arena, const void* const* lib, const dc_events* events) {{"
        yield from map(_buffer_line, _placed_buffers(program))
        yield "  DC_BEGIN"
        routines = RoutinePrinter(program)
        for number, step in enumerate(program.steps):  # the kernels in them are the same objects still
            if step.note:
                yield f"  // {step.note.splitlines()[0]}"
            yield from self._step(step, routines)
            yield f"  DC_TICK({program.name}, {number})"
        yield "  return 0;"
        yield "}"
        yield ""

    def _step(self, step: Step, routines: RoutinePrinter) -> Iterator[str]:
        match step:
            case KernelCall():
                yield from self._kernel_call(step)
            case RoutineCall():
                yield from routines.lines(step)
            case Signal(event, names):
                yield f"  if (events) events->signal(events->self, {event});  // {', '.join(names)}"
            case Wait(event, names):
                yield f"  if (events && events->wait(events->self, {event})) return {FAILED};  // {', '.join(names)}"

    def _kernel_call(self, step: KernelCall) -> Iterator[str]:
        printed = self.printed[id(step.kernel)]
        call = f"{printed.name}({', '.join(map(slot_text, step.slots))})"
        if signature(step.kernel, "f").startswith("int32_t"):
            yield f"  if (const int32_t status = {call}) return status;"
        else:
            yield f"  {call};"


def print_source(programs: Sequence[Program]) -> Source:
    """The C++ of `programs`, whose names must differ."""
    printer = SourcePrinter.of(programs)
    first, second = _split(list(printer.printed.values()))
    entries = "\n".join(line for program in programs for line in printer.entry(program))
    declarations = "".join(f"{signature(p.kernel, p.name)};\n" for p in second)
    natives = natives_of(programs)
    tail = [declarations, routine_helpers(natives), _PROFILE, CALL_HELPER, "\n", entries]
    units = {"main": _unit(first, "".join(tail), _POOL, natives)}
    if second:
        units["more"] = _unit(second, "", "", ())
    return Source(units, tuple(printer.messages))


def _split(kernels: list[_Printed]) -> tuple[list[_Printed], list[_Printed]]:
    """Two parts that take about as long to compile, or everything and nothing if a second unit does not pay.

    The length of a kernel's text stands for its time; the longest go first, each to the part that is shorter so far.
    """
    if sum(printed.text.count("\n") for printed in kernels) < SPLIT_LINES:
        return kernels, []
    lengths, part = [0, 0], {}
    for printed in sorted(kernels, key=lambda p: -len(p.text)):
        shorter = lengths.index(min(lengths))
        lengths[shorter] += len(printed.text)
        part[printed.name] = shorter
    first, second = ([p for p in kernels if part[p.name] == k] for k in (0, 1))
    return first, second


def _unit(kernels: Sequence[_Printed], tail: str, head: str, natives: Sequence[Native]) -> str:
    helpers = {name for printed in kernels for name in printed.used.helpers}.union(*(n.needs for n in natives))
    libm = {name for printed in kernels for name in printed.used.libm}.union(*(n.libm for n in natives))
    bodies = "\n".join(printed.text for printed in kernels)
    return "\n".join([TYPES + head, libm_declarations(libm), helper_text(helpers), bodies, tail])


def _placed_buffers(program: Program) -> Iterator[tuple[Buffer, str]]:
    """Every buffer with the C++ expression of its address: args hold inputs, constants, outputs, in that order."""
    buffers = {buffer.name: buffer for buffer in program.buffers}
    constants = [b.name for b in program.buffers if b.kind == "constant"]
    for position, name in enumerate([*program.inputs, *constants, *program.outputs]):
        yield buffers[name], f"args[{position}]"
    for buffer in program.buffers:
        if buffer.kind == "temp":
            yield buffer, f"(arena + {buffer.offset})"


def _buffer_line(placed: tuple[Buffer, str]) -> str:
    buffer, address = placed
    const = "const " if buffer.kind in ("input", "constant") else ""
    ctype = f"{const}{storage_type(buffer.dtype)}*"
    return f"  {ctype} const {buffer.name} = ({ctype}){address};  // {buffer.dtype.short}[{buffer.numel}]"
