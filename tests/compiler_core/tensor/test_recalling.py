"""A call that is remembered gives what it would give anew, and what torch gives, whatever was called before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile
from compiler_core.ops import prims
from compiler_core.ops.remembered import Plan, remembered
from compiler_core.tensor import recalling
from compiler_core.tensor.observed import observed

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

Call = Callable[..., Any]  # of the library, and operands
CALLS: dict[str, tuple[Call, tuple[tuple[int, ...], ...]]] = {
    "relu": (lambda t, x: t.relu(x), ((4, 6),)),
    "gelu": (lambda t, x: t.nn.functional.gelu(x), ((4, 6),)),
    "gelu by tanh": (lambda t, x: t.nn.functional.gelu(x, approximate="tanh"), ((4, 6),)),
    "silu": (lambda t, x: t.nn.functional.silu(x), ((4, 6),)),
    "elu": (lambda t, x: t.nn.functional.elu(x, 0.5), ((4, 6),)),
    "leaky_relu": (lambda t, x: t.nn.functional.leaky_relu(x, 0.3), ((4, 6),)),
    "softmax": (lambda t, x: t.softmax(x, -1), ((4, 6),)),
    "softmax of columns": (lambda t, x: t.softmax(x, dim=0), ((4, 6),)),
    "log_softmax": (lambda t, x: t.log_softmax(x, 1), ((4, 6),)),
    "sum": (lambda t, x: x.sum(), ((4, 6),)),
    "sum of rows": (lambda t, x: x.sum(-1), ((4, 6),)),
    "sum kept": (lambda t, x: x.sum(0, keepdim=True), ((4, 6),)),
    "sum of some": (lambda t, x: x.sum((0, 1)), ((4, 6),)),
    "matmul": (lambda t, x, y: x @ y, ((4, 6), (6, 3))),
    "matmul of vectors": (lambda t, x, y: x @ y, ((6,), (6,))),
    "batched matmul": (lambda t, x, y: t.matmul(x, y), ((2, 4, 6), (2, 6, 3))),
    "layer_norm": (lambda t, x, w, b: t.nn.functional.layer_norm(x, (6,), w, b), ((4, 6), (6,), (6,))),
    "layer_norm alone": (lambda t, x: t.nn.functional.layer_norm(x, (6,), eps=1e-3), ((4, 6),)),
    "layer_norm of a size": (lambda t, x, w: t.nn.functional.layer_norm(x, x.shape[1:], w), ((4, 6), (6,))),
    "rms_norm": (lambda t, x, w: t.nn.functional.rms_norm(x, (6,), w), ((4, 6), (6,))),
    "attention": (lambda t, q, k, v: t.nn.functional.scaled_dot_product_attention(q, k, v), ((2, 4, 6),) * 3),
    "causal attention": (
        lambda t, q, k, v: t.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        ((2, 4, 6),) * 3,
    ),
    "attention with a mask": (
        lambda t, q, k, v, m: t.nn.functional.scaled_dot_product_attention(q, k, v, m),
        (*((2, 4, 6),) * 3, (4, 4)),
    ),
    "conv2d": (
        lambda t, x, w, b: t.nn.functional.conv2d(x, w, b, padding=1),
        ((2, 3, 6, 6), (4, 3, 3, 3), (4,)),
    ),
    "conv1d": (lambda t, x, w: t.nn.functional.conv1d(x, w, stride=2), ((2, 3, 8), (4, 3, 3))),
    "a number": (lambda t, x: (x + 1.5) * 2 - 0.25, ((4, 6),)),
    "over a number": (lambda t, x: x / 3, ((4, 6),)),
    "mean": (lambda t, x: x.mean(), ((4, 6),)),
    "mean of rows": (lambda t, x: t.mean(x, -1, keepdim=True), ((4, 6),)),
    "var": (lambda t, x: x.var(-1), ((4, 6),)),
    "std": (lambda t, x: t.std(x, 0, correction=0), ((4, 6),)),
    "amax": (lambda t, x: x.amax(-1), ((4, 6),)),
    "prod": (lambda t, x: x.prod(1), ((4, 6),)),
    "tril": (lambda t, x: x.tril(-1), ((4, 6),)),
    "where": (lambda t, x, y: t.where(places(t, 24).reshape(4, 6) % 2 == 0, x, y), ((4, 6), (4, 6))),
    "where, a row": (lambda t, x, y: t.where(places(t, 6) > 2, x, y), ((4, 6), (6,))),
    "where, a number": (lambda t, x: t.where(places(t, 6) > 2, x, -0.5), ((4, 6),)),
    "masked_fill": (lambda t, x: x.masked_fill(places(t, 6) > 2, 0.0), ((4, 6),)),
    "clamp": (lambda t, x: x.clamp(-0.5, 0.75), ((4, 6),)),
    "clamp below": (lambda t, x: t.clamp(x, min=0.1), ((4, 6),)),
    "cat": (lambda t, x, y: t.cat([x, y]), ((4, 6), (2, 6))),
    "cat of columns": (lambda t, x, y: t.cat((x, y, x), dim=1), ((4, 6), (4, 2))),
    "stack": (lambda t, x, y: t.stack([x, y], 1), ((4, 6), (4, 6))),
    "rows": (lambda t, x: x[t.tensor([2, -1, 2])], ((4, 6),)),
    "elements": (lambda t, x: x[t.tensor([2, -1, 2]), t.tensor([[5], [-6]])], ((4, 6),)),
    "index_select": (lambda t, x: x.index_select(0, t.tensor([3, 0, 3])), ((4, 6),)),
    "gather": (lambda t, x: x.gather(1, t.tensor([[5, 0], [1, 1], [2, 2], [0, 3]])), ((4, 6),)),
}


def places(t: Any, n: int) -> Any:
    return t.tensor(list(range(n)))


every_call = pytest.mark.parametrize(("call", "shapes"), CALLS.values(), ids=CALLS)


def operands(t: Any, shapes: Any, seed: int = 0, dtype: Any = np.float32) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [t.tensor(rng.standard_normal(shape).astype(dtype)) for shape in shapes]


def agree(ours: Any, theirs: Any) -> None:
    assert (tuple(ours.shape), str(ours.dtype).split(".")[1]) == (tuple(theirs.shape), str(theirs.dtype).split(".")[1])
    assert (ours.requires_grad, ours.is_leaf) == (theirs.requires_grad, theirs.is_leaf)
    np.testing.assert_allclose(ours.detach().double().numpy(), theirs.detach().double().numpy(), rtol=2e-5, atol=2e-6)


def both(call: Call, given: Callable[[Any], list[Any]]) -> None:
    agree(call(distcompile, *given(distcompile)), call(torch, *given(torch)))


def warmed(call: Call, shapes: Any) -> None:
    for _ in range(3):
        call(distcompile, *operands(distcompile, shapes))


@every_call
def test_it_gives_the_same_again_for_other_elements_dtypes_and_shapes(call: Call, shapes: Any) -> None:
    for _ in range(2):
        for seed in range(3):
            both(call, lambda t, seed=seed: operands(t, shapes, seed))
        both(call, lambda t: operands(t, shapes, 7, np.float64))


@every_call
def test_arrays_with_gaps_repeats_and_other_orders(call: Call, shapes: Any) -> None:
    warmed(call, shapes)

    def spread(t: Any) -> list[Any]:
        wide = operands(t, [(*shape[:-1], 2 * shape[-1]) for shape in shapes])
        return [x[..., ::2] for x in wide]

    def turned(t: Any) -> list[Any]:
        return [x.transpose(0, -1).contiguous().transpose(0, -1) for x in operands(t, shapes)]

    def repeated(t: Any) -> list[Any]:
        return [x[:1].expand(shape) for x, shape in zip(operands(t, shapes), shapes)]

    for given in (spread, turned, repeated, spread):
        both(call, given)


@every_call
def test_one_tensor_in_several_places_is_told_from_several(call: Call, shapes: Any) -> None:
    def alike(t: Any) -> list[Any]:
        made = dict(zip(shapes, operands(t, shapes)))
        return [made[shape] for shape in shapes]

    def leaves(t: Any) -> list[Any]:
        made = {shape: x.requires_grad_() for shape, x in zip(shapes, operands(t, shapes))}
        return [made[shape] for shape in shapes]

    for given in (alike, lambda t: operands(t, shapes), alike, leaves, lambda t: operands(t, shapes)):
        both(call, given)


@every_call
def test_gradients_and_modes_change_between_calls(call: Call, shapes: Any) -> None:
    warmed(call, shapes)

    def told(t: Any, second: bool) -> list[Any]:
        xs = [x.requires_grad_() for x in operands(t, shapes, 3, np.float64)]
        with t.no_grad():
            assert not call(t, *xs).requires_grad
        out = call(t, *xs)
        grads = t.autograd.grad((out * out).sum(), xs, create_graph=second)
        if second:
            grads = t.autograd.grad(sum((g * g).sum() for g in grads), xs, allow_unused=True)
        with t.inference_mode():
            assert call(t, *xs).is_inference()
        assert not call(t, *[x.detach() for x in xs]).requires_grad
        return [g.detach().numpy() for g in grads if g is not None]

    for second in (False, True):
        for mine, its in zip(told(distcompile, second), told(torch, second), strict=True):
            np.testing.assert_allclose(mine, its, rtol=1e-6, atol=1e-8)


@every_call
def test_who_looks_sees_the_ops_and_tangents_go_along(call: Call, shapes: Any) -> None:
    def seen() -> list[str]:
        names: list[str] = []
        with observed(lambda op, arrays, attrs, result: names.append(op.name)):
            call(distcompile, *operands(distcompile, shapes))
        return names

    warmed(call, shapes)
    xs = operands(distcompile, shapes, 1, np.float64)
    primals, tangents = xs, operands(distcompile, shapes, 2, np.float64)
    call(distcompile, *xs)
    _, given = distcompile.func.jvp(lambda *xs: call(distcompile, *xs), tuple(primals), tuple(tangents))
    step = 1e-6
    moved = [call(distcompile, *[x + s * d for x, d in zip(primals, tangents)]) for s in (step, -step)]
    np.testing.assert_allclose(given.numpy(), ((moved[0] - moved[1]) / (2 * step)).numpy(), rtol=1e-4, atol=1e-6)
    assert seen() == seen()


@every_call
def test_captures_batches_and_autocast_are_as_ever(call: Call, shapes: Any) -> None:
    warmed(call, shapes)
    xs = operands(distcompile, shapes)
    expected = call(distcompile, *xs).numpy()
    with distcompile.autocast("cpu"):
        lowered = call(distcompile, *xs)
    with torch.autocast("cpu"):
        assert str(call(torch, *operands(torch, shapes)).dtype).split(".")[1] == lowered.dtype.name
    batched = distcompile.func.vmap(lambda *xs: call(distcompile, *xs))(*[x[None] for x in xs])[0]
    np.testing.assert_allclose(batched.numpy(), expected, rtol=2e-5, atol=2e-6)
    np.testing.assert_array_equal(call(distcompile, *xs).numpy(), expected)


def test_numbers_that_are_equal_are_told_apart() -> None:
    def told(t: Any) -> list[Any]:
        x = t.tensor([-1.0, 2.0])
        slopes = [t.nn.functional.leaky_relu(x, s).signbit().tolist() for s in (0.0, -0.0, 0.0, -0.0)]
        whole = t.tensor([[1, 2], [3, 4]])
        sums = [whole.sum(d).tolist() for d in (0, 1, 0)] + [
            whole.bool().sum().item(),
            whole.sum(dtype=t.float32).item(),
        ]
        return [slopes, sums, [t.sum(whole, 1, k).tolist() for k in (False, True, False)]]

    assert told(distcompile) == told(torch)


def test_elements_are_looked_at_anew() -> None:
    weight, logits = distcompile.arange(6.0).reshape(3, 2), distcompile.arange(6.0).reshape(2, 3)
    for _ in range(3):
        assert distcompile.nn.functional.embedding(distcompile.tensor([2, 0]), weight).tolist() == [[4, 5], [0, 1]]
        assert distcompile.nn.functional.cross_entropy(logits, distcompile.tensor([2, 0])).item() > 0
    for bad in ([3, 0], [-1, 0]):
        with pytest.raises(IndexError):
            distcompile.nn.functional.embedding(distcompile.tensor(bad), weight)
        with pytest.raises((IndexError, ValueError)):
            distcompile.nn.functional.cross_entropy(logits, distcompile.tensor(bad))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_of_classes(reduction: str) -> None:
    def loss(t: Any, x: Any, target: list[int]) -> Any:
        return t.nn.functional.cross_entropy(x, t.tensor(target), reduction=reduction)

    for target in ([1, 2, 0], [0, -100, 5], [-100, -100, -100], [1, 1, 1]):
        for dtype in (np.float32, np.float64):
            both(
                lambda t, x, target=target: loss(t, x, target), lambda t, dtype=dtype: operands(t, ((3, 6),), 1, dtype)
            )
            both(lambda t, x, target=target: loss(t, x, target), lambda t: [operands(t, ((3, 12),))[0][:, ::2]])


def test_infinities_and_nothing_at_all() -> None:
    def told(t: Any) -> list[Any]:
        x = t.tensor([[float("inf"), -float("inf")], [1e38, 1e38]])
        return [
            x.sum().isnan().item(), x.sum(1).isinf().tolist(), (x @ x)[0].isnan().tolist(), (x * 1e300).tolist()[1],
            t.zeros(0, 3).sum().item(), (t.zeros(2, 0) @ t.zeros(0, 3)).tolist(), t.relu(t.zeros(0)).shape[0],
            t.softmax(t.zeros(2, 0), 1).tolist(), t.relu(t.tensor(-2.0)).item(), (t.tensor(2.0) * 3).item(),
        ]  # fmt: skip

    for _ in range(2):
        assert told(distcompile) == told(torch)


def test_relu_in_place_is_the_same_tensor() -> None:
    def told(t: Any) -> list[Any]:
        x = t.tensor([-1.0, 2.0], requires_grad=True)
        for _ in range(3):
            y = x * 1
            t.nn.functional.relu(x)
            assert t.nn.functional.relu(y, inplace=True) is y
            y.sum().backward()
        return [y.tolist(), x.grad.tolist()]

    assert told(distcompile) == told(torch)


@pytest.mark.parametrize("call", [lambda t, x: x @ x, lambda t, x: t.nn.functional.gelu(x), lambda t, x: x * x])
def test_a_value_that_is_needed_and_was_changed_is_refused(call: Call) -> None:
    def told(t: Any) -> list[bool]:
        found = []
        for changed in (False, True, False):
            w = t.ones(2, 2, requires_grad=True) * 2
            out = call(t, w)
            if changed:
                w.add_(1)
            try:
                out.sum().backward()
            except RuntimeError:
                found.append(True)
                continue
            found.append(False)
        return found

    assert told(distcompile) == told(torch) == [False, True, False]


def test_hooks_on_what_is_saved_see_what_is_remembered() -> None:
    def told(t: Any) -> list[Any]:
        packed: list[Any] = []
        x = t.tensor([[-1.0, 2.0], [0.5, 1.0]], requires_grad=True)
        (x @ x).sum().backward()
        with t.autograd.graph.saved_tensors_hooks(lambda v: packed.append(tuple(v.shape)) or v, lambda v: 2 * v):
            out = x @ x
        out.sum().backward()
        return [packed, x.grad.tolist()]

    assert told(distcompile) == told(torch)


def test_a_bias_that_hooks_do_not_keep_is_not_missed() -> None:
    def gradients(t: Any) -> list[Any]:
        x, w, b = (v.requires_grad_() for v in operands(t, ((4, 6), (6,), (6,))))
        with t.autograd.graph.saved_tensors_hooks(lambda v: v, lambda v: v):
            out = t.nn.functional.layer_norm(x, (6,), w, b)
        out.square().sum().backward()
        return [x.grad, w.grad, b.grad]

    for ours, theirs in zip(gradients(distcompile), gradients(torch)):
        agree(ours, theirs)


def test_what_ends_in_another_shape_of_what_is_new_is_remembered_as_a_view() -> None:
    calls: list[str] = []

    @remembered
    def column_of_exp(x: Any) -> Any:
        calls.append("asked")
        return prims.reshape(prims.exp(x), (2, 1))

    @remembered
    def plain_exp(x: Any) -> Any:
        calls.append("asked")
        return prims.exp(x)

    x = distcompile.tensor([1.0, 2.0])

    @remembered
    def shown(x: Any) -> Any:
        calls.append("asked")
        return prims.reshape(x, (2, 1))

    for function, asked in ((column_of_exp, 1), (plain_exp, 1), (shown, 4)):
        calls.clear()
        made = [function(x) for _ in range(4)]
        assert len(calls) == asked
        assert [(one.tolist(), one._view is not None) for one in made] == [
            (made[0].tolist(), function is not plain_exp)
        ] * 4


def test_a_remembered_function_in_another_is_told_of() -> None:
    @remembered
    def inner(x: Any) -> Any:
        return prims.exp(x)

    @remembered
    def outer(x: Any) -> Any:
        inner(x)
        return inner(x)

    @remembered
    def alone(x: Any) -> Any:
        return inner(x)

    tables = [k for f in (alone, outer) for c in f.__closure__ if isinstance(k := c.cell_contents, dict)]
    x = distcompile.tensor([1.0])
    for _ in range(3):
        alone(x), outer(x)
    assert isinstance(next(iter(tables[0].values())), Plan)
    assert [len(next(iter(table.values())).steps) for table in tables] == [0, 2]


def test_masks_and_places_are_read_anew() -> None:
    def told(t: Any) -> list[Any]:
        x = t.arange(12.0).reshape(3, 4)
        masks = [t.tensor(m) for m in ([True, False, True], [False] * 3, [True] * 3)]
        found = [x[m].tolist() for m in (*masks, *masks)]
        found += [x[t.tensor(at)].tolist() for at in ([0, 1], [-1, -2], [2, 2])]
        found += [x[t.tensor(at), 1:].tolist() for at in ([0, 1], [-1, -2])]
        found += [x[1, t.tensor(at)].tolist() for at in ([0, 1], [-1, -2])]
        found += [x[at].tolist() for at in ([0, 1], [-1, -2], [True, False, True], [0, 1], [2] * 40, [1] * 40)]
        return found + [x[t.tensor(at)].tolist() for at in (0, 1, -1)]

    for _ in range(2):
        assert told(distcompile) == told(torch)


def test_places_out_of_range_are_refused_as_ever() -> None:
    x = distcompile.arange(12.0).reshape(3, 4)
    for given in ([0, 1], [0, 3], [0, 1], [0, -4]):
        at = distcompile.tensor(given)
        if given == [0, 1]:
            assert x[at].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
            continue
        with pytest.raises(IndexError, match=f"index {given[1]} is out of range"):
            x[at]
        with pytest.raises(IndexError):
            x.index_select(0, at)


def test_results_are_new() -> None:
    def told(t: Any) -> list[Any]:
        x = t.arange(6.0).reshape(2, 3)
        made = [
            t.cat([x]), t.stack([x]), x.amax(()), x.prod(0), x.clamp(min=-9.0), x.mean(1, True), x.sum(()), x.tril(9),
            t.where(x > -1, x, 0.0), x.masked_fill(x < -1, 0.0), x[t.tensor([0, 1])],
            x.index_select(0, t.tensor([0, 1])),
        ]  # fmt: skip
        for one in made:
            one.fill_(-5.0)
        return [x.tolist(), [one.unique().tolist() for one in made]]

    for _ in range(3):
        assert told(distcompile) == told(torch)


def test_the_default_dtype_is_part_of_a_call() -> None:
    def told(t: Any) -> list[str]:
        holds, whole = t.tensor([True, False]), t.tensor([1, 2])
        return [
            str(y.dtype).split(".")[1] for y in (t.where(holds, 1.0, 2.0), t.sigmoid(whole), t.where(holds, whole, 0.5))
        ]

    for dtype in ("float32", "float64", "float32"):
        for t in (distcompile, torch):
            t.set_default_dtype(getattr(t, dtype))
        try:
            assert told(distcompile) == told(torch)
            assert told(distcompile) == told(torch)
        finally:
            for t in (distcompile, torch):
                t.set_default_dtype(t.float32)


def test_several_ops_are_remembered_together() -> None:
    calls: list[int] = []

    @remembered
    def doubled_sum(x: Any, y: Any) -> Any:
        calls.append(1)
        return prims.mul(prims.sum(prims.add(x, y), (0,)), prims.full((3,), 2.0, distcompile.float32))

    x, y = distcompile.arange(6.0).reshape(2, 3), distcompile.ones(2, 3)
    for _ in range(4):
        assert doubled_sum(x, y).tolist() == [10, 14, 18]
    assert len(calls) == 1
    x.requires_grad_()
    doubled_sum(x, y).sum().backward()
    assert (len(calls), x.grad.tolist()) == (1, [[2, 2, 2]] * 2)


def test_a_number_that_is_repeated_often_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    stepped: list[Plan] = []
    in_steps = recalling._in_steps
    monkeypatch.setattr(recalling, "_in_steps", lambda plan, *rest: stepped.append(plan) or in_steps(plan, *rest))

    def told(t: Any) -> list[Any]:
        x = t.arange(64.0 * 64).reshape(64, 64).requires_grad_()
        mask = x > 100
        out = [x.clamp(10, 4000), x.masked_fill(mask, 0.5), t.where(mask, x, -1.0)]
        sum((y * y).sum() for y in out).backward()
        return [*[y.tolist() for y in out], x.grad.tolist()]

    theirs = told(torch)
    assert [told(distcompile) for _ in range(4)] == [theirs] * 4
    assert len(stepped) >= 3 * 2


def test_an_empty_tensor_hands_on_that_it_requires_a_gradient_also_when_looked_up() -> None:
    empty, full = distcompile.tensor([]), distcompile.ones(2, 3)
    wants = distcompile.tensor([], requires_grad=True)
    for _ in range(3):
        found = [distcompile.cat(parts).requires_grad for parts in ([empty, full], [wants, full], [empty, wants])]
        assert found == [False, True, True]
    assert distcompile.cat([empty, full.requires_grad_()]).grad_fn.name() != "WhereBackward0"  # type: ignore[union-attr]
