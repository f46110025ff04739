"""torch.autograd.functional: Jacobians, Hessians and their products with vectors, by the tape.

In: a function of one or several Tensors, and its inputs: a Tensor or a tuple of them. Out: results of the same
structure, a Tensor where one was given and tuples where tuples were. Inputs that do not matter have zero derivatives,
unless `strict`: then they are an error. create_graph: the results can be differentiated again.
A Jacobian is one backward per element of the output; `jvp` is the double backward of Pearlmutter's trick
(Neural Computation 6, 1994). Of torch's options `vectorize` and `strategy` are taken; they change no result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from compiler_core.errors import AutogradError
from compiler_core.ops import functional as F
from compiler_core.tensor.autograd.backward import grad
from compiler_core.tensor.autograd.grad_mode import enable_grad
from compiler_core.tensor.making.creation import full_like
from compiler_core.tensor.tensor import Tensor

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

Tensors: TypeAlias = "Tensor | tuple[Tensor, ...]"
Function: TypeAlias = "Callable[..., Any]"


def vjp(func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """(func(*inputs), v^T J). v: like the output; needed unless that has one element."""
    with enable_grad():
        xs, outs, one, single = _run(func, inputs, create_graph)
        products = _gradients(outs, xs, _vectors(v, outs, "v"), create_graph, strict)
    return _given(outs, single, create_graph), _given(products, one, create_graph)


def jvp(func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """(func(*inputs), J v). v: like the inputs; needed unless they have one element."""
    with enable_grad():
        xs, outs, _, single = _run(func, inputs, create_graph)
        weights = tuple(full_like(out, 0.0).requires_grad_() for out in outs)
        by_weights = _gradients(outs, xs, weights, True, strict)
        products = _gradients(by_weights, weights, _vectors(v, xs, "v"), create_graph, strict)
    return _given(outs, single, create_graph), _given(products, single, create_graph)


def jacobian(
    func: Function,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """d func / d inputs: shape (*output, *input); nested tuples (output, input) where these are tuples."""
    with enable_grad():
        xs, outs, one, single = _run(func, inputs, create_graph)
        rows = tuple(_given(_jacobian_of(out, xs, create_graph, strict), one, create_graph) for out in outs)
    return rows[0] if single else rows


def hessian(
    func: Function,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The second derivatives of a function with one element: the Jacobian of its gradient."""

    def gradient(*xs: Tensor) -> Any:
        out = _one_element(func(*xs))
        found = _gradients((out,), xs, (None,), True, strict)
        return found if isinstance(inputs, (tuple, list)) else found[0]

    return jacobian(gradient, inputs, create_graph, strict)


def vhp(func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """(func(*inputs), v^T H), H the Hessian. v: like the inputs."""
    with enable_grad():
        xs, outs, one, single = _run(func, inputs, create_graph)
        slopes = _gradients((_one_element(outs[0]),), xs, (None,), True, strict)
        products = _gradients(slopes, xs, _vectors(v, xs, "v"), create_graph, strict)
    return _given(outs, single, create_graph), _given(products, one, create_graph)


def hvp(func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """(func(*inputs), H v): H is symmetric, so this is `vhp`."""
    return vhp(func, inputs, v, create_graph, strict)


def _run(func: Function, inputs: Any, create_graph: bool) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...], bool, bool]:
    """(inputs made differentiable, outputs, whether one input was given, whether one output came)."""
    xs = tuple(
        x.view_as(x) if create_graph and x.requires_grad else x.detach().requires_grad_() for x in _tuple(inputs)
    )
    out = func(*xs)
    return xs, _tuple(out), isinstance(inputs, Tensor), isinstance(out, Tensor)


def _tuple(values: Any) -> tuple[Tensor, ...]:
    found = (values,) if isinstance(values, Tensor) else tuple(values)
    for value in found:
        if not isinstance(value, Tensor):
            raise TypeError(f"inputs and outputs must be Tensors or tuples of them, not {type(value)}")
    return found


def _one_element(out: Any) -> Tensor:
    (out,) = _tuple(out)
    if out.numel() != 1:
        raise AutogradError("the function must return one element", got=str(tuple(out.shape)))
    scalar: Tensor = out.reshape(())
    return scalar


def _vectors(v: Any, like: Sequence[Tensor], name: str) -> tuple[Tensor, ...]:
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise AutogradError(f"{name} can be left out only for one element", remedy=f"give {name}")
        return (full_like(like[0], 1.0),)
    vectors = _tuple(v)
    if [x.shape for x in vectors] != [x.shape for x in like]:
        raise AutogradError(
            f"{name} has other shapes than what it is multiplied with",
            expected=str([tuple(x.shape) for x in like]),
            got=str([tuple(x.shape) for x in vectors]),
        )
    return vectors


def _gradients(
    outs: Sequence[Tensor], xs: Sequence[Tensor], vectors: Sequence[Tensor | None], create_graph: bool, strict: bool
) -> tuple[Tensor, ...]:
    """The gradients of outs, weighted by vectors; zeros where there are none, or AutogradError if strict."""
    used = [(out, v) for out, v in zip(outs, vectors) if out.requires_grad]
    found: Sequence[Tensor | None] = [None] * len(xs)
    if used:
        of, weights = zip(*used)
        found = grad(of, tuple(xs), weights, retain_graph=True, create_graph=create_graph, allow_unused=True)
    if strict and any(g is None for g in found):
        raise AutogradError("the outputs do not depend on all inputs", remedy="leave strict out to get zeros")
    return tuple(full_like(x, 0.0) if g is None else g for g, x in zip(found, xs))


def _jacobian_of(out: Tensor, xs: Sequence[Tensor], create_graph: bool, strict: bool) -> tuple[Tensor, ...]:
    flat = out.reshape(-1)
    rows = [_gradients((flat[k],), xs, (None,), create_graph, strict) for k in range(flat.numel())]
    if not rows:
        return tuple(full_like(x, 0.0).reshape(-1)[:0].reshape(*out.shape, *x.shape) for x in xs)
    return tuple(F.stack(list(column)).reshape(*out.shape, *x.shape) for column, x in zip(zip(*rows), xs))


def _given(values: Sequence[Tensor], one: bool, create_graph: bool) -> Any:
    """In the structure that was given; without history unless create_graph."""
    found = tuple(values if create_graph else (v.detach() for v in values))
    return found[0] if one else found
