"""Routines whose Triton functions are written by hand: their module, and the launches of one call.

In: routine calls (their `TritonKernels` form, ops/routine.py, operand layouts, attributes). Out: a `TritonModule` like
that of generated kernels: the text of the files in kernels/, and for each launch a function without constants that
calls the one written by hand with them, so that launches differ in nothing from generated ones. Arguments of every
launch of a call: its operands o0, o1 ..., `out`, its scratch arrays s0 ... A call goes by `call_name`; equal calls are
one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path

from compiler_core.codegen.triton.module import Launch, TritonModule
from compiler_core.codegen.triton.statements import Scratch
from compiler_core.codegen.triton.types import pointer_type
from compiler_core.dtype import DType
from compiler_core.errors import LoweringError
from compiler_core.loop_ir.ir import RoutineCall
from compiler_core.ops.routine import Attrs, KernelLaunch, KernelPlan, Routine, Strided
from compiler_core.records import dataclass

_FOLDER = Path(__file__).parent / "kernels"


@cache
def kernel_source(name: str) -> str:
    """The text of the file `name` of kernels written by hand."""
    return (_FOLDER / f"{name}.py").read_text()


@dataclass(frozen=True, slots=True)
class Handwritten:
    """One call. source: the files of its functions. functions: name -> text of those that it launches."""

    source: str
    functions: Mapping[str, str]
    launches: tuple[Launch, ...]


def has_kernels(step: RoutineCall) -> bool:
    """Whether the routine's kernels take this call."""
    kernels = step.routine.kernels
    return kernels is not None and not kernels.refuses(_layouts(step), dict(step.attrs))


def call_name(step: RoutineCall) -> str:
    """What `TritonModule.launches` calls this call."""
    return f"{step.routine.name}_{_digest(_layouts(step), step.result.layout, step.attrs)}"


def with_routines(module: TritonModule, steps: Iterable[RoutineCall]) -> TritonModule:
    """`module`, with the calls among `steps` that kernels take, by `call_name`."""
    calls = {call_name(step): step for step in steps if has_kernels(step)}
    made = {name: print_call(s.routine, _layouts(s), s.result.layout.dtype, dict(s.attrs)) for name, s in calls.items()}
    return join(module, made)


def join(module: TritonModule, calls: Mapping[str, Handwritten]) -> TritonModule:
    """`module` with these calls, under these names."""
    sources = dict.fromkeys(kernel_source(name) for call in calls.values() for name in call.source.split())
    functions = {name: text for call in calls.values() for name, text in call.functions.items()}
    launches = module.launches | {name: call.launches for name, call in calls.items()}
    return TritonModule("\n\n".join([module.source, *sources, *functions.values()]), launches, module.messages)


def _layouts(step: RoutineCall) -> tuple[Strided, ...]:
    return tuple(view.layout for view in step.operands)


def print_call(
    routine: Routine, operands: tuple[Strided, ...], result: DType, attrs: Attrs, plan: KernelPlan | None = None
) -> Handwritten:
    """The launches of one call. plan: these, instead of the routine's own choice.

    Raises LoweringError, with the reason, for a call that the kernels do not take.
    """
    kernels = routine.kernels
    why = f"{routine.name} has no kernels" if kernels is None else kernels.refuses(operands, attrs)
    if kernels is None or why:
        raise LoweringError(why, remedy="run the routine's definition, or compose it of other ops")
    plan = plan or kernels.plan(operands, attrs)
    signature = {f"o{k}": pointer_type(x.dtype) for k, x in enumerate(operands)}
    signature |= {"out": pointer_type(result)}
    signature |= {f"s{k}": pointer_type(dtype) for k, (dtype, _) in enumerate(plan.scratch)}
    functions = {_name(launch, signature): _function(launch, signature) for launch in plan.launches}
    common = tuple(Scratch(f"s{k}", dtype, numel) for k, (dtype, numel) in enumerate(plan.scratch))
    sizes = kernels.sizes(operands, attrs)
    launches = tuple(_launch(_name(made, signature), made, signature, common, sizes) for made in plan.launches)
    return Handwritten(plan.source or kernels.source, functions, launches)


def _name(launch: KernelLaunch, signature: Mapping[str, str]) -> str:
    """Launches of one code have one name."""
    code = replace(launch, numbers=dict.fromkeys(launch.numbers, 0))
    return f"{launch.function}_{_digest(code, sorted(signature.items()))}"


def _digest(*facts: object) -> str:
    return sha256(repr(facts).encode()).hexdigest()[:12]


def _function(launch: KernelLaunch, signature: Mapping[str, str]) -> str:
    constants = ", ".join(f"{name}={_constant(value)}" for name, value in launch.constants.items())
    arguments = ", ".join(launch.arguments)
    constants = ", ".join([constants, *(f"{name}={name}" for name in launch.numbers)])
    return (
        f"@triton.jit\ndef {_name(launch, signature)}({', '.join([*signature, *launch.numbers])}):\n"
        f"    {launch.function}({arguments}, {constants})\n"
    )


def _constant(value: int | float | str) -> str:
    """A literal; not one of the floats that have none."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def _launch(
    name: str, made: KernelLaunch, signature: Mapping[str, str], common: tuple[Scratch, ...], sizes: frozenset[str]
) -> Launch:
    given = {**signature, **dict.fromkeys(made.numbers, "i64")}
    launch = Launch(name, made.programs, (), False, given, made.warps, made.stages, contracts=True, common=common)
    return replace(launch, sizes=sizes, numbers=tuple(made.numbers.values()))
