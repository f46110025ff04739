"""The reference with rules of its own: central differences of the loss in float64, on samples.

In: a float64 `Case` and the float64 gradients that backward gave. Out: for each parameter a `Differences`: how far
backward is from what the loss really does. No vjp takes part, so a wrong rule (an op's, or the backward of a user's
autograd.Function) is found, which eager, compiled and float64 references that share the rule cannot.
Samples of a parameter: one random direction d through all its elements, then its element of greatest gradient, then
random ones. Step control: steps shrink tenfold until two slopes agree well enough; what they still disagree by, and the
loss's rounding over the step, is the uncertainty of the difference (Press et al., Numerical Recipes, section 5.7).
What one direction proves: |d_i| is random in [0.5, 1.5], its sign too, so that a fault e in the gradient shows as
|sum of e_i d_i|. A fault in one element cannot hide: it shows as at least |e|/2. Faults in several cancel only if they
lie, to within the tolerance, at right angles to a direction that they were not chosen for; two equal and opposite ones
(exchanged elements) do not, as they would for half of all directions of ones. What shows is found if it exceeds
TOLERANCE of the slope along d, which for n elements alike is about sqrt(n) times one of them. Elements that are sampled
alone are held to TOLERANCE of their own slope.
What differences cannot judge is marked, not failed: kinks (left and right slopes differ at the smallest step), slopes
that never settle, gradients that pass through hooks (a hook may change them on purpose), and what time did not allow.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from compiler_core.ops.registry import Array
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.tensor import Tensor
from distcompile.nn.module import Module
from distcompile.parity.case import Case, copy_of
from distcompile.parity.report import Differences, Gradients

STEPS = (1e-3, 1e-4, 1e-5, 1e-6)  # relative to the parameter's size
ROUNDING = 4  # units in the last place that a loss, a sum of many terms, is uncertain by
AGREEMENT = 1e-6  # two slopes this close: the step is small enough
TOLERANCE = 1e-5  # of a gradient against a slope, relative; far above float64's noise, far below a wrong rule
NEGLIGIBLE = 1e-4  # of the greatest gradient of the parameter: a slope below that is noise
UNSETTLED = 1e-2  # a slope known no better than this says nothing


@dataclass(slots=True)
class _Outcome:
    """What samples of one parameter said so far."""

    checked: int = 0
    error: float = 0.0
    failure: str = ""
    marks: dict[str, int] = field(default_factory=dict)

    def mark(self, why: str) -> None:
        self.marks[why] = self.marks.get(why, 0) + 1

    def result(self) -> Differences:
        marks = tuple(why if count == 1 else f"{why} ({count} samples)" for why, count in self.marks.items())
        return Differences(self.checked, self.error, self.failure, marks)


def check_differences(
    case: Case, gradients: Gradients, *, samples: int, limit_s: float, say: Callable[[str], None] = lambda name: None
) -> dict[str, Differences]:
    """Judge every gradient. case: in float64. samples: elements a parameter, beside one direction. limit_s: in all.

    say: is told the name of each parameter before it is judged.
    """
    module = copy_of(case.module)
    hooked = hooks_of(module)
    rng = np.random.default_rng(case.seed)
    until_s = time.perf_counter() + limit_s
    found: dict[str, Differences] = {}
    for name, parameter in module.named_parameters():
        say(name)
        outcome = _Outcome()
        gradient = gradients.get(name)
        if gradient is None:
            outcome.mark("no gradient")
        elif name in hooked or "" in hooked:
            outcome.mark(f"not judged: {hooked.get(name) or hooked['']}")
        else:
            slope = _Slope(case, module, parameter, gradient)
            for what, direction in _directions(gradient, samples, rng):
                if time.perf_counter() > until_s:
                    outcome.mark("not judged: time is up")
                    break
                _judge(outcome, what, slope, direction, float((gradient * direction).sum()))
        found[name] = outcome.result()
    return found


def hooks_of(module: Module) -> dict[str, str]:
    """Parameters whose gradients hooks may change: name -> which. Under "": hooks of modules, which may change all."""
    found = {}
    for name, child in module.named_modules():
        if child._backward_hooks or child._backward_pre_hooks:
            found[""] = f"backward hooks of {name or type(child).__name__}"
    for name, parameter in module.named_parameters():
        if parameter._hooks is not None and parameter._hooks.grad:
            found[name] = "its gradient passes a hook"
    return found


def _directions(gradient: Array, samples: int, rng: np.random.Generator) -> Iterator[tuple[str, Array]]:
    """What is moved, and by how much each element: f64 of the gradient's shape."""
    if gradient.size == 0:
        return
    yield "along a random direction", random_direction(gradient.shape, rng)
    greatest = int(np.argmax(np.abs(np.nan_to_num(gradient))))
    others = [n for n in rng.permutation(gradient.size).tolist() if n != greatest]
    for flat in [greatest, *others][:samples] if gradient.size > 1 else []:
        direction = np.zeros(gradient.size)
        direction[flat] = 1.0
        place = [int(n) for n in np.unravel_index(flat, gradient.shape)]
        yield f"at element {place}", direction.reshape(gradient.shape)


def random_direction(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """f64[shape]: magnitudes in [0.5, 1.5], random signs."""
    return np.where(rng.random(shape) < 0.5, -1.0, 1.0) * rng.uniform(0.5, 1.5, shape)


class _Slope:
    """The loss along one parameter of a module, everything else as it is."""

    def __init__(self, case: Case, module: Module, parameter: Tensor, gradient: Array) -> None:
        self.case, self.module, self.parameter = case, module, parameter
        self.start: Array = parameter._array("parity").copy()
        self.buffers = [(buffer, buffer._array("parity").copy()) for buffer in module.buffers()]
        self.size = size_of(self.start)
        self.greatest = float(np.abs(np.nan_to_num(gradient)).max(initial=0.0))

    def _put(self, value: Array) -> None:
        """Make this the parameter's value."""
        self.parameter._cell.write(self.parameter.device.put(value))

    def along(self, direction: Array) -> Callable[[float], float]:
        """The loss as a function of how far the parameter is moved; module and buffers are put back."""

        def loss(step: float) -> float:
            self._put(self.start + step * direction)
            try:
                with no_grad():
                    return float(self.case.run(self.module))
            finally:
                self._put(self.start)
                for buffer, array in self.buffers:
                    buffer._cell.write(buffer.device.put(array.copy()))

        return loss


def size_of(start: Array) -> float:
    """The unit of steps: the root mean square, or a hundredth."""
    return max(float(np.sqrt(np.mean(np.square(start)))) if start.size else 0.0, 1e-2)


def central(function: Callable[[float], float], size: float) -> tuple[float, float]:
    """The slope of a float64 function at 0, and how uncertain it is: by what a smaller step changes, and by rounding.

    Two slopes that differ by less than rounding does agree by chance, so rounding is counted beside it."""
    best, previous = (math.nan, math.inf), math.nan
    for relative in STEPS:
        step = relative * size
        right, left = function(step), function(-step)
        slope = (right - left) / (2 * step)
        uncertain = abs(slope - previous) + ROUNDING * float(np.spacing(max(abs(right), abs(left)))) / step
        if uncertain < best[1]:
            best = (slope, uncertain)
        if uncertain <= AGREEMENT * abs(slope):
            break
        previous = slope
    return best


def kink(function: Callable[[float], float], size: float) -> float:
    """By how much left and right slope differ in a way that smaller steps do not mend; 0: smooth."""
    jumps = []
    middle = function(0.0)
    for relative in STEPS[-2:]:
        step = relative * size
        jumps.append(abs((function(step) - 2 * middle + function(-step)) / step))
    return jumps[1] if jumps[1] > 0.5 * jumps[0] else 0.0


def _judge(outcome: _Outcome, what: str, slope: _Slope, direction: Array, claimed: float) -> None:
    """Compare backward's derivative along `direction` with the loss's own."""
    loss = slope.along(direction)
    measured, uncertainty = central(loss, slope.size)
    if not math.isfinite(claimed):
        if math.isfinite(measured):
            outcome.checked, outcome.error = outcome.checked + 1, math.inf
            outcome.failure = (
                outcome.failure or f"differences: backward gives {claimed} {what}, the loss {measured:.6g}"
            )
        else:
            outcome.mark("neither backward nor the loss is finite")
        return
    if not math.isfinite(measured):
        outcome.mark("the loss is not finite nearby")
        return
    outcome.checked += 1
    size = max(abs(measured), abs(claimed))
    apart = abs(measured - claimed)
    error = apart / max(size, slope.greatest) if apart else 0.0
    if apart <= TOLERANCE * max(size, NEGLIGIBLE * slope.greatest) + 3 * uncertainty + 1e-12:
        outcome.error = max(outcome.error, error)
        return
    if kink(loss, slope.size) > 1e-3 * apart:
        outcome.mark("a kink: left and right slopes differ")
    elif uncertainty > UNSETTLED * size:
        outcome.mark("the slope does not settle")
    else:
        outcome.error = max(outcome.error, error)
        outcome.failure = (
            outcome.failure
            or f"differences: backward gives {claimed:.6g} {what}, the loss's own slope is {measured:.6g}"
        )
