"""Composites that work by rows: loops that the compiler makes of them, against their compositions.

Values and gradients of rows of many lengths, of infinities and NaN, however they lie; gradients against differences;
what is told from the result against the composition's vjp; a new one is one block; what is none is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from compiler_core import dtype as dt
from compiler_core.codegen.row_values import halves
from compiler_core.eager import native, rules
from compiler_core.eager.pointwise import told
from compiler_core.errors import LoweringError
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import broadcast_to, kept_shape, shape_of
from compiler_core.ops.composites.arithmetic import mul
from compiler_core.ops.whole import COMPOSITES, Composite, whole
from compiler_core.tensor.autograd.backward import grad
from compiler_core.tensor.autograd.tape import WholeNode
from compiler_core.tensor.making.creation import tensor
from compiler_core.tensor.tensor import Tensor
from tests.fake_cupy import on_fake_device

pytestmark = pytest.mark.skipif(native.kernels() is None, reason="no compiler")

assert rules is not None
NAMES = sorted(name for name, one in COMPOSITES.items() if one.rows)
SLACK = {"float32": 2e-5, "float64": 1e-12}
PARAMETERS = {"layer_norm": 2, "rms_norm": 1}


def attrs_of(name: str, dims: int = 1, dim: int = -1) -> dict[str, Any]:
    one = COMPOSITES[name]
    place = {one.place: dims if one.place == "dims" else dim} if one.place else {}
    return {**dict.fromkeys(one.numbers, 0.37), **place}


def operands_of(name: str, shape: tuple[int, ...], dtype: Any, dims: int = 1) -> list[Tensor]:
    rng = np.random.default_rng(0)
    shapes = [shape, *[shape[-dims:]] * PARAMETERS.get(name, 0)]
    return [tensor(rng.normal(size=s).astype(dtype)).requires_grad_() for s in shapes]


def by_kernel(name: str, operands: list[Tensor], attrs: dict[str, Any]) -> Tensor:
    made = Tensor.__whole__(COMPOSITES[name], tuple(operands), attrs)
    assert made is not None
    assert made._node is None or isinstance(made._node, WholeNode)
    return made


def composed(name: str, operands: list[Tensor], attrs: dict[str, Any]) -> Tensor:
    out = COMPOSITES[name].compose(*operands, **attrs)
    assert isinstance(out, Tensor)
    return out


def compare(name: str, operands: list[Tensor], attrs: dict[str, Any]) -> None:
    """Value and gradients of the kernels and the composition."""
    out, expected = by_kernel(name, operands, attrs), composed(name, operands, attrs)
    slack = SLACK[np.dtype(out.dtype.numpy).name] * max(1.0, math.sqrt(out.numel() / 100))
    np.testing.assert_allclose(out.detach().numpy(), expected.detach().numpy(), rtol=slack, atol=slack)
    g = tensor(np.cos(np.arange(out.numel())).reshape(tuple(out.shape)).astype(out.dtype.numpy))
    for a, b in zip(grad(out, operands, g), grad(expected, operands, g), strict=True):
        assert a is not None
        assert b is not None
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=slack, atol=slack * 3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 64, 1000, 9001])
@pytest.mark.parametrize("name", NAMES)
def test_rows_of_any_length_are_the_compositions(name: str, n: int, dtype: Any) -> None:
    """9001: sums of three blocks."""
    for lead in ((3,), (2, 4), (1, 1)):
        compare(name, operands_of(name, (*lead, n), dtype), attrs_of(name, dim=len(lead)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", NAMES)
def test_however_they_lie(name: str, dtype: Any) -> None:
    x, *rest = operands_of(name, (4, 5, 6), dtype)
    for given in (x.detach().transpose(0, 1), x.detach()[::2], x.detach()[:, :1].expand(4, 5, 6)):
        compare(name, [given.requires_grad_(), *rest], attrs_of(name, dim=2))


@pytest.mark.parametrize("name", NAMES)
def test_a_dim_in_the_middle_or_several(name: str) -> None:
    if COMPOSITES[name].place == "dim":
        for dim in (0, 1):
            compare(name, operands_of(name, (4, 5, 6), np.float64), attrs_of(name, dim=dim))
    elif COMPOSITES[name].place == "dims":
        for dims in (2, 3):
            compare(name, operands_of(name, (4, 5, 6), np.float64, dims), attrs_of(name, dims))
    elif "causal" not in name:
        compare(name, operands_of(name, (7,), np.float64), attrs_of(name))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", NAMES)
def test_infinities_and_nan_are_the_compositions(name: str, dtype: Any) -> None:
    rows = np.array([[np.inf, 0, 1], [-np.inf] * 3, [np.nan, 1, 2], [-np.inf, 1, 2], [1, 2, np.nan], [3e38, 1, -3e38]])
    rest = operands_of(name, (6, 3), dtype)[1:]
    given, attrs = [tensor(rows.astype(dtype)).requires_grad_(), *rest], attrs_of(name, dim=1)
    out, expected = by_kernel(name, given, attrs), composed(name, given, attrs)
    np.testing.assert_allclose(out.detach().numpy(), expected.detach().numpy(), rtol=SLACK[np.dtype(dtype).name])


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_differences(name: str) -> None:
    operands, attrs = operands_of(name, (3, 4), np.float64), attrs_of(name, dim=1)
    g = np.cos(np.arange(12)).reshape(3, 4)
    found = grad(by_kernel(name, operands, attrs), operands, tensor(g))
    for k, made in enumerate(found):
        assert made is not None
        arrays = [x.detach().numpy().copy() for x in operands]
        for place in np.ndindex(*arrays[k].shape):
            ends = []
            for step in (1e-6, -1e-6):
                moved = [a.copy() for a in arrays]
                moved[k][place] += step
                ends.append((by_kernel(name, [tensor(a) for a in moved], attrs).numpy() * g).sum())
            assert abs((ends[0] - ends[1]) / 2e-6 - made.numpy()[place]) < 1e-7


@pytest.mark.parametrize("name", [name for name in NAMES if COMPOSITES[name].gradient is not None])
def test_what_is_told_from_the_result_is_the_compositions_vjp(name: str) -> None:
    (x,), attrs = operands_of(name, (5, 5), np.float64), attrs_of(name, dim=1)
    g, one = tensor(np.cos(np.arange(25)).reshape(5, 5)), COMPOSITES[name]
    out = one.compose(x, **attrs)
    (expected,) = one.vjp(g, out, x, **attrs)
    assert one.gradient is not None
    np.testing.assert_allclose(
        one.gradient(g, out, **attrs).detach().numpy(), expected.detach().numpy(), rtol=1e-12, atol=1e-14
    )


# ---- a new one is one block


def _by_magnitude(x: Any) -> Any:
    """x / sum(|x|)."""
    last = (len(x.shape) - 1,)
    total = prims.reshape(prims.sum(prims.abs(x), last), kept_shape(shape_of(x), last))
    return prims.div(x, broadcast_to(total, shape_of(x)))


def _scaled(x: Any, weight: Any, *, dims: int, power: float) -> Any:
    """x * weight * power ** (x's share of its row): with a parameter, a number, and what is costly."""
    last = (len(x.shape) - 1,)
    e = prims.exp(x)
    share = prims.div(e, broadcast_to(prims.reshape(prims.sum(e, last), kept_shape(shape_of(x), last)), shape_of(x)))
    return prims.mul(mul(x, weight), mul(share, power))


def _down(x: Any) -> Any:
    return prims.sub(x, broadcast_to(prims.reshape(prims.sum(x, (0,)), (1, *shape_of(x)[1:])), shape_of(x)))


def _first(x: Any) -> Any:
    return prims.sub(x, broadcast_to(F.narrow(x, 1, 0, 1), shape_of(x)))


def _running(x: Any) -> Any:
    return F.cumsum(x, 1)


def _of_all(x: Any) -> Any:
    return prims.mul(x, broadcast_to(prims.sum(x, (0, 1)), shape_of(x)))


def _by_size(x: Any) -> Any:
    return mul(x, float(shape_of(x)[1]) ** 2)


def _branching(x: Any) -> Any:
    return prims.exp(x) if shape_of(x)[1] < 100 else x


def _flag(x: Any) -> Any:
    return prims.gt(x, prims.full_like(x, 0.0))


@pytest.fixture
def declare() -> Iterator[Any]:
    """Declares a composite, which goes with the test."""
    before = set(COMPOSITES)
    yield lambda compose, **facts: whole(rows=True, **facts)(compose)
    for name in set(COMPOSITES) - before:
        del COMPOSITES[name]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_new_one_is_computed_by_a_kernel(dtype: Any, declare: Any) -> None:
    declare(_by_magnitude)
    for n in (1, 5, 6000):
        compare("by_magnitude", operands_of("by_magnitude", (3, n), dtype), {})


def test_one_with_a_parameter_that_is_perhaps_not_there(declare: Any) -> None:
    declare(_scaled)
    x, weight = operands_of("layer_norm", (3, 4, 5), np.float64)[:2]
    compare("scaled", [x, weight], {"dims": 1, "power": 0.5})
    compare("scaled", [x, weight], {"dims": 1, "power": 2.0})
    assert COMPOSITES["scaled"].reads == {0, 1}
    out = Tensor.__whole__(COMPOSITES["scaled"], (x, weight), {"dims": 1, "power": tensor(2.0)})
    assert out is None, "a number that is a Tensor is the composition's"


@pytest.mark.parametrize("compose", [_down, _first, _running, _of_all, _by_size, _branching, _flag])
def test_what_does_not_work_by_rows_is_refused(compose: Any, declare: Any) -> None:
    function = declare(compose)
    with pytest.raises(LoweringError, match=f"{compose.__name__[1:]}' is declared `rows`(.|\n)*without `rows`"):
        function(tensor(np.ones((3, 4))))


def test_a_product_of_what_is_seen_is_refused(declare: Any) -> None:
    def _seen(x: Any) -> Any:
        is_seen = F.below_diagonal(shape_of(x), 0)
        total = prims.reshape(prims.prod(F.where(is_seen, x, 2.0), (1,)), (x.shape[0], 1))
        return F.where(is_seen, prims.mul(x, broadcast_to(total, shape_of(x))), 0.0)

    function = declare(_seen, gradient=lambda g, out: prims.mul(g, out))
    with pytest.raises(LoweringError, match="a product of a row whose columns are not all seen"):
        function(tensor(np.ones((4, 4))))


def test_the_forward_keeps_a_number_a_row_that_the_backward_reads() -> None:
    one: Composite = COMPOSITES["layer_norm"]
    forward, backward = halves(told(one, (True, True)), dt.float32)
    assert [lies for _, lies in forward.results] == ["all", "row", "row"]
    assert [lies for _, lies in backward.results] == ["all", "column", "column"]
    again = [name for name, value in backward.values.items() if value.kind and name in forward.values]
    assert again == [], "a sum of the forward's is taken twice"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_on_a_device_a_new_one_is_computed_by_a_kernel(dtype: Any, declare: Any) -> None:
    declare(_by_magnitude)
    declare(_scaled)
    for name, count, attrs in (("by_magnitude", 1, {}), ("scaled", 2, {"dims": 1, "power": 0.5})):
        with on_fake_device():
            x = [t.detach().to("cuda").requires_grad_() for t in operands_of("layer_norm", (70, 37), dtype)[:count]]
            y = [t.detach().cpu().requires_grad_() for t in x]
            out, expected = by_kernel(name, x, attrs), composed(name, y, attrs)
            slopes = np.cos(np.arange(70 * 37)).reshape(70, 37).astype(dtype)
            found, right = grad(out, x, tensor(slopes).to("cuda")), grad(expected, y, tensor(slopes))
            for a, b in zip((out, *found), (expected, *right), strict=True):
                assert a is not None
                assert b is not None
                near = {"rtol": SLACK[np.dtype(dtype).name], "atol": SLACK[np.dtype(dtype).name] * 10}
                np.testing.assert_allclose(a.detach().cpu().numpy(), b.detach().numpy(), **near)
