"""Functions of each element that give 0 for 0: they are computed on the values alone.

In: a sparse tensor, whose elements of one place are summed first. Out: a sparse one with the same places.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compiler_core.errors import SparseError
from compiler_core.names.torch_table import TORCH
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.sparse.nodes import record
from compiler_core.sparse.parts import coalesced, values, with_values
from compiler_core.sparse.rules import not_there, rule
from compiler_core.sparse.tensor import SparseTensor, wrap
from compiler_core.tensor.tensor import Tensor
from compiler_core.tensor.torch_names import load

_NAMES = """
abs asin asinh atan atanh ceil deg2rad erf erfinv expm1 floor frac isinf isnan isneginf isposinf log1p nan_to_num
rad2deg relu round sgn sign signbit sin sinh sqrt tan tanh trunc
"""  # under all their names, and these of nn.functional:
_LAYERS = ("relu", "tanh")


def on_values(self: SparseTensor, name: str, function: Callable[[Tensor], Any]) -> SparseTensor:
    """The tensor of the values that `function` gives. name: torch's of the node."""
    once = coalesced(self)
    return with_values(once.pattern, function(values(once)), name)


def _pointwise(name: str) -> Callable[..., SparseTensor]:
    function, node = load(TORCH[name].place), name.title().replace("_", "")

    def compute(input: SparseTensor, *args: Any, inplace: bool = False, **kwargs: Any) -> SparseTensor:
        if inplace:
            raise not_there(f"torch.nn.functional.{name} with inplace=True")
        return on_values(input, node, lambda held: function(held, *args, **kwargs))

    return compute


POINTWISE = {public: _pointwise(name) for name in _NAMES.split() for public in TORCH[name].names}
POINTWISE |= {f"nn.functional.{name}": POINTWISE[name] for name in _LAYERS}
for _name, _rule in POINTWISE.items():
    rule(_name)(_rule)


@rule("neg", "negative")
def neg(input: SparseTensor) -> SparseTensor:
    """-x, of elements as they are listed."""
    return record("Neg", wrap(input.pattern, F.neg(input.sparse.values)), (input,), (lambda g: -g,))


@rule("positive")
def positive(input: SparseTensor) -> SparseTensor:
    """Itself."""
    return input


@rule("conj", "conj_physical", "resolve_conj", "resolve_neg")
def conj(input: SparseTensor) -> SparseTensor:
    """The complex conjugate."""
    if not input.dtype.is_complex:
        return input
    made = wrap(input.pattern, prims.conj(input.sparse.values))
    return record("Conj", made, (input,), (lambda g: g.conj(),))


def conjugate(value: Any) -> Any:
    """The conjugate of a complex tensor or number."""
    if isinstance(value, Tensor):
        return value.conj() if value.dtype.is_complex else value
    return value.conjugate() if isinstance(value, complex) else value


@rule("angle")
def angle(input: SparseTensor) -> SparseTensor:
    """The angle of each element, of compressed tensors alone, as in torch."""
    if input.pattern.is_coo:
        raise not_there("torch.angle (of a COO tensor)")
    return on_values(input, "Angle", lambda held: load(TORCH["angle"].place)(held))


@rule("pow", "__pow__")
def pow(input: Any, exponent: Any) -> SparseTensor:
    """To the power of one number, which is not 0. Raises SparseError for 0: it would be dense."""
    if not isinstance(input, SparseTensor) or not isinstance(exponent, (bool, int, float, complex)):
        raise not_there("torch.pow with an exponent that is a tensor, or a base that is a number,")
    if exponent == 0:
        raise SparseError("pow: cannot raise to zeroth power on sparse tensor; it would make the result tensor dense")
    return on_values(input, "Pow", lambda held: F.pow(held, exponent))


@rule("__rpow__")
def rpow(self: SparseTensor, base: Any) -> SparseTensor:
    """Raises LayoutError: it would be dense."""
    raise not_there("torch.pow with an exponent that is sparse")


@rule("float_power")
def float_power(input: SparseTensor, exponent: float) -> SparseTensor:
    """`pow` in float64."""
    return pow(input.to(_float64(input)), exponent)


def _float64(self: Tensor) -> Any:
    from compiler_core.dtype import complex128, float64

    return complex128 if self.dtype.is_complex else float64


@rule("square")
def square(input: SparseTensor) -> SparseTensor:
    """x * x."""
    return pow(input, 2)
