"""One call on both libraries: results and gradients of ours, eager and compiled, against torch's.

In: `call(nn, *tensors)` and arrays; `nn` is `torch.nn.functional`, ours or torch's. Out: assertions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.ops.registry import Array

torch = pytest.importorskip("torch")

CallF = Callable[..., Any]


def results(value: Any) -> list[Any]:
    """One result or several, as a list."""
    return list(value) if isinstance(value, tuple) else [value]


def assert_like_torch(call: CallF, *arrays: Array, compiled: bool = False, rtol: float = 1e-4) -> None:
    """Values, shapes and dtypes of all results; gradients of the first, if floating, in every floating array."""
    floating = [array.dtype.kind == "f" for array in arrays]
    ours = [dc.tensor(array).requires_grad_(f) for array, f in zip(arrays, floating)]
    theirs = [torch.tensor(array).requires_grad_(f) for array, f in zip(arrays, floating)]

    def on_ours(*tensors: Any) -> Any:
        return call(dc.nn.functional, *tensors)

    run = dc.compile(on_ours, fullgraph=True) if compiled else on_ours
    mine, want = results(run(*ours)), results(call(torch.nn.functional, *theirs))
    assert len(mine) == len(want)
    for a, b in zip(mine, want):
        expected = b.detach().numpy()
        assert (tuple(a.shape), str(a.dtype).split(".")[1]) == (expected.shape, str(b.dtype).split(".")[1])
        np.testing.assert_allclose(a.detach().numpy(), expected, rtol=rtol, atol=rtol)
    if not any(floating) or not want[0].requires_grad:
        return
    cotangent = np.random.default_rng(1).standard_normal(tuple(want[0].shape)).astype(want[0].detach().numpy().dtype)
    mine[0].backward(dc.tensor(cotangent))
    want[0].backward(torch.tensor(cotangent))
    for a, b in zip(ours, theirs):
        if b.grad is not None:
            np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=rtol, atol=rtol)
