"""Loop IR -> text. The text parses back to an equal kernel or program (`parse.py`); a kernel's text is its identity.

    kernel k0(p0: f32[8] in, p1: f32[8] out)
      for i0 in 8 vector
        t0 = exp(p0[i0])
        p1[i0] = add(t0, f32(1.0))

    program main
      buffer x: f32[8] input
      buffer y: f32[8] output
      wait 0 (x)
      call k0(x, y)                       # slots: NAME or NAME+offset
      signal 0 (y)
      routine gemm (x: f32 (4, 2) (2, 1); w: f32 (2, 3) (3, 1)) -> z: f32 (4, 3) (3, 1) alpha=1.0 beta=0.0
      inputs x
      outputs y
      arena 0

In: Kernel, Program, Stmt or Expr. Out: text, two spaces an indentation level. Notes of calls are comments and are left
out.
"""

from __future__ import annotations

from collections.abc import Iterable

from compiler_core.graph.print import print_array, print_attr
from compiler_core.loop_ir import ir
from compiler_core.loop_ir.expr_text import ExprPrinter

_PLAIN = ExprPrinter()
print_expr, print_index = _PLAIN.text, _PLAIN.index
STORE_SIGNS: dict[str, str] = {"set": "=", "add": "+=", "mul": "*=", "max": "max=", "min": "min="}


def print_stmt(stmt: ir.Stmt) -> str:
    """A statement other than a loop, on one line."""
    match stmt:
        case ir.Local(name, dtype, numel):
            return f"local {name}: {dtype.short}[{numel}]"
        case ir.Let(name, value):
            return f"{name} = {print_expr(value)}"
        case ir.Store(buffer, index, value, mode):
            return f"{buffer}[{print_index(index)}] {STORE_SIGNS[mode]} {print_expr(value)}"
        case ir.Accumulator(name, dtype, kind):
            return f"acc {name}: {dtype.short} {kind}"
        case ir.Accumulate(name, value, at):
            place = "" if at is None else f" at {print_index(at)}"
            return f"{name} <- {print_expr(value)}{place}"
        case ir.Check(condition, message):
            return f"check {print_expr(condition)}, {message!r}"
        case ir.Loop(axis, kind, _, part_of, span):
            part = f" of {part_of.name}" if part_of else ""
            ends = f" from {print_index(span[0])} to {print_index(span[1])}" if span else ""
            return f"for {axis.name} in {axis.extent} {kind}{part}{ends}"


def print_body(body: Iterable[ir.Stmt], indent: str) -> Iterable[str]:
    for stmt in body:
        yield indent + print_stmt(stmt)
        if isinstance(stmt, ir.Loop):
            yield from print_body(stmt.body, indent + "  ")


def print_kernel(kernel: ir.Kernel, called: str | None = None) -> str:
    """The text of a kernel, ending in a newline. called: under this name."""
    params = ", ".join(f"{p.name}: {p.dtype.short}[{p.numel}] {p.access}" for p in kernel.params)
    name = kernel.name if called is None else called
    return "\n".join([f"kernel {name}({params})", *print_body(kernel.body, "  "), ""])


def print_slot(slot: ir.Slot) -> str:
    return f"{slot.buffer}+{slot.offset}" if slot.offset else slot.buffer


def print_view(view: ir.View) -> str:
    """A strided part of a buffer."""
    layout = view.layout
    return f"{print_slot(view.slot)}: {layout.dtype.short} {layout.shape} {layout.strides}"


def _print_routine(step: ir.RoutineCall) -> str:
    attrs = "".join(f" {key}={print_attr(value)}" for key, value in step.attrs)
    operands = "; ".join(map(print_view, step.operands))
    return f"routine {step.routine.name} ({operands}) -> {print_view(step.result)}{attrs}"


def print_step(step: ir.Step) -> str:
    """One line."""
    if isinstance(step, ir.KernelCall):
        return f"call {step.kernel.name}({', '.join(map(print_slot, step.slots))})"
    if isinstance(step, ir.Signal | ir.Wait):
        return f"{'signal' if isinstance(step, ir.Signal) else 'wait'} {step.event} ({', '.join(step.buffers)})"
    return _print_routine(step)


def _print_buffer(buffer: ir.Buffer, elide: bool) -> str:
    tail = ""
    if buffer.kind in ("temp", "stacked", "lent"):
        tail = f" @{buffer.offset}"
    elif buffer.array is not None:
        tail = f" {print_array(buffer.array.ravel(), elide=elide)}"
    return f"  buffer {buffer.name}: {buffer.dtype.short}[{buffer.numel}] {buffer.kind}{tail}"


def print_program(program: ir.Program, *, notes: bool = False, elide: bool = False) -> str:
    """The text of a program: its kernels, then its buffers and steps. notes: graph nodes and user lines as comments."""
    lines = [print_kernel(kernel) for kernel in program.kernels]
    lines.append(f"program {program.name}")
    lines += [_print_buffer(buffer, elide) for buffer in program.buffers]
    for step in program.steps:
        lines.append(f"  {print_step(step)}" + (f"  # {step.note}" if notes and step.note else ""))
    lines.append(f"  inputs {' '.join(program.inputs)}".rstrip())
    lines.append(f"  outputs {' '.join(program.outputs)}".rstrip())
    lines.append(f"  arena {program.arena_nbytes}")
    return "\n".join([*lines, ""])
