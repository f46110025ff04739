"""Random small Python programs on handles: what a user's function may do to tensors, views, and memory.

In: a seed. Out: `program(seed)`, a function of three tensors: x f32[2, 3], y f32[2, 3], w f32[3, 2] (w may require a
gradient). It computes, takes views, writes in place to its own tensors and to x and y, draws random numbers, detaches,
and returns some tensors in some structure. Its choices depend on the seed alone, so every call does the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.making.creation import ones
from compiler_core.tensor.making.random_creation import rand
from compiler_core.tensor.tensor import Tensor
from distcompile.nn import functional as F


def program(seed: int, size: int = 12) -> Callable[[Tensor, Tensor, Tensor], Any]:
    """A function that makes about `size` random steps."""

    def function(x: Tensor, y: Tensor, w: Tensor) -> Any:
        rng = random.Random(seed)
        values = [x, y, w]
        for _ in range(size):
            made = rng.choice(STEPS)(rng, values)
            if made is not None:
                values.append(made)
        return _returned(rng, values)

    return function


def _pick(rng: random.Random, values: list[Tensor]) -> Tensor:
    return values[rng.randrange(len(values))] if rng.random() < 0.4 else rng.choice(values[-4:])


def _unary(rng: random.Random, values: list[Tensor]) -> Tensor:
    x = _pick(rng, values)
    return rng.choice([x.tanh, x.sigmoid, lambda: -x, lambda: x * 0.5, lambda: x + 1, lambda: x * x])()


def _binary(rng: random.Random, values: list[Tensor]) -> Tensor:
    x = _pick(rng, values)
    other = rng.choice([v for v in values if v.shape == x.shape])
    return rng.choice([x.__add__, x.__sub__, x.__mul__, x.maximum])(other)


def _product(rng: random.Random, values: list[Tensor]) -> Tensor | None:
    x = _pick(rng, values)
    fitting = [v for v in values if x.ndim == v.ndim == 2 and v.shape[0] == x.shape[1]]
    return x @ rng.choice(fitting) * 0.3 if fitting else None


def _view(rng: random.Random, values: list[Tensor]) -> Tensor | None:
    x = _pick(rng, values)
    if x.ndim != 2:
        return x.reshape(1, -1)
    return rng.choice([x.t, lambda: x[0:1], lambda: x[:, 1:], lambda: x.reshape(-1, 1), lambda: x.unsqueeze(0)[0]])()


def _reduce(rng: random.Random, values: list[Tensor]) -> Tensor:
    x = _pick(rng, values)
    return rng.choice([lambda: x.mean(0, keepdim=True), lambda: x.sum(-1, keepdim=True), lambda: x - x.mean()])()


def _write(rng: random.Random, values: list[Tensor]) -> None:
    """In place, where eager allows it and a graph can express it."""
    x = rng.choice(values)
    base = x
    while base._base is not None:
        base = base._base
    if base is values[2]:
        return
    outside = any(base is v for v in values[:2])
    if outside:
        with no_grad():
            rng.choice([lambda: x.add_(1), lambda: x.mul_(0.5), x.zero_])()
        return
    rng.choice([lambda: x.add_(1), lambda: x.mul_(0.5), lambda: x.__setitem__(0, 2.0)])()


def _aside(rng: random.Random, values: list[Tensor]) -> Tensor:
    x = _pick(rng, values)
    if rng.random() < 0.5:
        return x.detach() * 1
    with no_grad():
        return x * 2


def _random(rng: random.Random, values: list[Tensor]) -> Tensor:
    x = _pick(rng, values)
    return F.dropout(x, 0.3) if rng.random() < 0.5 else x + rand(*x.shape)


def _constant(rng: random.Random, values: list[Tensor]) -> Tensor:
    x = _pick(rng, values)
    return ones(*x.shape) * rng.choice([0.0, 1.0, 2.0])


STEPS: list[Callable[[random.Random, list[Tensor]], Tensor | None]] = [
    *(_unary, _unary, _binary, _binary, _product, _view, _view, _reduce, _write, _aside, _random, _constant)
]


def _returned(rng: random.Random, values: list[Tensor]) -> Any:
    chosen = rng.sample(values, k=rng.randint(1, 4))
    return rng.choice([lambda: chosen[0], lambda: tuple(chosen), lambda: {"all": chosen, "n": len(chosen)}])()
