"""Equal routine calls as one function: a deep model's layers call with the same sizes, at other addresses.

In: the lines of a routine call over `p0`, `p1`, ... in place of its arrays' addresses. Out: the lines that call the
function of that text, and the functions' definitions. Only calls that need nothing else of the place where they stand
are shared: none that are planned, and none that may call back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field

from compiler_core.codegen.cpp.many_sizes import TABLE
from compiler_core.codegen.cpp.types import storage_type
from compiler_core.loop_ir.ir import RoutineCall
from compiler_core.ops.routine import CArray
from compiler_core.records import dataclass


@dataclass
class SharedCalls:
    """The functions made so far, for all programs of a source: their text -> their name."""

    names: dict[str, str] = field(default_factory=dict)
    opened: bool = False  # for many sizes (many_sizes.py)

    def call(
        self, step: RoutineCall, addresses: Sequence[str], write: Callable[[Sequence[CArray]], Iterator[str]]
    ) -> str:
        """The line that does `step`. addresses: of its operands and its result; write: its lines over other arrays."""
        views = (*step.operands, step.result)
        arrays = [CArray(f"p{k}", view.layout) for k, view in enumerate(views)]
        types = [f"const {storage_type(view.layout.dtype)}*" for view in step.operands]
        types.append(f"{storage_type(step.result.layout.dtype)}*")
        parameters = ", ".join(f"{ctype} p{k}" for k, ctype in enumerate(types))
        head = f"(const void* const* lib, char* arena, {parameters}) {{"
        text = "\n".join([head, *(TABLE if self.opened else ()), *write(arrays), "}"])
        name = self.names.setdefault(text, f"dc_{step.routine.name}_{len(self.names)}")
        return f"  {name}(lib, arena, {', '.join(addresses)});"

    def definitions(self) -> Iterator[str]:
        """The functions, which stand before the entries."""
        for text, name in self.names.items():
            yield f"static __attribute__((noinline)) void {name}{text}\n"
