"""Functions of compiler_core/ops as users call them: as `torch.f`, with `out=`, and as Tensor methods.

In: a row of compiler_core/names/torch_table.py. Out: the function, or a method, that gives Tensors.
"""

from __future__ import annotations

import functools
import importlib
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from compiler_core import cuda
from compiler_core import dtype as dt
from compiler_core.errors import ArgumentTypeError, AutogradError, DeviceError, DTypeError, ShapeError
from compiler_core.forward import level
from compiler_core.meta import Shape
from compiler_core.names.torch_rows import Place, Row
from compiler_core.ops.casting import acting
from compiler_core.ops.numpy_names import numpy_names
from compiler_core.ops.registry import current_trace
from compiler_core.tensor.autograd.grad_mode import Inference, thread_mode
from compiler_core.tensor.memory.cell import Cell, DeviceCell
from compiler_core.tensor.memory.overlap import check_apart, check_no_element_twice
from compiler_core.tensor.memory.own_views import of_several, own_view, strict_view
from compiler_core.tensor.recalling_there import there
from compiler_core.tensor.torch_arguments import check_tensors, is_of_first, tensor_parameters

_ARITHMETIC = [("compiler_core.ops.functional", name) for name in ("add", "sub", "mul", "div", "true_divide")]
_RANKS = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}  # of dtypes' kinds


@functools.cache
def load(place: Place) -> Callable[..., Any]:
    """The function at `place`, taking NumPy's names of arguments too."""
    found: Any = importlib.import_module(place[0])
    for part in place[1].split("."):
        found = getattr(found, part)
    function: Callable[..., Any] = found
    return numpy_names(there(function) if place in _ARITHMETIC else function)


_KINDS = {"view": own_view, "new_view": own_view, "strict_view": strict_view, "several": of_several}


@functools.cache
def function_of(row: Row) -> Callable[..., Any]:
    """What a row's names stand for, on Tensors: the function, whose views are handles as torch's are."""
    function = load(row.place)
    for kind in row.kinds & _KINDS.keys():
        function = _KINDS[kind](function)
    return function


def as_tensors(result: Any) -> Any:
    """A function's result with bare values, which had no Tensor to ask, as Tensors."""
    if hasattr(result, "_cell"):  # a Tensor: the usual case
        return result
    from compiler_core.tensor.tensor import Tensor

    if isinstance(result, tuple):
        made = [as_tensors(r) for r in result]
        return type(result)(*made) if hasattr(result, "_fields") else tuple(made)
    if isinstance(result, list):
        return [as_tensors(r) for r in result]
    is_value = hasattr(result, "shape") and hasattr(result, "dtype") and not isinstance(result, Tensor)
    return Tensor._wrap(result) if is_value else result


_ITS_DTYPE = """
    gather aminmax take index_select complex polar multinomial argmax argmin amax amin max min median nanmedian
    mode kthvalue sort msort topk cummax cummin norm vector_norm matrix_norm mv mm bmm matmul dot vdot inner vecdot
    cross addmm addmv addbmm baddbmm tensordot chain_matmul multi_dot matrix_power where clamp diag tril triu
    softmax log_softmax logcumsumexp isposinf isneginf isin signbit bucketize searchsorted quantile nanquantile
    histc renorm index_add index_copy scatter scatter_add take_along_dim nonzero frac sgn heaviside nan_to_num
    cholesky inv solve det
"""
_OF_ITS_DTYPE = frozenset(_ITS_DTYPE.split())  # functions whose out= has the dtype of their result
_TRUTH = frozenset(("all", "any"))  # whose out= is bool or uint8
_IN_DTYPE_OF_OUT = ("sum", "prod", "cumsum", "cumprod")  # computed in it: elements become int64 before, say


def write_out(out: Any, result: Any, name: str = "") -> Any:
    """Copy `result` of function `name` into the tensor (or tensors) `out`, which gets its shape, and return that.

    Raises DTypeError for a result of a higher kind, or of another dtype where torch takes its own alone,
    ShapeError where memory that others may see would have to grow.
    """
    if isinstance(out, (tuple, list)):
        for one, value in zip(out, result, strict=True):
            write_out(one, value, name)
        return out
    if result.dtype is not out.dtype and (name in _OF_ITS_DTYPE or (name in _TRUTH and out.dtype is not dt.uint8)):
        raise DTypeError(f"Expected out tensor to have dtype {result.dtype.name}, but got {out.dtype.name} instead")
    if _RANKS[result.dtype.kind] > _RANKS[out.dtype.kind] and name not in _IN_DTYPE_OF_OUT:
        kinds = f"result type {result.dtype.name} can't be cast to the desired output type {out.dtype.name}"
        raise DTypeError(kinds, remedy=f"out= of dtype {result.dtype.name}")
    if out.device != result.device and not (out.is_meta or result.is_meta):
        raise DeviceError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{result.device} and {out.device}!",
            got=f"out= on {out.device}",
        )
    _fit_shape(out, tuple(result.shape))
    if _is_plain(out, result):
        out._cell.write(result._cell.raw)
        return out
    return out.copy_(result)


def _is_plain(out: Any, result: Any) -> bool:
    """Whether nobody records, and `result` is a fresh array that `copy_` would write as it is."""
    if thread_mode.enabled or Inference.in_use or level.on or current_trace() is not None:
        return False
    made = getattr(result, "_cell", None)
    if not (type(made) is Cell or type(made) is DeviceCell) or result.dtype is not out.dtype:
        return False
    return type(made.raw) is np.ndarray or cuda.is_array(made.raw)


def _fit_shape(out: Any, shape: Shape) -> None:
    """Resize `out`, as torch does, with its warning where there was something in it."""
    before = tuple(out.shape)
    if before == shape:
        return
    if out.numel():
        warnings.warn(
            f"An output with one or more elements was resized since it had shape {list(before)}, which does not match "
            f"the required output shape {list(shape)}. Resize it with t.resize_(0) before it is used again.",
            stacklevel=4,
        )
        if math.prod(shape) > out.numel():
            raise ShapeError("out= has another shape than the result", expected=str(shape), got=str(before),
                             remedy="out.resize_(0) first, or out=None")  # fmt: skip
    out.resize_(shape)


def public(function: Callable[..., Any], *, takes_out: bool = True) -> Callable[..., Any]:
    """`function` over values as users call it: Tensors come out, and `out=`, if taken, is written."""

    wanted, name = tensor_parameters(function), getattr(function, "__name__", "")
    of_first = is_of_first(wanted)

    @functools.wraps(function)
    def call(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        if not (of_first and args and hasattr(args[0], "_cell")):
            check_tensors(name, wanted, args, kwargs)
        if out is None:
            return as_tensors(function(*args, **kwargs))
        check_out(name, out, (*args, *kwargs.values()))
        if name in _IN_DTYPE_OF_OUT and kwargs.get("dtype") is None and out.dtype is not dt.bool_:
            kwargs["dtype"] = out.dtype
        with acting(None):  # autocast leaves calls with out= alone
            return write_out(out, as_tensors(function(*args, **kwargs)), name)

    @functools.wraps(function)
    def call_without_out(*args: Any, **kwargs: Any) -> Any:
        if not (of_first and args and hasattr(args[0], "_cell")):
            check_tensors(name, wanted, args, kwargs)
        return as_tensors(function(*args, **kwargs))

    return call if takes_out else call_without_out


def check_out(name: str, out: Any, operands: Sequence[Any]) -> None:
    """Raise ArgumentTypeError for what is no tensor, AutogradError where a gradient would have to be recorded,
    OverlapError where memory overlaps."""
    outs = out if isinstance(out, (tuple, list)) else (out,)
    flat = [x for operand in operands for x in (operand if isinstance(operand, (tuple, list)) else (operand,))]
    if thread_mode.enabled and any(getattr(x, "requires_grad", False) for x in (*flat, *outs)):
        raise AutogradError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the "
            "arguments requires grad.",
            remedy="call it under no_grad(), or without out=",
        )
    for one in outs:
        if not hasattr(one, "shape"):
            raise ArgumentTypeError(f"{name}(): argument 'out' must be Tensor, not {type(one).__name__}")
        if hasattr(one, "_cell"):
            check_no_element_twice(one)
            check_apart(one, flat, name in _APART)


_APART = frozenset(("gather", "kthvalue", "masked_select", "take"))  # whose out= must not be an operand


def _made_into(function: Callable[..., Any]) -> Callable[..., Any]:
    """A maker of tensors with `out=`, in whose dtype, and on whose device, it is made."""

    @functools.wraps(function)
    def make(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        if out is None:
            return function(*args, **kwargs)
        check_out(function.__name__, out, ())
        dtype = kwargs.setdefault("dtype", out.dtype)
        if dtype is not out.dtype:
            raise DTypeError(f"dtype {dtype.name} does not match dtype of out parameter ({out.dtype.name})")
        if kwargs.get("device") is None:
            kwargs["device"] = out.device
        return write_out(out, function(*args, **kwargs), "sum")

    return make


def creation(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` over values as users call it, where it makes a leaf: it takes torch's options of creation."""

    @functools.wraps(function)
    def call(
        *args: Any,
        device: Any = None,
        layout: Any = None,
        requires_grad: bool = False,
        pin_memory: bool = False,
        **kwargs: Any,
    ) -> Any:
        from compiler_core.tensor.making.creation import leaf
        from compiler_core.tensor.making.placement import chosen, in_pinned_memory, run_on

        place = chosen(device)
        result = run_on(place, function, *args, **kwargs)
        value = result._cell.value if hasattr(result, "_cell") else result
        made = leaf(value, requires_grad, place)
        return in_pinned_memory(made) if pin_memory else made

    return call


def public_form(row: Row) -> Callable[..., Any]:
    """The function of a row as it is public: with `out=` or the options of creation, where torch's has them."""
    function = function_of(row)
    makes = "makes" in row.kinds
    if row.module.startswith("compiler_core.ops."):
        takes_out = "no_out" not in row.kinds
        if makes:
            return _made_into(creation(function))
        return function if "view" in row.kinds else public(function, takes_out=takes_out)
    return _made_into(function) if makes else public(function) if "out" in row.kinds else function


def late_method(name: str, row: Row) -> Callable[..., Any]:
    """The method of a row whose file is loaded when it is first called, with the Tensor as the first argument."""

    def checked(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        function = function_of(row)
        check_tensors(name, tensor_parameters(function), (self, *args), kwargs)
        return as_tensors(function(self, *args, **kwargs))

    def of_tensors(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return function_of(row)(self, *args, **kwargs)

    method = checked if row.module.startswith("compiler_core.ops.") else of_tensors
    method.__name__, method.__qualname__ = name, f"Tensor.{name}"
    method.__doc__ = f"See {row.module.replace('.', '/')}.py:{row.inner}."
    return method
