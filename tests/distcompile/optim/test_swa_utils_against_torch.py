"""AveragedModel and update_bn, judged by torch's: the same parameters, the same data, the same averages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distcompile as dc

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def model_of(package: Any) -> Any:
    nn = package.nn
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def averaged(package: Any, **options: Any) -> Any:
    """An AveragedModel after four updates from parameters and buffers that both packages draw alike."""
    model = model_of(package)
    swa = package.optim.swa_utils.AveragedModel(model, **options)
    rng = np.random.default_rng(0)
    for _ in range(4):
        with package.no_grad():
            for tensor in (*model.parameters(), model[1].running_mean, model[1].running_var):
                tensor.copy_(package.tensor(rng.standard_normal(tuple(tensor.shape)).astype("f4") ** 2))
        swa.update_parameters(model)
    return swa


def options_of(package: Any, name: str) -> dict[str, Any]:
    utils = package.optim.swa_utils
    return {
        "mean": {},
        "ema": {"avg_fn": utils.get_ema_avg_fn(0.7)},
        "ema-lists": {"multi_avg_fn": utils.get_ema_multi_avg_fn(0.7), "use_buffers": True},
        "swa-fn": {"avg_fn": utils.get_swa_avg_fn()},
        "swa-lists": {"multi_avg_fn": utils.get_swa_multi_avg_fn()},
    }[name]


@pytest.mark.parametrize("name", ["mean", "ema", "ema-lists", "swa-fn", "swa-lists"])
def test_averages_are_torchs(name: str) -> None:
    mine, want = (averaged(p, **options_of(p, name)).state_dict() for p in (dc, torch))
    assert list(mine) == list(want)
    for key, value in want.items():
        np.testing.assert_allclose(mine[key].numpy(), value.numpy(), rtol=1e-5, atol=1e-6, err_msg=key)


def test_batch_norm_statistics_become_the_loaders() -> None:
    data = [np.random.default_rng(i).standard_normal((8, 3)).astype("f4") for i in range(3)]
    mine, want = averaged(dc), averaged(torch)
    mine.eval(), want.eval()
    dc.optim.swa_utils.update_bn([(dc.tensor(x), None) for x in data], mine)
    torch.optim.swa_utils.update_bn([(torch.tensor(x), None) for x in data], want)
    assert not mine.training
    assert mine.module[1].momentum == 0.1
    for key, value in want.state_dict().items():
        np.testing.assert_allclose(mine.state_dict()[key].numpy(), value.numpy(), rtol=1e-4, atol=1e-5, err_msg=key)


def test_arguments_are_checked() -> None:
    utils = dc.optim.swa_utils
    with pytest.raises(ValueError, match="decay"):
        utils.get_ema_avg_fn(1.5)
    with pytest.raises(ValueError, match="Only one"):
        utils.AveragedModel(model_of(dc), avg_fn=utils.get_swa_avg_fn(), multi_avg_fn=utils.get_swa_multi_avg_fn())
    with pytest.raises(ValueError, match="anneal_strategy"):
        utils.SWALR(dc.optim.SGD(model_of(dc).parameters(), lr=0.1), 0.01, anneal_strategy="no such")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "how", [{}, {"multi_avg_fn": dc.optim.swa_utils.get_ema_multi_avg_fn(0.9)}], ids=["mean", "ema"]
)
def test_a_step_is_compiled_for_the_first_update_and_for_all_others(how: dict[str, Any]) -> None:
    """The count is an input: a guard on each one ended in a RecompileLimitError at the ninth step."""
    found = []
    for compiled in (True, False):
        dc.manual_seed(0)
        model = model_of(dc)
        average = dc.optim.swa_utils.AveragedModel(model, **how)

        def step(x: Any, model: Any = model, average: Any = average) -> None:
            with dc.no_grad():
                for p in model.parameters():
                    p.mul_(x)
            average.update_parameters(model)

        run = dc.compile(step, fullgraph=True) if compiled else step
        for k in range(12):
            run(dc.tensor(0.9 + 0.02 * k))
        if compiled:
            assert len(run.explain().entries) == 2
        found.append([int(average.n_averaged), *(p.detach().numpy() for p in average.module.parameters())])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
