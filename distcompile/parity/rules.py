"""Which backward rule is wrong: each op of a step, and each autograd.Function, against differences of its own.

In: a float64 `Case`. Out: `Finding`s that name op or Function, and the user's line. The ops are those of the captured
forward, loss included, each on the operands it really had; a Function is checked at each of its calls.
An op that was checked on operands of the same shapes with the same attributes is not checked again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from compiler_core.capture import compile
from compiler_core.errors import DistCompileError
from compiler_core.graph.ir import Call, Graph
from compiler_core.ops.registry import Array, NotDifferentiable, bind
from compiler_core.tensor.autograd.function import Application, observe_functions
from compiler_core.tensor.making.creation import leaf
from compiler_core.tensor.tensor import Tensor
from distcompile.parity.case import Case, Whole, copy_of
from distcompile.parity.differences import TOLERANCE, UNSETTLED, central, kink, random_direction, size_of
from distcompile.parity.recording import RecordingBackend, values_of
from distcompile.parity.report import Finding

Runs = Callable[[Sequence[Array]], Sequence[Array]]


def wrong_rules(case: Case, *, limit_s: float) -> list[Finding]:
    """The rules that are wrong, in the order of the forward. limit_s: seconds in all."""
    until_s = time.perf_counter() + limit_s
    rng = np.random.default_rng(case.seed)
    found = [_function_finding(call, rng) for call in _functions(case)]
    for graph, inputs in _forwards(case):
        values = values_of(graph, inputs)
        seen: set[tuple[Any, ...]] = set()
        for call in graph.calls:
            key = (call.op, str(call.attrs), *(arg.meta for arg in call.args))
            if key in seen or isinstance(call.op.vjp, NotDifferentiable) or time.perf_counter() > until_s:
                continue
            seen.add(key)
            found.append(_op_finding(call, [values[arg] for arg in call.args], rng))
    return [finding for finding in found if finding is not None]


def _functions(case: Case) -> list[Application]:
    """The calls of autograd.Functions in one eager step."""
    module = copy_of(case.module)
    with observe_functions() as applications:
        case.run(module)
    return applications


def _forwards(case: Case) -> Iterator[tuple[Graph, list[Array]]]:
    """The captured forward with its loss, and its inputs; nothing if it cannot be captured."""
    recorder = RecordingBackend("aot_eager")
    whole = compile(Whole(copy_of(case.module), case.loss, casts=case.casts), backend=recorder)
    try:
        Case(whole, case.inputs, lambda loss, *_: loss, case.seed).run(whole)
    except DistCompileError:
        return
    for run in recorder.runs:
        if not any(node.role == "tangent" for node in run.graph.inputs):
            yield run.graph, run.inputs


def _op_finding(call: Call, operands: Sequence[Array], rng: np.random.Generator) -> Finding | None:
    def run(arrays: Sequence[Array]) -> Sequence[Array]:
        with np.errstate(all="ignore"):
            return [np.asarray(call.op.eager(np, *arrays, **call.attrs))]

    def differentiate(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        return [bind(call.op, *tensors, **call.attrs)]

    what = _wrong(run, differentiate, operands, rng)
    return (
        Finding("backward rule", f"the vjp of op {call.op.name}", call.op.name, call.location, what) if what else None
    )


def _function_finding(call: Application, rng: np.random.Generator) -> Finding | None:
    places = [k for k, argument in enumerate(call.arguments) if isinstance(argument, Tensor)]

    def apply(values: Sequence[Tensor]) -> Sequence[Tensor]:
        arguments = list(call.arguments)
        for place, value in zip(places, values):
            arguments[place] = value
        result = call.function.apply(*arguments)
        outputs = result if isinstance(result, tuple) else (result,)
        return [out for out in outputs if isinstance(out, Tensor)]

    def run(arrays: Sequence[Array]) -> Sequence[Array]:
        return [out._array("parity") for out in apply([leaf(np.array(array)) for array in arrays])]

    operands = [call.arguments[place]._array("parity") for place in places]
    what = _wrong(run, apply, operands, rng)
    name = call.function.__name__
    return Finding("backward rule", f"the backward of {name}", name, call.location, what) if what else None


def _wrong(
    run: Runs,
    differentiate: Callable[[Sequence[Tensor]], Sequence[Tensor]],
    operands: Sequence[Array],
    rng: np.random.Generator,
) -> str:
    """What is wrong with the gradient of the first operand whose gradient is wrong; empty if nothing."""
    outputs = run(operands)
    weights = [np.asarray(rng.uniform(0.5, 1.5, out.shape)) if out.dtype.kind == "f" else None for out in outputs]
    leaves = [leaf(np.array(a))._require(a.dtype.kind == "f") for a in operands]
    results = differentiate(leaves)
    terms: list[Tensor] = [(r * leaf(w)).sum() for r, w in zip(results, weights) if w is not None]
    if not any(term.requires_grad for term in terms):
        return ""
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    total.backward()
    for place, (one, operand) in enumerate(zip(leaves, operands)):
        if operand.dtype != np.float64 or not operand.size:
            continue
        direction = random_direction(operand.shape, rng)
        claimed = 0.0 if one.grad is None else float((one.grad._array("parity") * direction).sum())
        what = _compare(claimed, _along(run, operands, place, direction, weights), size_of(operand))
        if what:
            return f"operand {place}: {what}"
    return ""


def _along(
    run: Runs, operands: Sequence[Array], place: int, direction: Array, weights: Sequence[Array | None]
) -> Callable[[float], float]:
    def value(step: float) -> float:
        moved = [*operands[:place], operands[place] + step * direction, *operands[place + 1 :]]
        return float(sum((out * w).sum() for out, w in zip(run(moved), weights) if w is not None))

    return value


def _compare(claimed: float, value: Callable[[float], float], size: float) -> str:
    measured, uncertainty = central(value, size)
    scale = max(abs(measured), abs(claimed))
    apart = abs(claimed - measured)
    if not np.isfinite(measured) or (np.isfinite(claimed) and apart <= TOLERANCE * scale + 3 * uncertainty + 1e-9):
        return ""
    if np.isfinite(claimed) and (kink(value, size) > 1e-3 * apart or uncertainty > UNSETTLED * scale):
        return ""
    return f"the rule gives a slope of {claimed:.6g}, the function's own is {measured:.6g}"
