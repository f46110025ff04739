"""The table of Tensor methods that are functions of compiler_core/ops as they are, under torch's names.

In: functions over any Value, whose first argument becomes `self`. Out: the class `FunctionMethods`, a base of Tensor.
`method` does nothing at run time: it tells type checkers that a Tensor goes in and a Tensor comes out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, cast

from compiler_core.ops import functional as F
from compiler_core.ops.composites import shuffle
from compiler_core.ops.numpy_names import numpy_names
from compiler_core.ops.sorting import composite as order
from compiler_core.tensor.memory.own_views import of_several, own_view, strict_view
from compiler_core.tensor.torch_arguments import with_tensors

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor

P = ParamSpec("P")


def method(function: Callable[Concatenate[Any, P], Any]) -> Callable[Concatenate[Tensor, P], Tensor]:
    """`function` itself, typed as a method of Tensor that returns one."""
    return cast("Callable[Concatenate[Tensor, P], Tensor]", function)


class FunctionMethods:
    """The table."""

    __slots__ = ()

    add = method(F.add)
    sub = method(F.sub)
    subtract = method(F.sub)
    rsub = method(F.rsub)
    mul = method(F.mul)
    multiply = method(F.mul)
    div = method(F.div)
    divide = method(F.div)
    true_divide = method(F.true_divide)
    floor_divide = method(F.floor_divide)
    remainder = method(F.remainder)
    fmod = method(F.fmod)
    pow = method(F.pow)
    float_power = method(F.float_power)
    square = method(F.square)
    reciprocal = method(F.reciprocal)
    maximum = method(with_tensors(F.maximum))
    minimum = method(with_tensors(F.minimum))
    clamp = method(F.clamp)
    clip = method(F.clamp)
    lerp = method(F.lerp)
    addcmul = method(F.addcmul)
    addcdiv = method(F.addcdiv)
    neg = method(F.neg)
    negative = method(F.neg)
    positive = method(F.positive)
    abs = method(F.abs)
    absolute = method(F.abs)
    sign = method(F.sign)
    exp = method(F.exp)
    exp2 = method(F.exp2)
    expm1 = method(F.expm1)
    log = method(F.log)
    log2 = method(F.log2)
    log10 = method(F.log10)
    log1p = method(F.log1p)
    sin = method(F.sin)
    cos = method(F.cos)
    tan = method(F.tan)
    sinh = method(F.sinh)
    cosh = method(F.cosh)
    tanh = method(F.tanh)
    sqrt = method(F.sqrt)
    rsqrt = method(F.rsqrt)
    erf = method(F.erf)
    erfc = method(F.erfc)
    sigmoid = method(F.sigmoid)
    floor = method(F.floor)
    ceil = method(F.ceil)
    trunc = method(F.trunc)
    fix = method(F.trunc)
    round = method(F.round)
    frac = method(F.frac)
    eq = method(F.eq)
    ne = method(F.ne)
    lt = method(F.lt)
    le = method(F.le)
    gt = method(F.gt)
    ge = method(F.ge)
    not_equal = method(F.ne)
    less = method(F.lt)
    less_equal = method(F.le)
    greater = method(F.gt)
    greater_equal = method(F.ge)
    logical_not = method(F.logical_not)
    logical_and = method(with_tensors(F.logical_and))
    logical_or = method(with_tensors(F.logical_or))
    logical_xor = method(with_tensors(F.logical_xor))
    bitwise_and = method(F.bitwise_and)
    bitwise_or = method(F.bitwise_or)
    bitwise_xor = method(F.bitwise_xor)
    bitwise_not = method(F.bitwise_not)
    isnan = method(F.isnan)
    isinf = method(F.isinf)
    isfinite = method(F.isfinite)
    isclose = method(with_tensors(F.isclose))
    masked_fill = method(F.masked_fill)
    nan_to_num = method(F.nan_to_num)

    sum = method(F.sum)
    prod = method(F.prod)
    mean = method(F.mean)
    var = method(F.var)
    std = method(F.std)
    amax = method(F.amax)
    amin = method(F.amin)
    max = F.max
    min = F.min
    argmax = method(F.argmax)
    argmin = method(F.argmin)
    any = method(F.any)
    all = method(F.all)
    count_nonzero = method(F.count_nonzero)
    norm = method(F.norm)
    logsumexp = method(F.logsumexp)
    cumsum = method(F.cumsum)

    view_as = method(strict_view(F.view_as))
    reshape_as = method(own_view(F.view_as))
    flatten = method(F.flatten)
    ravel = method(F.ravel)
    unflatten = method(own_view(F.unflatten))
    squeeze = method(own_view(F.squeeze))
    unsqueeze = method(F.unsqueeze)
    permute = method(own_view(F.permute))
    transpose = method(own_view(F.transpose))
    swapaxes = method(own_view(F.transpose))
    swapdims = method(own_view(F.transpose))
    t = method(own_view(F.t))
    movedim = method(own_view(F.movedim))
    moveaxis = method(own_view(F.movedim))
    expand = method(own_view(F.expand))
    expand_as = method(own_view(F.expand_as))
    repeat = method(F.repeat)
    tile = method(F.tile)
    repeat_interleave = method(F.repeat_interleave)
    narrow = method(own_view(F.narrow))
    select = method(F.select)
    split = of_several(F.split)
    chunk = of_several(F.chunk)
    unbind = of_several(F.unbind)
    flip = method(F.flip)
    roll = method(F.roll)
    tril = method(F.tril)
    triu = method(F.triu)

    sort, topk, kthvalue = numpy_names(order.sort), numpy_names(order.topk), numpy_names(order.kthvalue)
    median, nanmedian = order.median, order.nanmedian
    argsort = method(numpy_names(order.argsort))
    msort = method(order.msort)

    matmul = method(F.matmul)
    mm = method(F.mm)
    bmm = method(F.bmm)
    mv = method(F.mv)
    dot = method(F.dot)
    outer = method(F.outer)
    gather = method(F.gather)
    scatter = method(F.scatter)
    scatter_add = method(F.scatter_add)
    index_add = method(F.index_add)
    index_select = method(F.index_select)
    index_copy = method(F.index_copy)
    take_along_dim = method(F.take_along_dim)
    unfold = method(shuffle.unfold)
    diag = method(F.diag)
    addmm = method(F.addmm)
    baddbmm = method(F.baddbmm)
    relu = method(F.relu)
    softmax = method(F.softmax)
    log_softmax = method(F.log_softmax)
