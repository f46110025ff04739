"""Parametrised weights and fused batch norms, judged by torch: values, gradients, state dict keys; also compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distcompile as dc
from distcompile.nn.utils import fusion, parametrizations, parametrize

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

X = np.random.default_rng(0).standard_normal((5, 4)).astype("f4")


def results(package: Any, layer: Any, call: Any) -> list[Any]:
    """Outputs of two calls, the parameters' gradients, and the state."""
    outs = [call(package.tensor(X)) for _ in range(2)]
    sum((out * out.sin()).sum() for out in outs).backward()
    grads = [parameter.grad for parameter in layer.parameters()]
    return [t.detach().numpy() for t in (*outs, *grads, *layer.state_dict().values())]


@pytest.mark.parametrize("backend", ["tape", "codegen"])
@pytest.mark.parametrize("kind", ["weight_norm", "spectral_norm"])
def test_norms_of_weights_are_torchs(kind: str, backend: str) -> None:
    mine = getattr(parametrizations, kind)(dc.nn.Linear(4, 3))
    want = getattr(torch.nn.utils.parametrizations, kind)(torch.nn.Linear(4, 3))
    assert sorted(mine.state_dict()) == sorted(want.state_dict())
    mine.load_state_dict({key: value.numpy().copy() for key, value in want.state_dict().items()})
    names = list(mine.state_dict())
    call = mine if backend == "tape" else dc.compile(mine)
    ours, theirs = results(dc, mine, call), results(torch, want, want)
    assert names == list(want.state_dict())
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def test_a_parametrization_is_registered_assigned_and_removed() -> None:
    class Doubled(dc.nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2

        def right_inverse(self, x: Any) -> Any:
            return x / 2

    layer = dc.nn.Linear(4, 3)
    before = layer.weight.detach().numpy().copy()
    parametrize.register_parametrization(layer, "weight", Doubled())
    assert parametrize.is_parametrized(layer, "weight")
    assert list(dict(layer.named_parameters())) == ["bias", "parametrizations.weight.original"]
    np.testing.assert_allclose(layer.weight.detach().numpy(), before)
    layer.weight = dc.ones(3, 4)
    np.testing.assert_allclose(layer.parametrizations.weight.original.detach().numpy(), 0.5)
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is dc.nn.Linear
    np.testing.assert_allclose(layer.weight.detach().numpy(), 1.0)
    with pytest.raises(ValueError, match="no parameter"):
        parametrize.register_parametrization(layer, "no_such", Doubled())


def test_a_batch_norm_is_folded_into_the_layer_before_it() -> None:
    layer, norm = dc.nn.Linear(4, 3), dc.nn.BatchNorm1d(3)
    norm(layer(dc.tensor(X)))
    expected = norm.eval()(layer.eval()(dc.tensor(X))).detach().numpy()
    fused = fusion.fuse_linear_bn_eval(layer, norm)
    np.testing.assert_allclose(fused(dc.tensor(X)).detach().numpy(), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="eval"):
        fusion.fuse_linear_bn_eval(layer.train(), norm)


@pytest.mark.parametrize("backend", ["tape", "codegen"])
def test_weight_norm_under_its_older_name(backend: str) -> None:
    mine, want = dc.nn.utils.weight_norm(dc.nn.Linear(4, 3)), torch.nn.utils.weight_norm(torch.nn.Linear(4, 3))
    assert list(mine.state_dict()) == list(want.state_dict())
    mine.load_state_dict({key: value.numpy().copy() for key, value in want.state_dict().items()})
    call = mine if backend == "tape" else dc.compile(mine, fullgraph=True)
    for a, b in zip(results(dc, mine, call), results(torch, want, want), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
    expected = mine(dc.tensor(X)).detach().numpy()
    dc.nn.utils.remove_weight_norm(mine)
    assert type(mine) is dc.nn.Linear
    np.testing.assert_allclose(mine(dc.tensor(X)).detach().numpy(), expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="not found"):
        dc.nn.utils.remove_weight_norm(mine)


@pytest.mark.parametrize("trivialized", [True, False])
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
@pytest.mark.parametrize("orthogonal_map", [None, "matrix_exp", "cayley", "householder"])
def test_orthogonal_is_torchs(orthogonal_map: str | None, shape: tuple[int, int], trivialized: bool) -> None:
    rows, columns = shape
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, columns)).astype("f4")
    layers = []
    for lib in (dc, torch):
        layer = lib.nn.Linear(columns, rows)
        options = {"orthogonal_map": orthogonal_map, "use_trivialization": trivialized}
        layers.append(lib.nn.utils.parametrizations.orthogonal(layer, **options))
    mine, theirs = layers
    assert list(mine.state_dict()) == list(theirs.state_dict())
    weight = mine.weight.detach().numpy()
    tall = weight if rows >= columns else weight.T
    np.testing.assert_allclose(tall.T @ tall, np.eye(tall.shape[1]), atol=1e-5)
    state = {k: v.numpy() for k, v in mine.state_dict().items()}
    key = "parametrizations.weight.original"
    state[key] = state[key] + 0.3 * rng.standard_normal(shape).astype("f4")
    outs = []
    for lib, layer in ((dc, mine), (torch, theirs)):
        layer.load_state_dict({k: lib.tensor(v) for k, v in state.items()})
        out = layer(lib.tensor(x))
        out.cos().sum().backward()
        outs.append([out.detach().numpy(), *(p.grad.numpy() for p in layer.parameters())])
    for got, want in zip(*outs, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


def test_older_spectral_norm_is_torchs() -> None:
    mine, theirs = dc.nn.utils.spectral_norm(dc.nn.Linear(4, 3)), torch.nn.utils.spectral_norm(torch.nn.Linear(4, 3))
    assert set(mine.state_dict()) == set(theirs.state_dict())
    mine.load_state_dict(theirs.state_dict())
    x = np.random.default_rng(0).standard_normal((2, 4)).astype("f4")
    for training in (True, True, False):
        outs = []
        for lib, layer in ((dc, mine), (torch, theirs)):
            layer.train(training)
            layer.zero_grad()
            out = layer(lib.tensor(x))
            out.square().sum().backward()
            outs.append((out.detach().numpy(), layer.weight_orig.grad.numpy(), layer.weight_u.numpy()))
        for got, want in zip(*outs, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    weight = mine.weight.detach().numpy()
    dc.nn.utils.remove_spectral_norm(mine)
    assert list(mine.state_dict()) == ["bias", "weight"]
    np.testing.assert_array_equal(mine.weight.detach().numpy(), weight)
    with pytest.raises(ValueError, match="not found"):
        dc.nn.utils.remove_spectral_norm(mine)


class Counted(dc.nn.Module):
    calls = 0

    def forward(self, weight: Any) -> Any:
        Counted.calls += 1
        return weight * 2


def test_a_cached_parametrization_is_computed_once_and_anew_after_a_write() -> None:
    layer = dc.nn.Linear(3, 3)
    parametrize.register_parametrization(layer, "weight", Counted())
    Counted.calls = 0
    with parametrize.cached():
        assert layer.weight is layer.weight
    assert Counted.calls == 1
    assert layer.weight is not layer.weight


def test_parametrizations_are_transferred_as_torchs() -> None:
    outs = []
    for lib, tool in ((dc, parametrize), (torch, torch.nn.utils.parametrize)):
        source, target = lib.nn.Linear(4, 3), lib.nn.Linear(4, 3)
        lib.nn.utils.parametrizations.weight_norm(source)
        tool.transfer_parametrizations_and_params(source, target, "weight")
        np.testing.assert_allclose(target.weight.detach().numpy(), source.weight.detach().numpy(), rtol=1e-6)
        assert target.parametrizations.weight.original0 is source.parametrizations.weight.original0
        outs.append(list(target.state_dict()))
    assert outs[0] == outs[1]
    with pytest.raises(ValueError, match="no such parametrization"):
        parametrize.transfer_parametrizations_and_params(dc.nn.Linear(1, 1), dc.nn.Linear(1, 1))


def test_conv_tbc_is_torchs() -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype("f4") for shape in ((6, 2, 3), (3, 3, 4), (4,))]
    got = dc.nn.functional.conv_tbc(*map(dc.tensor, arrays), pad=1)
    np.testing.assert_allclose(got.numpy(), torch.conv_tbc(*map(torch.tensor, arrays), 1).numpy(), rtol=1e-4, atol=1e-5)
    layer = dc.nn.Conv2d(1, 1, 1)
    assert dc.nn.utils.convert_conv2d_weight_memory_format(layer, dc.channels_last) is layer
