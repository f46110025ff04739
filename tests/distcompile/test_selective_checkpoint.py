"""Selective checkpointing against torch: the same gradients; compiled, what a policy keeps is not made again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.tensor.observed import NONE, observed
from distcompile.utils.checkpoint import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    checkpoint,
    create_selective_checkpoint_contexts,
)

aten = dc.ops.aten


def products(x: dc.Tensor, w: dc.Tensor) -> dc.Tensor:
    return dc.sigmoid(dc.matmul(dc.matmul(x, w).exp(), w)) * x


def run(function: Callable[..., Any], context_fn: Callable[[], Any] | None = None) -> tuple[Any, Counter[str], int]:
    """(gradients, operations of the backward, bytes that are saved) of a compiled call."""
    dc.manual_seed(0)
    x, w = dc.randn(6, 6, requires_grad=True), dc.randn(6, 6, requires_grad=True)
    more = {} if context_fn is None else {"context_fn": context_fn}
    compiled = dc.compile(lambda x, w: checkpoint(function, x, w, use_reentrant=False, **more).sum(), fullgraph=True)
    compiled(x, w).backward()
    graph = dict(compiled.explain().entries[0].graphs)["backward"]
    saved = sum(node.meta.nbytes for node in graph.inputs if node.role in ("saved", "spent"))
    return (x.grad.numpy(), w.grad.numpy()), Counter(call.op.name for call in graph.calls), saved


def same(a: Any, b: Any) -> None:
    for mine, theirs in zip(a, b, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=2e-5)


def keeping(*operators: Any) -> Callable[[], Any]:
    return partial(create_selective_checkpoint_contexts, [*operators])


def test_a_list_of_operators_is_kept_and_not_computed_again() -> None:
    plain, again, nothing = run(products)
    kept, less, saved = run(products, keeping(aten.mm.default))
    same(plain, kept)
    assert nothing == 0
    assert saved > 0
    assert again["matmul"] - less["matmul"] == 2
    exps, with_exp, _ = run(products, keeping(aten.exp.default))
    same(plain, exps)
    assert (with_exp["exp"], again["exp"]) == (0, 1)
    assert again["matmul"] > with_exp["matmul"]  # the first product is behind the exp, and needed for nothing else


def test_a_policy_is_asked_of_each_product_once() -> None:
    counts: Counter[str] = Counter()
    told: list[tuple[Any, ...]] = []

    def policy(ctx: SelectiveCheckpointContext, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        if op == aten.mm.default:
            counts["mm"] += 1
            told.append((ctx.is_recompute, tuple(ctx.op_output.shape), tuple(args[0].shape)))
            if counts["mm"] % 2:
                return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

    plain, again, _ = run(products)
    kept, less, _ = run(products, partial(create_selective_checkpoint_contexts, policy))
    same(plain, kept)
    assert counts["mm"] == 2
    assert told == [(False, (6, 6), (6, 6))] * 2
    assert again["matmul"] - less["matmul"] == 1


@pytest.mark.parametrize("answer", [*CheckpointPolicy, True, False])
def test_every_answer(answer: Any) -> None:
    def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        return answer

    plain, again, _ = run(products)
    kept, less, _ = run(products, partial(create_selective_checkpoint_contexts, policy))
    same(plain, kept)
    is_kept = answer not in (False, CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE)
    assert (less["matmul"] < again["matmul"]) == is_kept


def attended(x: dc.Tensor, w: dc.Tensor) -> dc.Tensor:
    q = (x @ w).view(1, 1, 6, 6)
    return dc.nn.functional.scaled_dot_product_attention(q, q, q).tanh()


def test_attention_has_torchs_names() -> None:
    plain, again, _ = run(attended)
    names = [aten._scaled_dot_product_flash_attention.default, aten._scaled_dot_product_efficient_attention.default]
    kept, less, _ = run(attended, keeping(*names))
    same(plain, kept)
    assert (again["attention"], less["attention"]) == (1, 0)


def batched(x: dc.Tensor, w: dc.Tensor) -> dc.Tensor:
    return dc.bmm(x.view(2, 3, 6), w.view(2, 6, 3)).exp().sin()


def test_a_batch_of_products_is_bmm() -> None:
    _, again, _ = run(batched)
    _, less, _ = run(batched, keeping(aten.bmm.default))
    _, same_as_again, _ = run(batched, keeping(aten.mm.default))
    assert less["matmul"] == again["matmul"] - 1
    assert same_as_again == again


def eager(function: Callable[..., Any], context_fn: Callable[[], Any] | None = None) -> tuple[Any, Counter[str]]:
    """(gradients, operations of the backward) of an eager call."""
    dc.manual_seed(0)
    x, w = dc.randn(6, 6, requires_grad=True), dc.randn(6, 6, requires_grad=True)
    more = {} if context_fn is None else {"context_fn": context_fn}
    result = checkpoint(function, x, w, use_reentrant=False, **more).sum()
    counts: Counter[str] = Counter()
    with observed(lambda op, arrays, attrs, out: counts.update([op.name]), composes=NONE):
        result.backward()
    return (x.grad.numpy(), w.grad.numpy()), counts


def normed(x: dc.Tensor, w: dc.Tensor) -> dc.Tensor:
    hidden = dc.nn.functional.gelu(dc.nn.functional.layer_norm(x @ w, (6,)))
    return dc.nn.functional.dropout((hidden @ w).exp_().mul_(0.1), 0.5) @ w


@pytest.mark.parametrize("function", [products, attended, batched, normed])
def test_eager_code_does_not_compute_again_what_is_kept(function: Callable[..., Any]) -> None:
    plain, again = eager(function)
    for operators in ([aten.mm.default, aten.bmm.default], [aten.exp.default], []):
        kept, less = eager(function, keeping(*operators))
        same(plain, kept)
        names = {"matmul": aten.mm.default, "exp": aten.exp.default}
        for name, operator in names.items():
            is_fewer = less[name] < again[name]
            assert is_fewer == (operator in operators and again[name] > less[name])
    _, less = eager(products, keeping(aten.mm.default))
    _, again = eager(products)
    assert (again["matmul"] - less["matmul"], again["exp"] - less["exp"]) == (2, 0)


def test_a_checkpoint_in_one_with_a_policy() -> None:
    def outer(x: dc.Tensor, w: dc.Tensor) -> dc.Tensor:
        return checkpoint(normed, normed(x, w), w, use_reentrant=False) @ w

    def of_all(x: dc.Tensor, w: dc.Tensor) -> dc.Tensor:
        return checkpoint(outer, x, w, use_reentrant=False, context_fn=keeping(aten.mm.default)).tanh()

    for function in (outer, of_all):
        same(eager(function)[0], eager(function, keeping(aten.exp.default))[0])


def test_an_eager_region_goes_back_once_and_is_the_same_twice() -> None:
    x, w = dc.randn(6, 6, requires_grad=True), dc.randn(6, 6, requires_grad=True)
    result = checkpoint(products, x, w, use_reentrant=False, context_fn=keeping(aten.mm.default)).sum()
    result.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="Trying to backward an extra time"):
        result.backward()
    more: list[int] = []

    def other(x: dc.Tensor, w: dc.Tensor) -> dc.Tensor:
        more.append(1)
        return products(x, w) if len(more) == 1 else products(x @ w, w)

    changed = checkpoint(other, x, w, use_reentrant=False, context_fn=keeping(aten.mm.default)).sum()
    with pytest.raises(RuntimeError, match="not found in storage"):
        changed.backward()


def test_gradients_and_refusals_are_torchs() -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.utils.checkpoint
    gradients, _, _ = run(products, keeping(aten.mm.default))
    dc.manual_seed(0)
    x, w = (torch.tensor(dc.randn(6, 6).numpy(), requires_grad=True) for _ in range(2))

    def function(x: Any, w: Any) -> Any:
        return torch.sigmoid(torch.matmul(torch.matmul(x, w).exp(), w)) * x

    made = partial(theirs.create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])
    theirs.checkpoint(function, x, w, use_reentrant=False, context_fn=made).sum().backward()
    same(gradients, (x.grad.numpy(), w.grad.numpy()))
    for wrong, other in (([0], [0]), ([dc.ops.aten.mm], [torch.ops.aten.mm])):
        makers = (create_selective_checkpoint_contexts, theirs.create_selective_checkpoint_contexts)
        for make, given in zip(makers, (wrong, other), strict=True):
            with pytest.raises(ValueError, match="Expected op in `op_list` to be an OpOverload"):
                make(given)
    for make in (create_selective_checkpoint_contexts, theirs.create_selective_checkpoint_contexts):
        with pytest.raises(TypeError, match="must be either a function or a list of ops"):
            make(3)
    assert [p.name for p in CheckpointPolicy] == [p.name for p in theirs.CheckpointPolicy]
    assert [p.value for p in CheckpointPolicy] == [p.value for p in theirs.CheckpointPolicy]
