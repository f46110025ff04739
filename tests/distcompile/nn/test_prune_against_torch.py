"""torch.nn.utils.prune: masks, state dicts, outputs and errors of torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
import distcompile.nn.utils.prune
from tests.same_draws import assert_same_draws

torch = pytest.importorskip("torch")
pytest.importorskip("torch.nn.utils.prune")
pytestmark = pytest.mark.torch


def made(t: Any) -> Any:
    model = t.nn.Sequential(t.nn.Conv1d(2, 4, 3), t.nn.Flatten(), t.nn.Linear(12, 5)).double()
    rng = np.random.default_rng(0)
    with t.no_grad():
        for p in model.parameters():
            p.copy_(t.tensor(rng.standard_normal(tuple(p.shape))))
    return model


def _again(p: Any, m: Any, t: Any) -> None:
    p.l1_unstructured(m[2], "weight", 0.3)
    p.ln_structured(m[2], "weight", 1, n=2, dim=0)
    p.l1_unstructured(m[2], "weight", amount=5)


def _removed(p: Any, m: Any, t: Any) -> None:
    p.l1_unstructured(m[0], "bias", 2)
    p.remove(m[0], "bias")
    p.ln_structured(m[0], "weight", 0.5, n=1, dim=1)


def _trained(p: Any, m: Any, t: Any) -> None:
    p.l1_unstructured(m[2], "weight", 0.5)
    o = t.optim.SGD(m.parameters(), lr=0.001)
    for _ in range(3):
        o.zero_grad()
        m(t.ones(2, 2, 5, dtype=t.float64)).square().sum().backward()
        o.step()


# name -> what is done to a model
CASES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "identity": lambda p, m, t: p.identity(m[0], "weight"),
    "l1, a number": lambda p, m, t: p.l1_unstructured(m[0], "weight", 7),
    "l1, a part": lambda p, m, t: p.l1_unstructured(m[2], "weight", amount=0.35),
    "l1, none": lambda p, m, t: p.l1_unstructured(m[2], "weight", amount=0.0),
    "l1, all": lambda p, m, t: p.l1_unstructured(m[2], "bias", amount=1.0),
    "by importance": lambda p, m, t: p.l1_unstructured(m[2], "bias", 2, importance_scores=t.arange(5.0)),
    "l2, channels": lambda p, m, t: p.ln_structured(m[0], "weight", 2, n=2, dim=0),
    "largest, columns": lambda p, m, t: p.ln_structured(m[2], "weight", 0.5, n=float("inf"), dim=-1),
    "a mask": lambda p, m, t: p.custom_from_mask(m[2], "bias", t.tensor([1, 0, 1, 1, 0])),
    "of several": lambda p, m, t: p.global_unstructured(
        [(m[0], "weight"), (m[2], "weight"), (m[2], "bias")], p.L1Unstructured, amount=0.4),
    "again": _again,
    "removed": _removed,
    "trained": _trained,
}  # fmt: skip


def shown(model: Any, t: Any) -> Any:
    out = model(t.ones(2, 2, 5, dtype=t.float64))
    state = {name: np.round(value.numpy(), 9).tolist() for name, value in model.state_dict().items()}
    return list(model.state_dict()), state, np.round(out.detach().numpy(), 9).tolist(), [
        name for name, _ in model.named_parameters()
    ], t.nn.utils.prune.is_pruned(model)  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_pruned_models_are_torchs(name: str) -> None:
    found = []
    for t in (dc, torch):
        model = made(t)
        CASES[name](t.nn.utils.prune, model, t)
        found.append(shown(model, t))
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["again", "of several"])
def test_a_compiled_model_is_pruned_too(name: str) -> None:
    model = made(dc)
    CASES[name](dc.nn.utils.prune, model, dc)
    x = dc.ones(2, 2, 5, dtype=dc.float64)
    compiled = dc.compile(model)
    for _ in range(2):
        np.testing.assert_allclose(compiled(x).detach().numpy(), model(x).detach().numpy())
        with dc.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.5)


def test_random_methods_prune_as_many() -> None:
    prune, model = dc.nn.utils.prune, made(dc)
    prune.random_unstructured(model[2], "weight", 0.25)
    assert int((model[2].weight_mask == 0).sum()) == 15
    prune.random_structured(model[0], "weight", 3, dim=0)
    assert int((model[0].weight_mask.sum(dim=(1, 2)) == 0).sum()) == 3
    prune.random_unstructured(model[2], "weight", 5)
    assert int((model[2].weight_mask == 0).sum()) == 20
    pruned = prune.RandomUnstructured(2).prune(dc.ones(5))
    assert int((pruned == 0).sum()) == 2


WRONG: dict[str, Callable[[Any, Any, Any], Any]] = {
    "negative": lambda p, m, t: p.l1_unstructured(m[0], "weight", -1),
    "above 1": lambda p, m, t: p.l1_unstructured(m[0], "weight", 1.5),
    "text": lambda p, m, t: p.l1_unstructured(m[0], "weight", "half"),
    "too many": lambda p, m, t: p.l1_unstructured(m[2], "bias", 6),
    "channels of a vector": lambda p, m, t: p.ln_structured(m[2], "bias", 1, n=2, dim=0),
    "a dim beyond": lambda p, m, t: p.ln_structured(m[2], "weight", 1, n=2, dim=2),
    "not pruned": lambda p, m, t: p.remove(m[0], "weight"),
    "structured, of several": lambda p, m, t: p.global_unstructured([(m[2], "weight")], p.LnStructured, amount=1, n=2),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_are_torchs_and_leave_the_model_as_it_was(name: str) -> None:
    with pytest.raises(Exception) as theirs:  # noqa: PT011
        WRONG[name](torch.nn.utils.prune, made(torch), torch)
    model = made(dc)
    before = shown(model, dc)
    with pytest.raises(theirs.type):
        WRONG[name](dc.nn.utils.prune, model, dc)
    assert shown(model, dc) == before


def test_importances_of_another_shape_are_a_named_error() -> None:
    """Which torch asserts."""
    with pytest.raises(ValueError, match="importance_scores should have the same shape"):
        dc.nn.utils.prune.l1_unstructured(made(dc)[2], "bias", 1, importance_scores=dc.ones(3))


def pruned_at_random(t: Any) -> Any:
    prune, layers = t.nn.utils.prune, [t.nn.Linear(4, 6), t.nn.Linear(4, 6)]
    prune.random_unstructured(layers[0], "weight", 0.3)
    prune.random_structured(layers[1], "weight", 2, 0)
    return [layer.weight_mask for layer in layers]


def test_random_pruning_takes_torchs_entries() -> None:
    assert_same_draws(pruned_at_random)
