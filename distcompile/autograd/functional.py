"""torch.autograd.functional: Jacobians, Hessians and their products with vectors.

In: a function of one or several Tensors, and its inputs: a Tensor or a tuple of them. Out: results of the same
structure, a Tensor where one was given and tuples where tuples were. Inputs that do not matter have zero derivatives,
unless `strict`: then they are an error. create_graph: the results can be differentiated again.
Method: torch.func's (surface/derivatives.py): leaves of their own, the tape behind them. `jvp` and `hvp` are the double
backward of Pearlmutter's trick (Neural Computation 6, 1994). A Jacobian is one backward for each element of the output;
with `vectorize`, and in compiled code, they are one, under vmap. strategy="forward-mode" pushes tangents forward.
Source: torch 2.13's documentation; its results and errors judge (tests/.../test_autograd_functional.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from compiler_core.breaking import unbroken
from compiler_core.errors import ArgumentTypeError, AutogradError
from compiler_core.ops import functional as F
from compiler_core.ops.batching.value import Level, running
from compiler_core.tensor.autograd.taped import (
    detached,
    found_gradients,
    fresh,
    has_no_end,
    inside,
    reads_others,
    traced,
)
from compiler_core.tensor.batching import entered, left
from compiler_core.tensor.making.creation import eye, full_like
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import AssertedArgumentError, NotSupportedError
from distcompile.surface.derivatives import jvp as pushed
from distcompile.surface.mapping import vmap

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

Tensors: TypeAlias = "tuple[Tensor, ...]"
Function: TypeAlias = "Callable[..., Any]"


@unbroken
def vjp(func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """(func(*inputs), v^T J). v: like the output; needed unless that has one element."""
    run = _Run("vjp", func, inputs, create_graph, strict)
    vector = run.vector(
        v, run.outs, run.many_outs, "the user-provided function returns a single Tensor with a single element."
    )
    found = run.filled(run.gradients(run.outs, run.xs, vector, last=True), run.xs, "back")
    return run.result(run.outs, run.many_outs), run.result(found, run.many)


@unbroken
def jvp(func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """(func(*inputs), J v). v: like the inputs; needed unless they have one element."""
    run = _Run("jvp", func, inputs, create_graph, strict, v)
    with inside():
        weights = _weights(run.outs)
        slopes = run.gradients(run.outs, run.xs, weights)
        _check_all("grad_inputs", slopes, strict)
    found = run.filled(run.gradients(slopes, weights, run.v, last=True), run.outs, "back_trick")
    return run.result(run.outs, run.many_outs), run.result(found, run.many_outs)


@unbroken
def vhp(func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """(func(*inputs), v^T H), H the Hessian of a function with one element. v: like the inputs."""
    run = _Run("vhp", func, inputs, create_graph, strict, v)
    slopes = run.slopes()
    found = run.filled(run.gradients(slopes, run.xs, run.v, last=True), run.xs, "double_back")
    return run.result(run.outs, run.many_outs), run.result(found, run.many)


@unbroken
def hvp(func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """(func(*inputs), H v), H the Hessian of a function with one element. v: like the inputs."""
    run = _Run("hvp", func, inputs, create_graph, strict, v)
    slopes = run.slopes()
    with inside():
        weights = _weights(run.xs)
        products = run.gradients(slopes, run.xs, weights)
    found = run.filled(run.gradients(products, weights, run.v, last=True), run.xs, "double_back_trick")
    return run.result(run.outs, run.many_outs), run.result(found, run.many)


@unbroken
def jacobian(
    func: Function,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """d func / d inputs: shape (*output, *input); nested tuples (output, input) where these are tuples.

    Raises: AssertedArgumentError for another strategy; NotSupportedError (a NotImplementedError) for "forward-mode"
    with create_graph or without vectorize; AutogradError (a RuntimeError) for strict with either, or where it fails.
    """
    _check_strategy(strategy)
    if strategy == "forward-mode":
        return _forward(func, inputs, create_graph, strict, vectorize)
    run = _Run("jacobian", func, inputs, create_graph, strict)
    if vectorize and strict:
        raise AutogradError("torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not supported "
                            "together. Please either set `strict=False` or `vectorize=False`.")  # fmt: skip
    rows = _rows_at_once if vectorize or traced() else _rows_one_by_one
    blocks = tuple(run.result(rows(run, k), run.many) for k in range(len(run.outs)))
    return blocks if run.many_outs else blocks[0]


@unbroken
def hessian(
    func: Function,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The second derivatives of a function with one element: the Jacobian of its Jacobian. Raises: as `jacobian`."""
    many, _ = _tuple(inputs, "inputs", "hessian")
    _check_strategy(outer_jacobian_strategy)

    def number(*xs: Tensor) -> Tensor:
        out = func(*xs)
        many_outs, outs = _tuple(out, OUTPUTS, "hessian")
        _check_all("outputs", outs, strict)
        _check_single("hessian", many_outs, outs)
        return out.squeeze()  # type: ignore[no-any-return]

    def slopes(*xs: Tensor) -> Any:
        found = jacobian(number, xs, create_graph=True)
        _check_all("jacobian", found, strict)
        return found if many else found[0]

    return jacobian(slopes, inputs, create_graph, strict, vectorize, outer_jacobian_strategy)


# ---- one call

OUTPUTS = "outputs of the user-provided function"


class _Run:
    """One call of a function with its inputs made differentiable.

    xs: these; many: whether a tuple was given. outs, many_outs: what it returned, likewise. v: the vectors, where they
    are like the inputs. given: what came from outside. attached: whether the function reads what has a history.
    """

    def __init__(self, name: str, func: Function, inputs: Any, create_graph: bool, strict: bool, v: Any = None) -> None:
        self.name, self.create_graph, self.strict = name, create_graph, strict
        self.many, before = _tuple(inputs, "inputs", name)
        self.given = list(before)
        with inside():
            self.xs = tuple(fresh(x, create_graph) for x in before)
            if name not in ("vjp", "jacobian"):
                alone = "the input to the user-provided function is a single Tensor with a single element."
                self.v = self.vector(v, self.xs, self.many, alone)
            self.many_outs, self.outs = _tuple(func(*self.xs), OUTPUTS, name)
            _check_all("outputs", self.outs, strict)
            self.attached = reads_others(self.outs)

    def vector(self, v: Any, like: Tensors, many: bool, alone: str) -> tuple[Tensor | None, ...]:
        """v, as it goes back: of the shapes of `like`. Raises AutogradError if it does not fit."""
        if v is None:
            if len(like) != 1 or like[0].numel() != 1:
                raise AutogradError(f"The vector v can only be None if {alone}")
            return (None,)
        _, vectors = _tuple(v, "v", self.name)
        self.given += vectors
        if len(vectors) != len(like):
            raise AutogradError(f"v is a tuple of invalid length: should be {len(like)} but got {len(vectors)}."
                                if many else "The given v should contain a single Tensor.")  # fmt: skip
        for k, (one, other) in enumerate(zip(vectors, like)):
            if one.shape != other.shape:
                where = f"Entry {k} in " if many else ""
                raise AutogradError(f"{where}v has invalid size: should be {other.shape} but got {one.shape}.")
        return tuple(one if self.create_graph else detached(one) for one in vectors)

    def gradients(
        self, outs: Sequence[Tensor | None], xs: Tensors, weights: Sequence[Tensor | None], last: bool = False
    ) -> tuple[Tensor | None, ...]:
        """Of outs, weighted, in xs; None where there is none. last: only the results may be differentiated."""
        used = [(out, w) for out, w in zip(outs, weights, strict=True) if out is not None]
        of, by = zip(*used) if used else ((), ())
        return found_gradients(of, xs, by, self.create_graph or not last)

    def slopes(self) -> tuple[Tensor | None, ...]:
        """The gradient of a function with one element."""
        _check_single(self.name, self.many_outs, self.outs)
        found = self.gradients(self.outs, self.xs, (None,))
        _check_all("jacobian", found, self.strict)
        return found

    def filled(self, found: Sequence[Tensor | None], like: Tensors, stage: str) -> Tensors:
        """Zeros where there is no gradient; if strict, AutogradError."""
        for k, gradient in enumerate(found) if self.strict else ():
            if gradient is None:
                raise AutogradError(_INDEPENDENT[stage].format(k))
            if self.create_graph and not gradient.requires_grad:
                what = "hessian" if "double" in stage else "jacobian"
                raise AutogradError(f"The {what} of the user-provided function is independent of input {k}. "
                                    "This is not allowed in strict mode when create_graph=True.")  # fmt: skip
        return tuple(full_like(x, 0.0) if g is None else g for g, x in zip(found, like))

    def result(self, found: Tensors, many: bool) -> Any:
        """As the caller has it."""
        leads = self.create_graph and (self.attached or any(x.requires_grad for x in self.given))
        if not self.create_graph or (not leads and has_no_end()):
            found = tuple(detached(x) for x in found)
        return found if many else found[0]


_INDEPENDENT = {
    "back": "The output of the user-provided function is independent of input {}. This is not allowed in strict mode.",
    "back_trick": "The gradient with respect to the input is independent of entry {} in the grad_outputs when using "
    "the double backward trick to compute forward mode gradients. This is not allowed in strict mode.",
    "double_back": "The jacobian of the user-provided function is independent of input {}. This is not allowed in "
    "strict mode.",
    "double_back_trick": "The hessian of the user-provided function is independent of entry {} in the grad_jacobian. "
    "This is not allowed in strict mode as it prevents from using the double backward trick to replace forward mode "
    "AD.",
}
_DEPENDS = {
    "outputs": "Output {} of the user-provided function does not require gradients. The outputs must be computed in a "
    "differentiable manner from the input when running in strict mode.",
    "grad_inputs": "The gradient with respect to input {} is independent of the inputs of the user-provided function. "
    "This is not allowed in strict mode.",
    "jacobian": "While computing the hessian, found that the jacobian of the user-provided function with respect to "
    "input {} is independent of the input. This is not allowed in strict mode. You should ensure that your function "
    "is twice differentiable and that the jacobian depends on the inputs (this would be violated by a linear function "
    "for example).",
}


def _tuple(values: Any, what: str, name: str) -> tuple[bool, Tensors]:
    """(whether it is a tuple, the tuple). Raises ArgumentTypeError if something else than a Tensor is in it."""
    many = isinstance(values, tuple)
    found = values if many else (values,)
    for k, value in enumerate(found):
        if not isinstance(value, Tensor):
            which = f"value at index {k}" if many else f"given {what}"
            raise ArgumentTypeError(f"The {what} given to {name} must be either a Tensor or a tuple of Tensors but the "
                                    f"{which} has type {type(value)}.")  # fmt: skip
    return many, found


def _check_all(what: str, values: Sequence[Tensor | None], strict: bool) -> None:
    """Raises AutogradError, if strict, for one that does not depend on the inputs."""
    for k, value in enumerate(values) if strict else ():
        if value is None:
            raise AutogradError(_INDEPENDENT["back"].format(k))
        if not value.requires_grad:
            raise AutogradError(_DEPENDS[what].format(k))


def _check_single(name: str, many: bool, outs: Tensors) -> None:
    """Raises AutogradError for more than one number."""
    if many:
        raise AutogradError(f"The function given to {name} should return a single Tensor")
    if outs[0].numel() != 1:
        raise AutogradError(f"The Tensor returned by the function given to {name} should contain a single element")


def _check_strategy(strategy: str) -> None:
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertedArgumentError('Expected strategy to be either "forward-mode" or "reverse-mode".', got=strategy)


def _weights(like: Tensors) -> Tensors:
    """Of any value: what is differentiated by them is linear in them."""
    return tuple(fresh(full_like(x, 0.0), False) for x in like)


# ---- Jacobians


def _rows_one_by_one(run: _Run, number: int) -> Tensors:
    """The blocks of one output: a backward for each of its elements."""
    out = run.outs[number]
    flat = out.reshape(-1)
    rows = []
    for k in range(flat.numel()):
        found = run.gradients((flat[k],), run.xs, (None,), last=True)
        _check_row(run, number, found)
        rows.append([full_like(x, 0.0) if g is None else g for g, x in zip(found, run.xs)])
    return _blocks(run, out, [F.stack(column) for column in zip(*rows)])


def _rows_at_once(run: _Run, number: int) -> Tensors:
    """The blocks of one output: one backward under vmap, which maps the unit vectors."""
    out = run.outs[number]
    count = out.numel()
    if not count:
        return _blocks(run, out, [])
    units = eye(count, dtype=out.dtype, device=out.device)
    level = Level(count)
    with running(level):
        weight = entered(units, level, 0).reshape(out.shape)
        found = run.gradients((out,), run.xs, (weight,), last=True)
        _check_row(run, number, found)
        return _blocks(run, out, [left(g, level, 0) for g in run.filled(found, run.xs, "back")])


def _check_row(run: _Run, number: int, found: Sequence[Tensor | None]) -> None:
    for k, gradient in enumerate(found) if run.strict else ():
        if gradient is None:
            raise AutogradError(f"Output {number} of the user-provided function is independent of input {k}. This is "
                                "not allowed in strict mode.")  # fmt: skip
        if run.create_graph and not gradient.requires_grad:
            raise AutogradError(f"The jacobian of the user-provided function is independent of input {number}. This is "
                                "not allowed in strict mode when create_graph=True.")  # fmt: skip


def _blocks(run: _Run, out: Tensor, columns: Sequence[Tensor]) -> Tensors:
    """(*output, *input) for each input, from its gradients as rows; without rows there are no elements."""
    shapes = [(*out.shape, *x.shape) for x in run.xs]
    if not columns:
        return tuple(x.new_zeros(shape) for x, shape in zip(run.xs, shapes))
    return tuple(column.reshape(shape) for column, shape in zip(columns, shapes))


def _forward(func: Function, inputs: Any, create_graph: bool, strict: bool, vectorize: bool) -> Any:
    """The Jacobian in forward mode: one call under vmap, which maps the unit tangents."""
    if create_graph:
        raise NotSupportedError("torch.autograd.functional.jacobian: `create_graph=True` and "
                                '`strategy="forward-mode"` are not supported together (yet). Please either set '
                                '`create_graph=False` or `strategy="reverse-mode"`.')  # fmt: skip
    if strict:
        raise AutogradError('torch.autograd.functional.jacobian: `strict=True` and `strategy="forward-mode"` are not '
                            'supported together (yet). Please either set `strict=False` or '
                            '`strategy="reverse-mode"`.')  # fmt: skip
    if not vectorize:
        raise NotSupportedError("Computing Jacobian using forward-AD or forward-over-reverse Hessian is only "
                                "implemented for `vectorize=True`.")  # fmt: skip
    many, xs = _tuple(inputs, "inputs", "jacobian")
    shapes: list[Any] = []

    def push(*tangents: Tensor) -> Tensors:
        outs, products = pushed(tupled, xs, tuple(t.reshape(x.shape) for t, x in zip(tangents, xs)))
        shapes.extend(out.shape for out in outs)
        return products  # type: ignore[no-any-return]

    many_outs: list[bool] = []

    def tupled(*args: Tensor) -> Tensors:
        is_many, outs = _tuple(func(*args), "outputs", "jacobian")
        many_outs.append(is_many)
        return outs

    rows = vmap(push)(*_units(xs))
    blocks = [
        [
            part.permute(*range(1, part.ndim), 0).reshape((*shape, *x.shape))
            for part, x in zip(of_out.split([x.numel() for x in xs], 0), xs)
        ]
        for of_out, shape in zip(rows, shapes)
    ]
    found = tuple(tuple(row) if many else row[0] for row in blocks)
    return found if many_outs[0] else found[0]


def _units(xs: Tensors) -> list[Tensor]:
    """The unit vectors of all inputs beside each other, for each input its columns."""
    sizes = [x.numel() for x in xs]
    starts = [sum(sizes[:k]) for k in range(len(xs))]
    return [
        eye(sum(sizes), dtype=x.dtype, device=x.device)[:, start : start + size]
        for x, size, start in zip(xs, sizes, starts)
    ]
