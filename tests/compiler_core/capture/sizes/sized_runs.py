"""Functions compiled with sizes that the call decides, beside eager code: the first page of this folder.

In: a function, what makes its arguments for a size, sizes. Out: `check`, which runs both at each size and compares
results, gradients, and what the call wrote to its arguments; and how often the function was captured.
Sizes are those at which rules tend to differ: 2, primes, a power of two; 0 and 1, which are captures of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import distcompile as dc
from distcompile import Tensor

SIZES = (5, 2, 7, 64, 13)


def arguments(shapes: Sequence[Sequence[int]]) -> list[Tensor]:
    """Leaves that take gradients, of these shapes."""
    return [dc.randn(*shape).requires_grad_() for shape in shapes]


def check(
    function: Callable[..., Any],
    make: Callable[[int], Sequence[Tensor]],
    sizes: Sequence[int] = SIZES,
    *,
    backend: str = "aot_eager",
    compiled: Any = None,
    **options: Any,
) -> int:
    """Compare at each size; how often it was captured. compiled: what was compiled of it before."""
    compiled = compiled or dc.compile(function, backend=backend, dynamic=True, **options)
    for size in sizes:
        mine = make(size)
        others = [again(tensor) for tensor in mine]
        same(outcome(function, mine), outcome(compiled, others), f"at size {size}")
    return captures(compiled)


def captures(compiled: Any) -> int:
    return len(compiled.explain().entries)


def again(tensor: Tensor) -> Tensor:
    """An equal leaf, whose elements lie as those of the tensor do."""
    made: Tensor = dc.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    made.copy_(tensor.detach())
    return made.requires_grad_(tensor.requires_grad)


def outcome(function: Callable[..., Any], args: Sequence[Tensor]) -> list[Any]:
    """The results, the gradients of the sum of their squares, and the arguments as they are then."""
    found = function(*args)
    results = list(found) if isinstance(found, tuple | list) else [found]
    losses = [(r * r).sum() for r in results if isinstance(r, Tensor) and r.requires_grad]
    if losses:
        sum(losses[1:], losses[0]).backward()
    return [*results, *args, *(arg.grad for arg in args)]


def same(a: Any, b: Any, what: str) -> None:
    assert type(a) is type(b), what
    if isinstance(a, Tensor):
        assert (a.shape, a.dtype, a.requires_grad) == (b.shape, b.dtype, b.requires_grad), what
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-5, err_msg=what)
    elif isinstance(a, list | tuple):
        assert len(a) == len(b), what
        for x, y in zip(a, b):
            same(x, y, what)
    else:
        assert a == b, what
