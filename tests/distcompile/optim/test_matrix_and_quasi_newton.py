"""Muon and LBFGS, which are not a formula per element, judged by torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distcompile as dc

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

MUON: list[dict[str, Any]] = [
    {},
    {"lr": 0.02, "nesterov": False, "weight_decay": 0.0},
    {"lr": 0.02, "adjust_lr_fn": "match_rms_adamw", "ns_steps": 3, "momentum": 0.8},
]


@pytest.mark.parametrize("options", MUON, ids=lambda o: "-".join(o) or "default")
def test_muon_takes_torchs_steps(options: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(shape).astype("f4") for shape in ((6, 4), (3, 8))]
    ours, theirs = ([p.nn.Parameter(p.tensor(v)) for v in values] for p in (dc, torch))
    mine, want = dc.optim.Muon(ours, **options), torch.optim.Muon(theirs, **options)
    for _ in range(10):
        for a, b in zip(ours, theirs, strict=True):
            grad = rng.standard_normal(tuple(a.shape)).astype("f4")
            a.grad, b.grad = dc.tensor(grad), torch.tensor(grad)
        mine.step(), want.step()
    for a, b in zip(ours, theirs, strict=True):  # bfloat16 inside: products that fall on a tie may round apart
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), atol=10 * 0.02 * 2**-8, rtol=0)
    for i in (0, 1):
        assert mine.state_dict()["state"][i].keys() == want.state_dict()["state"][i].keys() == {"momentum_buffer"}


def test_muon_refuses_what_is_no_matrix() -> None:
    with pytest.raises(ValueError, match="2D"):
        dc.optim.Muon([dc.nn.Parameter(dc.ones(3))])
    with pytest.raises(ValueError, match="not supported"):
        dc.optim.Muon([dc.nn.Parameter(dc.ones(3, 3))], adjust_lr_fn="no such")


def rosenbrock(x: Any) -> Any:
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


LBFGS: list[dict[str, Any]] = [
    {"lr": 0.001, "max_iter": 8},
    {"line_search_fn": "strong_wolfe"},
    {"line_search_fn": "strong_wolfe", "max_iter": 5, "history_size": 3, "lr": 0.5},
]


@pytest.mark.parametrize("options", LBFGS, ids=["fixed", "wolfe", "wolfe-short-memory"])
def test_lbfgs_visits_torchs_points(options: dict[str, Any]) -> None:
    start = np.array([-1.2, 1.0, 0.7, -0.3])
    found: list[tuple[list[float], list[float], Any]] = []
    for p in (dc, torch):
        x = p.nn.Parameter(p.tensor(start))
        optimizer, losses = p.optim.LBFGS([x], **options), []

        def closure(x: Any = x, optimizer: Any = optimizer, losses: list[float] = losses) -> Any:
            optimizer.zero_grad()
            loss = rosenbrock(x)
            loss.backward()
            losses.append(float(loss))
            return loss

        for _ in range(4):
            optimizer.step(closure)
        found.append((losses, x.detach().numpy().tolist(), optimizer.state_dict()["state"][0]))
    (mine, x, state), (want, y, their_state) = found
    np.testing.assert_allclose(mine, want, rtol=1e-6)
    np.testing.assert_allclose(x, y, rtol=1e-6)
    assert state.keys() == their_state.keys() - {"al"}  # "al" is a work space
    assert (state["func_evals"], state["n_iter"]) == (their_state["func_evals"], their_state["n_iter"])
    np.testing.assert_allclose(state["d"].numpy(), their_state["d"].numpy(), rtol=1e-4)


def test_lbfgs_goes_on_from_torchs_state_dict() -> None:
    x, y = dc.nn.Parameter(dc.tensor([-1.0, 2.0])), torch.nn.Parameter(torch.tensor([-1.0, 2.0]))
    mine, want = (p.optim.LBFGS([z], max_iter=3, line_search_fn="strong_wolfe") for p, z in ((dc, x), (torch, y)))

    def run(optimizer: Any, z: Any) -> None:
        def closure() -> Any:
            optimizer.zero_grad()
            loss = rosenbrock(z)
            loss.backward()
            return loss

        optimizer.step(closure)

    run(want, y)
    with dc.no_grad():
        x.copy_(dc.tensor(y.detach().numpy()))
    mine.load_state_dict(want.state_dict())
    run(mine, x), run(want, y)
    np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=1e-4)


def test_lbfgs_says_what_it_does_not_take() -> None:
    p = [dc.nn.Parameter(dc.ones(2)) for _ in range(2)]
    with pytest.raises(ValueError, match="parameter groups"):
        dc.optim.LBFGS([{"params": p[:1]}, {"params": p[1:]}])
    with pytest.raises(ValueError, match="closure"):
        dc.optim.LBFGS(p).step()
    with pytest.raises(ValueError, match="strong_wolfe"):
        dc.optim.LBFGS(p, line_search_fn="no such")


@pytest.mark.parametrize("line_search", [None, "strong_wolfe"])
def test_in_a_compiled_step_each_loss_of_lbfgs_is_one_graph_and_state_is_eagers(line_search: str | None) -> None:
    def train(*, compiles: bool) -> Any:
        dc.manual_seed(0)
        net = dc.nn.Sequential(dc.nn.Linear(4, 8), dc.nn.Tanh(), dc.nn.Linear(8, 1))
        optimizer = dc.optim.LBFGS(net.parameters(), lr=0.5, max_iter=4, line_search_fn=line_search)

        def step(x: Any, y: Any) -> Any:
            def closure() -> Any:
                optimizer.zero_grad()
                loss = dc.nn.functional.mse_loss(net(x), y)
                loss.backward()
                return loss

            return optimizer.step(closure).detach()

        run = dc.compile(step, backend="aot_eager") if compiles else step
        x, y = dc.randn(16, 4), dc.randn(16, 1)
        losses = [float(run(x, y)) for _ in range(10)]
        state = optimizer.state_dict()["state"][0]
        told = {key: value for key, value in state.items() if isinstance(value, (int, float))}
        return run, losses, [p.tolist() for p in net.parameters()], told, state["d"].tolist()

    eager, compiled = train(compiles=False), train(compiles=True)
    assert compiled[1:] == eager[1:]
    assert len(compiled[0].explain().breaks) == 1
    text = str(compiled[0].explain())
    assert "reached from uncompiled code: closure: 1 compiled, 0 graph breaks" in text
