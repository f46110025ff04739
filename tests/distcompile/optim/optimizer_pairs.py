"""The same parameters and gradients for our optimizers and torch's.

In: shapes, a dtype, a seed. Out: pairs of parameter lists that start equal, and gradients to set on both.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import distcompile as dc

SHAPES = ((5, 7), (7,), (3, 2, 4), (1,), ())


def parameter_pair(torch: Any, dtype: str = "float32", seed: int = 0) -> tuple[list[Any], list[Any]]:
    """(ours, torch's): parameters with equal values, in order of SHAPES."""
    rng = np.random.default_rng(seed)
    values = [np.asarray(rng.standard_normal(shape), dtype) for shape in SHAPES]
    ours = [dc.nn.Parameter(dc.tensor(value)) for value in values]
    return ours, [torch.nn.Parameter(torch.tensor(value)) for value in values]


def set_gradients(torch: Any, ours: list[Any], theirs: list[Any], step: int, skip: tuple[int, ...] = ()) -> None:
    """Give both the same gradients, other ones at each step; none to the parameters `skip`."""
    rng = np.random.default_rng(1000 + step)
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        grad = np.asarray(rng.standard_normal(tuple(a.shape)), a.detach().numpy().dtype)
        a.grad = None if i in skip else dc.tensor(grad)
        b.grad = None if i in skip else torch.tensor(grad)


def assert_equal_parameters(ours: list[Any], theirs: list[Any], rtol: float, atol: float) -> None:
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        x, y = a.detach().numpy(), b.detach().numpy()
        np.testing.assert_allclose(x, y, rtol=rtol, atol=atol, err_msg=f"parameter {i}")
