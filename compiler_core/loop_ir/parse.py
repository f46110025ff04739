"""Text -> loop IR: the inverse of `print.py`, for tests and for dumps edited by hand.

In: text as `print_kernel` or `print_program` give it. Out: `Kernel`, `Program`. Raises GraphError with the line that
does not fit. Expressions are Python syntax, so Python's own parser reads them; dtypes follow from declarations and
from the scalar table.
"""

from __future__ import annotations

import ast
import base64
import re
from collections.abc import Iterator, Sequence

import numpy as np

from compiler_core.dtype import DType, by_name, int64
from compiler_core.errors import GraphError
from compiler_core.graph.parse import parse_attrs
from compiler_core.graph.print import literal_value, read_literal
from compiler_core.loop_ir import ir
from compiler_core.loop_ir.expr_text import ExprReader
from compiler_core.loop_ir.print import STORE_SIGNS
from compiler_core.ops.registry import Array
from compiler_core.ops.routine import ROUTINES, Strided
from compiler_core.symbolic.index import Axis, named_axis

_KERNEL = re.compile(r"kernel (\S+)\((.*)\)$")
_DECLARATION = re.compile(r"(\S+): (\w+)\[(\d+)\]")
_LOOP = re.compile(r"for (\S+) in (\d+) (serial|parallel|block|vector)(?: of (\S+))?(?: from (.+) to (.+))?$")
_ACCUMULATOR = re.compile(r"acc (\S+): (\w+) (\w+)$")
_ACCUMULATE = re.compile(r"(\S+) <- (.*?)(?: at (.*))?$")
_CHECK = re.compile(r"check (.*), ('.*'|\".*\")$")
_STORE = re.compile(r"(\w+)\[(.*?)\] (=|\+=|\*=|max=|min=) (.*)$")
_LET = re.compile(r"(\w+) = (.*)$")
_MODES = {sign: mode for mode, sign in STORE_SIGNS.items()}


def parse_kernel(text: str) -> ir.Kernel:
    """The kernel that `text` spells."""
    lines = [line for line in text.splitlines() if line.strip()]
    kernel, rest = _read_kernel(lines)
    if rest:
        raise GraphError(f"text after the kernel: {rest[0]!r}")
    return kernel


def parse_program(text: str) -> ir.Program:
    """The program that `text` spells, kernels first."""
    lines = [line.split("  # ")[0].rstrip() for line in text.splitlines() if line.strip()]
    kernels: dict[str, ir.Kernel] = {}
    while lines and lines[0].startswith("kernel "):
        kernel, lines = _read_kernel(lines)
        kernels[kernel.name] = kernel
    if not lines or not lines[0].startswith("program "):
        raise GraphError("expected `program NAME`", got=lines[0] if lines else "the end")
    name = lines[0].split()[1]
    return _read_program(name, [line.strip() for line in lines[1:]], kernels)


# ---- kernels


def _read_kernel(lines: Sequence[str]) -> tuple[ir.Kernel, list[str]]:
    header = _KERNEL.match(lines[0])
    if header is None:
        raise GraphError("expected `kernel NAME(params)`", got=lines[0])
    params = tuple(_read_param(part) for part in header[2].split(", ") if part)
    body = list(_until_dedent(lines[1:], 2))
    scope = ExprReader({p.name: p.dtype for p in params})
    statements, _ = _read_body(body, 2, scope)
    return ir.Kernel(header[1], params, statements), list(lines[1 + len(body) :])


def _read_param(text: str) -> ir.Param:
    declaration, access = text.rsplit(" ", 1)
    name, dtype, numel = _read_declaration(declaration)
    if access not in ("in", "out", "inout"):
        raise GraphError(f"parameter {name}: unknown access", expected="in, out or inout", got=access)
    return ir.Param(name, dtype, numel, access)  # type: ignore[arg-type]


def _read_declaration(text: str) -> tuple[str, DType, int]:
    match = _DECLARATION.match(text)
    if match is None:
        raise GraphError("expected `NAME: dtype[numel]`", got=text)
    return match[1], by_name(match[2]), int(match[3])


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _until_dedent(lines: Sequence[str], indent: int) -> Iterator[str]:
    for line in lines:
        if _indent(line) < indent:
            return
        yield line


def _read_body(lines: Sequence[str], indent: int, scope: ExprReader) -> tuple[tuple[ir.Stmt, ...], int]:
    """The statements at `indent`, and how many lines they took."""
    statements: list[ir.Stmt] = []
    k = 0
    while k < len(lines) and _indent(lines[k]) >= indent:
        text = lines[k].strip()
        k += 1
        loop = _LOOP.match(text)
        if loop is None:
            statements.append(_read_stmt(text, scope))
            continue
        axis = scope.axes[loop[1]] = named_axis(loop[1], int(loop[2]))
        span = (scope.index(loop[5]), scope.index(loop[6])) if loop[5] else None
        body, taken = _read_body(lines[k:], indent + 2, scope)
        part_of = _axis(loop[4], scope) if loop[4] else None
        statements.append(ir.Loop(axis, loop[3], body, part_of, span))  # type: ignore[arg-type]
        k += taken
    return tuple(statements), k


def _axis(name: str, scope: ExprReader) -> Axis:
    if name not in scope.axes:
        raise GraphError(f"{name} is no axis of a loop before", expected=", ".join(scope.axes))
    return scope.axes[name]


def _read_stmt(text: str, scope: ExprReader) -> ir.Stmt:
    if text.startswith("local "):
        name, dtype, numel = _read_declaration(text[6:])
        scope.arrays[name] = dtype
        return ir.Local(name, dtype, numel)
    if match := _ACCUMULATOR.match(text):
        dtype = by_name(match[2])
        scope.scalars[match[1]] = int64 if ir.REDUCING[match[3]].is_place else dtype
        return ir.Accumulator(match[1], dtype, match[3])  # type: ignore[arg-type]
    if match := _CHECK.match(text):
        return ir.Check(scope.expr(match[1]), ast.literal_eval(match[2]))
    if match := _ACCUMULATE.match(text):
        at = None if match[3] is None else scope.index(match[3])
        return ir.Accumulate(match[1], scope.expr(match[2]), at)
    if match := _STORE.match(text):
        mode = _MODES[match[3]]
        return ir.Store(match[1], scope.index(match[2]), scope.expr(match[4]), mode)  # type: ignore[arg-type]
    if match := _LET.match(text):
        value = scope.expr(match[2])
        scope.scalars[match[1]] = value.dtype
        return ir.Let(match[1], value)
    raise GraphError("not a statement of the loop IR", got=text)


# ---- programs


def _read_program(name: str, lines: Sequence[str], kernels: dict[str, ir.Kernel]) -> ir.Program:
    buffers: list[ir.Buffer] = []
    steps: list[ir.Step] = []
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    arena = 0
    for line in lines:
        word, _, rest = line.partition(" ")
        if word == "buffer":
            buffers.append(_read_buffer(rest))
        elif word == "call":
            steps.append(_read_call(rest, kernels))
        elif word == "routine":
            steps.append(_read_routine(rest))
        elif word in ("signal", "wait"):
            steps.append(_read_event(word, rest))
        elif word == "inputs":
            inputs = tuple(rest.split())
        elif word == "outputs":
            outputs = tuple(rest.split())
        elif word == "arena":
            arena = int(rest)
        else:
            raise GraphError("not a line of a program", got=line)
    return ir.Program(name, tuple(buffers), tuple(steps), inputs, outputs, arena)


def _read_buffer(text: str) -> ir.Buffer:
    words = text.split(" ", 3)
    name, dtype, numel = _read_declaration(" ".join(words[:2]))
    kind, rest = words[2], words[3] if len(words) > 3 else ""
    if kind in ("temp", "stacked", "lent"):
        return ir.Buffer(name, dtype, numel, kind, int(rest.lstrip("@")))  # type: ignore[arg-type]
    array = _read_array(rest, dtype) if kind == "constant" else None
    return ir.Buffer(name, dtype, numel, kind, array=array)  # type: ignore[arg-type]


def _read_array(text: str, dtype: DType) -> Array:
    if text.startswith("base64'"):
        return np.frombuffer(base64.b64decode(text[len("base64'") : -1]), dtype.numpy)
    return read_literal(literal_value(text), dtype.numpy)


def read_slot(text: str) -> ir.Slot:
    buffer, _, offset = text.partition("+")
    return ir.Slot(buffer, int(offset or 0))


def _read_call(text: str, kernels: dict[str, ir.Kernel]) -> ir.KernelCall:
    name, _, slots = text.rstrip(")").partition("(")
    if name not in kernels:
        raise GraphError(f"call of an unknown kernel {name!r}", expected=", ".join(kernels))
    return ir.KernelCall(kernels[name], tuple(read_slot(slot) for slot in slots.split(", ") if slot))


_EVENT = re.compile(r"(\d+) \((.*)\)$")


def _read_event(word: str, text: str) -> ir.Step:
    match = _EVENT.match(text)
    if match is None:
        raise GraphError(f"expected `{word} K (BUFFER, ...)`", got=text)
    names = tuple(name for name in match[2].split(", ") if name)
    return ir.Signal(int(match[1]), names) if word == "signal" else ir.Wait(int(match[1]), names)


_ROUTINE = re.compile(r"(\w+) \((.*)\) -> (\S+: \w+ \([^)]*\) \([^)]*\))(.*)$")
_VIEW = re.compile(r"(\S+): (\w+) (\([^)]*\)) (\([^)]*\))$")


def _read_routine(text: str) -> ir.RoutineCall:
    import compiler_core.ops.prims  # noqa: F401  registers the routines that the text names

    match = _ROUTINE.match(text)
    if match is None or match[1] not in ROUTINES:
        raise GraphError("expected `routine NAME (VIEWS) -> VIEW ATTRIBUTES`", got=text)
    operands = tuple(read_view(part) for part in match[2].split("; ") if part)
    attrs = tuple(sorted(parse_attrs(match[4]).items()))
    return ir.RoutineCall(ROUTINES[match[1]], operands, read_view(match[3]), attrs)


def read_view(text: str) -> ir.View:
    match = _VIEW.match(text)
    if match is None:
        raise GraphError("expected `BUFFER: DTYPE (SHAPE) (STRIDES)`", got=text)
    layout = Strided(by_name(match[2]), ast.literal_eval(match[3]), ast.literal_eval(match[4]))
    return ir.View(read_slot(match[1]), layout)
