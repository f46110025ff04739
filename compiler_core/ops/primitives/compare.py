"""Comparisons (to bool) and `where`.

In: two arrays of one shape and dtype; for `where` a bool array before them. Out: bool, or the chosen elements.
NaN compares unequal to everything, itself included. Complex numbers are equal or not, and have no order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler_core.dtype import DType, bool_
from compiler_core.late import Late
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.checks import BOOLEAN, EVERY, ORDERED, check_alike, check_dtype, check_same_shape, infer_alike
from compiler_core.ops.primitives.pointwise import Eager, as_array, computed
from compiler_core.ops.registry import Array, NotDifferentiable, Op, Sample, Value, register
from compiler_core.ops.rules import CORE, Decomposed, Pointwise


def _comparison(name: str, eager: Eager, dtypes: tuple[DType, ...] = ORDERED, **facts: Any) -> Op:
    """Register op `name`: (a, b) -> bool of their shape. facts: see Op."""
    samples = tuple(Sample((shape, shape), low=-3.0, high=3.0) for shape in ((3, 4), (), (2, 1, 5)))
    vjp = NotDifferentiable("the result is a truth value")
    infer, lower = infer_alike(name, dtypes, bool_), Pointwise(name)
    facts = {"engines": CORE, "cheap": True, **facts}
    return register(Op(name, infer, computed(eager), vjp, lower, samples, dtypes, **facts))


EQ = _comparison("eq", lambda xp, a, b: xp.equal(a, b), EVERY, commutative=True)
NE = _comparison(
    "ne",
    lambda xp, a, b: xp.not_equal(a, b),
    EVERY,
    commutative=True,
    engines=Decomposed(lambda a, b: prims.logical_not(prims.eq(a, b))),
)
LT = _comparison("lt", lambda xp, a, b: xp.less(a, b))
LE = _comparison("le", lambda xp, a, b: xp.less_equal(a, b))
GT = _comparison("gt", lambda xp, a, b: xp.greater(a, b), engines=Decomposed(lambda a, b: prims.lt(b, a)))
GE = _comparison("ge", lambda xp, a, b: xp.greater_equal(a, b), engines=Decomposed(lambda a, b: prims.le(b, a)))


def _infer_where(cond: TensorMeta, a: TensorMeta, b: TensorMeta) -> TensorMeta:
    check_dtype("where", cond, BOOLEAN, "the condition")
    check_alike("where", a, b)
    check_same_shape("where", a, cond)
    return a


def _vjp_where(g: Value, out: Value, cond: Value, a: Value, b: Value) -> tuple[None, Value, Value]:
    zero = prims.full_like(g, 0.0)
    return None, prims.where(cond, g, zero), prims.where(cond, zero, g)


def _where_operands(rng: np.random.Generator, dtype: DType) -> list[Array]:
    cond = rng.random((3, 4)) < 0.5
    return [cond, *(rng.uniform(0.0, 9.0, (3, 4)).astype(dtype.numpy) for _ in range(2))]


HERE: Late[Callable[[Array, Array, Array], Array | None]] = Late("where: on the CPU")
_FEW = 1 << 12  # elements, of which NumPy chooses


def _eager_where(xp: Any, cond: Array, a: Array, b: Array) -> Array:
    if xp is np and cond.size >= _FEW and type(a) is np.ndarray is type(b):
        chosen = HERE.get()(cond, a, b)
        if chosen is not None:
            return chosen
    if xp is not np and a.dtype.kind == "V":  # bfloat16, of which CuPy's makes float32
        return xp.where(cond, _bits(a), _bits(b)).view(a.dtype)  # type: ignore[no-any-return]
    return as_array(xp, xp.where(cond, a, b))  # type: ignore[no-any-return]


def _bits(x: Any) -> Any:
    """A 16-bit array's bits, or a scalar's."""
    return np.asarray(x).view(np.uint16)[()] if isinstance(x, np.generic) else x.view(np.uint16)


WHERE = register(
    Op(
        "where",
        infer=_infer_where,
        eager=_eager_where,
        vjp=_vjp_where,
        lower=Pointwise("where"),
        samples=(Sample(((3, 4), (3, 4), (3, 4)), make=_where_operands),),
        dtypes=EVERY,
        cheap=True,
        engines=CORE,
    )
)
