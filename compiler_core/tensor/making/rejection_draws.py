"""Draws that need rejection: Gamma, Dirichlet, Poisson, binomial and von Mises variates.

In: Tensors of parameters. Out: a Tensor of draws, of their shape and dtype; not in a graph (GraphBreak). A generator of
torch's draws torch's, by native code. A counter-based one gives a key, which seeds one of NumPy's for the call; so does
torch's where there is no compiler, which is said once.
A Gamma draw has its implicit gradient (Figurnov et al. 2018): dx/da = -(dP(a, x)/da) / p(x), by central differences of
log P, or of log Q beyond the mean, in float64; a Dirichlet draw has that of the Gammas it is made of.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from compiler_core import log
from compiler_core.dtype import float64
from compiler_core.errors import GraphBreak, ShapeError
from compiler_core.location import user_location
from compiler_core.ops import prims
from compiler_core.ops.composites.logic import where
from compiler_core.ops.random.mersenne import as_dtype
from compiler_core.ops.refusals import need_kind
from compiler_core.ops.registry import OPS, Array, current_trace
from compiler_core.tensor.making.placement import check_generator
from compiler_core.tensor.making.random import Generator, generator_for
from compiler_core.tensor.making.random_creation import rand
from compiler_core.tensor.making.random_state import Torch
from compiler_core.tensor.tensor import Tensor

_LGAMMA = np.vectorize(math.lgamma, otypes=[np.float64])
_STEP = 1e-4  # of the differences, relative to a (at least to 1e-4): their error is about 1e-8


def _drawn(name: str, kind: str, generator: Generator | None, draw: Callable[..., Any], *parameters: Tensor) -> Array:
    """f64[*]: native `kind` of the parameters; or draw(a generator of NumPy's, the parameters in float64)."""
    if current_trace() is not None:
        raise GraphBreak(f"{name} draws by rejection, which cannot be traced", where=user_location())
    place = parameters[0].device
    check_generator(generator, place)
    state = generator_for(place, generator)._state()
    arrays = [np.asarray(p._array(name)) for p in parameters]
    if isinstance(state, Torch):
        alike = np.broadcast_arrays(*[a if a.dtype == np.float64 else a.astype(np.float32) for a in arrays])
        if (found := state.rejected(kind, *map(np.ascontiguousarray, alike))) is not None:
            return found
        log.warn_once("rejection draws", f"{name} is drawn by NumPy, for want of a compiler: not torch's numbers")
    key = state.take_keys(1)
    source = np.random.Generator(np.random.Philox(key=key[:2], counter=[0, 0, 0, int(key[2])]))
    return np.asarray(draw(source, *(a.astype(np.float64) for a in arrays)), np.float64)


def _as_tensor(drawn: Array, like: Tensor) -> Tensor:
    return Tensor._wrap(like.device.put(as_dtype(drawn, like.dtype)))


def standard_gamma(alpha: Tensor, generator: Generator | None = None) -> Tensor:
    """x with density x^(a-1) exp(-x) / Γ(a), for alpha f[*] > 0; at least the dtype's smallest number."""
    tiny = float(np.finfo(np.float32 if alpha.dtype.itemsize < 8 else np.float64).tiny)
    found = _drawn("a Gamma variate", "gamma", generator, lambda source, a: source.standard_gamma(a), alpha)
    drawn = _as_tensor(np.maximum(found, tiny), alpha)
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
    """Points of the simplex f[*, K] from concentration f[*, K] > 0: Gamma variates, as doubles, over their sum."""
    gammas = standard_gamma(concentration.to(float64), generator)
    numbers = np.finfo(np.float32 if concentration.dtype.itemsize < 8 else np.float64)
    shares = (gammas / gammas.sum(-1, keepdim=True)).to(concentration.dtype)
    return shares.clamp(float(numbers.tiny), 1.0 - float(numbers.epsneg))


def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Counts with the means `input` f[*] >= 0, in its dtype."""
    need_kind("poisson", "f", input)
    if current_trace() is None and not bool((input.detach() >= 0).all()):
        raise ShapeError("invalid Poisson rate, expected rate to be non-negative")
    wide = input.detach().to(float64)
    found = _drawn("a Poisson variate", "poisson", generator, lambda source, rate: source.poisson(rate), wide)
    return _as_tensor(found, input)


def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """How many of `count` f[*] trials succeed, each with probability `prob` f[*]."""
    alike = count if count.dtype is prob.dtype else prims.cast(count, prob.dtype)
    return _as_tensor(
        _drawn("a binomial variate", "binomial", generator,
               lambda source, n, p: source.binomial(n.astype(np.int64), p), alike, prob),
        prob,
    )  # fmt: skip


def von_mises(loc: Tensor, concentration: Tensor) -> Tensor:
    """Angles in [-π, π) around loc f[*], of concentration f[*] > 0, of one shape; computed as doubles, as in torch.

    By rejection from a wrapped Cauchy distribution (Best and Fisher 1979): rounds of uniform numbers for every angle,
    until all are found.
    """
    if current_trace() is not None:
        raise GraphBreak("a von Mises variate draws by rejection, which cannot be traced", where=user_location())
    place, k = loc.device, concentration.to(float64)
    tau = 1 + (1 + 4 * k**2).sqrt()
    rho = (tau - (2 * tau).sqrt()) / (2 * k)
    r = where(k < 1e-5, 1 / k + k, (1 + rho**2) / (2 * rho))
    angle, found = k * 0, k < 0
    while not bool(found.all()):
        first, second, third = rand((3, *loc.shape), dtype=float64, device=place).unbind()
        z = (math.pi * first).cos()
        f = (1 + r * z) / (r + z)
        c = k * (r - f)
        accepted = (c * (2 - c) - second > 0) | ((c / second).log() + 1 - c >= 0)
        angle = where(accepted, (third - 0.5).sign() * f.acos(), angle)
        found = found | accepted
    return ((angle + math.pi + loc.to(float64)) % (2 * math.pi) - math.pi).to(loc.dtype)
