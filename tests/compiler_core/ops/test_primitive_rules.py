"""Primitives: what infer refuses, cast and detach, the registry's own rules, erf, and the functions of ops.prims."""

from __future__ import annotations

import inspect
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from compiler_core import dtype as dt
from compiler_core.errors import DTypeError, IndexError_, OpDefinitionError, ShapeError
from compiler_core.loop_ir.expr import SCALARS
from compiler_core.ops import functional, prims
from compiler_core.ops.primitives.movement import dim_groups
from compiler_core.ops.registry import OPS, NotDifferentiable, Op, Sample, register
from compiler_core.ops.rules import Pointwise

X, IDX = np.zeros((2, 3), np.float32), np.zeros(2, np.int64)
E = np.zeros((0, 3), np.float32)

REFUSED: list[tuple[type[Exception], Any]] = [
    (ShapeError, lambda: prims.add(X, X[0])),
    (DTypeError, lambda: prims.add(X, X.astype(np.float64))),
    (DTypeError, lambda: prims.exp(IDX)),
    (DTypeError, lambda: prims.bitwise_and(X, X)),
    (DTypeError, lambda: prims.where(X, X, X)),
    (ShapeError, lambda: prims.where(np.array(True), X, X)),
    (ShapeError, lambda: prims.sum(X, (1, 0))),
    (ShapeError, lambda: prims.sum(X, (2,))),
    (DTypeError, lambda: prims.sum(X > 0, (0,))),
    (ShapeError, lambda: prims.max(E, (0,))),
    (ShapeError, lambda: prims.argmax(X, (0, 1))),
    (ShapeError, lambda: prims.argmin(E, (0,))),
    (ShapeError, lambda: prims.reshape(X, (4, 2))),
    (ShapeError, lambda: prims.permute(X, (0, 0))),
    (ShapeError, lambda: prims.expand(X, (3, 3))),
    (ShapeError, lambda: prims.expand(X, (3,))),
    (ShapeError, lambda: prims.slice(X, (0, 0), (3, 3), (1, 1))),
    (ShapeError, lambda: prims.slice(X, (0,), (1,), (1,))),
    (ShapeError, lambda: prims.slice(X, (0, 0), (1, 1), (0, 1))),
    (ShapeError, lambda: prims.flip(X, (2,))),
    (ShapeError, lambda: prims.pad(X, (-1, 0), (0, 0))),
    (ShapeError, lambda: prims.cat([X, X[:, :2]], 0)),
    (DTypeError, lambda: prims.cat([X, X.astype(np.float64)], 0)),
    (ShapeError, lambda: prims.cat([], 0)),
    (ShapeError, lambda: prims.slice_scatter(X, X, (0, 0), (1, 3), (1, 1))),
    (ShapeError, lambda: prims.take(np.float32(1).reshape(()), IDX)),
    (DTypeError, lambda: prims.take(X, X)),
    (IndexError_, lambda: prims.take(X, IDX + 2)),
    (IndexError_, lambda: prims.take(X, IDX - 1)),
    (ShapeError, lambda: prims.index_add(X, IDX, X[0])),
    (IndexError_, lambda: prims.index_copy(X, IDX + 2, X)),
    (ShapeError, lambda: prims.gather(X, IDX, 0)),
    (IndexError_, lambda: prims.gather(X, IDX[:, None] + 3, 1)),
    (ShapeError, lambda: prims.scatter_add(X, IDX[:, None], X, 1)),
    (IndexError_, lambda: prims.scatter(X, IDX[:, None] + 3, X[:, :1], 1)),
    (IndexError_, lambda: prims.check_index(IDX + 5, 5)),
    (ShapeError, lambda: prims.matmul(X, X)),
    (DTypeError, lambda: prims.matmul(IDX[None], IDX[:, None])),
    (ShapeError, lambda: prims.full((-1,), 0, dt.float32)),
    (ShapeError, lambda: prims.iota((2,), 1, dt.int64)),
    (DTypeError, lambda: prims.iota((2,), 0, dt.bool_)),
    (DTypeError, lambda: prims.philox(IDX, (2,))),
    (ShapeError, lambda: prims.philox(np.zeros(2, np.uint64), (2,))),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_operands_that_do_not_fit_are_refused(number: int) -> None:
    error, call = REFUSED[number]
    with pytest.raises(error):
        call()


COMPOSITES_REFUSED: list[tuple[type[Exception], Any]] = [
    (ShapeError, lambda F: F.div(X, X, rounding_mode="up")),
    (ShapeError, lambda F: F.clamp(X)),
    (ShapeError, lambda F: F.gelu(X, approximate="erf")),
    (ShapeError, lambda F: F.glu(X)),
    (ShapeError, lambda F: F.reshape(X, (4, -1))),
    (ShapeError, lambda F: F.flatten(X, 1, 0)),
    (ShapeError, lambda F: F.t(X[None])),
    (ShapeError, lambda F: F.repeat(X, 2)),
    (ShapeError, lambda F: F.cat([])),
    (ShapeError, lambda F: F.narrow(X, 0, 1, 2)),
    (ShapeError, lambda F: F.split(X, [1, 2])),
    (ShapeError, lambda F: F.pad(X, (1,))),
    (ShapeError, lambda F: F.pad(X, (1, 1), mode="mirrored")),
    (ShapeError, lambda F: F.tril(X[0])),
    (IndexError_, lambda F: F.sum(X, 2)),
    (IndexError_, lambda F: F.sum(X, (0, 0))),
    (IndexError_, lambda F: F.select(X, 0, 2)),
    (ShapeError, lambda F: F.matmul(X, np.float32(1))),
    (ShapeError, lambda F: F.mm(X, X[0])),
    (ShapeError, lambda F: F.bmm(X[None], np.zeros((2, 3, 1), np.float32))),
    (ShapeError, lambda F: F.linear(X, X[:, :2])),
    (ShapeError, lambda F: F.einsum("ij,jk->ik", X)),
    (ShapeError, lambda F: F.einsum("ijk->i", X)),
    (ShapeError, lambda F: F.scaled_dot_product_attention(X, X, X, attn_mask=X, is_causal=True)),
    (ShapeError, lambda F: F.layer_norm(X, (2,))),
    (ShapeError, lambda F: F.group_norm(X, 2)),
    (ShapeError, lambda F: F.binary_cross_entropy_with_logits(X, X[0])),
    (ShapeError, lambda F: F.cross_entropy(X, X[0])),
    (ShapeError, lambda F: F.nll_loss(np.array(0.0, np.float32), np.array(0))),
]


@pytest.mark.parametrize("number", range(len(COMPOSITES_REFUSED)))
def test_composites_refuse_what_does_not_fit(number: int) -> None:
    error, call = COMPOSITES_REFUSED[number]
    with pytest.raises(error):
        call(functional)


def test_the_registry_refuses_a_second_op_of_a_name_and_a_missing_rule() -> None:
    with pytest.raises(OpDefinitionError):
        register(OPS["add"])
    flat = NotDifferentiable("test")
    with pytest.raises(OpDefinitionError):
        register(Op("nameless", lambda x: x, lambda xp, x: x, flat, Pointwise("neg"), (), (dt.float32,)))
    assert "nameless" not in OPS


def test_there_is_one_strict_function_for_each_op() -> None:
    written = {n for n, f in inspect.getmembers(prims, inspect.isfunction) if f.__module__ == prims.__name__}
    assert {name for name in written if not name.startswith("_")} - {"full_like"} <= OPS.keys()
    assert all(getattr(prims, name).__name__ == name for name in OPS)
    with pytest.raises(AttributeError, match="no primitive is called so"):
        prims.no_such_primitive  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-15), (np.float32, 5e-7)])
def test_erf_is_libms(dtype: Any, rtol: float) -> None:
    x = np.concatenate([np.linspace(-7, 7, 4001), 10.0 ** np.arange(-30, 1)]).astype(dtype)
    expected = np.array([math.erf(v) for v in x])
    np.testing.assert_allclose(prims.erf(x), expected, rtol=rtol)
    np.testing.assert_array_equal(prims.erf(np.array([np.nan, np.inf, -np.inf], dtype)), [np.nan, 1, -1])


def test_casts() -> None:
    x = np.array([-1.7, 0.0, 2.5, np.nan])
    np.testing.assert_array_equal(prims.cast(x, dt.bool_), [True, False, True, True])
    np.testing.assert_array_equal(prims.cast(x[:3], dt.int32), [-1, 0, 2])
    cast = OPS["cast"]
    assert not isinstance(cast.vjp, NotDifferentiable)
    (g,) = cast.vjp(X, X, X.astype(np.float64), dtype=dt.float32)
    assert g.dtype == np.float64
    assert cast.vjp(X, X, IDX, dtype=dt.float32) == (None,)
    assert cast.vjp(IDX, IDX, X, dtype=dt.int64) == (None,)


def test_detach_has_no_gradient() -> None:
    assert isinstance(OPS["detach"].vjp, NotDifferentiable)
    assert prims.detach(X) is X


def test_16_bit_floats_round_once_per_op() -> None:
    x = np.linspace(-3, 3, 101).astype(ml_dtypes.bfloat16)
    wide = x.astype(np.float32)
    for name in ("exp", "tanh", "erf", "sigmoid"):
        rounded = getattr(prims, name)(wide).astype(ml_dtypes.bfloat16)
        np.testing.assert_array_equal(getattr(prims, name)(x).view(np.uint16), rounded.view(np.uint16))


def test_sampled_ops_name_their_dtypes() -> None:
    for op in OPS.values():
        assert op.dtypes
        assert all(isinstance(s, Sample) for s in op.samples)


def test_reshape_groups_keep_unrelated_dims_apart() -> None:
    assert dim_groups((2, 3, 8), (2, 3, 2, 4)) == [
        (range(1), range(1)),
        (range(1, 2), range(1, 2)),
        (range(2, 3), range(2, 4)),
    ]
    assert dim_groups((2, 3), (6,)) == [(range(2), range(1))]
    assert dim_groups((3, 1), (3,)) == [(range(1), range(1)), (range(1, 2), range(1, 1))]


POINTWISE = [op for op in OPS.values() if isinstance(op.lower, Pointwise)]


@pytest.mark.parametrize("op", [op for op in POINTWISE if len(op.samples[0].shapes) == 2], ids=repr)
def test_an_op_of_two_operands_says_whether_they_may_be_exchanged(op: Op) -> None:
    rng, sample, dtype = np.random.default_rng(0), op.samples[0], op.dtypes[0]
    a, b = (rng.uniform(sample.low, sample.high, (50,)).astype(dtype.numpy) for _ in range(2))
    assert op.commutative == np.array_equal(op.eager(np, a, b), op.eager(np, b, a), equal_nan=dtype.kind == "f")


@pytest.mark.parametrize("op", [op for op in POINTWISE if op.cheap], ids=repr)
def test_what_is_cheap_to_compute_again_has_no_costly_scalar_function(op: Op) -> None:
    assert isinstance(op.lower, Pointwise)
    assert op.lower.scalar not in SCALARS or not SCALARS[op.lower.scalar].costly


@pytest.mark.parametrize("op", [op for op in OPS.values() if op.only_for_autograd], ids=repr)
def test_what_is_only_for_autograd_is_an_identity(op: Op) -> None:
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(op.eager(np, x, **op.samples[0].attrs), x)


VIEWS = [(op, sample) for op in OPS.values() if op.alias is not None for sample in op.samples]


def _base_and_view(op: Op, sample: Sample) -> tuple[Any, Any]:
    dtype = (sample.dtypes or op.dtypes)[0].numpy
    base = np.arange(1, 1 + math.prod(sample.shapes[0]), dtype=np.float64).reshape(sample.shapes[0]).astype(dtype)
    return base, op.eager(np, base, **sample.attrs)


@pytest.mark.parametrize(("op", "sample"), VIEWS, ids=[f"{op.name}{k}" for k, (op, _) in enumerate(VIEWS)])
def test_what_is_written_through_a_view_is_what_it_then_shows(op: Op, sample: Sample) -> None:
    base, shown = _base_and_view(op, sample)
    assert op.alias is not None
    try:
        written = op.alias.scatter(base, shown * 2, **sample.attrs)
    except ShapeError:  # several of its elements are one memory location, or may be
        assert op.name in ("expand", "windows", "strided")
        return
    np.testing.assert_array_equal(op.eager(np, written, **sample.attrs), shown * 2)
    np.testing.assert_array_equal(op.alias.scatter(base, shown, **sample.attrs), base)


@pytest.mark.parametrize(("op", "sample"), VIEWS, ids=[f"{op.name}{k}" for k, (op, _) in enumerate(VIEWS)])
def test_the_strides_of_a_view_are_numpys(op: Op, sample: Sample) -> None:
    base, shown = _base_and_view(op, sample)
    strides = tuple(s // base.itemsize for s in base.strides)
    assert op.alias is not None
    found = op.alias.strides(base.shape, strides, **sample.attrs)
    if not shown.size or not np.may_share_memory(base, shown):
        return
    assert found is not None
    sizes = [k for k, n in enumerate(shown.shape) if n > 1]
    assert [found[k] * shown.itemsize for k in sizes] == [shown.strides[k] for k in sizes]
    start = shown.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    assert op.alias.offset(strides, **sample.attrs) * shown.itemsize == start


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "argmax", "argmin"])
def test_reductions_that_nest_are_those_of_all_dims_at_once(name: str) -> None:
    x = np.arange(1.0, 25.0).reshape(2, 3, 4)
    op, reduce = OPS[name], getattr(prims, name)
    assert op.nests == (not name.startswith("arg"))  # a place in a place is none
    if op.nests:
        assert np.array_equal(reduce(reduce(x, (1,)), (1,)), reduce(x, (1, 2)))
        assert np.array_equal(reduce(x, ()), x)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.complex64, np.int64, np.bool_])
@pytest.mark.parametrize("value", [0.0, -0.0, 1.0])
def test_pad_puts_the_value_there_with_its_sign(value: float, dtype: Any) -> None:
    x = np.ones((2, 1), dtype)
    expected = np.full((2, 4), value, dtype)
    expected[:, 1:2] = x
    assert prims.pad(x, (0, 1), (0, 2), value).tobytes() == expected.tobytes()
