"""Complex numbers and their parts: complex, real, imag, conj, view_as_real, view_as_complex.

In: arrays of f32 or f64 (complex: the parts, two alike; view_as_complex: f[*s, 2]), or complex ones. Out: c[*s] of such
parts; real, imag: the part, f[*s]; view_as_real: both, f[*s, 2]; conj: c[*s]. In torch all but `complex` are views, and
are so on Tensors (tensor/memory/views.py); a write through one goes to what it shows.
A cotangent is torch's: of a real-valued loss, d/d real + i d/d imag. So real gives g, imag i g, and conj conj(g).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler_core import dtype as dt
from compiler_core.errors import ShapeError
from compiler_core.meta import Shape, TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.aliasing import Alias, Strides
from compiler_core.ops.checks import COMPLEX, check_alike, check_dtype
from compiler_core.ops.registry import Array, Op, Sample, Value, register
from compiler_core.ops.rules import ALIKE, CORE, Decomposed, EngineRule, Indexed, Pointwise

PARTS = (dt.float64, dt.float32)
_SHAPES = ((3, 4), (), (2, 1, 5))


# ---- complex


def _infer_complex(re: TensorMeta, im: TensorMeta) -> TensorMeta:
    check_dtype("complex", re, PARTS)
    check_alike("complex", re, im)
    return re.with_dtype(re.dtype.complex)


def _eager_complex(xp: Any, re: Array, im: Array) -> Array:
    shape = np.broadcast_shapes(re.shape, im.shape)  # one may be a number: see ops/on_device.py
    out: Array = xp.empty(shape, dt.of(re.dtype).complex.numpy)
    out.real, out.imag = re, im
    return out


COMPLEX_OP = register(
    Op(
        "complex",
        infer=_infer_complex,
        eager=_eager_complex,
        vjp=lambda g, out, re, im: (prims.real(g), prims.imag(g)),
        lower=Pointwise("complex"),
        samples=tuple(Sample((shape, shape)) for shape in _SHAPES),
        dtypes=PARTS,
        engines=CORE,
    )
)


# ---- real, imag, conj


def _infer_part(name: str) -> Any:
    def infer(x: TensorMeta) -> TensorMeta:
        check_dtype(name, x, COMPLEX)
        return x.with_dtype(x.dtype.real)

    return infer


def _infer_conj(x: TensorMeta) -> TensorMeta:
    check_dtype("conj", x, COMPLEX)
    return x


def _zeros(g: Value) -> Value:
    return prims.full_like(g, 0.0)


def _part(name: str, infer: Any, eager: Any, vjp: Any, alias: Alias, engines: EngineRule = CORE) -> Op:
    samples = tuple(Sample((shape,)) for shape in _SHAPES)
    lower = Pointwise(name)
    return register(Op(name, infer, eager, vjp, lower, samples, COMPLEX, alias=alias, engines=engines))


def _doubled(in_shape: Shape, in_strides: Strides) -> Strides:
    return tuple(2 * s for s in in_strides)


REAL = _part(
    "real",
    _infer_part("real"),
    lambda xp, x: x.real,
    lambda g, out, x: (prims.complex(g, _zeros(g)),),
    Alias(lambda base, new: prims.complex(new, prims.imag(base)), _doubled, parts=(2, 1)),
)
IMAG = _part(
    "imag",
    _infer_part("imag"),
    lambda xp, x: x.imag,
    lambda g, out, x: (prims.complex(_zeros(g), g),),
    Alias(lambda base, new: prims.complex(prims.real(base), new), _doubled, lambda in_strides: 1, parts=(2, 1)),
)
CONJ = _part(
    "conj",
    _infer_conj,
    lambda xp, x: xp.asarray(xp.conjugate(x)),
    lambda g, out, x: (prims.conj(g),),
    Alias(lambda base, new: prims.conj(new), lambda in_shape, in_strides: in_strides, keeps_order=True),
    Decomposed(lambda x: prims.complex(prims.real(x), prims.neg(prims.imag(x)))),
)


# ---- both parts side by side


def _infer_as_real(x: TensorMeta) -> TensorMeta:
    check_dtype("view_as_real", x, COMPLEX)
    return TensorMeta((*x.shape, 2), x.dtype.real)


def _eager_as_real(xp: Any, x: Array) -> Array:
    return x[..., None].view(dt.of(x.dtype).real.numpy)


def _emit_as_real(e: Any, index: Any, read: Any, metas: tuple[TensorMeta, ...]) -> Any:
    x = read[0](index[:-1])
    return e.where(e.compare("eq", index[-1], 0), e.call("real", x), e.call("imag", x))


def _parts_side_by_side(x: Value) -> Value:
    column = (*x.shape, 1)
    return prims.cat([prims.reshape(part, column) for part in (prims.real(x), prims.imag(x))], len(x.shape))


VIEW_AS_REAL = register(
    Op(
        "view_as_real",
        infer=_infer_as_real,
        eager=_eager_as_real,
        vjp=lambda g, out, x: (prims.view_as_complex(g),),
        vmap=ALIKE,
        lower=Indexed(_emit_as_real),
        samples=tuple(Sample((shape,)) for shape in (*_SHAPES, (0,))),
        dtypes=COMPLEX,
        alias=Alias(
            lambda base, new: prims.view_as_complex(new),
            lambda in_shape, in_strides: (*_doubled(in_shape, in_strides), 1),
            parts=(2, 1),
        ),
        engines=Decomposed(_parts_side_by_side),
    )
)


def _infer_as_complex(x: TensorMeta) -> TensorMeta:
    check_dtype("view_as_complex", x, PARTS)
    if x.ndim == 0 or x.shape[-1] != 2:
        raise ShapeError("view_as_complex: the last dimension holds the two parts", expected="(*, 2)", got=str(x))
    return TensorMeta(x.shape[:-1], x.dtype.complex)


def _eager_as_complex(xp: Any, x: Array) -> Array:
    dtype = dt.of(x.dtype).complex.numpy
    steps = np.asarray(x.strides[:-1]) % dtype.itemsize
    if x.strides[-1] == x.itemsize and not steps.any():
        return x.view(dtype)[..., 0]
    return _eager_complex(xp, x[..., 0], x[..., 1])


def _emit_as_complex(e: Any, index: Any, read: Any, metas: tuple[TensorMeta, ...]) -> Any:
    return e.call("complex", read[0]((*index, 0)), read[0]((*index, 1)))


def _complex_of_parts(x: Value) -> Value:
    *lead, _ = shape = tuple(x.shape)
    zeros, ones = (0,) * len(lead), (1,) * len(shape)
    parts = [prims.slice(x, (*zeros, k), (*lead, k + 1), ones) for k in (0, 1)]
    return prims.complex(*[prims.reshape(part, tuple(lead)) for part in parts])


VIEW_AS_COMPLEX = register(
    Op(
        "view_as_complex",
        infer=_infer_as_complex,
        eager=_eager_as_complex,
        vjp=lambda g, out, x: (prims.view_as_real(g),),
        vmap=ALIKE,
        lower=Indexed(_emit_as_complex),
        samples=tuple(Sample((shape,)) for shape in ((3, 4, 2), (2,), (2, 1, 5, 2), (0, 2))),
        dtypes=PARTS,
        alias=Alias(
            lambda base, new: prims.view_as_real(new),
            lambda in_shape, in_strides: tuple(s // 2 for s in in_strides[:-1]),
            parts=(1, 2),
        ),
        engines=Decomposed(_complex_of_parts),
    )
)
