"""Draws that need rejection: Gamma, Dirichlet, Poisson, binomial and von Mises variates.

In: Tensors of parameters. Out: a Tensor of draws, of their shape and dtype. Each call takes one key of the generator,
which seeds one of NumPy's for the call: reproducible, of any parameters, but not in a graph (GraphBreak).
A Gamma draw has its implicit gradient (Figurnov et al. 2018): dx/da = -(dP(a, x)/da) / p(x), by central differences of
log P, or of log Q beyond the mean, in float64; a Dirichlet draw has that of the Gammas it is made of.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from compiler_core.errors import GraphBreak, ShapeError
from compiler_core.location import user_location
from compiler_core.ops import prims
from compiler_core.ops.registry import OPS, Array, current_trace
from compiler_core.tensor.placement import check_generator
from compiler_core.tensor.random import Generator, default_generator
from compiler_core.tensor.tensor import Tensor

_LGAMMA = np.vectorize(math.lgamma, otypes=[np.float64])
_STEP = 1e-4  # of the differences, relative to a (at least to 1e-4): their error is about 1e-8


def _drawn(name: str, generator: Generator | None, draw: Callable[..., Any], *parameters: Tensor) -> Tensor:
    """draw(a generator of NumPy's, the parameters in float64) in the dtype of the first parameter."""
    if current_trace() is not None:
        raise GraphBreak(f"{name} draws by rejection, which cannot be traced", where=user_location())
    check_generator(generator, parameters[0].device)
    key = (generator or default_generator).next_key()[0]
    source = np.random.Generator(np.random.Philox(key=key[:2], counter=[0, 0, 0, int(key[2])]))
    arrays = [np.asarray(p._array(name), np.float64) for p in parameters]
    drawn = np.asarray(draw(source, *arrays)).astype(parameters[0].dtype.numpy)
    return Tensor._wrap(parameters[0].device.put(drawn))


def standard_gamma(alpha: Tensor, generator: Generator | None = None) -> Tensor:
    """x with density x^(a-1) exp(-x) / Γ(a), for alpha f[*] > 0; at least the dtype's smallest number."""
    tiny = float(np.finfo(np.float32 if alpha.dtype.itemsize < 8 else np.float64).tiny)
    drawn = _drawn("a Gamma variate", generator, lambda source, a: np.maximum(source.standard_gamma(a), tiny), alpha)
    if not alpha.requires_grad:
        return drawn
    slope = standard_gamma_grad(alpha.detach(), drawn)
    return drawn + (alpha - alpha.detach()) * slope


def standard_gamma_grad(alpha: Tensor, output: Tensor) -> Tensor:
    """The derivative of a draw for its parameter: f[*], of alpha f[*] and the draws f[*]."""
    a, x = (np.asarray(t._array("the derivative of a draw"), np.float64) for t in (alpha, output))
    return Tensor._wrap(alpha.device.put(_slope(*np.broadcast_arrays(a, x)).astype(alpha.dtype.numpy)))


def _slope(a: Array, x: Array) -> Array:
    lower, upper = OPS["igamma"], OPS["igammac"]
    h = _STEP * np.maximum(a, 1e-4)
    with np.errstate(all="ignore"):
        log_density = (a - 1) * np.log(x) - x - _LGAMMA(a)
        below = np.asarray(x <= a)
        sides = []
        for op, sign in ((lower, -1.0), (upper, 1.0)):
            high, middle, low = (op.eager(np, v, np.ascontiguousarray(x)) for v in (a + h, a + 0, a - h))
            slope = (np.log(high) - np.log(low)) / (2 * h)
            sides.append(sign * slope * np.exp(np.log(middle) - log_density))
        found = np.where(below, *sides)
        return np.where(np.isfinite(found), found, np.sqrt(x / a))  # further out than any draw


def sample_dirichlet(concentration: Tensor, generator: Generator | None = None) -> Tensor:
    """Points of the simplex f[*, K] from concentration f[*, K] > 0."""
    gammas = standard_gamma(concentration, generator)
    return gammas / gammas.sum(-1, keepdim=True)


def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Counts with the means `input` f[*] >= 0, in its dtype."""
    if current_trace() is None and not bool((input.detach() >= 0).all()):
        raise ShapeError("invalid Poisson rate, expected rate to be non-negative")
    return _drawn("a Poisson variate", generator, lambda source, rate: source.poisson(rate), input)


def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """How many of `count` f[*] trials succeed, each with probability `prob` f[*]."""
    alike = count if count.dtype is prob.dtype else prims.cast(count, prob.dtype)
    return _drawn("a binomial variate", generator, lambda source, n, p: source.binomial(n.astype(np.int64), p),
                  alike, prob)  # fmt: skip


def von_mises(loc: Tensor, concentration: Tensor, generator: Generator | None = None) -> Tensor:
    """Angles in [-π, π) around loc f[*], of concentration f[*] > 0."""
    return _drawn("a von Mises variate", generator, lambda source, m, k: source.vonmises(m, k), loc, concentration)
