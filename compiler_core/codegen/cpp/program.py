"""Programs of the loop IR as C++ translation units that share their kernels.

In: the `Program`s of one compilation. Out: `Source`: the text of each unit, and the messages of failed checks.

    unit "main"   prelude, kernels, declarations of the others, routines' helpers, each program's entry (entry.py)
    unit "more"   prelude, the other kernels: only if there are enough to be worth a second compiler process
Invariants: kernels that are the same object become one function; a message has one number in the whole source; the text
depends on the programs alone, so equal programs give equal source.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from compiler_core.codegen.cpp.entry import PROFILE, EntryPrinter
from compiler_core.codegen.cpp.helpers import TYPES, helper_text, libm_declarations
from compiler_core.codegen.cpp.many_sizes import PRELUDE
from compiler_core.codegen.cpp.routine import natives_of, routine_helpers, slot_text
from compiler_core.codegen.cpp.scalars import Used
from compiler_core.codegen.cpp.shared_call import SharedCalls
from compiler_core.codegen.cpp.statements import KernelPrinter, signature
from compiler_core.loop_ir.ir import Kernel, KernelCall, Program
from compiler_core.ops.routine import Native
from compiler_core.runtime.executor import CALL_HELPER

SPLIT_LINES = 150  # kernel lines above which a second unit pays
ENTRY_CHARS = 16  # characters of an entry that take as long to compile as one of a kernel

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

    opened: bool = False  # for many sizes (many_sizes.py)
    messages: dict[str, int] = field(default_factory=dict)
    printed: dict[int, _Printed] = field(default_factory=dict)  # id of the kernel object -> text
    names: set[str] = field(default_factory=set)
    shared: SharedCalls = field(default_factory=SharedCalls)

    @staticmethod
    def of(programs: Sequence[Program], *, opened: bool = False) -> SourcePrinter:
        """A printer that holds the kernels of `programs`."""
        printer = SourcePrinter(opened, shared=SharedCalls(opened=opened))
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
        printer = KernelPrinter(kernel, self.number, self.opened)
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
        """The functions that run `program`."""
        return EntryPrinter(program, self._kernel_call, self.shared, self.opened).lines()

    def _kernel_call(self, step: KernelCall) -> Iterator[str]:
        printed = self.printed[id(step.kernel)]
        given = [*(["dc_n"] if self.opened else []), *map(slot_text, step.slots)]
        call = f"{printed.name}({', '.join(given)})"
        if signature(step.kernel, "f").startswith("int32_t"):
            yield f"  if (const int32_t status = {call}) return status;"
        else:
            yield f"  {call};"


def print_source(programs: Sequence[Program], *, opened: bool = False) -> Source:
    """The C++ of `programs`, whose names must differ. opened: to be filled with numbers (many_sizes.py)."""
    printer = SourcePrinter.of(programs, opened=opened)
    entries = "\n".join(line for program in programs for line in printer.entry(program))
    kernels = list(printer.printed.values())
    first, second = (kernels, []) if opened else _split(kernels, len(entries) // ENTRY_CHARS)
    declarations = "".join(f"{signature(p.kernel, p.name)};\n" for p in second)
    natives = natives_of(programs)
    tail = [declarations, routine_helpers(natives), PROFILE, CALL_HELPER, "\n", *printer.shared.definitions(), entries]
    units = {"main": _unit(first, "".join(tail), _POOL + (PRELUDE if opened else ""), natives)}
    if second:
        units["more"] = _unit(second, "", "", ())
    return Source(units, tuple(printer.messages))


def _split(kernels: list[_Printed], ahead: int) -> tuple[list[_Printed], list[_Printed]]:
    """Two parts that take about as long to compile, or everything and nothing if a second unit does not pay.

    The length of a kernel's text stands for its time; the longest go first, each to the part that is shorter so far.
    ahead: what the first part has besides, as such a length.
    """
    if sum(printed.text.count("\n") for printed in kernels) < SPLIT_LINES:
        return kernels, []
    lengths, part = [ahead, 0], {}
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
