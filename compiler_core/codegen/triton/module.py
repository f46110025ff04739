"""Kernels as one Python module of Triton functions, and what each launch of it needs.

In: loop-IR kernels. Out: `TritonModule`: the source text, and for each kernel its launches in order. The text is the
same whether Triton's interpreter runs it or its compiler translates it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from compiler_core.codegen.triton.alike import alike, chosen
from compiler_core.codegen.triton.helpers import helper_source
from compiler_core.codegen.triton.sections import cut, scalars_of, shape_of
from compiler_core.codegen.triton.statements import Scratch, SectionPrinter
from compiler_core.codegen.triton.tiles import Shape, Tile, choose
from compiler_core.codegen.triton.types import pointer_type
from compiler_core.dtype import bfloat16, float16, int32
from compiler_core.loop_ir.ir import Kernel, Loop
from compiler_core.loop_ir.rename import Names
from compiler_core.ops.random import box_muller
from compiler_core.records import dataclass

_ROUNDED = {p.name for p in box_muller.PRECISIONS}  # functions that give the same bits everywhere, step by step

_HEADER = (
    '"""Generated from loop IR."""\n\nimport triton\nimport triton.language as tl\n\n'
    "DC_INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)\n"
)


@dataclass(frozen=True, slots=True)
class Launch:
    """One function of the module, and what launching it takes.

    Arguments: pointers, one for each of the kernel's params, then of `common` (arrays that all launches of a
    kernel share), then of `scratch`, then, if `has_status`, one to an i32 that a failed check overwrites with its
    number (0 before: all hold; it may serve all launches of a program, read once at the end), then `numbers`. The
    launches of a kernel run in order, on one stream.
    programs: size of the grid, one-dimensional; `scratch` has room for that many times its `numel`, uninitialised.
    signature: parameter -> pointer type, or i32, i64. warps: of a program. stages: turns of a loop in flight.
    contracts: whether a product and a sum may be rounded together: of kernels written by hand, and of generated ones
    that read or write 16-bit floats, and draw no normal numbers; the others round each, as eager does.
    shape, tile: what the tile was chosen for, and the tile (a tuner's key, and its value), if generated.
    numbers: of code for many sizes (many_sizes.py); multiples: which of them it takes for multiples of 16. sizes: the
    constants of one written by hand that may be such.
    Params whose addresses are multiples of 16 bytes should be compiled as such: only then are accesses as wide.
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
    shape: Shape | None = None
    tile: Tile | None = None
    numbers: tuple[int, ...] = ()
    multiples: frozenset[int] = frozenset()
    sizes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TritonModule:
    """source: Python text. launches: kernel name -> launches, in order. messages: of checks; status k is number k-1."""

    source: str
    launches: dict[str, tuple[Launch, ...]]
    messages: tuple[str, ...]


def print_module(kernels: Sequence[Kernel], tiles: Mapping[str, Tile] | None = None) -> TritonModule:
    """The module of `kernels`. tiles: of some functions, instead of the rule's (function names are those of `Launch`).

    Raises LoweringError for what Triton cannot express.
    """
    tiles = tiles or {}
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
        if choices := alike(kernel):
            together = _together(kernel, choices, tiles, number, helpers)
            if together is not None:
                functions.append(together[0])
                launches[kernel.name] = (together[1],)
                continue
        for position, section in enumerate(cut(kernel)):
            name, shape = f"{kernel.name}_{position}", shape_of(section, kernel.params)
            printer = SectionPrinter(kernel, section, tiles.get(name) or choose(shape), number, helpers)
            functions.append(printer.text(name))
            made.append(_launch(name, kernel, printer, shape))
        launches[kernel.name] = tuple(made)
    return TritonModule("\n\n".join([_HEADER + helper_source(helpers), *functions]), launches, tuple(messages))


def _together(
    kernel: Kernel, choices: Sequence[Names], tiles: Mapping[str, Tile], number: Callable[[str], int], helpers: set[str]
) -> tuple[str, Launch] | None:
    """One launch for nests that are alike; None where they need memory of their own, or wide places."""
    nest, params = kernel.body[0], tuple(param for param in kernel.params if param.name in choices[0])
    assert isinstance(nest, Loop), "alike"
    (section, *rest) = cut(replace(kernel, params=params, body=nest.body))
    name, shape = f"{kernel.name}_0", shape_of(section, params)
    tile = tiles.get(name) or choose(replace(shape, width=2))  # choosing arrays is worth many elements a thread
    printer = SectionPrinter(replace(kernel, params=params), section, tile, number, helpers)
    text = printer.text(name)
    if rest or printer.scratch or printer.has_checks or printer.is_wide:
        return None
    launch = replace(_launch(name, kernel, printer, shape), programs=printer.programs * len(choices))
    return chosen(text, [param.name for param in kernel.params], choices, printer.programs), launch


def _launch(name: str, kernel: Kernel, printer: SectionPrinter, shape: Shape) -> Launch:
    signature = {p.name: pointer_type(p.dtype) for p in kernel.params}
    signature |= {s.name: pointer_type(s.dtype) for s in printer.scratch}
    if printer.has_checks:
        signature["status"] = pointer_type(int32)
    tile, is_narrow = printer.tile, any(p.dtype in (bfloat16, float16) for p in kernel.params)
    return Launch(
        name,
        printer.programs,
        tuple(printer.scratch),
        printer.has_checks,
        signature,
        tile.warps,
        contracts=is_narrow and scalars_of(kernel.body).isdisjoint(_ROUNDED),
        shape=shape,
        tile=tile,
    )
