"""A step length that satisfies the strong Wolfe conditions, by cubic interpolation.

In: a function of the step length t that gives (value, gradient) on a line, and both at t = 0. Out: a `Point` on it.
    f(t) <= f(0) + c1·t·f'(0)  and  |f'(t)| <= c2·|f'(0)|.
Method: bracket, then zoom (Nocedal, Wright 2006, algorithms 3.5 and 3.6), with the constants and safeguards of
Schmidt's minFunc, as torch's LBFGS has them: the same points are visited.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from compiler_core.ops.registry import Array

SUFFICIENT_DECREASE, CURVATURE = 1e-4, 0.9  # c1, c2


@dataclass(frozen=True, slots=True)
class Point:
    """A place on the line: step length, value, gradient (flat), and the slope along the line."""

    t: float
    value: float
    gradient: Array
    slope: float


Evaluate = Callable[[float], Point]


def strong_wolfe(
    evaluate: Evaluate, start: Point, t: float, longest: float, tolerance_change: float = 1e-9, max_steps: int = 25
) -> tuple[Point, int]:
    """The point found, and how often `evaluate` was called. longest: the greatest element of the direction, absolute.

    start: the point at t = 0. tolerance_change: a bracket that moves no parameter by more than this is small enough.
    """
    bracket, steps = _bracket(evaluate, start, t, max_steps)
    low = 0 if bracket[0].value <= bracket[-1].value else 1  # which end of the bracket has the lower value
    is_stuck, is_found = False, len(bracket) == 1
    evaluations = steps + 1
    while not is_found and steps < max_steps and abs(bracket[1].t - bracket[0].t) * longest >= tolerance_change:
        t, is_stuck = _inside(bracket[0].t, bracket[1].t, cubic_minimum(bracket[0], bracket[1]), is_stuck)
        new = evaluate(t)
        evaluations, steps = evaluations + 1, steps + 1
        if new.value > start.value + SUFFICIENT_DECREASE * t * start.slope or new.value >= bracket[low].value:
            bracket[1 - low] = new
            low = 0 if bracket[0].value <= bracket[1].value else 1
            continue
        is_found = abs(new.slope) <= -CURVATURE * start.slope
        if not is_found and new.slope * (bracket[1 - low].t - bracket[low].t) >= 0:
            bracket[1 - low] = bracket[low]
        bracket[low] = new
    return bracket[low], evaluations


def _bracket(evaluate: Evaluate, start: Point, t: float, max_steps: int) -> tuple[list[Point], int]:
    """Two points around one that satisfies the conditions, or that one alone; and how many steps were taken."""
    before, new = start, evaluate(t)
    for step in range(max_steps):
        if new.value > start.value + SUFFICIENT_DECREASE * new.t * start.slope or (
            step > 1 and new.value >= before.value
        ):
            return [before, new], step
        if abs(new.slope) <= -CURVATURE * start.slope:
            return [new], step
        if new.slope >= 0:
            return [before, new], step
        bounds = (new.t + 0.01 * (new.t - before.t), new.t * 10)
        before, new = new, evaluate(cubic_minimum(before, new, bounds))
    return [start, new], max_steps


def cubic_minimum(a: Point, b: Point, bounds: tuple[float, float] | None = None) -> float:
    """Where the cubic through a and b with their slopes is least, clamped to `bounds` (a.t and b.t unless given)."""
    least, most = bounds or (min(a.t, b.t), max(a.t, b.t))
    if a.t == b.t:
        return (least + most) / 2
    d1 = a.slope + b.slope - 3 * (a.value - b.value) / (a.t - b.t)
    square = d1 * d1 - a.slope * b.slope
    if not square >= 0:
        return (least + most) / 2
    left, right = (a, b) if a.t <= b.t else (b, a)
    d2 = math.sqrt(square)
    denominator = right.slope - left.slope + 2 * d2
    if denominator == 0:
        return (least + most) / 2
    t = right.t - (right.t - left.t) * ((right.slope + d2 - d1) / denominator)
    return min(max(t, least), most)


def _inside(a: float, b: float, t: float, is_stuck: bool) -> tuple[float, bool]:
    """t, moved a tenth of the bracket inside if it lies at an end, or near one for the second time."""
    least, most = min(a, b), max(a, b)
    margin = 0.1 * (most - least)
    if min(most - t, t - least) >= margin:
        return t, False
    if is_stuck or t >= most or t <= least:
        return (most - margin if abs(t - most) < abs(t - least) else least + margin), False
    return t, True
