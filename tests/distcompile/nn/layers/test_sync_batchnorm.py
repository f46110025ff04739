"""SyncBatchNorm equals BatchNorm on the joined batch: outputs, gradients, running statistics; uneven, empty batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distcompile as dc
from collectives import Communicator, run_ranks
from compiler_core.errors import ShapeError
from distcompile import nn
from distcompile.distributed import use_communicator

CHANNELS = 3


def batch(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape) * 3 + 1


def run(layer: nn.Module, x: np.ndarray, weights: np.ndarray, compiled: bool = False) -> dict[str, Any]:
    """Two steps; what the last one gives. weights: of the outputs in the loss, so that gradients differ by place."""
    call = dc.compile(layer) if compiled else layer
    for _ in range(2):
        layer.zero_grad()
        tensor = dc.from_numpy(x.copy()).requires_grad_()
        out = call(tensor)
        (out * dc.from_numpy(weights) + out.square()).sum().backward()
    parameters = {f"grad of {name}": p.grad.numpy() for name, p in layer.named_parameters()}
    buffers = {name: b.numpy() for name, b in layer.named_buffers()}
    return {"out": out.detach().numpy(), "input": tensor.grad.numpy(), **parameters, **buffers}


def check_equals_the_joined_batch(sizes: list[int], rest: tuple[int, ...], compiled: bool, **options: Any) -> None:
    whole = batch((sum(sizes), CHANNELS, *rest))
    weights = np.random.default_rng(1).standard_normal(whole.shape)
    reference = (nn.BatchNorm2d if len(rest) == 2 else nn.BatchNorm1d)(CHANNELS, dtype=dc.float64, **options)
    expected = run(reference, whole, weights)
    starts = np.cumsum([0, *sizes])

    def step(world: Communicator) -> dict[str, Any]:
        part = slice(starts[world.rank], starts[world.rank + 1])
        with use_communicator(world):
            layer = nn.SyncBatchNorm(CHANNELS, dtype=dc.float64, **options)
            return run(layer, whole[part], weights[part], compiled)

    got = run_ranks(len(sizes), step)
    for name in ("out", "input"):
        np.testing.assert_allclose(np.concatenate([g[name] for g in got]), expected[name], rtol=1e-9, atol=1e-9)
    for name in expected.keys() - {"out", "input"}:
        mine = sum(g[name] for g in got) if name.startswith("grad") else got[0][name]
        np.testing.assert_allclose(mine, expected[name], rtol=1e-9, atol=1e-9, err_msg=name)
        if not name.startswith("grad"):
            assert all((g[name] == got[0][name]).all() for g in got), name  # the same bits on all ranks


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("rest", [(), (5,), (4, 2)])
@pytest.mark.parametrize("sizes", [[4, 4], [5, 1, 3], [6, 0]])
def test_it_equals_batchnorm_on_the_joined_batch(sizes: list[int], rest: tuple[int, ...], compiled: bool) -> None:
    check_equals_the_joined_batch(sizes, rest, compiled)


@pytest.mark.parametrize("options", [{"momentum": None}, {"affine": False}, {"track_running_stats": False}])
def test_its_options_are_batchnorms(options: dict[str, Any]) -> None:
    check_equals_the_joined_batch([3, 2], (), False, **options)


def test_in_evaluation_and_alone_it_is_batchnorm_and_compiles_whole() -> None:
    x = dc.from_numpy(batch((4, CHANNELS)).astype(np.float32))
    plain, synced = nn.BatchNorm1d(CHANNELS), nn.SyncBatchNorm(CHANNELS)
    np.testing.assert_array_equal(plain(x).detach().numpy(), synced(x).detach().numpy())

    synced.eval()  # once: a thread that sets it while another traces would be a change of what that depends on

    def evaluate(world: Communicator) -> np.ndarray:
        with use_communicator(world):
            result: np.ndarray = dc.compile(synced, fullgraph=True)(x).detach().numpy()
            return result

    for got in run_ranks(2, evaluate):
        np.testing.assert_allclose(got, plain.eval()(x).detach().numpy(), rtol=1e-6)


def test_in_training_it_is_part_of_one_graph() -> None:
    def step(world: Communicator) -> list[float]:
        with use_communicator(world):
            layer = nn.SyncBatchNorm(CHANNELS)
            compiled = dc.compile(layer, fullgraph=True)
            out = compiled(dc.arange(2.0 * CHANNELS).reshape(2, CHANNELS) * (1 + world.rank))
            assert len(compiled.explain().entries) == 1
            found: list[float] = out.sum(0).tolist()
            return found

    first, second = run_ranks(2, step)
    np.testing.assert_allclose(np.add(first, second), 0, atol=1e-5)


def test_one_value_per_channel_is_an_error_on_all_ranks() -> None:
    def step(world: Communicator) -> None:
        with use_communicator(world), pytest.raises(ShapeError, match="more than 1 value per channel"):
            nn.SyncBatchNorm(CHANNELS)(dc.ones(1 - world.rank, CHANNELS))

    run_ranks(2, step)


def test_a_model_is_converted_with_its_parameters_and_buffers() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Sequential(nn.BatchNorm1d(3, affine=False)))
    before = model.state_dict()
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    assert [type(m).__name__ for m in converted.modules()].count("SyncBatchNorm") == 2
    assert list(converted.state_dict()) == list(before)
    assert converted[1].weight is before["1.weight"] or (converted[1].weight == before["1.weight"]).all()
    assert isinstance(nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm2d(4)), nn.SyncBatchNorm)
