"""Shapes, views, indexing and creation with sizes that are symbols: right at other sizes, and what they assume.

ALLOWED: the guards of those functions that may have any. FIXED: the first ones of those that need a number.
"""

from __future__ import annotations

from typing import Any

import pytest
from symbolic_sizes import symbolically

import distcompile as torch
from compiler_core.errors import ShapeError

X, Y = "f32[b, 4]", "f32[b, t, 8]"


def written(x: Any) -> Any:
    """A copy, written through views."""
    y = x.clone()
    y[:, 0] = 1.0
    y[:, -1] = y[:, 0]
    y[..., 1:3] += 2
    return y


CASES: dict[str, tuple[Any, ...]] = {
    "shape": (lambda x: x.shape, Y),
    "size()": (lambda x: x.size(), Y),
    "size(0)": (lambda x: (x.size(0), x.size(-2)), Y),
    "numel": (lambda x: x.numel(), Y),
    "shape.numel": (lambda x: x.shape.numel(), Y),
    "nelement": (lambda x: x.nelement(), Y),
    "torch.numel": (lambda x: torch.numel(x), Y),
    "ndim": (lambda x: (x.ndim, x.dim()), Y),
    "len": (lambda x: len(x), "f32[4, b]"),
    "stride": (lambda x: x.stride(), Y),
    "stride t": (lambda x: x.transpose(1, 2).stride(), Y),
    "is_contiguous": (lambda x: (x.is_contiguous(), x.transpose(1, 2).is_contiguous()), Y),
    "nbytes": (lambda x: x.nbytes, Y),
    "view -1": (lambda x: x.view(-1), Y),
    "view b,-1": (lambda x: x.view(x.shape[0], -1), Y),
    "view -1,8": (lambda x: x.view(-1, 8), Y),
    "view split": (lambda x: x.view(x.shape[0], x.shape[1], 2, 4), Y),
    "view split -1": (lambda x: x.view(*x.shape[:2], 2, -1), Y),
    "view b*t": (lambda x: x.view(x.shape[0] * x.shape[1], 8), Y),
    "view heads tr": (lambda x: x.view(x.size(0), x.size(1), 2, 4).transpose(1, 2), Y),
    "heads back": (
        lambda x: x.view(x.size(0), x.size(1), 2, 4).transpose(1, 2).contiguous().view(x.size(0), x.size(1), 8),
        Y,
    ),
    "heads back reshape": (
        lambda x: x.view(x.size(0), x.size(1), 2, 4).transpose(1, 2).reshape(x.size(0), x.size(1), 8),
        Y,
    ),
    "reshape -1 of tr": (lambda x: x.transpose(0, 1).reshape(-1, 8), Y),
    "flatten": (lambda x: x.flatten(), Y),
    "flatten 1": (lambda x: x.flatten(1), Y),
    "flatten 0 1": (lambda x: torch.flatten(x, 0, 1), Y),
    "unflatten": (lambda x: x.unflatten(-1, (2, 4)), Y),
    "unflatten -1": (lambda x: x.unflatten(2, (2, -1)), Y),
    "unflatten back": (lambda x: x.flatten(0, 1).unflatten(0, (x.shape[0], x.shape[1])), Y),
    "unflatten back -1": (lambda x: x.flatten(0, 1).unflatten(0, (-1, x.shape[1])), Y),
    "unflatten half": (lambda x: x.unflatten(0, (-1, 1)), Y),
    "expand": (lambda x: x.unsqueeze(0).expand(3, -1, -1, -1), Y),
    "expand sym": (lambda x, y: x.expand(y.shape[0], -1), "f32[1, 4]", X),
    "expand_as": (lambda x, y: x.expand_as(y), "f32[4]", X),
    "expand last": (lambda x: x[..., None].expand(*x.shape, 3), Y),
    "view_as": (lambda x, y: x.view_as(y), X, X),
    "add": (lambda x, y: x + y, X, X),
    "add bias": (lambda x, y: x + y, X, "f32[4]"),
    "add col": (lambda x, y: x + y, X, "f32[b, 1]"),
    "outer": (lambda x, y: x[:, None] * y[None, :], "f32[b]", "f32[t]"),
    "add scalar": (lambda x: x * 2 + 1.5 - 3, X),
    "add self mean": (lambda x: x - x.mean(), X),
    "rsub": (lambda x: 1 - x / 3, X),
    "iadd": (lambda x, y: x.clone().add_(y), X, X),
    "mul n": (lambda x: x * x.shape[0], X),
    "div n": (lambda x: x / x.shape[0], X),
    "div n2": (lambda x: x / (x.shape[0] * x.shape[1]), X),
    "int mul n": (lambda x: x * x.shape[0], "i64[b, 4]"),
    "int div n": (lambda x: x / x.shape[0], "i64[b, 4]"),
    "floordiv n": (lambda x: x // x.shape[0], "i64[b, 4]"),
    "rdiv n": (lambda x: x.shape[0] / x, X),
    "n minus x": (lambda x: x.shape[0] - x, X),
    "mod": (lambda x: x % x.shape[0], "i64[b, 4]"),
    "pow": (lambda x: x**2, X),
    "cmp n": (lambda x: x < x.shape[0], "i64[b, 4]"),
    "eq n": (lambda x: x == x.shape[0], "i64[b, 4]"),
    "ne n": (lambda x: x.ne(x.shape[0]), "i64[b, 4]"),
    "where n": (lambda x: torch.where(x > 0, x, x.shape[0]), "i64[b, 4]"),
    "clamp n": (lambda x: x.clamp(max=x.shape[0] - 1), "i64[b, 4] < 100"),
    "masked_fill n": (lambda x: x.masked_fill(x > 0, x.shape[0]), "i64[b, 4]"),
    "transpose": (lambda x: x.transpose(1, 2), Y),
    "permute": (lambda x: x.permute(2, 0, 1), Y),
    "movedim": (lambda x: torch.movedim(x, 0, -1), Y),
    "T": (lambda x: (x.T, x.mT, x.t()), X),
    "swapaxes": (lambda x: x.swapaxes(0, 1), X),
    "squeeze 1": (lambda x: x.squeeze(1), "f32[b, 1, 4]"),
    "squeeze 0": (lambda x: x.squeeze(0), "f32[b, 1, 4]"),
    "squeeze": (lambda x: x.squeeze(), "f32[b, 1, 4]"),
    "unsqueeze": (lambda x: x.unsqueeze(-1), Y),
    "cat 0": (lambda x, y: torch.cat([x, y]), X, "f32[c, 4]"),
    "cat 1": (lambda x, y: torch.cat([x, y], 1), X, X),
    "cat -1": (lambda x: torch.cat([x, x.new_zeros(x.shape[0], 1)], -1), X),
    "cat kv": (lambda x, y: torch.cat([x, y], dim=1), "f32[b, t, 8]", "f32[b, 1, 8]"),
    "stack": (lambda x, y: torch.stack([x, y], 1), X, X),
    "hstack": (lambda x: torch.hstack([x, x]), X),
    "vstack": (lambda x: torch.vstack([x, x]), X),
    "split": (lambda x: x.split(2, 1), X),
    "split sec": (lambda x: x.split([1, 3], dim=-1), X),
    "split symbolic sec": (lambda x: x.split([1, x.shape[0] - 1], dim=0), X),
    "split sym dim": (lambda x: x.split(2, 0), X),
    "chunk": (lambda x: x.chunk(2, -1), Y),
    "tensor_split": (lambda x: torch.tensor_split(x, 2, -1), Y),
    "qkv": (lambda x: [p.view(x.size(0), x.size(1), 2, -1).transpose(1, 2) for p in x.chunk(2, -1)], Y),
    "unbind": (lambda x: x.unbind(1), X),
    "unbind -1": (lambda x: x.unbind(-1), Y),
    "x[:, :t]": (lambda x, y: x[:, : y.shape[1]], "f32[1, 64]", "f32[b, t]"),
    "x[:t] param": (lambda x, y: x[: y.shape[0]], "f32[64, 4]", "f32[t]"),
    "x[:, -1]": (lambda x: x[:, -1], Y),
    "x[:, 0]": (lambda x: x[:, 0], Y),
    "x[..., None]": (lambda x: x[..., None], Y),
    "x[:, None]": (lambda x: x[:, None, :], Y),
    "x[:, t-1]": (lambda x: x[:, x.shape[1] - 1], Y),
    "x[:, 1:]": (lambda x: x[:, 1:], Y),
    "x[:, :-1]": (lambda x: x[:, :-1], Y),
    "x[:, ::2]": (lambda x: x[:, ::2], Y),
    "x[..., ::2]": (lambda x: x[..., ::2], Y),
    "x[..., 1:3]": (lambda x: x[..., 1:3], Y),
    "x[:, :t//2]": (lambda x: x[:, : x.shape[1] // 2], Y),
    "x[:, t//2:]": (lambda x: x[:, x.shape[1] // 2 :], Y),
    "x[0]": (lambda x: x[0], Y),
    "x[-2:]": (lambda x: x[-2:], Y),
    "x[...]": (lambda x: x[...], Y),
    "x[idx]": (lambda x, i: x[i], Y, "i64[k] < 2"),
    "x[:, idx]": (lambda x, i: x[:, i], Y, "i64[k] < 2"),
    "x[i, j]": (lambda x, i: x[i, i], Y, "i64[k] < 2"),
    "x[arange, last]": (lambda x, i: x[torch.arange(x.shape[0]), i], Y, "i64[b] < 2"),
    "x[arange, argmax]": (lambda x, i: x[torch.arange(x.shape[0]), i.argmax(-1)], "f32[b, t, 8]", "i64[b, t] < 9"),
    "setitem": (lambda x: written(x), Y),
    "narrow": (lambda x: x.narrow(1, 0, x.shape[1] - 1), Y),
    "narrow c": (lambda x: x.narrow(2, 1, 3), Y),
    "select": (lambda x: (x.select(1, -1), x.select(2, 3)), Y),
    "iter dim1": (lambda x: list(x.transpose(0, 1)), X),
    "zeros b": (lambda x: torch.zeros(x.shape[0], 3), X),
    "zeros tuple": (lambda x: torch.zeros((x.shape[0], 3)), X),
    "zeros shape": (lambda x: torch.zeros(x.shape), X),
    "ones": (lambda x: torch.ones(x.size(0), 1, dtype=torch.int64), X),
    "full": (lambda x: torch.full((x.size(0),), 7), X),
    "full n": (lambda x: torch.full((3,), x.size(0)), X),
    "full n float": (lambda x: torch.full((3,), x.size(0), dtype=torch.float32), X),
    "empty": (lambda x: torch.empty(x.size(0), 2), X),
    "zeros_like": (
        lambda x: (torch.zeros_like(x), torch.ones_like(x), torch.full_like(x, 3.0), torch.empty_like(x)),
        X,
    ),
    "new_zeros": (
        lambda x: (
            x.new_zeros(x.shape),
            x.new_ones(x.shape[0]),
            x.new_full((x.shape[0],), 2.0),
            x.new_empty(x.shape[0], 1),
        ),
        X,
    ),
    "arange t": (lambda x: torch.arange(x.shape[1]), Y),
    "arange t float": (lambda x: torch.arange(x.shape[1], dtype=torch.float32), Y),
    "arange 1 t": (lambda x: torch.arange(1, x.shape[1]), Y),
    "arange p p+t": (lambda x: torch.arange(3, 3 + x.shape[1]), Y),
    "arange 0 t 2": (lambda x: torch.arange(0, x.shape[1], 2), Y),
    "arange t 0 -1": (lambda x: torch.arange(x.shape[1] - 1, -1, -1), Y),
    "arange n": (lambda n: torch.arange(n), "n"),
    "linspace": (lambda x: torch.linspace(0, 1, x.shape[1]), Y),
    "eye": (lambda x: torch.eye(x.shape[0]), X),
    "tensor(n)": (lambda x: torch.tensor(x.shape[0]), X),
    "tensor([n])": (lambda x: torch.tensor([x.shape[0], 3]), X),
    "tensor(n, float)": (lambda x: torch.tensor(x.shape[0], dtype=torch.float32), X),
    "rand": (lambda x: torch.rand(x.shape[0], 3), X),
    "randn": (lambda x: torch.randn(x.shape), X),
    "randn_like": (lambda x: torch.randn_like(x), X),
    "rand_like": (lambda x: torch.rand_like(x), X),
    "randint": (lambda x: torch.randint(0, 5, (x.shape[0],)), X),
    "randperm": (lambda x: torch.randperm(x.shape[0]), X),
    "bernoulli": (lambda x: torch.bernoulli(x.abs() / 2), X),
    "tril ones": (lambda x: torch.tril(torch.ones(x.shape[1], x.shape[1])), Y),
    "triu mask": (lambda x: torch.triu(torch.full((x.shape[1], x.shape[1]), float("-inf")), diagonal=1), Y),
    "tril": (lambda x: (torch.tril(x), torch.triu(x, 1)), "f32[b, t, t]"),
    "tril mask slice": (
        lambda w, x: x.masked_fill(w[: x.shape[-2], : x.shape[-1]] == 0, float("-inf")),
        "f32[32, 32]",
        "f32[b, t, t]",
    ),
    "contiguous": (lambda x: x.transpose(1, 2).contiguous(), Y),
    "clone": (lambda x: x.clone(), Y),
    "to": (lambda x: x.to(torch.float64), Y),
    "float": (lambda x: x.float(), "i64[b]"),
    "type_as": (lambda x, y: x.type_as(y), X, "f64[b]"),
    "detach": (lambda x: x.detach(), X),
    "repeat": (lambda x: x.repeat(2, 1, 1), Y),
    "repeat b": (lambda x, y: x.repeat(y.shape[0], 1), "f32[1, 4]", X),
    "tile": (lambda x: x.tile(2), X),
    "repeat_interleave": (lambda x: x.repeat_interleave(3, 0), X),
    "roll": (lambda x: (x.roll(1, 0), torch.roll(x, -1, 1)), X),
    "roll all": (lambda x: x.roll(1), X),
    "flip": (lambda x: x.flip(0, 1), X),
    "diff": (lambda x: torch.diff(x, dim=0), X),
    "meshgrid": (lambda x, y: torch.meshgrid(x, y, indexing="ij"), "f32[b]", "f32[c]"),
    "broadcast_to": (lambda x, y: x.broadcast_to(y.shape), "f32[4]", X),
    "iteration": (lambda x: list(x), X),
    "n ** 2": (lambda x: x ** x.shape[1], "i64[b, t]"),
    "n * x": (lambda x: (x.shape[0] * x, x.shape[0] + x, x.shape[0] / x), X),
    "diagonal": (lambda x: torch.diagonal(x, 0, 1, 2), "f32[b, t, t]"),
    "diag_embed": (lambda x: torch.diag_embed(x), "f32[b, t]"),
    "as_strided": (lambda x: x.as_strided((x.shape[0], 2), (4, 1)), X),
    "unfold": (lambda x: x.unfold(1, 2, 1), X),
    "unfold t": (lambda x: x.unfold(1, 2, 1), Y),
}


ALLOWED = {
    "x[:, :t]": ["t <= 64"],
    "x[:t] param": ["t <= 64"],
    "x[:, :t//2]": ["(t // 2) <= t"],
    "x[:, t//2:]": ["(t // 2) <= t"],
    "tril mask slice": ["t <= 32"],
}
FIXED = {"split sym dim": ["-((-b) // 2) == 3"], "iteration": ["b == 5"]}


@pytest.mark.parametrize("name", CASES)
def test_what_is_assumed(name: str) -> None:
    function, *operands = CASES[name]
    guards = symbolically(function, *operands, fixes=name in FIXED)
    if name in FIXED:
        assert guards[: len(FIXED[name])] == FIXED[name]
    else:
        assert guards == ALLOWED.get(name, [])


def test_who_fixes_a_size_is_named() -> None:
    with pytest.raises(AssertionError, match=r"b == 5 is fixed by .*test_symbolic_shapes\.py"):
        symbolically(lambda x: x * int(x.shape[0]), X)


def test_equal_sizes_are_assumed_where_an_op_needs_them() -> None:
    assert symbolically(lambda x, y: x + y, "f32[b, 4]", "f32[c, 4]", hints=(5, 5)) == ["b == c"]


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ShapeError, match="do not broadcast"):
        symbolically(lambda x, y: x + y, "f32[b]", "f32[t]")
