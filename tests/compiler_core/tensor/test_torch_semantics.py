"""What torch does where it is easily done otherwise: aliasing, 0-d and empty operands, masks, names of arguments."""

from __future__ import annotations

import copy
import typing
from typing import Any

import numpy as np
import pytest
from both_libraries import assert_as_torch

import distcompile
from compiler_core.errors import AutogradError, DTypeError, ShapeError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
X = np.arange(6, dtype=np.float32).reshape(2, 3)
BOTH = pytest.mark.parametrize("library", [torch, distcompile], ids=["torch", "ours"])


# ---- results with memory of their own, and views


@BOTH
@pytest.mark.parametrize(
    "make",
    [
        lambda t, x: t.cat([x]),
        lambda t, x: t.stack([x])[0],
        lambda t, x: x.repeat(1, 1),
        lambda t, x: x.repeat(1, 1, 1)[0],
        lambda t, x: x[0:1].repeat(2, 1),
        lambda t, x: x.tile(1, 1),
        lambda t, x: x[0, 0].max(0).values,
        lambda t, x: x[0:1].cumsum(0),
        lambda t, x: x[0:1].cumprod(0),
        lambda t, x: x[:, 0:1].repeat_interleave(3, dim=1),
        lambda t, x: x.repeat_interleave(1, dim=0),
        lambda t, x: x.byte().abs(),
    ],
)
def test_these_results_share_no_memory(library: Any, make: Any) -> None:
    x = library.arange(6.0).reshape(2, 3)
    make(library, x).fill_(9)
    assert x.flatten().tolist() == [0, 1, 2, 3, 4, 5]


@BOTH
@pytest.mark.parametrize(
    "view",
    [
        lambda t, p: p.view(p.shape),
        lambda t, p: p.reshape(2, 3),
        lambda t, p: p.view_as(p),
        lambda t, p: p.expand(2, 3),
        lambda t, p: p.permute(0, 1),
        lambda t, p: p.transpose(1, 1),
        lambda t, p: p.squeeze(),
        lambda t, p: p.narrow(0, 0, 2),
        lambda t, p: p[:],
        lambda t, p: p[...],
        lambda t, p: t.reshape(p, (2, 3)),
        lambda t, p: t.permute(p, (0, 1)),
    ],
)
def test_a_view_of_everything_is_another_tensor(library: Any, view: Any) -> None:
    p = library.nn.Parameter(library.ones(2, 3))
    with pytest.raises(RuntimeError):  # of a non-leaf
        view(library, p).requires_grad_(False)
    assert p.requires_grad
    view(library, p).detach().mul_(2)
    assert p.sum().item() == 12


@BOTH
def test_a_diagonal_of_a_transpose_is_a_view(library: Any) -> None:
    x = library.arange(12.0).reshape(3, 4)
    x.t().diagonal().mul_(10)
    x.diagonal(1).add_(0.5)
    x.diagonal(-2).zero_()
    assert x.tolist() == [[0, 1.5, 2, 3], [4, 50, 6.5, 7], [0, 9, 100, 11.5]]
    w = library.ones(2, 3, 3, requires_grad=True)
    y = w * 1
    y.diagonal(dim1=1, dim2=2).mul_(3)
    y.sum().backward()
    assert w.grad[0].tolist() == [[3, 1, 1], [1, 3, 1], [1, 1, 3]]


# ---- 0-d, empty, one-element operands


def test_zero_dims_and_empty_operands() -> None:
    operands = {"s": np.float32(2.5) + np.zeros((), np.float32), "k": np.zeros((), np.int64), "x": X}
    assert_as_torch(
        ["torch.softmax(s, 0)", "torch.log_softmax(s, 0)", "s ** 0", "torch.gather(s, 0, k)", "s.max(0).indices",
         "torch.scatter(s, 0, k, s + 1)", "torch.scatter_add(s, 0, k, s)", "torch.isnan(k)", "torch.isfinite(k)",
         "torch.cat([torch.tensor([]), x], dim=-2)", "torch.cat([torch.tensor([]), x], dim=1)",
         "torch.gather(x, 0, torch.zeros(0, 3, dtype=torch.int64))",
         "torch.scatter(x, 0, torch.zeros(0, dtype=torch.int64), x)",
         "torch.cat([torch.tensor([])])"],
        operands,
    )  # fmt: skip


def test_spread_by_torchs_positions() -> None:
    assert_as_torch(
        ["x.var(False)", "x.std(False)", "torch.var(x, False)", "torch.std(x, True)", "x.var(1, False)",
         "torch.var_mean(x, False)[0]", "x.std(1, unbiased=False)"],
        {"x": X},
    )  # fmt: skip


def test_uint8_is_a_mask() -> None:
    assert_as_torch(
        ["x[torch.tensor([1, 0], dtype=torch.uint8)]", "x[:, torch.tensor([1, 0, 1], dtype=torch.uint8)]"],
        {"x": X}, compiled=False,
    )  # fmt: skip


# ---- attention


def test_a_position_that_sees_nothing_gives_zero() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 4, 8)).astype(np.float32) for _ in range(3))
    mask = np.array([[1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1], [0, 0, 0, 1]], bool)
    bias = np.where(mask, 0, -np.inf).astype(np.float32)
    call = "F.scaled_dot_product_attention(q, k, v, attn_mask={})"
    operands = {"q": q, "k": k, "v": v, "mask": mask, "bias": bias}
    assert_as_torch([call.format("mask"), call.format("bias")], operands, rtol=1e-5)
    tensors = [distcompile.from_numpy(a).requires_grad_() for a in (q, k, v)]
    attention = distcompile.nn.functional.scaled_dot_product_attention
    attention(*tensors, attn_mask=distcompile.from_numpy(mask)).sum().backward()
    assert all(bool(t.grad.isfinite().all()) for t in tensors)
    assert tensors[0].grad[:, 1].abs().sum().item() == 0


# ---- compiled calls


def test_a_detached_part_of_an_argument_compiles() -> None:
    for wanted in (False, True):
        x = distcompile.ones(3, 2, requires_grad=wanted)
        result = distcompile.compile(lambda x: (x[0].detach(), x[1].detach() * 2), fullgraph=True)(x)
        assert [r.tolist() for r in result] == [[1, 1], [2, 2]]
        assert not result[0].requires_grad


@BOTH
def test_an_output_that_nobody_used_gives_no_gradient(library: Any) -> None:
    class Two(library.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = library.nn.Linear(2, 2), library.nn.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            return self.a(x), self.b(x)

    module = Two()
    call = distcompile.compile(module) if library is distcompile else module
    call(library.ones(2, 2))[0].sum().backward()
    assert [p.grad is None for p in module.parameters()] == [False, False, True, True]


# ---- errors, names


@BOTH
@pytest.mark.parametrize(
    "call",
    [
        lambda t: t.ones(3) + t.ones(4),
        lambda t: t.ones(3).view(2),
        lambda t: t.ones(2, 3) @ t.ones(2, 3),
        lambda t: t.arange(3) ** -1,
        lambda t: t.arange(3).add_(1.5),
        lambda t: t.nn.Linear(2, 2)(t.ones(3)),
        lambda t: t.cat([t.ones(2, 2), t.ones(2, 3)]),
        lambda t: t.ones(3, requires_grad=True).mul_(2),
    ],
)
def test_what_torch_refuses_with_a_runtime_error_we_do(library: Any, call: Any) -> None:
    with pytest.raises(RuntimeError):
        call(library)


@BOTH
def test_batch_norm_of_one_value_raises(library: Any) -> None:
    norm = library.nn.BatchNorm1d(3)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        norm(library.ones(1, 3))
    assert norm.eval()(library.ones(1, 3)).shape == (1, 3)


def test_type_hints_of_modules_and_tensors() -> None:
    class Net(distcompile.nn.Module):
        width: int

    for kind in (distcompile.nn.Module, distcompile.nn.Linear, Net, distcompile.Tensor, distcompile.nn.Parameter):
        assert isinstance(typing.get_type_hints(kind), dict)
    assert typing.get_type_hints(Net)["width"] is int


def test_other_names_of_arguments() -> None:
    assert_as_torch(
        ["x.flip(dims=(0,))", "torch.flip(x, dims=[0])", "torch.any(x, axis=0)", "torch.argmax(x, axis=0)",
         "torch.stack([x, x], axis=0)", "torch.mean(x, axis=0)", "x.mean(axis=1, keepdims=True)",
         "torch.amax(x, axis=0)", "torch.cat([x, x], axis=0)", "torch.sum(x, axis=0, keepdims=True)",
         "x.reshape(shape=(6,))", "x.view(size=(6,))",
         "x.expand(size=(2, 3))", "x.permute(dims=(1, 0))", "torch.permute(x, dims=(1, 0))", "x.repeat(repeats=(1, 2))",
         "torch.tile(x, dims=(1, 2))", "torch.swapaxes(x, axis0=0, axis1=1)", "x.softmax(axis=0)", "x.squeeze(axis=0)",
         "torch.cumsum(x, axis=0)", "torch.max(x, axis=0).values", "torch.std(x, axis=0)", "torch.sort(x, axis=0)[0]",
         "x.topk(1, axis=0)[0]", "torch.logsumexp(x, axis=0)", "torch.prod(x, axis=0)", "x.split(split_size=1)[1]",
         "torch.tensor_split(x, indices=[1])[0]", "x.unbind(axis=0)[0]", "torch.nanmean(x, axis=0)",
         "x.cumprod(axis=0)", "x.median(axis=0)[0]", "x.nanmedian(axis=0, keepdims=True)[0]",
         "torch.zeros(size=(2,))", "torch.ones(size=(2,), layout=None)", "torch.full(size=(2,), fill_value=1.0)",
         "torch.zeros_like(x, memory_format=None)", "torch.zeros(2, pin_memory=False)", "x.new_zeros(size=(2,))",
         "torch.full_like(x, 2.0, memory_format=None)", "torch.empty(size=(2,)).fill_(1)"],
        {"x": X},
    )  # fmt: skip


@BOTH
def test_out_is_written_to(library: Any) -> None:
    x, out = library.arange(3.0), library.empty(3)
    assert library.add(x, 1, out=out) is out
    assert out.tolist() == [1, 2, 3]


def test_errors_say_what_they_got() -> None:
    with pytest.raises(ShapeError, match=r"\(3,\) and \(4,\)"):
        distcompile.ones(3) + distcompile.ones(4)
    with pytest.raises(DTypeError, match="uint16 and int32 have no common dtype"):
        distcompile.ones(2, dtype=distcompile.uint16) + distcompile.ones(2, dtype=distcompile.int32)


# ---- autograd.Function


def _function(library: Any, gradient: Any) -> Any:
    class Given(library.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            return x + y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return gradient(g)

    return Given


@BOTH
def test_a_functions_gradients_are_summed_and_cast_to_its_arguments(library: Any) -> None:
    x = library.ones(3, requires_grad=True)
    y = library.ones(2, 1, requires_grad=True)
    _function(library, lambda g: (g.double(), g)).apply(x, y).sum().backward()
    assert (x.grad.tolist(), str(x.grad.dtype)[-7:]) == ([2, 2, 2], "float32")
    assert y.grad.tolist() == [[3], [3]]


@BOTH
@pytest.mark.parametrize("gradient", [lambda g: g, lambda g: (g, g, g), lambda g: (g[0, :2], None)])
def test_a_functions_gradients_must_fit(library: Any, gradient: Any) -> None:
    x, y = library.ones(3, requires_grad=True), library.ones(2, 1)
    with pytest.raises(RuntimeError, match="gradient"):
        _function(library, gradient).apply(x, y).sum().backward()


@BOTH
def test_mark_dirty(library: Any) -> None:
    class Double(library.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    leaf = library.ones(3, requires_grad=True)
    x = leaf * 3
    result = Double.apply(x)
    assert result is x
    assert x.tolist() == [6, 6, 6]
    (x * x).sum().backward()
    assert leaf.grad.tolist() == [72, 72, 72]
    with pytest.raises(RuntimeError):
        Double.apply(leaf)


@BOTH
def test_once_differentiable(library: Any) -> None:
    class Square(library.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @library.autograd.function.once_differentiable
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2 * ctx.saved_tensors[0]

    x = library.ones(2, requires_grad=True)
    Square.apply(x).sum().backward()
    assert x.grad.tolist() == [2, 2]
    (slope,) = library.autograd.grad((Square.apply(x) ** 2).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="twice"):
        slope.sum().backward()


def test_a_gradient_that_is_no_tensor_is_an_error() -> None:
    x = distcompile.ones(3, requires_grad=True)
    with pytest.raises(AutogradError, match="no Tensor"):
        _function(distcompile, lambda g: (1.0, None)).apply(x, x.detach()).sum().backward()


@BOTH
def test_softmax_of_one_number_has_no_slope(library: Any) -> None:
    x = library.tensor(2.5, requires_grad=True)
    (library.softmax(x, 0) * 3 + library.log_softmax(x, 0)).backward()
    assert x.grad.item() == 0


# ---- indexing as torch reads it


@pytest.mark.parametrize(
    "expression",
    [
        "x[[[0, 1], [1, 0]]]",
        "x[[i, i]]",
        "x[[0, slice(None)]]",
        "x[[None, 1]]",
        "x[[..., 0]]",
        "x[[[0, 1]]]",
        "x[[[[0, 1]]]]",
        "x[[(0, 1), 1]]",
        "x[(0, 1), 1]",
        "x[[i.sum(), 0]]",
        "x[[0, 1]]",
        "x[:, []]",
        "x[[]]",
        "x[:, [], None]",
    ],
)
def test_lists_in_an_index(expression: str) -> None:
    assert_as_torch([expression], {"x": X.reshape(2, 3), "i": np.array([0, 1])}, compiled="sum" not in expression)


@BOTH
def test_what_is_written_may_have_more_leading_ones(library: Any) -> None:
    x = library.zeros(2, 3)
    x[0] = library.ones(1, 1, 3)
    x[1, 1] = library.full((1, 1), 5.0)
    x[[1]] = x[[1]][None] + 1
    assert x.tolist() == [[1, 1, 1], [1, 6, 1]]
    x[[[0, 1], [1, 0]]] = 7
    assert x.tolist() == [[1, 7, 1], [7, 6, 1]]
    with pytest.raises(RuntimeError):
        x[0] = library.ones(2, 3)
    with pytest.raises(RuntimeError):
        x[0] = 1j
    with pytest.raises(TypeError):
        x["a"]


@BOTH
def test_scatter_with_a_value_and_reduce(library: Any) -> None:
    places, x = library.tensor([[0], [2]]), library.ones(2, 3)
    assert library.zeros(2, 3).scatter_(1, places, value=4.0).tolist() == [[4, 0, 0], [0, 0, 4]]
    assert x.scatter(1, places, 5.0, reduce="add").tolist() == [[6, 1, 1], [1, 1, 6]]
    assert (x * 2).scatter(1, places, 5.0, reduce="multiply").tolist() == [[10, 2, 2], [2, 2, 10]]
    assert x.scatter_(1, places, x * 3, reduce="add").tolist() == [[4, 1, 1], [1, 1, 4]]
    with pytest.raises(TypeError):
        x.scatter(1, places)
    with pytest.raises(RuntimeError):
        x.scatter(1, places, 5.0, reduce="max")


@BOTH
def test_where_of_a_condition_alone(library: Any) -> None:
    rows, columns = library.where(library.tensor([[1.0, 0.0], [2.0, 3.0]]) > 0)
    assert (rows.tolist(), columns.tolist()) == ([0, 1, 1], [0, 0, 1])
    with pytest.raises(TypeError):
        library.where(library.ones(2) > 0, 1.0)


@BOTH
def test_copies_of_a_handle_share_memory(library: Any) -> None:
    x = library.ones(2, requires_grad=True)
    same = copy.copy(x)
    same.data.add_(1)
    assert (x.tolist(), same.requires_grad, same.grad) == ([2, 2], True, None)
    row = library.zeros(2, 2)[0]
    copy.copy(row).add_(1)
    assert row.tolist() == [1, 1]


@pytest.mark.parametrize(
    "data",
    [
        [np.float32(1), 2.5],
        [np.float16(1), 2],
        [np.float16(1), 2.5],
        [1, 2.5, np.float32(1)],
        [np.float64(1), 2],
        [np.int32(1), 2],
        [np.int32(1), np.int32(2)],
        [[np.float32(1)], [np.int8(2)]],
        [np.array([1.0]), [2.0]],
    ],
)
def test_dtypes_of_lists_with_numpy_numbers(data: Any) -> None:
    theirs, ours = torch.tensor(data), distcompile.tensor(data)
    assert (str(ours.dtype).split(".")[1], ours.tolist()) == (str(theirs.dtype).split(".")[1], theirs.tolist())


@BOTH
def test_dtypes_of_lists_with_tensors(library: Any) -> None:
    assert library.tensor([library.ones(2).sum(), 2.0]).dtype is library.float32
    assert library.tensor([library.tensor(1.0).half(), 2]).dtype is library.float16
    assert library.tensor([library.tensor(1).int(), library.tensor(1).int()]).dtype is library.int32


@BOTH
def test_format_strings(library: Any) -> None:
    loss = library.tensor([0.25, 3.0], requires_grad=True).sum()
    assert f"{loss} {loss:.1f} {library.tensor(3)} {library.tensor(True):>5}" == "3.25 3.2 3     1"
    assert f"{library.ones(2)}" == "tensor([1., 1.])"
    with pytest.raises(TypeError):
        f"{library.ones(2):.2f}"


@pytest.mark.parametrize("expression", ["x - 10", "x + 300", "x * -3", "10 - x", "x + 2**40"])
def test_numbers_wrap_beside_small_integers(expression: str) -> None:
    assert_as_torch([expression], {"x": np.arange(3, dtype=np.uint8)})


@BOTH
def test_errors_of_empty_lists_and_sizes(library: Any) -> None:
    for call in (lambda: library.stack([]), lambda: library.ones(5).split(0), lambda: library.ones(5).split(-1)):
        with pytest.raises(RuntimeError):
            call()
    with pytest.raises(TypeError):
        library.ones(2).grad = 3


@BOTH
def test_probabilities_outside_of_the_unit_interval_are_refused(library: Any) -> None:
    F = library.nn.functional
    half = library.tensor([0.5, 1.0, 0.0])
    assert abs(F.binary_cross_entropy(half, half).item() - 0.231049) < 1e-5
    for wrong in (1.5, -1e-9, float("nan")):
        for pair in ((library.full((3,), wrong), half), (half, library.full((3,), wrong))):
            with pytest.raises(RuntimeError, match="between 0 and 1"):
                F.binary_cross_entropy(*pair)


def test_probabilities_are_checked_in_compiled_code() -> None:
    loss = distcompile.compile(distcompile.nn.functional.binary_cross_entropy, fullgraph=True)
    half = distcompile.full((3,), 0.5)
    loss(half, half)
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        loss(half + 1, half)


@BOTH
def test_refused_arguments(library: Any) -> None:
    F = library.nn.functional
    calls = (
        lambda: library.empty(3).uniform_(2, 1),
        lambda: library.rand(2, dtype=library.int64),
        lambda: library.randn(2, dtype=library.int64),
        lambda: F.batch_norm(library.ones(2, 3), None, None),
    )
    for call in calls:
        with pytest.raises(RuntimeError):
            call()


@pytest.mark.parametrize(
    "expression",
    [
        "torch.einsum(a, [0, 1], b, [1, 2], [0, 2])",
        "torch.einsum(a, [0, 1], b, [1, 2])",
        "torch.einsum(a, [1, 0])",
        "torch.einsum(a, [0, 1], [])",
        "torch.einsum(a, [..., 3], b, [3, 27], [27, ...])",
        "torch.einsum(a, [26, 0])",
    ],
)
def test_einsum_with_numbers(expression: str) -> None:
    assert_as_torch([expression], {"a": X, "b": np.arange(12, dtype=np.float32).reshape(3, 4)})
