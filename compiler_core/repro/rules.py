"""Is the gradient rule of an operation its derivative? Each call of a graph alone, in float64, by central differences.

In: a graph. Out: the first `Fault`, or None. Operands are made from a seed; a call on operands of the same sizes with
the same attributes is asked once. The difference is taken with two steps: where they do not agree (a kink) nothing is
said.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler_core.aot.joint import make_joint
from compiler_core.dtype import float64
from compiler_core.errors import DistCompileError
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Call, Graph, GraphBuilder
from compiler_core.graph.minify import example_inputs
from compiler_core.meta import TensorMeta
from compiler_core.ops.registry import Array, NotDifferentiable
from compiler_core.repro.case import Fault

_STEP, _SETTLED, _APART = 1e-5, 1e-4, 1e-3
STAGE = "rule"


def wrong_rule(graph: Graph, seed: int) -> Fault | None:
    """The first operation of `graph` whose gradient is not its own."""
    seen: set[tuple[Any, ...]] = set()
    for call in graph.calls:
        key = (call.op.name, str(call.attrs), *(arg.meta for arg in call.args))
        if key in seen or isinstance(call.op.vjp, NotDifferentiable) or not call.dtype.is_floating_point:
            continue
        seen.add(key)
        why = _wrong(call, seed)
        if why:
            return Fault(
                "accuracy", STAGE, "", f"the gradient rule of {call.op.name}: {why}", call.op.name, call.location
            )
    return None


def _wrong(call: Call, seed: int) -> str:
    """What is wrong with the gradient of some operand; empty if nothing, or if the operation has no form in float64."""
    try:
        alone = _in_float64(call)
        if not alone.outputs[0].dtype.is_floating_point:
            return ""
        wanted = [node.dtype is float64 for node in alone.inputs]
        joint = make_joint(alone, wanted)
        inputs = example_inputs(alone, seed)
        weight = np.random.default_rng(seed + 1).uniform(0.5, 1.5, alone.outputs[0].shape)
        with np.errstate(all="ignore"):
            found = interpret(joint.graph, [*inputs, *[weight] * len(joint.tangents)])[1:]
            for place, gradient in zip(joint.gradients, found):
                why = _compare(alone, inputs, place, np.asarray(gradient), weight, seed)
                if why:
                    return f"operand {place}: {why}"
    except DistCompileError:
        return ""
    return ""


def _in_float64(call: Call) -> Graph:
    builder = GraphBuilder(f"only_{call.op.name}")
    attrs = {key: float64 if key == "dtype" and getattr(value, "is_floating_point", False) else value
             for key, value in call.attrs.items()}  # fmt: skip
    operands = {
        arg: builder.placeholder(arg.name, TensorMeta(arg.shape, float64 if arg.dtype.is_floating_point else arg.dtype))
        for arg in dict.fromkeys(call.args)
    }
    return builder.build([builder.call(call.op, [operands[arg] for arg in call.args], attrs)])


def _compare(graph: Graph, inputs: list[Array], place: int, gradient: Array, weight: Array, seed: int) -> str:
    direction = np.random.default_rng(seed + 2).uniform(-1, 1, inputs[place].shape)

    def value(step: float) -> float:
        moved = [*inputs[:place], inputs[place] + step * direction, *inputs[place + 1 :]]
        return float((np.asarray(interpret(graph, moved)[0]) * weight).sum())

    once, twice = ((value(h) - value(-h)) / (2 * h) for h in (_STEP, 2 * _STEP))
    claimed = float((gradient * direction).sum())
    scale = max(abs(once), abs(claimed), 1e-3)
    if not np.isfinite(once) or abs(once - twice) > _SETTLED * scale or abs(claimed - once) <= _APART * scale:
        return ""
    return f"it gives a slope of {claimed:.6g}, the function's own is {once:.6g}"
