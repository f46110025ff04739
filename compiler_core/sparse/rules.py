"""Which rule computes a function for sparse tensors: the table, and who looks it up.

In: a call of a public function with a sparse tensor among its arguments. Out: what its rule gives. A rule is a function
with torch's parameters, entered under torch's name of what it computes (`mul`, `sparse.mm`, `T.__get__`); functions and
methods of one name have one rule. What is true of any tensor (`FACTS`) is asked of it as it is. For the rest there is
LayoutError, which is a NotImplementedError as torch's. While a graph is recorded only facts can be asked; all else
breaks it (`_GUARDED`: guards see to what they say). Rules are in the other files of this folder, which are loaded at
the first call.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

from compiler_core.errors import LayoutError
from compiler_core.ops.registry import Attrs, Op, Value, current_trace
from compiler_core.sparse.value import refuse_trace

F = TypeVar("F", bound=Callable[..., Any])
_FILES = (
    "construct parts convert copies movement joining arithmetic pointwise products reductions softmax in_place text"
)
_RULES: dict[str, Callable[..., Any]] = {}

_ABOUT_THE_HANDLE = """
requires_grad grad _grad grad_fn is_leaf output_nr retains_grad _version _base shape dtype ndim itemsize is_cuda is_cpu
is_quantized is_nested is_mkldnn is_mps is_xpu is_xla is_ipu is_vulkan is_mtia is_maia name
"""
_FACTS = """
requires_grad_ retain_grad register_hook register_post_accumulate_grad_hook backward dim ndimension size numel nelement
is_floating_point is_complex is_signed element_size get_device is_same_size is_inference is_conj is_neg result_type
__len__ autograd.backward autograd.grad
"""
FACTS = frozenset(
    [f"{name}.{part}" for name in _ABOUT_THE_HANDLE.split() for part in ("__get__", "__set__", "__del__")]
    + _FACTS.split()
)


_GUARDED = frozenset(["layout.__get__", "is_sparse.__get__", "is_sparse_csr.__get__", "sparse_dim", "dense_dim"])


def rule(*names: str) -> Callable[[F], F]:
    """Enter a function as the rule of these names."""

    def enter(function: F) -> F:
        for name in names:
            _RULES[name] = function
        return function

    return enter


@cache
def rules() -> dict[str, Callable[..., Any]]:
    """The table, complete."""
    for file in _FILES.split():
        import_module(f"compiler_core.sparse.{file}")
    return _RULES


def computed(entry: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a call of the overridable function `entry`."""
    name = entry.name.removeprefix("torch.").removeprefix("Tensor.")
    if name in FACTS or (name.startswith("_foreach_") and current_trace() is None):
        return entry.origin(*args, **kwargs)
    if current_trace() is not None and name not in _GUARDED:
        refuse_trace(f"{entry.name} of a sparse tensor")
    found = rules().get(name)
    if entry.is_operator and not all(map(_is_operand, args)):
        return NotImplemented
    if found is None:
        raise not_there(entry.name)
    out = kwargs.pop("out", None)
    result = found(*args, **kwargs)
    return result if out is None else _write_out(out, result)


def _is_operand(value: Any) -> bool:
    return hasattr(value, "_cell") or isinstance(value, (bool, int, float, complex)) or hasattr(value, "dtype")


def _write_out(out: Any, result: Any) -> Any:
    from compiler_core.tensor.torch_names import write_out

    if out.layout is not result.layout:
        raise LayoutError(
            f"out= is {out.layout}, and the result is {result.layout}", remedy="leave out= away, or convert the result"
        )
    return out.copy_(result) if hasattr(out, "pattern") else write_out(out, result)


def not_there(name: str) -> LayoutError:
    """The error of a function without a rule."""
    return LayoutError(f"{name} is not there for sparse tensors", remedy="call .to_dense() on them first")


# ---- primitives, which meet sparse tensors where the gradient of a dense tensor is one

_LINEAR = ("mul", "div", "neg", "conj")


def primitive(op: Op, values: tuple[Value, ...], attrs: Attrs) -> Any:
    """`op` on values of which one is sparse: a gradient on its way. Arrays give an array, unless the result is sparse.

    Raises LayoutError for one that would make it dense, or take it apart.
    """
    if current_trace() is not None:
        refuse_trace(f"{op.name} of a sparse tensor")
    from compiler_core.sparse.gradients import added, factor, like_operands, of_primitive

    if op.name == "add":
        return added(*values)
    if op.name in _LINEAR:
        result = rules()[op.name](*map(factor, values))
    else:
        result = of_primitive(op, values, attrs)
    return like_operands(result, values)
