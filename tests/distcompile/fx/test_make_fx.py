"""make_fx: what a function does to Tensors, as a module of the same arguments and results; what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.errors import GraphBreak
from distcompile import nn
from distcompile.fx.errors import FxError
from distcompile.fx.tracing import make_fx
from distcompile.nn import functional as F

MODEL = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))
RIGHT: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "a tree of results": (lambda x, n, y: {"a": x.sin() * n + y, "b": [x @ x.t()]}, (dc.randn(2, 3), 2, dc.ones(3))),
    "a module with parameters": (MODEL, (dc.randn(1, 1, 4, 4),)),
    "a gradient": (dc.func.grad(lambda x: x.sin().sum()), (dc.randn(3),)),
    "mapped": (dc.func.vmap(lambda x: F.softmax(x, 0)), (dc.randn(3, 2),)),
    "written in place": (lambda x: x.clone().add_(1).mul_(x), (dc.randn(3),)),
    "numbers first": (lambda n, x: x * n, (3.0, dc.randn(2))),
}


@pytest.mark.parametrize("name", RIGHT)
def test_the_module_computes_what_the_function_does(name: str) -> None:
    f, args = RIGHT[name]
    module = make_fx(f)(*args)
    module.graph.lint()
    others = [dc.randn(*arg.shape) if isinstance(arg, dc.Tensor) else arg for arg in args]
    got, expected = module(*others), f(*others)
    pairs = zip(dc.utils._pytree.tree_leaves(got), dc.utils._pytree.tree_leaves(expected), strict=True)
    assert dc.utils._pytree.tree_structure(got) == dc.utils._pytree.tree_structure(expected)
    for a, b in pairs:
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-6, atol=1e-6)


WRONG: dict[str, tuple[Callable[..., Any], type[Exception], str]] = {
    "writes into its argument": (lambda x: x.add_(1), FxError, "writes into an argument"),
    "keeps statistics": (nn.BatchNorm1d(3), FxError, "did not make"),
    "draws": (lambda x: F.dropout(x, 0.5), FxError, "at random"),
    "asks for a value": (lambda x: x if x.sum() > 0 else -x, GraphBreak, "needs the data"),
    "returns a number": (lambda x: (x, 3), FxError, "Tensors alone"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_a_module_could_not_do_again_is_refused(name: str) -> None:
    f, error, text = WRONG[name]
    with pytest.raises(error, match=text):
        make_fx(f)(dc.randn(4, 3))


def test_aot_function() -> None:
    from distcompile._dynamo.aot import aot_function, make_boxed_func

    seen: list[str] = []

    def compiler(module: Any, example_inputs: Any) -> Any:
        seen.append(module.ir.name)
        return make_boxed_func(module.forward)

    a, b = dc.ones(3, requires_grad=True), dc.full((3,), 2.0, requires_grad=True)
    aot_function(lambda a, b: (a * b).sin().sum(), fw_compiler=compiler)(a, b).backward()
    np.testing.assert_allclose(a.grad.numpy(), 2 * np.cos(np.full(3, 2.0)), rtol=1e-6)
    assert [name.rpartition("_")[2] for name in seen] == ["forward", "backward"]
