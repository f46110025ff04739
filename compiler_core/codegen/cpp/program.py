"""Programs of the loop IR as C++ translation units that share their kernels.

In: the `Program`s of one compilation. Out: `Source`: the text of each unit, and the messages of failed checks.

    unit "main"   prelude, kernels, declarations of the others, routines' helpers, each program's entry (entry.py)
    "more", "more2", ...   prelude, the other kernels: as many units as there are cores that are to compile side by
                           side, and as kernels are worth compiler processes of their own
Invariants: kernels that are the same object become one function; a message has one number in the whole source; the text
depends on the programs and the number of units alone, so equal programs give equal source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import field

from compiler_core.codegen.cpp.entry import PROFILE, EntryPrinter
from compiler_core.codegen.cpp.helpers import TYPES, helper_text, libm_declarations
from compiler_core.codegen.cpp.many_sizes import PRELUDE
from compiler_core.codegen.cpp.routine import natives_of, routine_helpers, slot_text
from compiler_core.codegen.cpp.scalars import Used
from compiler_core.codegen.cpp.shared_call import SharedCalls
from compiler_core.codegen.cpp.statements import KernelPrinter, signature
from compiler_core.loop_ir.ir import Kernel, KernelCall, Program
from compiler_core.ops.routine import Native
from compiler_core.records import dataclass
from compiler_core.runtime.executor import CALL_HELPER

SPLIT_LINES = 150  # kernel lines above which another unit pays
# measured: characters of an entry that take as long to compile as one of a kernel; and of a kernel, as one of a helper
ENTRY_CHARS, HELPER_CHARS = 16, 2

# where a library is given the pool (runtime/pool.py); until then loops run where they stand
POOL = """\
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
    """One kernel as text, with what it uses and the name it got. parts: functions that stand before it, by name."""

    kernel: Kernel
    name: str
    parts: dict[str, str]
    text: str
    used: Used

    @property
    def length(self) -> int:
        return len(self.text) + sum(map(len, self.parts.values()))

    @property
    def n_lines(self) -> int:
        return self.text.count("\n") + sum(part.count("\n") for part in self.parts.values())


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
        if self.opened:  # at other sizes other parts are equal
            return _Printed(kernel, name, {}, comment + printer.text(name), printer.used)
        function = printer.function(name)
        return _Printed(kernel, name, printer.parts, comment + function, printer.used)

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


def print_source(programs: Sequence[Program], *, opened: bool = False, units: int = 2) -> Source:
    """The C++ of `programs`, whose names must differ. opened: to be filled with numbers (many_sizes.py). units: as many
    at most."""
    printer = SourcePrinter.of(programs, opened=opened)
    entries = "\n".join(line for program in programs for line in printer.entry(program))
    kernels = list(printer.printed.values())
    natives = natives_of(programs)
    helpers = routine_helpers(natives)
    ahead = len(entries) // ENTRY_CHARS + len(helpers) * HELPER_CHARS
    first, *others = [kernels] if opened else _split(kernels, ahead, units)
    declarations = "".join(f"{signature(p.kernel, p.name)};\n" for part in others for p in part)
    tail = [declarations, helpers, PROFILE, CALL_HELPER, "\n", *printer.shared.definitions(), entries]
    texts = {"main": _unit(first, "".join(tail), POOL + (PRELUDE if opened else ""), natives)}
    for k, part in enumerate(others, 1):
        texts[f"more{k}" if k > 1 else "more"] = _unit(part, "", "", ())
    return Source(texts, tuple(printer.messages))


def _split(kernels: list[_Printed], ahead: int, units: int) -> list[list[_Printed]]:
    """Parts that take about as long to compile, the first with `ahead` besides; as many as pay, `units` at most.

    The length of a kernel's text stands for its time; the longest go first, each to the part that is shortest so far.
    """
    count = min(units, 1 + sum(printed.n_lines for printed in kernels) // SPLIT_LINES)
    lengths, part = [ahead] + [0] * (count - 1), {}
    for printed in sorted(kernels, key=lambda p: -p.length):
        shortest = lengths.index(min(lengths))
        lengths[shortest] += printed.length
        part[printed.name] = shortest
    first, *others = ([p for p in kernels if part[p.name] == k] for k in range(count))
    return [first, *filter(None, others)]


def _unit(kernels: Sequence[_Printed], tail: str, head: str, natives: Sequence[Native]) -> str:
    helpers = {name for printed in kernels for name in printed.used.helpers}.union(*(n.needs for n in natives))
    libm = {name for printed in kernels for name in printed.used.libm}.union(*(n.libm for n in natives))
    bodies = "\n".join(_bodies(kernels))
    return "\n".join([TYPES + head, libm_declarations(libm), helper_text(helpers), bodies, tail])


def _bodies(kernels: Sequence[_Printed]) -> Iterator[str]:
    """The functions of `kernels`. A part that several call stands once, and is compiled once: an optimizer's kernels
    for parameters of different sizes differ in how many rows there are to share out.
    """
    without = {name: part.replace(name, "", 1) for printed in kernels for name, part in printed.parts.items()}
    counts, first = Counter(without.values()), dict[str, str]()
    for printed in kernels:
        text = printed.text
        for name, part in printed.parts.items():
            stands = first.setdefault(without[name], name)
            if stands == name:
                yield part if counts[without[name]] == 1 else f"DC_APART {part}"
            text = text.replace(f"{name}(", f"{stands}(")
        yield text
