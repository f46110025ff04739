"""Recurrent layers and cells, packed sequences: outputs, states and all gradients, judged by torch, also compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.errors import ShapeError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

RNG = np.random.default_rng(0)
X = RNG.standard_normal((7, 4, 5)).astype("f4")  # (T, B, I)
LENGTHS = [3, 7, 1, 5]
LAYERS: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "tanh": ("RNN", (5, 6), {}),
    "relu": ("RNN", (5, 6, 2, "relu"), {"bidirectional": True}),
    "lstm": ("LSTM", (5, 6), {}),
    "lstm-deep": ("LSTM", (5, 6, 2), {"bidirectional": True, "dropout": 0.0}),
    "lstm-projected": ("LSTM", (5, 6), {"num_layers": 2, "proj_size": 3, "bias": False}),
    "gru": ("GRU", (5, 6), {"num_layers": 2}),
    "gru-both-ways": ("GRU", (5, 6), {"bidirectional": True, "bias": False}),
}


def pair(name: str, **more: Any) -> tuple[Any, Any]:
    cls, args, kwargs = LAYERS[name]
    mine, want = (getattr(p.nn, cls)(*args, **kwargs, **more) for p in (dc, torch))
    mine.load_state_dict({key: value.numpy() for key, value in want.state_dict().items()})
    assert list(mine.state_dict()) == list(want.state_dict())
    assert repr(mine) == repr(want)
    return mine, want


def first_states(name: str, layer: Any, shape: tuple[int, ...] = (4,)) -> list[Any]:
    rng = np.random.default_rng(1)
    count = layer.num_layers * (2 if layer.bidirectional else 1)
    widths = [layer.proj_size or 6, 6][: 2 if layer.mode == "LSTM" else 1]
    return [rng.standard_normal((count, *shape, width)).astype("f4") for width in widths]


def flat(out: Any) -> list[Any]:
    return [leaf for part in out for leaf in flat(part)] if isinstance(out, tuple) else [out]


def results(package: Any, layer: Any, call: Any, x: Any, states: list[Any] | None) -> list[Any]:
    """Outputs, last states, and the gradients of input, first states and parameters."""
    tensors = [package.tensor(np.array(value)).requires_grad_() for value in (x, *(states or ()))]
    given = tuple(tensors[1:]) if len(tensors) > 2 else tensors[1] if len(tensors) == 2 else None
    out = flat(call(tensors[0], given))
    sum((part * part.sin()).sum() for part in out).backward()
    leaves = [*tensors, *layer.parameters()]
    return [*(part.detach().numpy() for part in out), *(leaf.grad.numpy() for leaf in leaves)]


def check(mine: list[Any], want: list[Any]) -> None:
    for a, b in zip(mine, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=3e-4, atol=2e-5)


@pytest.mark.parametrize("backend", ["tape", "codegen"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_batch_with_first_states(name: str, backend: str) -> None:
    mine, want = pair(name)
    call = mine if backend == "tape" else dc.compile(mine, fullgraph=True)
    states = first_states(name, want)
    check(results(dc, mine, call, X, states), results(torch, want, want, X, states))


@pytest.mark.parametrize("name", ["relu", "lstm-deep", "gru"])
def test_batch_first_and_no_batch(name: str) -> None:
    mine, want = pair(name, batch_first=True)
    x = X.transpose(1, 0, 2)
    check(results(dc, mine, mine, x, None), results(torch, want, want, x, None))
    mine, want = pair(name)
    states = first_states(name, want, ())
    check(results(dc, mine, mine, X[:, 0], states), results(torch, want, want, X[:, 0], states))


@pytest.mark.parametrize("cls", ["RNN", "LSTM", "GRU"])
def test_one_hidden_unit(cls: str) -> None:
    mine, want = (getattr(package.nn, cls)(5, 1) for package in (dc, torch))
    mine.load_state_dict({key: value.numpy() for key, value in want.state_dict().items()})
    check(results(dc, mine, mine, X, None), results(torch, want, want, X, None))


@pytest.mark.parametrize("backend", ["tape", "codegen"])
def test_a_batch_of_none(backend: str) -> None:
    mine, want = pair("lstm-projected")
    call = mine if backend == "tape" else dc.compile(mine, fullgraph=True)
    states = first_states("lstm-projected", want, (0,))
    got, expected = results(dc, mine, call, X[:, :0], states), results(torch, want, want, X[:, :0], states)
    assert [part.shape for part in got] == [part.shape for part in expected]
    check(got, expected)


@pytest.mark.parametrize("name", ["tanh", "lstm", "lstm-deep", "lstm-projected", "gru-both-ways"])
def test_packed_sequences(name: str) -> None:
    found = []
    for package, layer in zip((dc, torch), pair(name), strict=True):
        rnn = package.nn.utils.rnn

        def call(x: Any, states: Any, rnn: Any = rnn, layer: Any = layer) -> Any:
            packed = rnn.pack_padded_sequence(x, LENGTHS, enforce_sorted=False)
            out, last = layer(packed, states)
            return rnn.pad_packed_sequence(out, padding_value=-1.0, total_length=8)[0], last

        found.append(results(package, layer, call, X, first_states(name, layer)))
    check(*found)


@pytest.mark.parametrize("cls", ["RNNCell", "LSTMCell", "GRUCell"])
@pytest.mark.parametrize("shape", [(4, 5), (5,)])
def test_cells(cls: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    x, states = rng.standard_normal(shape).astype("f4"), [rng.standard_normal((*shape[:-1], 6)).astype("f4")]
    states = states * 2 if cls == "LSTMCell" else states
    mine, want = (getattr(p.nn, cls)(5, 6) for p in (dc, torch))
    mine.load_state_dict({key: value.numpy() for key, value in want.state_dict().items()})
    assert repr(mine) == repr(want)
    check(results(dc, mine, mine, x, states), results(torch, want, want, x, states))
    check(results(dc, mine, mine, x, None)[:1], results(torch, want, want, x, None)[:1])


def test_packing_and_padding_are_torchs() -> None:
    sequences = [X[:n, 0] for n in LENGTHS]
    mine, want = ([p.tensor(s) for s in sequences] for p in (dc, torch))
    ours, theirs = dc.nn.utils.rnn, torch.nn.utils.rnn
    for options in ({}, {"batch_first": True, "padding_value": 2.0}, {"padding_side": "left"}):
        a, b = ours.pad_sequence(mine, **options), theirs.pad_sequence(want, **options)
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    packed, expected = ours.pack_sequence(mine, enforce_sorted=False), theirs.pack_sequence(want, enforce_sorted=False)
    for got, wanted in zip(packed, expected, strict=True):
        np.testing.assert_array_equal(got.numpy(), wanted.numpy())
    for got, original in zip(ours.unpack_sequence(packed), sequences, strict=True):
        np.testing.assert_array_equal(got.numpy(), original)
    with pytest.raises(ValueError, match="sorted"):
        ours.pack_sequence(mine)
    with pytest.raises(ValueError, match="at least 1"):
        ours.pack_padded_sequence(dc.tensor(X), [7, 7, 7, 0])


def test_dropout_between_layers_and_what_is_refused() -> None:
    layer = dc.nn.LSTM(5, 6, num_layers=2, dropout=0.5)
    dc.manual_seed(0)
    first, second = layer(dc.tensor(X))[0].detach().numpy(), layer(dc.tensor(X))[0].detach().numpy()
    assert not np.array_equal(first, second)
    layer.eval()
    np.testing.assert_array_equal(layer(dc.tensor(X))[0].detach().numpy(), layer(dc.tensor(X))[0].detach().numpy())
    with pytest.raises(ValueError, match="nonlinearity"):
        dc.nn.RNN(5, 6, nonlinearity="no such")
    with pytest.raises(ValueError, match="proj_size"):
        dc.nn.GRU(5, 6, proj_size=2)
    with pytest.raises(ShapeError, match="input_size"):
        layer(dc.zeros(7, 4, 6))
    with pytest.raises(ShapeError, match="hidden state"):
        layer(dc.tensor(X), (dc.zeros(1, 4, 6), dc.zeros(1, 4, 6)))
