"""Optimizers, judged by torch's: values over twenty steps, state dict layout, both ways of loading."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from optimizer_pairs import assert_equal_parameters, parameter_pair, set_gradients

import distcompile as dc

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

CASES: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.5, "maximize": True, "weight_decay": 0.1}),
    ("Adam", {}),
    ("Adam", {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}),
    ("Adam", {"amsgrad": True, "maximize": True}),
    ("Adam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("AdamW", {}),
    ("AdamW", {"lr": 0.05, "weight_decay": 0.2, "amsgrad": True}),
    ("AdamW", {"lr": 0.05, "weight_decay": 0.0, "maximize": True}),
    ("RMSprop", {}),
    ("RMSprop", {"momentum": 0.9, "centered": True, "weight_decay": 0.1, "alpha": 0.9}),
    ("RMSprop", {"lr": 0.05, "maximize": True, "foreach": False}),
    ("Adagrad", {}),
    ("Adagrad", {"lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.3, "maximize": True}),
    ("Adadelta", {}),
    ("Adadelta", {"rho": 0.8, "weight_decay": 0.1, "maximize": True}),
    ("Adamax", {}),
    ("Adamax", {"betas": (0.8, 0.95), "weight_decay": 0.1, "maximize": True}),
    ("NAdam", {}),
    ("NAdam", {"weight_decay": 0.1, "momentum_decay": 0.01, "maximize": True}),
    ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"betas": (0.9, 0.9)}),
    ("RAdam", {"weight_decay": 0.1, "maximize": True}),
    ("RAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("ASGD", {}),
    ("ASGD", {"t0": 5.0, "lambd": 0.1, "weight_decay": 0.1, "maximize": True}),
    ("Rprop", {}),
    ("Rprop", {"lr": 0.05, "etas": (0.3, 1.5), "step_sizes": (1e-3, 0.2), "maximize": True}),
    ("Adafactor", {}),
    ("Adafactor", {"eps": (1e-4, 1e-2), "d": 1.5, "weight_decay": 0.1, "beta2_decay": -0.5, "maximize": True}),
]
IDS = [f"{name}-{'-'.join(options)}" for name, options in CASES]


def make(case: tuple[str, dict[str, Any]], dtype: str, fused: bool) -> tuple[Any, Any, list[Any], list[Any]]:
    """(ours, torch's, our parameters, torch's); two groups, the second with a rate of its own."""
    name, options = case
    ours, theirs = parameter_pair(torch, dtype)
    groups = [[{"params": p[:2]}, {"params": p[2:], "lr": 0.02}] for p in (ours, theirs)]
    mine = getattr(dc.optim, name)(groups[0], **options)
    for group in mine.param_groups:
        group["fused"] = fused
    return mine, getattr(torch.optim, name)(groups[1], **options), ours, theirs


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_twenty_steps_with_a_changing_rate_and_a_missing_gradient(case: Any) -> None:
    check_twenty_steps(*make(case, "float32", False))


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_twenty_compiled_steps(case: Any) -> None:
    check_twenty_steps(*make(case, "float32", True))


def check_twenty_steps(mine: Any, want: Any, ours: list[Any], theirs: list[Any]) -> None:
    for step in range(20):
        for optimizer in (mine, want):
            optimizer.param_groups[0]["lr"] *= 0.95
        set_gradients(torch, ours, theirs, step, skip=(1,) if step in (0, 5) else ())
        mine.step()
        want.step()
    assert_equal_parameters(ours, theirs, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_float64_agrees_to_its_last_digits(case: Any) -> None:
    mine, want, ours, theirs = make(case, "float64", False)
    for step in range(20):
        set_gradients(torch, ours, theirs, step)
        mine.step()
        want.step()
    assert_equal_parameters(ours, theirs, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_state_dict_has_torchs_layout(case: Any) -> None:
    mine, want, ours, theirs = make(case, "float32", False)
    set_gradients(torch, ours, theirs, 0)
    mine.step()
    want.step()
    a, b = mine.state_dict(), want.state_dict()
    assert {i: list(s) for i, s in a["state"].items() if s} == {i: list(s) for i, s in b["state"].items() if s}
    for i, entries in b["state"].items():
        for name, value in entries.items():
            np.testing.assert_allclose(a["state"][i][name].numpy(), value.numpy(), rtol=1e-6, atol=1e-7)
    for mine_group, want_group in zip(a["param_groups"], b["param_groups"], strict=True):
        assert {**mine_group, "fused": want_group.get("fused")} == {"fused": None, **want_group}


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_training_goes_on_from_torchs_state_dict(case: Any) -> None:
    _, want, ours, theirs = make(case, "float32", False)
    for step in range(3):
        set_gradients(torch, ours, theirs, step)
        want.step()
    for a, b in zip(ours, theirs, strict=True):
        with dc.no_grad():
            a.copy_(dc.tensor(b.detach().numpy()))
    again, *_ = make(case, "float32", False)
    again = type(again)([{"params": ours[:2]}, {"params": ours[2:]}], lr=1.0)
    again.load_state_dict(want.state_dict())
    for group in again.param_groups:
        group["fused"] = False
    for step in range(3, 6):
        set_gradients(torch, ours, theirs, step)
        again.step()
        want.step()
    assert_equal_parameters(ours, theirs, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_16_bit_parameters_stay_near_a_float32_run(dtype: str) -> None:
    """We compute in float32 and round once; torch's float32 run is the oracle, to the 16-bit dtype's precision."""
    ours, theirs = parameter_pair(torch)
    low = [dc.nn.Parameter(p.detach().to(getattr(dc, dtype))) for p in ours]
    mine, want = dc.optim.AdamW(low, lr=1e-2, fused=False), torch.optim.AdamW(theirs, lr=1e-2)
    for step in range(5):
        set_gradients(torch, ours, theirs, step)
        for a, b in zip(low, ours, strict=True):
            a.grad = b.grad.to(a.dtype)
        mine.step()
        want.step()
    eps = dc.finfo(getattr(dc, dtype)).eps
    assert all(p.dtype is getattr(dc, dtype) for p in low)
    assert_equal_parameters([p.float() for p in low], theirs, rtol=5 * eps, atol=5 * eps)


def test_named_parameters_print_and_defaults_are_torchs() -> None:
    ours, theirs = parameter_pair(torch)
    for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop",
                 "Adafactor", "LBFGS"):  # fmt: skip
        mine = getattr(dc.optim, name)([(f"w{i}", p) for i, p in enumerate(ours)])
        want = getattr(torch.optim, name)([(f"w{i}", p) for i, p in enumerate(theirs)])
        assert repr(mine) == repr(want)
        assert mine.state_dict()["param_groups"] == want.state_dict()["param_groups"]
        assert mine.state_dict()["state"].keys() == want.state_dict()["state"].keys()
        assert mine.defaults == want.defaults
        assert list(mine.defaults) == list(want.defaults)
        for ours_of, theirs_of in zip(mine.param_groups, want.param_groups, strict=True):
            assert list(ours_of) == list(theirs_of)
