"""Small programs that are compiled, forward and backward: each meets some of the faults of stages.py.

In: a program's name. Out: it has run; an error of the compiler is printed, and is no traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import distcompile as dc
from distcompile import Tensor, nn
from distcompile.errors import DistCompileError

F = nn.functional


def mlp(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    h = dc.tanh(x @ w)
    h = F.layer_norm(h + dc.softmax(h * h, 1), (h.shape[1],))
    y = dc.tanh(h @ v) * (h.sum(1, keepdim=True) + 1)
    return (y - y.mean(0)).square().sum(1) + (h @ v).exp().amax(1)


def chain(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.exp()
    s = (y * x).tanh()
    return y, (s * 2 + x).sigmoid()


def turned(x: Tensor, w: Tensor) -> Tensor:
    h = dc.tanh(x @ w)
    return (h + h.flip(0)).exp() + (h - h.T).sum(0)


def signs(x: Tensor) -> Tensor:
    return -x + x.exp()


def tiny(x: Tensor) -> Tensor:
    return (x * 2.0**-145) * 2.0**127


def scaled(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w) * 0.5 + 1


def causal(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).tril().tanh() @ x[: w.shape[1]]


def compare(x: Tensor) -> Tensor:
    whole = (x * 3).round()
    return dc.where(whole < 1, x, x * 2) + dc.where(whole > 0, x, -x).abs()


def given(*shapes: tuple[int, ...]) -> list[Tensor]:
    dc.manual_seed(0)
    return [(dc.rand(*shape) * 2 - 1).requires_grad_() for shape in shapes]


PROGRAMS: dict[str, tuple[Callable[..., Tensor | tuple[Tensor, ...]], list[tuple[int, ...]]]] = {
    "mlp": (mlp, [(6, 8), (8, 10), (10, 5)]),
    "chain": (chain, [(5, 3)]),
    "turned": (turned, [(6, 6), (6, 6)]),
    "signs": (signs, [(5, 3)]),
    "tiny": (tiny, [(5, 3)]),
    "scaled": (scaled, [(4, 5), (5, 6)]),
    "causal": (causal, [(128, 128), (128, 128)]),
    "compare": (compare, [(8, 8)]),
}


if __name__ == "__main__":
    function, shapes = PROGRAMS[sys.argv[1]]
    try:
        found = dc.compile(function)(*given(*shapes))
        results = found if isinstance(found, tuple) else (found,)
        dc.autograd.backward([result.sum() for result in results])
    except DistCompileError as error:
        print(error, *getattr(error, "__notes__", ()), sep="\n")
