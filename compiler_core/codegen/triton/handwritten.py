"""Routines whose Triton functions are written by hand: their module, and the launches of one call.

In: routine calls (their `Kernels` form, ops/routine.py, operand layouts, attributes). Out: `Module`s like those of
generated kernels: the text of the file in kernels/, and for each launch a function without constants that calls the
one written by hand with them, so that launches differ in nothing from generated ones. Arguments of every launch of a
call: its operands o0, o1 ..., `out`, its scratch arrays s0 ...
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from compiler_core.codegen.triton.module import Launch, Module
from compiler_core.codegen.triton.types import pointer_type
from compiler_core.dtype import DType
from compiler_core.errors import LoweringError
from compiler_core.ops.routine import Attrs, KernelLaunch, KernelPlan, Routine, Strided

_FOLDER = Path(__file__).parent / "kernels"


@cache
def kernel_source(name: str) -> str:
    """The text of the file `name` of kernels written by hand."""
    return (_FOLDER / f"{name}.py").read_text()


@dataclass(frozen=True, slots=True)
class Handwritten:
    """One call. module: its text and launches, under the routine's name. plan: what it was made from."""

    module: Module
    launches: tuple[Launch, ...]
    scratch: tuple[tuple[DType, int], ...]


def print_call(
    routine: Routine, operands: tuple[Strided, ...], result: DType, attrs: Attrs, plan: KernelPlan | None = None
) -> Handwritten:
    """The module of one call. plan: the launches, unless the routine's own choice.

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
    texts = {_name(launch, signature): _function(launch, signature) for launch in plan.launches}
    launches = tuple(_launch(name, made, signature) for name, made in zip(texts, plan.launches, strict=True))
    source = "\n\n".join([kernel_source(kernels.source), *texts.values()])
    return Handwritten(Module(source, {routine.name: launches}, ()), launches, plan.scratch)


def _name(launch: KernelLaunch, signature: Mapping[str, str]) -> str:
    """Equal launches have equal names."""
    digest = sha256(repr((launch, sorted(signature.items()))).encode()).hexdigest()
    return f"{launch.function}_{digest[:12]}"


def _function(launch: KernelLaunch, signature: Mapping[str, str]) -> str:
    constants = ", ".join(f"{name}={_constant(value)}" for name, value in launch.constants.items())
    arguments = ", ".join(launch.arguments)
    return (
        f"@triton.jit\ndef {_name(launch, signature)}({', '.join(signature)}):\n"
        f"    {launch.function}({arguments}, {constants})\n"
    )


def _constant(value: int | float | str) -> str:
    """A literal; not one of the floats that have none."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def _launch(name: str, launch: KernelLaunch, signature: dict[str, str]) -> Launch:
    return Launch(name, launch.programs, (), False, dict(signature), launch.warps, launch.stages, contracts=True)
