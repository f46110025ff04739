"""Embedding and EmbeddingBag with sparse=True: gradients, and what optimizers make of them, are torch's.

Programs are written once, in torch's names, and run by both libraries; they give tensors, numbers, and errors by kind.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

IDS = [[1, 4, 1], [0, 6, 2]]


def numbers(value: Any) -> Any:
    """A result as plain numbers and texts, a sparse tensor as (its places, its elements), each place once."""
    if hasattr(value, "is_sparse") and value.is_sparse:
        once = value.detach().coalesce()
        return ["sparse", once.indices().tolist(), numbers(once.values()), list(value.shape)]
    if hasattr(value, "tolist"):
        return (value.detach() if hasattr(value, "detach") else value).tolist()
    if isinstance(value, dict):
        return {key: numbers(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [numbers(one) for one in value]
    return value


def assert_alike(got: Any, expected: Any) -> None:
    """Equal, numbers to rounding."""
    if isinstance(expected, float):
        assert got == pytest.approx(expected, rel=2e-6, abs=1e-7)
    elif isinstance(expected, dict):
        assert list(got) == list(expected)
        for key in expected:
            assert_alike(got[key], expected[key])
    elif isinstance(expected, list):
        assert isinstance(got, list)
        assert len(got) == len(expected)
        for one, theirs in zip(got, expected, strict=True):
            assert_alike(one, theirs)
    else:
        assert got == expected


def table(t: Any, rows: int = 7, width: int = 3) -> Any:
    """f64[rows, width] of set numbers."""
    return t.sin(t.arange(rows * width, dtype=t.float64)).reshape(rows, width)


def layer(t: Any, kind: str, **options: Any) -> Any:
    """A layer with a set table."""
    made = getattr(t.nn, kind)(7, 3, dtype=t.float64, sparse=True, **options)
    with t.no_grad():
        made.weight.copy_(table(t))
    return made


LAYERS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "plain": lambda t: (layer(t, "Embedding"), lambda e: e(t.tensor(IDS))),
    "one": lambda t: (layer(t, "Embedding"), lambda e: e(t.tensor(3))),
    "int32": lambda t: (layer(t, "Embedding"), lambda e: e(t.tensor(IDS, dtype=t.int32))),
    "none": lambda t: (layer(t, "Embedding"), lambda e: e(t.zeros(0, dtype=t.int64))),
    "padding": lambda t: (layer(t, "Embedding", padding_idx=1), lambda e: e(t.tensor(IDS))),
    "padding from the end": lambda t: (layer(t, "Embedding", padding_idx=-1), lambda e: e(t.tensor(IDS))),
    "max_norm": lambda t: (layer(t, "Embedding", max_norm=1.0), lambda e: e(t.tensor(IDS))),
    "twice": lambda t: (layer(t, "Embedding"), lambda e: e(t.tensor([1, 2])) * e(t.tensor([2, 5])).sin()),
    "frozen": lambda t: (layer(t, "Embedding").requires_grad_(False),
                         lambda e: e(t.tensor(IDS)) * t.ones((), requires_grad=True)),
    "bag, mean": lambda t: (layer(t, "EmbeddingBag"), lambda e: e(t.tensor(IDS))),
    "bag, sum": lambda t: (layer(t, "EmbeddingBag", mode="sum"), lambda e: e(t.tensor(IDS))),
    "bag, offsets": lambda t: (layer(t, "EmbeddingBag"),
                               lambda e: e(t.tensor([1, 4, 1, 6]), t.tensor([0, 1, 1]))),
    "bag, last offset": lambda t: (layer(t, "EmbeddingBag", mode="sum", include_last_offset=True),
                                   lambda e: e(t.tensor([1, 4, 1, 6]), t.tensor([0, 3, 4]))),
    "bag, weights": lambda t: (layer(t, "EmbeddingBag", mode="sum"),
                               lambda e: e(t.tensor([1, 4, 1, 6]), t.tensor([0, 2]),
                                           t.tensor([0.5, 2.0, -1.0, 3.0], dtype=t.float64))),
    "bag, padding": lambda t: (layer(t, "EmbeddingBag", padding_idx=4), lambda e: e(t.tensor(IDS))),
}  # fmt: skip

OPTIMIZERS: dict[str, Callable[[Any, Any], Any]] = {
    "SparseAdam": lambda t, p: t.optim.SparseAdam(p),
    "SparseAdam, options": lambda t, p: t.optim.SparseAdam(p, lr=0.1, betas=(0.8, 0.95), eps=1e-3, maximize=True),
    "SGD": lambda t, p: t.optim.SGD(p, lr=0.1),
    "SGD, momentum": lambda t, p: t.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.2),
    "SGD, nesterov": lambda t, p: t.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "SGD, maximize": lambda t, p: t.optim.SGD(p, lr=0.1, maximize=True),
    "SGD, foreach": lambda t, p: t.optim.SGD(p, lr=0.1, momentum=0.5, foreach=True),
    "Adagrad": lambda t, p: t.optim.Adagrad(p, lr=0.1),
    "Adagrad, options": lambda t, p: t.optim.Adagrad(
        p, lr=0.1, lr_decay=0.1, initial_accumulator_value=0.2, eps=1e-6, maximize=True
    ),
}


def gradient(t: Any, name: str) -> Any:
    """The rows, and the gradient of two backward passes."""
    made, forward = LAYERS[name](t)
    found = []
    for _ in range(2):
        rows = forward(made)
        (rows * rows).sum().backward()
        found.append([rows, made.weight.grad])
        found.append(copy.deepcopy(made.weight.grad))
    return [*found, made.weight]


@pytest.mark.parametrize("name", LAYERS)
def test_a_layers_gradient_is_torchs(name: str) -> None:
    assert_alike(numbers(gradient(distcompile, name)), numbers(gradient(torch, name)))


def trained(t: Any, layer_name: str, optimizer_name: str, reasons: list[str] | None = None) -> Any:
    """Losses, the table after each of five steps, the state. reasons: the step is compiled; why its graph ended."""
    made, forward = LAYERS[layer_name](t)
    dense = t.nn.Linear(3, 2, dtype=t.float64)
    with t.no_grad():
        dense.weight.copy_(table(t, 2, 3))
        dense.bias.zero_()
    optimizer, other = OPTIMIZERS[optimizer_name](t, [made.weight]), t.optim.SGD(dense.parameters(), lr=0.05)

    def step() -> Any:
        optimizer.zero_grad()
        other.zero_grad()
        loss = dense(forward(made)).square().sum()
        loss.backward()
        optimizer.step()
        other.step()
        return loss

    run = step if reasons is None else t.compile(step, backend="aot_eager")
    found = [[numbers(run()), numbers(made.weight)] for _ in range(5)]
    if reasons is not None:
        reasons += [report.reason for report in run.explain().breaks]
    return [found, numbers(optimizer.state_dict()["state"])]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", ["plain", "padding", "twice", "none", "bag, mean", "bag, weights"])
def test_training_is_torchs(name: str, optimizer: str) -> None:
    assert_alike(trained(distcompile, name, optimizer), trained(torch, name, optimizer))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", ["plain", "bag, mean"])
def test_a_compiled_step_is_torchs_and_names_what_is_sparse(name: str, optimizer: str) -> None:
    reasons: list[str] = []
    assert_alike(trained(distcompile, name, optimizer, reasons), trained(torch, name, optimizer))
    assert "whose gradient is sparse: no graph holds sparse tensors" in reasons[0]
    assert any("step() takes" in reason and "sparse" in reason for reason in reasons), reasons


def _accumulated(t: Any) -> Any:
    made, forward = LAYERS["plain"](t)
    optimizer = t.optim.SparseAdam(made.parameters())
    found = []
    for _ in range(3):
        optimizer.zero_grad(set_to_none=False)
        for _ in range(2):
            forward(made).square().sum().backward()
        found.append(numbers(made.weight.grad))
        optimizer.step()
    return [*found, numbers(made.weight)]


def _tied(t: Any) -> Any:
    """A table that is looked up sparsely, and multiplied by: its gradient is dense."""
    made, forward = LAYERS["plain"](t)
    (forward(made) @ made.weight.t()).square().sum().backward()
    return numbers(made.weight.grad)


def _scaled(t: Any) -> Any:
    scaler = t.amp.GradScaler("cpu", init_scale=8.0)
    made, forward = LAYERS["plain"](t)
    made = made.float()
    optimizer = t.optim.SGD(made.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        scaler.scale(forward(made).square().sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    return numbers(made.weight), scaler.get_scale()


def _resumed(t: Any) -> Any:
    """A state dict through a file, into another optimizer."""
    found = []
    for name in ("SparseAdam", "SGD, momentum", "Adagrad"):
        made, forward = LAYERS["plain"](t)
        optimizer = OPTIMIZERS[name](t, made.parameters())
        for step in range(4):
            if step == 2:
                file = io.BytesIO()
                t.save(optimizer.state_dict(), file)
                file.seek(0)
                optimizer = OPTIMIZERS[name](t, made.parameters())
                optimizer.load_state_dict(t.load(file))
            optimizer.zero_grad()
            forward(made).square().sum().backward()
            optimizer.step()
        found.append(numbers(made.weight))
    return found


def _hooked(t: Any) -> Any:
    made, forward = LAYERS["plain"](t)
    seen: list[Any] = []
    made.weight.register_hook(lambda g: seen.append(numbers(g)))
    made.weight.register_post_accumulate_grad_hook(lambda p: seen.append(numbers(p.grad)))
    forward(made).sum().backward()
    (by_grad,) = t.autograd.grad(forward(made).square().sum(), made.weight)
    return [*seen, numbers(by_grad)]


def _written_index(t: Any) -> Any:
    index = t.from_numpy(np.array([1, 2]))
    made, _ = LAYERS["plain"](t)
    rows = made(index)
    index.add_(1)
    return rows.sum().backward()


def _layer_and(t: Any, step: Callable[[Any], Any]) -> Any:
    made, forward = LAYERS["plain"](t)
    forward(made).square().sum().backward()
    return step(made)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "accumulated": _accumulated,
    "tied": _tied,
    "scaled": _scaled,
    "resumed": _resumed,
    "hooked": _hooked,
    "an index that is written to": _written_index,
    "zero_grad": lambda t: _layer_and(t, lambda m: (m.zero_grad(set_to_none=False), numbers(m.weight.grad))[1]),
    "repr": lambda t: [repr(layer(t, "Embedding")), repr(layer(t, "EmbeddingBag"))],
    "from_pretrained": lambda t: t.nn.Embedding.from_pretrained(table(t), sparse=True).sparse,
    "functional": lambda t: numbers(t.nn.functional.embedding(t.tensor([1, 2]), table(t), sparse=True)),
    "Adam": lambda t: _layer_and(t, lambda m: t.optim.Adam(m.parameters()).step()),
    "AdamW": lambda t: _layer_and(t, lambda m: t.optim.AdamW(m.parameters()).step()),
    "RMSprop": lambda t: _layer_and(t, lambda m: t.optim.RMSprop(m.parameters()).step()),
    "Adamax": lambda t: _layer_and(t, lambda m: t.optim.Adamax(m.parameters()).step()),
    "NAdam": lambda t: _layer_and(t, lambda m: t.optim.NAdam(m.parameters()).step()),
    "RAdam": lambda t: _layer_and(t, lambda m: t.optim.RAdam(m.parameters()).step()),
    "Adadelta": lambda t: _layer_and(t, lambda m: t.optim.Adadelta(m.parameters()).step()),
    "Rprop": lambda t: _layer_and(t, lambda m: t.optim.Rprop(m.parameters()).step()),
    "SGD, decay": lambda t: _layer_and(t, lambda m: t.optim.SGD(m.parameters(), lr=0.1, weight_decay=0.1).step()),
    "Adagrad, decay": lambda t: _layer_and(
        t, lambda m: t.optim.Adagrad(m.parameters(), lr=0.1, weight_decay=0.1).step()
    ),
    "clip": lambda t: _layer_and(t, lambda m: t.nn.utils.clip_grad_norm_(m.parameters(), 1.0)),
    "dense for SparseAdam": lambda t: (lambda m: (m(t.ones(1, 2)).sum().backward(),
                                                  t.optim.SparseAdam(m.parameters()).step()))(t.nn.Linear(2, 2)),
    "sparse parameters": lambda t: t.optim.SparseAdam([table(t).to_sparse().requires_grad_()]),
    "by frequency": lambda t: layer(t, "Embedding", scale_grad_by_freq=True)(t.tensor(IDS)).sum().backward(),
    "bag, max": lambda t: layer(t, "EmbeddingBag", mode="max")(t.tensor(IDS)).sum().backward(),
}  # fmt: skip


def outcome(program: Callable[[Any], Any], t: Any) -> Any:
    """What it gives, or the kinds of the error that it raises."""
    try:
        return numbers(program(t))
    except (RuntimeError, ValueError) as error:
        return {kind for kind in (RuntimeError, ValueError) if isinstance(error, kind)}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_what_it_gives_with_torch(name: str) -> None:
    got, expected = outcome(PROGRAMS[name], distcompile), outcome(PROGRAMS[name], torch)
    if isinstance(expected, set):
        assert isinstance(got, set), got
        assert got & expected
    else:
        assert_alike(got, expected)
