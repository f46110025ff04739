"""Kernels as one Python module of Triton functions, and what each launch of it needs.

In: loop-IR kernels. Out: `Module`: the source text, and for each kernel its launches in order. The text is the same
whether Triton's interpreter runs it or its compiler translates it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler_core.codegen.triton.helpers import helper_source
from compiler_core.codegen.triton.sections import cut
from compiler_core.codegen.triton.statements import Scratch, SectionPrinter
from compiler_core.codegen.triton.types import pointer_type
from compiler_core.dtype import int32
from compiler_core.loop_ir.ir import Kernel

_HEADER = '"""Generated from loop IR."""\n\nimport triton\nimport triton.language as tl\n\n'


@dataclass(frozen=True, slots=True)
class Launch:
    """One function of the module.

    Arguments: the kernel's params, then `common` (arrays that all launches of a kernel share), then `scratch`, then an
    i32 status if `has_status`.

    programs: size of the grid. signature: parameter -> pointer type. warps: of a program. stages: turns of a loop in
    flight. contracts: whether a product and a sum may be rounded together (of kernels written by hand; generated ones
    give eager's bits).
    """

    function: str
    programs: int
    scratch: tuple[Scratch, ...]
    has_status: bool
    signature: dict[str, str]
    warps: int = 4
    stages: int = 3
    contracts: bool = False
    common: tuple[Scratch, ...] = ()


@dataclass(frozen=True, slots=True)
class Module:
    """source: Python text. launches: kernel name -> launches, in order. messages: of checks; status k is number k-1."""

    source: str
    launches: dict[str, tuple[Launch, ...]]
    messages: tuple[str, ...]


def print_module(kernels: Sequence[Kernel]) -> Module:
    """The module of `kernels`. Raises LoweringError for what Triton cannot express."""
    helpers: set[str] = set()
    messages: list[str] = []
    launches: dict[str, tuple[Launch, ...]] = {}
    functions: list[str] = []

    def number(message: str) -> int:
        if message not in messages:
            messages.append(message)
        return messages.index(message)

    for kernel in kernels:
        made: list[Launch] = []
        for position, section in enumerate(cut(kernel)):
            printer = SectionPrinter(kernel, section, number, helpers)
            name = f"{kernel.name}_{position}"
            functions.append(printer.text(name))
            made.append(_launch(name, kernel, printer))
        launches[kernel.name] = tuple(made)
    return Module("\n\n".join([_HEADER + helper_source(helpers), *functions]), launches, tuple(messages))


def _launch(name: str, kernel: Kernel, printer: SectionPrinter) -> Launch:
    signature = {p.name: pointer_type(p.dtype) for p in kernel.params}
    signature |= {s.name: pointer_type(s.dtype) for s in printer.scratch}
    if printer.has_checks:
        signature["status"] = pointer_type(int32)
    return Launch(name, printer.section.programs, tuple(printer.scratch), printer.has_checks, signature)
