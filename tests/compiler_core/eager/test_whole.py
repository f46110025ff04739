"""Composites computed whole against their compositions: values, gradients, gradients of gradients; and what the tape
promises of them: errors for values that changed, freed values, hooks, layouts, operands that need no gradient."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core import dtype as dt
from compiler_core.config import config
from compiler_core.eager import channels, native, rules
from compiler_core.errors import AutogradError, BackendError, IndexError_, OpDefinitionError
from compiler_core.ops import functional as F
from compiler_core.ops.composites.norm import batch_statistics
from compiler_core.ops.pooling.composite import _maxima_of_windows
from compiler_core.ops.whole import COMPOSITES, define
from compiler_core.tensor.autograd.backward import grad
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.autograd.tape import WholeNode
from compiler_core.tensor.making.creation import tensor
from compiler_core.tensor.tensor import Tensor

needs_compiler = pytest.mark.skipif(native.kernels() is None, reason="no compiler")


@dataclass(frozen=True)
class Case:
    """Operands of one composite: shapes, or arrays as they are; None where there is none."""

    name: str
    operands: tuple[Any, ...]
    attrs: dict[str, Any]

    def __str__(self) -> str:
        shapes = "-".join(str(o if isinstance(o, (tuple, type(None))) else o.dtype) for o in self.operands)
        return f"{self.name} {shapes} {self.attrs}"


CLASSES, ROWS = np.array([2, 0, -100, 3]), np.array([[1, 4], [1, 0]])
SEEN = np.tri(3, 5, 1) > 0


def places(rank: int, **given: Any) -> dict[str, Any]:
    """Attributes of a convolution."""
    ones, zeros = (1,) * rank, (0,) * rank
    return {"stride": ones, "low": zeros, "high": zeros, "dilation": ones, "groups": 1, **given}


def windows(kernel: tuple[int, ...], **given: Any) -> dict[str, Any]:
    """Attributes of the maxima of windows."""
    ones, zeros = (1,) * len(kernel), (0,) * len(kernel)
    return {"kernel": kernel, "stride": ones, "dilation": ones, "low": zeros, "high": zeros, **given}


TAPS, WEIGHTS = np.array([[0, 1], [1, 1], [4, 3]]), np.array([[0.25, 0.75], [1.0, 0.5], [-0.5, 1.5]])
KEY, SHIFTS, SPREADS = np.array([5, 6, 1], np.uint64), np.array([0.5, -1.0, 0.0]), np.array([0.5, 1.0, 2.0])
CASES = (
    Case("linear", ((4, 3), (5, 3), (5,)), {}),
    Case("linear", ((2, 4, 3), (5, 3), None), {}),
    Case("linear", ((3,), (5, 3), (5,)), {}),
    *(Case("linear", (shape, (5, shape[-1]), (5,)), {}) for shape in ((4, 0), (2, 4, 0), (0, 3), (2, 0, 3))),
    Case("linear", ((2, 4, 3), (0, 3), (0,)), {}),
    Case("layer_norm", ((2, 3, 7), (7,), (7,)), {"dims": 1, "eps": 1e-5}),
    Case("layer_norm", ((2, 3, 7), (3, 7), None), {"dims": 2, "eps": 1e-3}),
    Case("layer_norm", ((3, 5000), None, None), {"dims": 1, "eps": 1e-5}),
    Case("layer_norm", ((3, 4), None, (4,)), {"dims": 1, "eps": 1e-5}),
    Case("rms_norm", ((4, 9), (9,)), {"dims": 1, "eps": 1e-6}),
    Case("rms_norm", ((4, 9), None), {"dims": 1, "eps": 1e-6}),
    Case("batch_norm", ((4, 3, 2, 5), None, None, (3,), (3,)), {"eps": 1e-5}),
    Case("batch_norm", ((6, 3), None, None, None, (3,)), {"eps": 1e-5}),
    Case("batch_norm", ((4, 3, 5), SHIFTS, SPREADS, (3,), None), {"eps": 1e-5}),
    Case("group_norm", ((4, 6, 2, 5), (6,), (6,)), {"groups": 3, "eps": 1e-5}),
    Case("group_norm", ((4, 6), None, (6,)), {"groups": 2, "eps": 1e-5}),
    Case("convolution", ((2, 3, 7), (4, 3, 3), (4,)), places(1)),
    Case("convolution", ((3, 4, 6, 5), (6, 2, 3, 2), (6,)), places(2, groups=2, low=(1, 0), high=(1, 2))),
    Case("convolution", ((2, 3, 9, 8), (2, 3, 2, 3), None), places(2, stride=(2, 3), dilation=(2, 1), low=(3, 4))),
    Case("convolution", ((2, 3, 4, 4), (5, 3, 1, 1), (5,)), places(2)),
    Case("convolution", ((2, 2, 4, 5, 6), (3, 2, 2, 3, 2), (3,)), places(3, stride=(1, 2, 1), high=(1, 0, 1))),
    Case("convolution", ((40, 8, 12, 12), (8, 1, 3, 3), None), places(2, groups=8, low=(1, 1), high=(1, 1))),
    *(
        Case("convolution", ((2, 3, *sizes), (3, 1, *kernel), (3,)), places(len(sizes), groups=3, **given))
        for sizes, kernel, given in (
            ((9, 8), (7, 7), {"low": (3, 3), "high": (3, 2)}),
            ((10, 11), (9, 10), {"low": (5, 0), "high": (4, 6), "stride": (2, 3)}),
            ((7, 6), (3, 3), {"low": (2, 2), "high": (2, 2), "dilation": (2, 2)}),
            ((9, 10), (2, 5), {"low": (4, 1), "dilation": (3, 2)}),
            ((9, 10), (3, 3), {"dilation": (2, 1), "stride": (1, 2)}),
            ((5, 4), (3, 5), {"low": (4, 6), "high": (3, 6)}),
            ((20,), (6,), {"low": (2,), "high": (3,)}),
            ((20,), (3,), {"low": (2,), "dilation": (4,)}),
        )
    ),
    Case("resample", ((2, 3, 5, 4), TAPS, WEIGHTS), {"dim": 2}),
    Case("resample", ((2, 3, 5), TAPS, WEIGHTS), {"dim": 2}),
    Case("resample", ((5, 40), TAPS, WEIGHTS), {"dim": 0}),
    Case(
        "recurrent_layer",
        ((6, 64), (64, 16), (64,), (2, 16), (2, 16)),
        {"mode": "lstm", "runs": ((2, 3),), "reverse": False},
    ),
    Case(
        "recurrent_layer",
        ((7, 51), (51, 17), (51,), (3, 17)),
        {"mode": "gru", "runs": ((3, 1), (2, 2)), "reverse": True},
    ),
    Case("maxima_of_windows", ((2, 3, 7, 6),), windows((3, 3), stride=(2, 2), low=(1, 1), high=(1, 0))),
    Case("maxima_of_windows", ((2, 5, 150),), windows((2, 2), stride=(1, 1))),
    Case("maxima_of_windows", ((2, 1, 9, 140),), windows((2, 3), stride=(2, 3), dilation=(3, 2), low=(2, 2))),
    Case("maxima_of_windows", ((2, 3, 130),), windows((4,), stride=(2,), low=(2,))),
    *(Case("stack", ((3, 4),) * 3, {"dim": dim}) for dim in (0, 1, 2)),
    Case("stack", ((5,),), {"dim": 0}),
    Case("dropout", ((40, 9), KEY), {"p": 0.3, "stream": 4}),
    *(Case("with_number", ((3, 11),), {"op": op, "number": 0.3}) for op in ("mul", "div")),
    Case("masked", ((3, 5), SEEN), {"p": 0.3}),
    Case("softmax", ((2, 3, 5),), {"dim": 2}),
    Case("softmax", ((2, 3, 5),), {"dim": 0}),
    *(
        Case(name, ((2, 3, *sizes),), {"scale": 0.5})
        for name in ("causal_softmax", "causal_weights", "weights")
        for sizes in ((4, 4), (2, 5), (5, 2))
    ),
    Case("log_softmax", ((4, 6),), {"dim": 1}),
    Case("log_softmax", ((4, 6),), {"dim": 0}),
    *(
        Case(name, ((3, 11),) * one.operands, {number: 0.75 + k for k, number in enumerate(one.numbers)})
        for name, one in COMPOSITES.items()
        if one.pointwise
    ),
    Case("attention", ((2, 3, 4), (2, 5, 4), (2, 5, 6), None), {"causal": False, "scale": 0.5}),
    Case("attention", ((2, 3, 4), (2, 5, 4), (2, 5, 6), None), {"causal": True, "scale": 0.5}),
    Case("attention", ((2, 5, 4), (2, 3, 4), (2, 3, 6), None), {"causal": True, "scale": 0.5}),
    Case("attention", ((2, 3, 4), (2, 5, 4), (2, 5, 6), SEEN), {"causal": False, "scale": 0.5}),
    Case("attention", ((2, 3, 4), (2, 5, 4), (2, 5, 6), (1, 3, 5)), {"causal": False, "scale": 0.5}),
    Case("attention", ((2, 3, 4), (2, 5, 4), (2, 5, 6), (5,)), {"causal": False, "scale": 0.5}),
    *(
        Case("cross_entropy", ((4, 5), CLASSES), {"ignore_index": -100, "reduction": r, "smoothing": smoothing})
        for r in ("none", "sum", "mean")
        for smoothing in (0.0, 0.3)
    ),
    Case("cross_entropy", ((5,), np.array(3)), {"ignore_index": -100, "reduction": "mean", "smoothing": 1.0}),
    Case(
        "cross_entropy",
        ((2, 5, 4), np.ones((2, 4), np.int64)),
        {"ignore_index": 1, "reduction": "sum", "smoothing": 0.1},
    ),
    *(Case("nll_loss", ((4, 5), CLASSES), {"ignore_index": -100, "reduction": r}) for r in ("none", "sum", "mean")),
    Case("nll_loss", ((5,), np.array(3)), {"ignore_index": -100, "reduction": "mean"}),
    Case("nll_loss", ((2, 5, 4), np.ones((2, 4), np.int64)), {"ignore_index": 1, "reduction": "sum"}),
    Case("embedding", ((5, 3), ROWS), {"padding_idx": None}),
    Case("embedding", ((5, 3), ROWS), {"padding_idx": 1}),
)


def drawn(case: Case, dtype: Any, strided: bool = False) -> list[Tensor | None]:
    """The operands, from a fixed seed, floating ones as leaves. strided: their memory in another order."""
    rng = np.random.default_rng(0)
    made: list[Tensor | None] = []
    for operand in case.operands:
        if operand is None or isinstance(operand, np.ndarray):
            floats = isinstance(operand, np.ndarray) and operand.dtype.kind == "f"
            made.append(None if operand is None else tensor(operand, dtype=dtype if floats else None))
            continue
        array = rng.normal(size=operand).astype(dtype.numpy)
        made.append(tensor(np.asfortranarray(array) if strided else array).requires_grad_())
    return made


def whole(case: Case, operands: list[Tensor | None]) -> Tensor:
    composite = COMPOSITES[case.name]
    result = Tensor.__whole__(composite, tuple(operands), case.attrs)
    return composite.compose(*operands, **case.attrs) if result is None else result


def leaves(operands: list[Tensor | None]) -> list[Tensor]:
    return [x for x in operands if x is not None and x.requires_grad]


def weighted(out: Tensor) -> Tensor:
    """A sum of `out` with weights that differ."""
    weights = np.cos(np.arange(out.numel())).reshape(tuple(out.shape))
    return F.sum(out * tensor(weights.astype(out.dtype.numpy)))


def close(ours: Any, theirs: Any, dtype: Any) -> None:
    tolerance = 2e-5 if dtype is dt.float32 else 1e-12
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=tolerance, atol=tolerance)


@needs_compiler
@pytest.mark.parametrize(("dtype", "slack"), [(np.float32, 2e-6), (np.float64, 1e-13)])
@pytest.mark.parametrize("shape", [(4, 3, 5, 7), (6, 3), (1, 3, 2), (2, 3, 5000)])
def test_statistics_are_moved_as_their_composition_moves_them(shape: tuple[int, ...], dtype: Any, slack: float) -> None:
    rng = np.random.default_rng(0)
    x = (3 + rng.standard_normal(shape)).astype(dtype)
    mean, variance = SHIFTS.astype(dtype), SPREADS.astype(dtype)
    moved = channels.moved_statistics(np.moveaxis(np.moveaxis(x, 1, -1).copy(), -1, 1), mean, variance, 0.3)
    assert moved is not None
    for ours, before, now in zip(moved, (mean, variance), batch_statistics(x)):
        np.testing.assert_allclose(ours, before * 0.7 + np.asarray(now) * 0.3, rtol=slack, atol=slack)
    assert channels.moved_statistics(x, mean[:2], variance, 0.3) is None
    assert channels.moved_statistics(x, mean.astype(np.float16), variance, 0.3) is None
    assert channels.moved_statistics(x[:0], mean, variance, 0.3) is None


@needs_compiler
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_maxima_of_ties_nan_and_padding_are_the_compositions(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    array = rng.integers(0, 3, (4, 9, 10)).astype(dtype)
    array[0, :, :2], array[1, 3:5], array[2].flat[::7], array[3] = -np.inf, np.inf, np.nan, -np.inf
    for attrs in (windows((3, 2), stride=(2, 1), low=(1, 0)), windows((2, 3), stride=(1, 3), low=(1, 2), high=(0, 1))):
        found = []
        for function in (_maxima_of_windows, COMPOSITES["maxima_of_windows"].compose):
            x = tensor(array, requires_grad=True)
            out = function(x, **attrs)
            out.backward(tensor(np.arange(out.numel(), dtype=dtype).reshape(tuple(out.shape))))
            found.append((out.detach().numpy(), x.grad.numpy()))
        for ours, composed in zip(*found):
            np.testing.assert_array_equal(ours, composed)


@needs_compiler
def test_every_composite_has_a_definition() -> None:
    assert rules is not None
    of_devices = {
        "lowered_linear",
        "lowered_convolution",
        "widened_sum",
        "averages_of_windows",
        "affine",
        "widened_product",
    }
    of_devices |= {"lowered_affine", "average", "roll", "index"}  # alone
    assert {case.name for case in CASES} == set(COMPOSITES) - of_devices
    for case in CASES:
        whole(case, drawn(case, dt.float32))
    declined = [name for name, one in COMPOSITES.items() if one.forward.__name__ in ("_decline", "_define")]
    assert set(declined) == of_devices


@needs_compiler
@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize("dtype", [dt.float32, dt.float64])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients_are_the_compositions(case: Case, dtype: Any, strided: bool) -> None:
    ours, theirs = drawn(case, dtype, strided), drawn(case, dtype)
    out, expected = whole(case, ours), COMPOSITES[case.name].compose(*theirs, **case.attrs)
    assert (tuple(out.shape), out.dtype) == (tuple(expected.shape), expected.dtype)
    close(out, expected, dtype)
    for a, b in zip(grad(weighted(out), leaves(ours)), grad(weighted(expected), leaves(theirs)), strict=True):
        assert a is not None
        assert b is not None
        close(a, b, dtype)


@needs_compiler
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_gradient_of_the_gradient_is_the_compositions(case: Case) -> None:
    results = []
    for function in (whole, lambda c, xs: COMPOSITES[c.name].compose(*xs, **c.attrs)):
        operands = drawn(case, dt.float64)
        first = grad(weighted(function(case, operands)), leaves(operands), create_graph=True)
        total = sum((weighted(F.sin(g)) for g in first if g is not None), weighted(leaves(operands)[0]))
        results.append(grad(total, leaves(operands), allow_unused=True, materialize_grads=True))
    for a, b in zip(*results, strict=True):
        close(a, b, dt.float64)


@needs_compiler
@pytest.mark.parametrize("case", [c for c in CASES if len(leaves(drawn(c, dt.float32))) > 1], ids=str)
def test_each_operand_alone_may_need_a_gradient(case: Case) -> None:
    everything = drawn(case, dt.float64)
    expected = grad(weighted(whole(case, everything)), leaves(everything))
    for k, wanted in enumerate(expected):
        operands = drawn(case, dt.float64)
        for other in [x for j, x in enumerate(leaves(operands)) if j != k]:
            other.requires_grad_(False)
        (one,) = grad(weighted(whole(case, operands)), leaves(operands))
        close(one, wanted, dt.float64)


def rows() -> Tensor:
    return tensor(np.linspace(-2, 2, 12).reshape(3, 4).astype(np.float32)).requires_grad_()


@needs_compiler
def test_one_node_is_recorded_where_gradients_are() -> None:
    x = rows()
    assert isinstance(F.gelu(x)._node, WholeNode)
    assert type(F.softmax(x, 1).grad_fn).__name__ == "SoftmaxBackward0"
    assert F.gelu(x.detach()).grad_fn is None
    with no_grad():
        assert F.gelu(x).grad_fn is None


@needs_compiler
def test_other_dtypes_are_composed() -> None:
    x = tensor(np.ones((2, 3), np.float32)).to(dt.bfloat16).requires_grad_()
    out = F.layer_norm(x, (3,))
    assert out.dtype is dt.bfloat16
    assert not isinstance(out._node, WholeNode)


@needs_compiler
@pytest.mark.parametrize("function", [lambda x: F.gelu(x), lambda x: F.layer_norm(x, (4,)), lambda x: F.linear(x, x)])
def test_an_operand_that_changed_is_an_error(function: Callable[[Tensor], Tensor]) -> None:
    x = rows() * 1.0
    out = function(x)
    x.add_(1.0)
    with pytest.raises(AutogradError, match="changed in place"):
        F.sum(out).backward()


@needs_compiler
def test_of_a_result_that_changed_the_composition_knows_the_gradient() -> None:
    x, y = rows(), rows()
    changed, expected = F.softmax(x, 1), F.softmax(y, 1) * 2.0
    changed.mul_(2.0)
    for a, b in zip(grad(weighted(changed), [x]), grad(weighted(expected), [y])):
        close(a, b, dt.float32)


def test_a_result_that_changed_is_none_where_it_does_not() -> None:
    x, w = rows(), tensor(np.eye(4, dtype=np.float32))
    out = F.linear(x, w)
    out.mul_(2.0)
    F.sum(out).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[2.0] * 4] * 3


@needs_compiler
def test_relu_may_overwrite_its_operand() -> None:
    x = rows()
    hidden = x * 1.0
    hidden.relu_()
    F.sum(hidden * 2.0).backward()
    assert x.grad is not None
    assert x.grad.tolist() == np.where(x.detach().numpy() > 0, 2.0, 0.0).tolist()


@needs_compiler
def test_attention_of_heads_that_lie_behind_positions() -> None:
    """NumPy lays a product's leading dims out as its operands', and the kernels want them in order."""
    rng = np.random.default_rng(0)
    q, k, v = (tensor(rng.normal(size=(5, 3, 2, 4))).permute(2, 1, 0, 3).detach().requires_grad_() for _ in "qkv")
    attrs = {"causal": True, "scale": 0.5}
    ours = whole(Case("attention", (), attrs), [q, k, v, None])
    theirs = COMPOSITES["attention"].compose(q, k, v, None, **attrs)
    close(ours, theirs, dt.float64)
    for a, b in zip(grad(weighted(ours), [q, k, v]), grad(weighted(theirs), [q, k, v])):
        close(a, b, dt.float64)


@needs_compiler
def test_a_kernel_refuses_what_is_not_dense() -> None:
    library = native.kernels()
    assert library is not None
    x = np.zeros((4, 4), np.float32)
    with pytest.raises(BackendError, match="not dense"):
        library.named("dropout_backward")((x.T[:2], x[:2].astype(np.uint8), x[:2].copy()), 1.0)


@needs_compiler
def test_a_second_backward_finds_its_values_freed() -> None:
    x = rows()
    loss = F.sum(F.gelu(x))
    loss.backward(retain_graph=True)
    loss.backward()
    with pytest.raises(AutogradError, match="a second time"):
        loss.backward()


@needs_compiler
def test_what_backward_keeps_goes_with_it() -> None:
    out = F.layer_norm(rows(), (4,))
    node: Any = out._node
    assert len(node.kept) == 2
    F.sum(out).backward()
    assert node.kept is None


@needs_compiler
def test_hooks_on_a_result_replace_its_gradient() -> None:
    x = rows()
    out = F.relu(x)
    out.register_hook(lambda g: g * 3.0)
    F.sum(out).backward()
    assert x.grad is not None
    assert x.grad.numpy().max() == 3.0


@needs_compiler
def test_an_index_out_of_range_is_an_error() -> None:
    with pytest.raises(IndexError_):
        F.cross_entropy(rows(), tensor([0, 4, 1]))
    with pytest.raises(IndexError_):
        F.nll_loss(rows(), tensor([0, -1, 1]))
    with pytest.raises(IndexError_):
        F.embedding(tensor([0, -1]), rows())


@needs_compiler
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_was_unpickled_is_computed_whole(dtype: Any) -> None:
    """Its dtype is equal to NumPy's own, and another object: a model loaded from a file ran op by op."""
    x, target = pickle.loads(pickle.dumps((np.ones((4, 6), dtype), np.zeros(4, np.int64))))
    assert x.dtype is not np.dtype(dtype)
    logits = dc.from_numpy(x).requires_grad_()
    made = [dc.nn.functional.gelu(logits), dc.nn.functional.layer_norm(logits, (6,))]
    made.append(dc.nn.functional.cross_entropy(logits, dc.from_numpy(target)))
    assert [type(one._node) for one in made] == [WholeNode] * 3


@needs_compiler
def test_infinities_and_nan_are_the_compositions() -> None:
    x = tensor([[np.inf, 0.0], [-np.inf, -np.inf], [np.nan, 1.0], [-np.inf, 1.0]], dtype=dt.float32)
    for name, attrs in (("softmax", {"dim": 1}), ("log_softmax", {"dim": 1}), ("gelu", {}), ("relu", {}), ("silu", {})):
        case = Case(name, (), attrs)
        expected = COMPOSITES[name].compose(x, **attrs)
        np.testing.assert_allclose(whole(case, [x]).numpy(), expected.numpy(), rtol=1e-6, err_msg=name)


def test_without_a_compiler_there_are_no_kernels(tmp_path: Path) -> None:
    with config.patch(cxx=str(tmp_path / "none")):
        assert native.kernels.__wrapped__() is None


@needs_compiler
def test_gradients_of_running_statistics_are_the_compositions() -> None:
    x, mean, variance = (tensor(a, dtype=dt.float64).requires_grad_() for a in (np.eye(3), SHIFTS, SPREADS))
    expected = COMPOSITES["batch_norm"].compose(x, mean, variance, None, None, eps=0.1)
    for a, b in zip(
        grad(weighted(F.batch_norm(x, mean, variance, eps=0.1)), [x, mean, variance]),
        grad(weighted(expected), [x, mean, variance]),
    ):
        close(a, b, dt.float64)


def test_with_given_statistics_an_infinite_gradient_stays_where_it_is() -> None:
    x = tensor(np.ones((4, 3)), dtype=dt.float64).requires_grad_()
    case = Case("batch_norm", ((4, 3), SHIFTS, SPREADS, None, None), {"eps": 0.0})
    out = whole(case, [x, tensor(SHIFTS), tensor(SPREADS), None, None])
    slope = np.ones((4, 3))
    slope[1, 1] = np.inf
    out.backward(tensor(slope))
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), slope / np.sqrt(SPREADS))


def test_only_declared_composites_are_defined() -> None:
    with pytest.raises(OpDefinitionError, match="no composite"):
        define("nothing", lambda: None, lambda: (), reads=None, reads_out=False)


@pytest.mark.parametrize("inplace", [True, False])
def test_a_gradient_penalty_goes_through_a_relu_in_place(inplace: bool) -> None:
    """Its gradient, and that one's, asks the result alone: what it was computed from is written over."""
    first, second = dc.nn.Linear(4, 8), dc.nn.Linear(8, 1)
    x = dc.randn(3, 4, requires_grad=True)
    wanted: list[Any] = []
    for act in (lambda h: dc.where(h > 0, h, 0.0), lambda h: dc.nn.functional.relu(h * 1, inplace=inplace)):
        for one in (x, *first.parameters(), *second.parameters()):
            one.grad = None
        (g,) = dc.autograd.grad(second(act(first(x))).tanh().sum(), x, create_graph=True)
        (g.norm(2, dim=1) - 1).square().mean().backward()
        found = [one.grad for one in (x, *first.parameters(), *second.parameters())]
        for ours, theirs in zip(found, wanted):
            dc.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
        wanted = found
