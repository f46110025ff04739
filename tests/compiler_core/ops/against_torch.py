"""One expression, two libraries: calls written once run on our functions and on torch's; values and gradients compared.

In: `call(F, *operands)` where F has torch's functional names. Out: assertions. Ours runs eager on arrays, and traced
into a Graph whose joint graph (the vjp rules) gives the gradients; torch runs its autograd. Gradients are float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from traced_calls import CallF, outputs, trace

from compiler_core.aot.joint import make_joint
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph
from compiler_core.ops import functional
from compiler_core.ops.registry import Array

torch = pytest.importorskip("torch")


class TorchFunctional:
    """torch's functions under one name each: nn.functional's first, as ours are."""

    def __getattr__(self, name: str) -> Any:
        if name == "getitem":
            return lambda x, index: x[index]
        for place in (torch.nn.functional, torch, torch.Tensor):
            if hasattr(place, name):
                return getattr(place, name)
        raise AttributeError(name)


def to_torch(array: Array) -> Any:
    return torch.from_numpy(np.array(array))


def assert_values(call: CallF, arrays: Sequence[Array], rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """Eager and traced values, shapes and dtypes are torch's."""
    ours = outputs(call(functional, *arrays))
    traced = interpret(trace(call, arrays), list(arrays))
    theirs = outputs(call(TorchFunctional(), *map(to_torch, arrays)))
    assert len(ours) == len(theirs)
    for mine, again, other in zip(ours, traced, theirs):
        expected = other.detach().numpy()
        assert (mine.shape, str(mine.dtype)) == (expected.shape, str(expected.dtype))
        np.testing.assert_allclose(mine, expected, rtol=rtol, atol=atol)
        np.testing.assert_array_equal(again, mine)


def assert_second_gradients(call: CallF, arrays: Sequence[Array], rtol: float = 1e-8, atol: float = 1e-9) -> None:
    """In float64, the gradient of the weighted gradients of the summed outputs is torch's: vjps of vjps."""
    wide = [a.astype(np.float64) for a in arrays]
    first = make_joint(trace(call, wide), [True] * len(wide))
    leaves = [to_torch(a).requires_grad_() for a in wide]
    with torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.MATH]):  # the one with second derivatives
        theirs = outputs(call(TorchFunctional(), *leaves))
    total = sum(theirs[k].sum() for k in first.tangents)
    slopes = torch.autograd.grad(total, leaves, create_graph=True, allow_unused=True)
    ones = [np.ones(tuple(theirs[k].shape)) for k in first.tangents]
    gradients = Graph("gradients", first.graph.nodes, first.graph.outputs[first.outputs :])
    second = make_joint(gradients, [*[True] * len(wide), *[False] * len(ones)])
    rng = np.random.default_rng(4)
    weights = {k: rng.standard_normal(wide[i].shape) for k, i in enumerate(first.gradients)}
    curved = [k for k, i in enumerate(first.gradients) if slopes[i] is not None and slopes[i].requires_grad]
    bent = sum((slopes[first.gradients[k]] * to_torch(weights[k])).sum() for k in curved)
    expected = torch.autograd.grad(bent, leaves, allow_unused=True) if curved else [None] * len(leaves)
    results = interpret(second.graph, [*wide, *ones, *(weights[k] for k in second.tangents)])[second.outputs :]
    ours = dict(zip(second.gradients, results))
    for i, gradient in enumerate(expected):
        want = np.zeros(wide[i].shape) if gradient is None else gradient.numpy(force=True)
        mine = ours.get(i, np.zeros(wide[i].shape))
        np.testing.assert_allclose(mine, want, rtol=rtol, atol=atol, err_msg=f"second gradient of operand {i}")


def assert_gradients(call: CallF, arrays: Sequence[Array], rtol: float = 1e-9, atol: float = 1e-10) -> None:
    """In float64, the joint graph's gradients of a weighted sum of the outputs are torch's."""
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
    wanted = [a.dtype.kind == "f" for a in wide]
    joint = make_joint(trace(call, wide), wanted)
    leaves = [to_torch(a).requires_grad_(want) for a, want in zip(wide, wanted)]
    theirs = outputs(call(TorchFunctional(), *leaves))
    rng = np.random.default_rng(3)
    weights = [rng.standard_normal(tuple(theirs[k].shape)) for k in joint.tangents]
    results = interpret(joint.graph, [*wide, *weights])[joint.outputs :]
    loss = sum((theirs[k] * to_torch(w)).sum() for k, w in zip(joint.tangents, weights))
    loss.backward()
    expected = {k: leaf.grad.numpy() for k, leaf in enumerate(leaves) if leaf.grad is not None}
    ours = dict(zip(joint.gradients, results))
    for k, gradient in expected.items():
        mine = ours[k] if k in ours else np.zeros_like(gradient)
        np.testing.assert_allclose(mine, gradient, rtol=rtol, atol=atol, err_msg=f"gradient of operand {k}")
    assert all(k in expected or not np.any(gradient) for k, gradient in ours.items())
