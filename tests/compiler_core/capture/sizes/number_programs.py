"""What users do with sizes and with numbers from outside, and how often each is captured for the sizes of `SHAPES`.

In: nothing. Out: `PROGRAMS`: name -> (function of x: f32[B, T, 6], captures); `NUMBERED`: of x and a number n.
More than one capture is where a program asks: a branch, a loop, a key of a dictionary, a text that is looked at.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import distcompile as dc
from distcompile import Tensor
from distcompile.nn import functional as F

SHAPES = ((3, 4), (2, 7), (5, 4), (13, 11), (4, 6))
NUMBERS = (2, 3, 4, 5, 6)
PROGRAMS: dict[str, tuple[Callable[..., Any], int]] = {}
NUMBERED: dict[str, tuple[Callable[..., Any], int]] = {}
STATE = SimpleNamespace(size=0)


def _program(captures: int, table: dict[str, tuple[Callable[..., Any], int]] = PROGRAMS) -> Callable[..., Any]:
    def note(function: Callable[..., Any]) -> Callable[..., Any]:
        table[function.__name__] = (function, captures)
        return function

    return note


class Pair(NamedTuple):
    first: int
    second: int


@dataclass
class Sizes:
    rows: int
    shape: tuple[int, ...]


# -- one capture


@_program(1)
def heads(x: Tensor) -> Any:
    B, T, C = x.shape
    return x.view(B, T, 2, C // 2).transpose(1, 2).reshape(B, -1)


@_program(1)
def means(x: Tensor) -> Any:
    return x.sum() / x.numel(), x.sum(0) / x.size(0), x * len(x), x.sum() / math.prod(x.shape[1:])


@_program(1)
def scales(x: Tensor) -> Any:
    return x / math.sqrt(x.size(-1)), x * (1.0 / x.size(1)), x * x.size(0) ** -0.5, x * float(x.size(0))


@_program(1)
def made_alike(x: Tensor) -> Any:
    B, T, C = x.shape
    return dc.cat([x.new_zeros(B, 1, C), x], 1), dc.zeros(*x.shape) + x, dc.full((B, T), 2.5), dc.ones(*x.shape[:-1], 3)


@_program(1)
def positions(x: Tensor) -> Any:
    T = x.size(1)
    return x[:, :, 0] + dc.arange(T, device=x.device), dc.arange(1, T + 1), x[:, dc.arange(T - 1)]


@_program(1)
def parts(x: Tensor) -> Any:
    T = x.size(1)
    return x[:, : T - 1], x[:, T - 1], x[:, 1:T], x[:, T // 2 :], x.narrow(1, 1, T - 1), *x.split([1, T - 1], 1)


@_program(1)
def written_parts(x: Tensor) -> Any:
    y = x.clone()
    T = y.size(1)
    y[:, T - 1] = 0
    y[:, : T // 2] += 1
    return y


@_program(1)
def shapes_that_agree(x: Tensor) -> Any:
    y = x * 2
    assert x.shape == y.shape
    assert x.size(0) == y.shape[0]
    assert x.size(0) is not None
    assert x.size(0) != "a"
    return y if isinstance(x.size(1), int) and type(x.size(1)) is int else x


@_program(1)
def sizes_in_the_result(x: Tensor) -> Any:
    return x.shape, x.size(0), {"n": x.numel(), "l": [x.size(1) * 2]}, Pair(*x.shape[:2]), x + 1, x.stride()


@_program(1)
def sizes_in_containers(x: Tensor) -> Any:
    shape = [n + 0 for n in x.shape]
    return x.view(tuple(x.shape)), x.reshape(shape), dict(zip("abc", x.shape)), x.reshape(*reversed(shape[:1]), -1)


@_program(1)
def sizes_kept(x: Tensor) -> Any:
    STATE.size = x.size(1)
    return x + STATE.size


@_program(1)
def products(x: Tensor) -> Any:
    flat = functools.reduce(operator.mul, x.shape)
    return x.reshape(flat), sum(x.shape), divmod(x.numel(), 3), x.reshape(math.prod(x.shape))


@_program(1)
def closures(x: Tensor) -> Any:
    T = x.size(1)

    def head(y: Tensor) -> Tensor:
        return y[:, : T - 1]

    return head(x), functools.partial(lambda a, b: a * b, b=T)(x)


@_program(1)
def masks(x: Tensor) -> Any:
    T = x.size(1)
    return (x @ x.transpose(1, 2)).masked_fill(dc.tril(dc.ones(T, T)) == 0, float(T))


@_program(1)
def padded(x: Tensor) -> Any:
    return F.pad(x, (0, 0, 0, 16 - x.size(1))), x.expand(x.size(0), *x.shape[1:]), x[:1].repeat(x.size(0), 1, 1)


@_program(1)
def rounded(x: Tensor) -> Any:
    return x[:, : math.ceil(x.size(1) / 2)], math.isqrt(x.size(1)), round(x.size(1) * 0.5), int(x.size(1)), x.sum()


@_program(1)
def formatted(x: Tensor) -> Any:
    return x, f"{x.shape[0]} of {x.size(1)}"


# -- as often as a program asks


@_program(2)
def branches(x: Tensor) -> Any:
    return x * 2 if x.size(1) > 5 else x * 3


@_program(2)
def smaller_ones(x: Tensor) -> Any:
    return x[:, : min(x.size(1), 6)], max(x.size(0), 1) * x


@_program(2)
def halved(x: Tensor) -> Any:
    T, steps = x.size(1), 0
    while T > 1:
        T //= 2
        steps += 1
    return x * steps


@_program(2)
def matched(x: Tensor) -> Any:
    match x.shape:
        case (3, t, _):
            return x * t
        case (b, int(t), _):
            return x + b + t


@_program(5)
def loops(x: Tensor) -> Any:
    total = x[0] * 0
    for row in range(x.size(0)):
        total = total + x[row]
    return total


@_program(5)
def keys(x: Tensor) -> Any:
    table = {x.size(0): 1}
    table[x.size(1)] = 2
    return x * table[x.size(0)], table, {x.shape}, x.size(0) in table, set(x.shape), frozenset(zip(x.shape, x.shape))


@_program(5)
def texts(x: Tensor) -> Any:
    shown = Sizes(x.size(0), x.shape)
    old = "%d-%s" % x.shape[:2], "{} {}".format(*x.shape[:2])  # noqa: UP031
    joined = "x".join(str(n) for n in x.shape), x.shape.__repr__(), old
    return x, str(x.shape), repr(shown), str({"a": [x.shape]}.values()), joined


@_program(5)
def errors(x: Tensor) -> Any:
    try:
        raise ValueError(x.shape, x.size(0))
    except ValueError as error:
        return x, str(error), error.args


# -- with a number from outside: once as a constant, once for all that it may be


@_program(2, NUMBERED)
def tiled(x: Tensor, n: int) -> Any:
    return x.repeat(n, 1, 1), x.new_zeros(n * x.size(0), 2).view(x.size(0), n, 2)


@_program(2, NUMBERED)
def as_sizes(x: Tensor, n: int) -> Any:
    return dc.zeros(n, x.size(1)) + x[0, :, 0], dc.arange(n), dc.arange(n, n + x.size(1)), x.sum() + n


@_program(2, NUMBERED)
def as_places(x: Tensor, n: int) -> Any:
    return x[:, :n], x[:, -n:], x[:, n - 2], x[:, : n // 2]


@_program(2, NUMBERED)
def as_factors(x: Tensor, n: int) -> Any:
    return x * n, x + n * x.size(0)


@_program(3, NUMBERED)
def compared(x: Tensor, n: int) -> Any:
    return x * 2 if n > x.size(0) else x * 3
