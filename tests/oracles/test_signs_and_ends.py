"""Signs of zero, infinities and the largest numbers, in each dtype, where torch's kernels agree with each other."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import distcompile as dc

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

inf, nan = math.inf, math.nan
VALUES = [0.0, -0.0, 0.5, -0.5, 0.25, 1.0, -1.0, 3.0, -3.0, 7.0, -7.0, 60.0, 120.0, inf, -inf, nan]
_SAME = """
F.pad(x,(1,1),value=-0.0)
F.hardtanh(x,0,1)
F.hardtanh(x,-0.0,1)
F.hardtanh(x,-1,0)
F.relu6(x)
x.clamp(0,1)
x.clamp(-0.0,1)
x.clamp(max=-0.0)
x.clamp(min=0)
F.softshrink(x)
F.logsigmoid(x)
m.where(x>0,0.0,-0.0)
m.where(x>0,-0.0,0.0)
m.where(x>0,x,-0.0)
F.hardsigmoid(x)
m.copysign(x,-0.0).detach()
F.threshold(x,0,-0.0)
m.addcmul(x,x*1e30,x*1e30,value=0)
m.ldexp(x,m.tensor(-200)).detach()
(x//-2.0).detach()
m.div(-x,3.0,rounding_mode='floor').detach()
m.relu(x)
F.relu(-x*0)
x%2.0
x%-2.0
x%m.tensor(-inf,dtype=x.dtype)
m.fmod(x,2.0)
m.fmod(x,m.tensor(-inf,dtype=x.dtype))
m.erfinv(x*0.0)
"""
SAME = _SAME.split()


def answer(m: Any, text: str, dtype: str, compiled: bool) -> list[Any]:
    x = m.tensor(VALUES, dtype=getattr(m, dtype), requires_grad=True)
    function = eval(f"lambda x: {text}", {"m": m, "F": m.nn.functional, "inf": inf})
    made = (dc.compile(function) if compiled else function)(x)
    parts = [made]
    if made.requires_grad:
        parts.append(m.autograd.grad(made, x, m.ones_like(made))[0] + 0.0)
    return [np.array(part.detach().to(m.float64).numpy()) for part in parts]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("text", SAME)
def test_signs_and_ends_are_torchs(text: str, dtype: str, compiled: bool) -> None:
    theirs, ours = answer(torch, text, dtype, False), answer(dc, text, dtype, compiled)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-6, atol=1e-300)
        here = ~np.isnan(other)
        np.testing.assert_array_equal(np.signbit(mine)[here], np.signbit(other)[here])


def slope(function: Any, at: float, dtype: Any = None) -> float:
    x = dc.tensor(at, dtype=dtype or dc.float64, requires_grad=True)
    (grad,) = dc.autograd.grad(function(x), x)
    return float(grad)


@pytest.mark.parametrize("at", [1e-300, 1e-8, -1e-8, 1e-4, 0.3, 0.999, 1.0, 2.0, -5.0])
def test_the_slope_of_cosh_does_not_cancel(at: float) -> None:
    assert math.isclose(slope(dc.cosh, at), math.sinh(at), rel_tol=1e-14)
    single = float(np.float32(at))
    assert math.isclose(slope(dc.cosh, single, dc.float32), math.sinh(single), rel_tol=1e-6, abs_tol=1e-44)
    assert math.isclose(float(dc.cosh(dc.tensor(at, dtype=dc.float64))), math.cosh(at), rel_tol=1e-15)


@pytest.mark.parametrize("at", [0.0, 1e-8, -1e-8, 1e-4, 0.5, -0.99, 1.01, 3.0, 700.0])
def test_bessels_slopes_are_functions_of_their_kin(at: float) -> None:
    x, S = dc.tensor(at, dtype=dc.float64), dc.special
    assert math.isclose(slope(dc.i0, at), float(S.i1(x)), rel_tol=1e-12)
    scaled = float(S.i1e(x)) - float(np.sign(at)) * float(S.i0e(x))
    assert math.isclose(slope(S.i0e, at), scaled, rel_tol=1e-9, abs_tol=1e-12)


def test_bessel_at_the_ends() -> None:
    ends = dc.tensor([inf, -inf], dtype=dc.float64)
    assert dc.special.i1(ends).tolist() == [inf, -inf]
    assert dc.i0(ends).tolist() == [inf, inf]
    for function in (dc.special.i0e, dc.special.i1e):
        assert function(ends).tolist() == [0, 0]
        assert [slope(function, end) for end in (inf, -inf)] == [0, 0]
    assert slope(dc.i0, 1e300) == inf
    assert math.isclose(float(dc.special.i1(dc.tensor(1e-4, dtype=dc.float64))), 5.0000000062499998e-05, rel_tol=1e-15)


def test_lgamma_at_the_ends() -> None:
    assert slope(dc.lgamma, inf) == inf
    assert float(dc.lgamma(dc.tensor(-1.7e308, dtype=dc.float64))) == inf


def test_powers_of_two_do_not_overflow_between() -> None:
    x, n = dc.tensor([5e-324, 1e308, 1.0, inf, 0.0], dtype=dc.float64), dc.tensor([2000, -2000, -1000, -9000, 5000])
    ends = dc.ldexp(dc.tensor([0.0, inf, 0.0, 1.0, 1.0]), dc.tensor([inf, -inf, -inf, inf, nan])).tolist()
    np.testing.assert_array_equal(ends, [nan, nan, 0.0, inf, nan])
    assert dc.ldexp(x, n).tolist() == [math.ldexp(5e-324, 2000), math.ldexp(1e308, -2000), 2.0**-1000, inf, 0.0]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", ["int32", "int64", "int8", "uint8"])
def test_whole_numbers_whose_difference_wraps_are_not_close(dtype: str, compiled: bool) -> None:
    ends = np.iinfo(dtype)
    values = [0, 1, 5, ends.max, ends.min, ends.max - 1]
    a, b = np.array(np.meshgrid(values, values)).reshape(2, -1).astype(dtype)
    ours = dc.compile(dc.isclose) if compiled else dc.isclose
    made = ours(dc.tensor(a), dc.tensor(b), rtol=0.0, atol=1.0)
    wanted = [abs(int(x) - int(y)) <= 1 for x, y in zip(a, b)]
    assert made.tolist() == wanted
    assert dc.isclose(dc.tensor(a), dc.tensor(b)).tolist() == torch.isclose(torch.tensor(a), torch.tensor(b)).tolist()


def test_threshold_of_whole_numbers_keeps_them() -> None:
    x = np.array([-2, 0, 1, 3])
    for dtype in ("int64", "int32", "uint8"):
        ours, theirs = (
            m.nn.functional.threshold(m.tensor(np.abs(x), dtype=getattr(m, dtype)), 1.0, 7.0) for m in (dc, torch)
        )
        assert (str(ours.dtype).split(".")[-1], ours.tolist()) == (dtype, theirs.tolist())


@pytest.mark.parametrize("name", ["sum", "prod", "cumsum", "cumprod"])
@pytest.mark.parametrize("dtype", ["int64", "int32", "float64"])
def test_sums_into_another_dtype_are_computed_in_it(name: str, dtype: str) -> None:
    made = []
    for m in (dc, torch):
        out = m.empty(0, dtype=getattr(m, dtype))
        getattr(m, name)(m.tensor([1.5, 1.5, 2.75]), 0, out=out)
        made.append(out.tolist())
    assert made[0] == made[1]


@pytest.mark.parametrize("name", ["addmm", "baddbmm", "addbmm", "addmv", "addr"])
def test_an_operand_that_does_not_count_has_a_gradient_of_zeros(name: str) -> None:
    shapes: dict[str, list[tuple[int, ...]]] = {
        "addmm": [(2, 2), (2, 3), (3, 2)],
        "baddbmm": [(4, 2, 2), (4, 2, 3), (4, 3, 2)],
        "addbmm": [(2, 2), (4, 2, 3), (4, 3, 2)],
        "addmv": [(2,), (2, 3), (3,)],
        "addr": [(2, 3), (2,), (3,)],
    }
    first, *others = shapes[name]
    for wrap in (lambda f: f, dc.compile):
        x = dc.full(first, nan).requires_grad_()
        made = wrap(lambda x, *rest: getattr(dc, name)(x, *rest, beta=0))(x, *map(dc.ones, others))
        assert not bool(dc.isnan(made).any())
        made.sum().backward()
        assert x.grad.tolist() == dc.zeros(first).tolist()


LEAVES = {
    "transposed": lambda m: m.zeros(3, 4).t(),
    "permuted": lambda m: m.zeros(2, 3, 4, 5).permute(0, 2, 3, 1),
    "channels_last": lambda m: m.zeros(2, 3, 4, 5).to(memory_format=m.channels_last),
    "with gaps": lambda m: m.zeros(6, 4)[::2],
    "transposed, with gaps": lambda m: m.zeros(3, 8)[:, ::2].t(),
    "expanded": lambda m: m.zeros(3, 1).expand(3, 4),
    "row-major": lambda m: m.zeros(3, 4),
}
USES = {
    "exp": lambda x: x.exp().sum(),
    "sum": lambda x: x.sum(),
    "part": lambda x: x[0].sum(),
    "flat": lambda x: x.reshape(-1).sum(),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("leaf", LEAVES)
def test_a_leafs_gradient_lies_as_the_leaf_does(leaf: str, use: str) -> None:
    found = []
    for m in (dc, torch):
        x = LEAVES[leaf](m).requires_grad_()
        for _ in range(2):  # the second is added
            USES[use](x).backward()
        found.append((x.grad.stride(), x.grad.tolist()))
        m.optim.SGD([x], lr=0.5, momentum=0.9).step() if leaf != "expanded" else None
        found[-1] += (x.tolist(),)
    assert found[0] == found[1]


BAGS = """
F.embedding_bag(i,w,o,mode='sum')
F.embedding_bag(i,w,o,mode='mean')
F.embedding_bag(i,w,o,mode='sum',per_sample_weights=s)
F.embedding_bag(i,w,o,mode='sum',padding_idx=1)
F.embedding_bag(i,w,o,mode='mean',padding_idx=1)
F.embedding_bag(i,w,e,mode='mean')
F.embedding_bag(i,w,e,mode='sum',include_last_offset=True)
F.embedding_bag(i[:0],w,o[:1]*0,mode='sum')
""".strip().splitlines()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("text", BAGS)
def test_a_bag_does_not_see_other_bags_infinities(text: str, compiled: bool) -> None:
    found = []
    for m in (dc, torch):
        w = m.tensor([[1.0, 2.0], [nan, 3.0], [4.0, inf], [5.0, 6.0]], requires_grad=True)
        i, o, e = m.tensor([0, 3, 2, 1, 0]), m.tensor([0, 2, 4]), m.tensor([0, 2, 2, 5])
        s = m.tensor([1.0, 2.0, 0.5, 1.0, 3.0], requires_grad=True)
        function = eval(f"lambda w, i, o, e, s: {text}", {"F": m.nn.functional})
        made = (dc.compile(function) if compiled and m is dc else function)(w, i, o, e, s)
        weights = m.arange(1.0, made.numel() + 1.0).reshape(made.shape)
        grads = m.autograd.grad(made, (w, s), weights, allow_unused=True)
        found.append([np.array(t.detach().numpy()) for t in (made, *grads) if t is not None])
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)


def test_an_infinite_slope_of_prelu_stays_out_of_positive_elements() -> None:
    for ends in ((inf, 1.0), (0.25, inf), (nan, -1.0)):
        found = []
        for m in (dc, torch):
            w, x = m.tensor([ends[0]], requires_grad=True), m.tensor([1.0, -2.0, ends[1]], requires_grad=True)
            grads = m.autograd.grad(m.nn.functional.prelu(x, w).sum(), (x, w))
            found.append([g.numpy() for g in grads])
        for mine, theirs in zip(*found, strict=True):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("middle", [nan, inf, 1e30, 1e8])
def test_a_central_difference_does_not_see_its_middle(middle: float) -> None:
    values = [1.0, 2.0, middle, 4.5, 5.0, 7.0]
    for spacing in (1, 0.5):
        ours, theirs = (np.array(m.gradient(m.tensor(values), spacing=spacing)[0].tolist()) for m in (dc, torch))
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


NO_BOOLS = """
x.amax()
x.amin(0)
x.amax(-1)
x.max()
x.min()
x.any()
x.all()
x.any(0)
x.all(-1)
m.sum(x, 0, dtype=m.bool)
m.prod(x, 0, dtype=m.bool)
""".strip().splitlines()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3)])
@pytest.mark.parametrize("text", NO_BOOLS)
def test_the_largest_of_no_bools_is_refused(text: str, shape: tuple[int, ...], compiled: bool) -> None:
    found: list[Any] = []
    for m in (dc, torch):
        function = eval(f"lambda x: {text}", {"m": m})
        run = dc.compile(function) if compiled and m is dc else function
        try:
            found.append(run(m.zeros(shape, dtype=m.bool)).tolist())
        except (RuntimeError, IndexError, ValueError):
            found.append("refused")
    assert found[0] == found[1]
