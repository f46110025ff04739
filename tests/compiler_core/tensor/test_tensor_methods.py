"""The surface of Tensor against torch: methods, operators, sizes, conversions, strides, copies."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import distcompile
from compiler_core import dtype as dt
from compiler_core.errors import AutogradError
from compiler_core.overrides.state import disabled
from compiler_core.tensor import Tensor
from compiler_core.tensor.making import creation

Call = Callable[..., Any]
X = np.linspace(0.3, 2.9, 12, dtype=np.float64).reshape(3, 4)
Y = np.linspace(-1.0, 1.5, 12, dtype=np.float64).reshape(3, 4)
PLACES = np.array([[2, 0, 1, 2], [1, 1, 0, 0]])

OPERATORS: dict[str, Call] = {
    "add": lambda x, y, i: x + y,
    "radd": lambda x, y, i: 2 + x,
    "sub": lambda x, y, i: x - 1.5,
    "rsub": lambda x, y, i: 1.5 - x,
    "mul": lambda x, y, i: x * y[0],
    "div": lambda x, y, i: y / x,
    "rdiv": lambda x, y, i: 1 / x,
    "floordiv": lambda x, y, i: y.detach() // x.detach(),
    "rfloordiv": lambda x, y, i: 5 // x.detach(),
    "mod": lambda x, y, i: y % x,
    "rmod": lambda x, y, i: 5.0 % x.detach(),
    "pow": lambda x, y, i: x**y,
    "square": lambda x, y, i: y**2,
    "rpow": lambda x, y, i: 2.0**y,
    "matmul": lambda x, y, i: x @ y.T,
    "neg": lambda x, y, i: -x,
    "pos": lambda x, y, i: +x,
    "abs": lambda x, y, i: abs(y),
    "compare": lambda x, y, i: (x < y) | (x >= 2.0) & ~(y == 0.5) ^ (y != 1.0),
    "and ints": lambda x, y, i: (i & 1) | 4,
    "shifts": lambda x, y, i: (i << 2) + (1 << i) + (-i >> 1) - (64 >> i),
    "integers": lambda x, y, i: i / 2 + (i // 2 - i % 2).float(),
    "bool sum": lambda x, y, i: (x > 1.0).sum(),
}
METHODS: dict[str, Call] = {
    "sum": lambda x, y, i: x.sum(0, keepdim=True),
    "sum dims": lambda x, y, i: x.sum((0, 1)),
    "mean": lambda x, y, i: x.mean(-1),
    "var": lambda x, y, i: x.var(1) + x.std(1, unbiased=False),
    "max": lambda x, y, i: x.max() + y.min(),
    "max dim": lambda x, y, i: y.max(1).values,
    "min indices": lambda x, y, i: y.min(dim=0).indices,
    "argmax": lambda x, y, i: y.argmax(1, keepdim=True),
    "prod": lambda x, y, i: x.prod(1),
    "norm": lambda x, y, i: y.norm(dim=1) + y.norm(),
    "cumsum": lambda x, y, i: y.cumsum(1),
    "logsumexp": lambda x, y, i: y.logsumexp(1),
    "any all": lambda x, y, i: (y > 0).any(1) & (x > 0).all(1),
    "softmax": lambda x, y, i: y.softmax(dim=-1) - y.log_softmax(0),
    "view": lambda x, y, i: x.view(4, -1),
    "reshape": lambda x, y, i: x.T.reshape(2, 6),
    "flatten": lambda x, y, i: x.view(3, 2, 2).flatten(1),
    "permute": lambda x, y, i: x.view(3, 2, 2).permute(2, 0, 1),
    "transpose": lambda x, y, i: x.transpose(0, 1).contiguous(),
    "squeeze": lambda x, y, i: x[:, None, :].squeeze(1).unsqueeze(-1),
    "expand": lambda x, y, i: x[:1].expand(5, -1),
    "repeat": lambda x, y, i: x[0].repeat(2, 3),
    "repeat_interleave": lambda x, y, i: x.repeat_interleave(2, dim=0),
    "split": lambda x, y, i: x.split(2, dim=1)[1] + x.chunk(2, 1)[0],
    "unbind": lambda x, y, i: x.unbind(1)[2],
    "flip": lambda x, y, i: x.flip(0, 1),
    "roll": lambda x, y, i: x.roll(1, 0),
    "tril": lambda x, y, i: x.tril(-1) + y.triu(1),
    "gather": lambda x, y, i: x.gather(0, i),
    "scatter": lambda x, y, i: x.scatter(0, i, y[:2]),
    "scatter_add": lambda x, y, i: x.scatter_add(0, i, y[:2]),
    "index_select": lambda x, y, i: x.index_select(1, i[0]),
    "take_along_dim": lambda x, y, i: x.take_along_dim(i, 0),
    "index_add": lambda x, y, i: x.index_add(0, i[1, :3], y),
    "masked_select": lambda x, y, i: x.masked_select(y > 0),
    "masked_fill": lambda x, y, i: x.masked_fill(y > 0, 7.0),
    "where": lambda x, y, i: x.where(y > 0, y) - x.where(y < 0.5, 0.0),
    "clamp": lambda x, y, i: y.clamp(min=-0.5) + y.clamp(max=0.5) + y.clamp_min(0.0) - y.clamp_max(0.1),
    "mm": lambda x, y, i: x.mm(y.t()) + x.matmul(y.mT),
    "bmm": lambda x, y, i: x.view(3, 2, 2).bmm(y.view(3, 2, 2)),
    "mv": lambda x, y, i: x.mv(y[0]) + x[0].dot(y[1]),
    "outer": lambda x, y, i: x[0].outer(y[1]),
    "addmm": lambda x, y, i: x[:, :3].addmm(x, y.T, alpha=2.0),
    "math": lambda x, y, i: (x.exp() + x.log() - x.sqrt() * x.rsqrt()).sin().cos().tanh().sigmoid().erf(),
    "math more": lambda x, y, i: x.log1p() + y.expm1() + x.log2() + x.reciprocal() + x.square() + y.relu() + x.log10(),
    "rounding": lambda x, y, i: y.floor() + y.ceil() + y.round() + y.trunc() + y.sign() + y.frac(),
    "lerp": lambda x, y, i: x.lerp(y, 0.3) + x.addcmul(x, y, value=0.5) + x.addcdiv(y, x),
    "fmod": lambda x, y, i: y.fmod(0.7) + y.remainder(0.7),
    "maximum": lambda x, y, i: x.maximum(y) + x.minimum(y),
    "div modes": lambda x, y, i: y.div(x, rounding_mode="floor") + y.div(x, rounding_mode="trunc"),
    "add alpha": lambda x, y, i: x.add(y, alpha=3) - x.sub(y, alpha=2),
    "sort": lambda x, y, i: y.flip(1).sort(dim=1).values + y.sort(1, descending=True)[0],
    "argsort": lambda x, y, i: y.flip(1).argsort(),
    "topk": lambda x, y, i: y.topk(2, dim=1).values,
    "topk smallest": lambda x, y, i: y.topk(2, dim=0, largest=False).indices,
    "kthvalue": lambda x, y, i: y.kthvalue(2, dim=1).values,
    "median": lambda x, y, i: y.median() + y.median(1).values,
    "nonzero": lambda x, y, i: i.nonzero(),
    "unique": lambda x, y, i: i.unique(),
    "bincount": lambda x, y, i: i.flatten().bincount(minlength=5),
    "isnan": lambda x, y, i: (y / (y > 0)).isnan() | (y / (y > 0).to(y.dtype)).isinf(),
    "type_as": lambda x, y, i: i.type_as(x) + i.to(x.dtype) + i.double() + i.float(),
    "long": lambda x, y, i: (x * 3).long() + (x * 3).int(),
    "diag": lambda x, y, i: x[0].diag() + x[:, :3].diag().sum(),
    "count_nonzero": lambda x, y, i: i.count_nonzero(1),
    "view_as": lambda x, y, i: x.view_as(x.T) + x.T.expand_as(x.T),
    "movedim": lambda x, y, i: x.view(3, 2, 2).movedim(0, -1) + x.view(3, 2, 2).swapaxes(0, 2).transpose(0, 1),
    "unflatten": lambda x, y, i: x.unflatten(1, (2, -1)),
    "narrow": lambda x, y, i: x.narrow(1, 1, 2) * x.select(0, 1)[1:3],
    "isclose": lambda x, y, i: x.isclose(x + 1e-9),
    "logical": lambda x, y, i: (x > 1).logical_and(y > 0).logical_or(y < -0.5).logical_xor(x > 2).logical_not(),
    "index": lambda x, y, i: x[i] + x[1, 2] - x[-1, ::2].sum() + x[..., i[0] % 4][:, None].sum(),
    "diagonal": lambda x, y, i: x.diagonal() * y.diagonal(1)[:3] + y.diagonal(-1).sum() + x.trace(),
    "batched diagonal": lambda x, y, i: x.view(3, 2, 2).diagonal(dim1=1, dim2=2) + y.view(2, 2, 3).diagonal(0, 0, 1),
    "no diagonal": lambda x, y, i: x.diagonal(9),
    "diff": lambda x, y, i: (x * x).diff() + (x * y).diff(n=2, dim=0).sum(),
    "inner": lambda x, y, i: x.inner(y) * x[0].inner(y[0]),
    "dist": lambda x, y, i: x.dist(y) + x.dist(y, 1),
    "aminmax": lambda x, y, i: x.aminmax().max + y.aminmax(dim=1).min,
    "nansum": lambda x, y, i: (y / (y > 0)).masked_fill(y <= 0, float("nan")).nansum(1) + y.nansum(),
    "nanmean": lambda x, y, i: x.masked_fill(y < 0, float("nan")).nanmean(1),
    "logaddexp": lambda x, y, i: x.logaddexp(y),
    "logit": lambda x, y, i: (x / 3).logit() + y.logit(eps=0.1),
    "take": lambda x, y, i: x.take(i),
    "tensor_split": lambda x, y, i: x.tensor_split(3, dim=1)[0].sum() + x.tensor_split((1, -1), dim=1)[1],
    "sum_to_size": lambda x, y, i: x.sum_to_size(1, 4) + x.view(1, 3, 4).sum_to_size((3, 1)),
    "index_fill": lambda x, y, i: x.index_fill(1, i[0, :2], 3.0),
    "cumprod": lambda x, y, i: x.cumprod(1) + y.cumprod(0),
    "broadcast_to": lambda x, y, i: x.broadcast_to((2, 3, 4)),
    "is": lambda x, y, i: x * (x.is_signed() + x[0, 0].is_nonzero()),
    "iteration": lambda x, y, i: sum(row.sum() * k for k, row in enumerate(x)),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", [*OPERATORS, *METHODS])
def test_values_dtypes_and_gradients_are_torch_s(name: str) -> None:
    torch = pytest.importorskip("torch")
    call = {**OPERATORS, **METHODS}[name]

    def run(library: Any) -> list[Any]:
        x, y = library.tensor(X), library.tensor(Y)
        x.requires_grad_()
        y.requires_grad_()
        result = call(x, y, library.tensor(PLACES))
        found = [str(result.dtype).split(".")[1], np.asarray(result.detach())]
        if result.requires_grad:
            (result * result).sum().backward()
        return [*found, *(np.zeros(1) if t.grad is None else np.asarray(t.grad) for t in (x, y))]

    theirs, ours = run(torch), run(distcompile)
    assert ours[0] == theirs[0]
    assert ours[1].shape == theirs[1].shape
    for a, b in zip(theirs[1:], ours[1:], strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-12)


SHAPES: dict[str, Call] = {
    "base": lambda x: x,
    "row": lambda x: x[1],
    "column": lambda x: x[:, 1],
    "transposed": lambda x: x.transpose(0, 2),
    "steps": lambda x: x[::2, :, 1:],
    "expanded": lambda x: x[:, :1].expand(-1, 5, -1),
    "expanded in front": lambda x: x.expand(2, 3, 4, 6),
    "reshaped": lambda x: x.view(12, 6),
    "reshaped after a slice": lambda x: x[:, 1:3].reshape(3, 12),
    "merged after a permute": lambda x: x.permute(2, 0, 1).reshape(6, 12),
    "split of a slice": lambda x: x[:, :, ::2].unflatten(1, (2, 2)),
    "copy by reshape": lambda x: x.transpose(0, 1).reshape(-1),
    "new axes": lambda x: x[None, :, None].transpose(1, 3),
    "ones": lambda x: x[:1, :1].view(6),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", SHAPES)
def test_strides_and_aliasing_of_views_are_torch_s(name: str) -> None:
    torch = pytest.importorskip("torch")
    array = np.arange(72.0).reshape(3, 4, 6)

    def run(library: Any) -> list[Any]:
        base = library.tensor(array)
        view = SHAPES[name](base)
        found = [tuple(view.stride()), view.is_contiguous(), view.numel(), view.dim(), tuple(view.shape)]
        base.mul_(2.0)
        return [*found, np.asarray(view).tolist()]

    assert run(distcompile) == run(torch)


def test_conversions_return_the_tensor_itself_where_nothing_changes() -> None:
    x = creation.tensor(X)
    assert x.double() is x
    assert x.to(dt.float64) is x
    assert x.to("cpu") is x
    assert x.to(x) is x
    assert x.cpu() is x
    assert x.contiguous() is x
    assert x.to(device="cpu", dtype=dt.float64, non_blocking=True) is x
    assert x.to(dt.float64, copy=True) is not x
    assert x.to("cpu", dt.float32).dtype is dt.float32
    assert x.type(dt.int32).dtype is dt.int32
    assert x.type() == "torch.DoubleTensor"
    assert [x.half().dtype, x.bfloat16().dtype, x.bool().dtype, x.byte().dtype, x.char().dtype, x.short().dtype] == [
        dt.float16, dt.bfloat16, dt.bool_, dt.uint8, dt.int8, dt.int16,
    ]  # fmt: skip
    with pytest.raises(TypeError, match="layout"):
        x.to(layout=1)


def test_facts_about_the_handle() -> None:
    x = creation.tensor(X)
    assert (x.element_size(), x.itemsize, x.nbytes, x.nelement(), x.ndimension(), len(x)) == (8, 8, 96, 12, 2, 3)
    assert x.is_floating_point()
    assert not any((x.is_complex(), x.is_cuda, x.is_sparse))
    assert x.device == "cpu"
    assert x.data_ptr() == x.detach().data_ptr() != x.clone().data_ptr()
    assert not x.is_shared()
    assert x.share_memory_().is_shared()
    assert x.equal(x.clone())
    assert not x.equal(x + 1.0)
    assert not x.equal(x[0])
    assert x.allclose(x + 1e-12)
    assert x.T.shape == (4, 3) == x.mT.shape == x.H.shape
    assert hash(x) != hash(x.clone())
    assert x not in [None]


def test_clone_has_its_own_memory_and_sends_its_gradient_back() -> None:
    x = creation.tensor(X, requires_grad=True)
    y = x.clone()
    y.mul_(2.0)
    assert np.array_equal(x.detach().numpy(), X)
    y.sum().backward()
    assert x.grad is not None
    assert np.array_equal(x.grad.numpy(), np.full_like(X, 2.0))
    assert not x.detach().clone().requires_grad


def test_copies_by_copy_and_pickle() -> None:
    x = creation.tensor(X, requires_grad=True)
    x.note = {"a": 1}
    (x * 2.0).sum().backward()
    deep = copy.deepcopy(x)
    assert deep is not x
    assert deep.requires_grad
    assert deep.note == {"a": 1}
    assert deep.note is not x.note
    assert deep.grad is not None
    assert deep.grad is not x.grad
    assert copy.deepcopy([x, x])[0] is not x
    twice = copy.deepcopy([x, x])
    assert twice[0] is twice[1]
    loaded = pickle.loads(pickle.dumps(x))
    assert loaded.requires_grad
    assert loaded.note == {"a": 1}
    assert loaded.equal(x)
    with pytest.raises(AutogradError, match="deep-copied"):
        copy.deepcopy(x * 2.0)


def test_methods_pickle() -> None:
    methods = [getattr(Tensor, name) for name in dir(Tensor) if isinstance(getattr(Tensor, name), FunctionType)]
    assert len(methods) > 600
    assert [m.__qualname__ for m in methods if pickle.loads(pickle.dumps(m)) is not m] == []
    assert pickle.loads(pickle.dumps(distcompile.add)) is distcompile.add


def test_subclasses_that_override_nothing_are_operands_and_results_are_plain() -> None:
    class Weight(Tensor):
        __torch_function__ = disabled

    w = Weight(creation.tensor(X)._cell, True)
    w.tag = "mine"
    assert type(w * 2.0) is Tensor
    assert type(w.detach()) is Tensor
    assert type(copy.copy(w)) is Weight
    assert copy.copy(w).tag == "mine"
    assert type(pickle.loads(pickle.dumps(w.detach()))) is Tensor
    assert isinstance(w.grad_fn, type(None))


def test_hash_and_comparison_with_strangers() -> None:
    x = creation.tensor([1.0, 2.0])
    assert (x == None) is False  # noqa: E711
    assert (x != "text") is True
    with pytest.raises(TypeError):
        x + "text"
    with pytest.raises(TypeError):
        x < None  # noqa: B015
    with pytest.raises(TypeError, match="0-d"):
        iter(creation.tensor(1.0))
    assert {x: 1}[x] == 1
