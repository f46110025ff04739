"""What published scripts lean on beside numbers: iterators of parameters, masks' shapes, error types, printed state.

Each is tried with torch and with distcompile.
"""

from __future__ import annotations

from typing import Any

import pytest

import distcompile

torch = pytest.importorskip("torch")

BOTH = pytest.mark.parametrize("library", [torch, distcompile], ids=["torch", "ours"])


@BOTH
@pytest.mark.parametrize(
    "call",
    [
        lambda x, t: x[t.tensor([True, False])],
        lambda x, t: x[[True, False]],
        lambda x, t: x[t.tensor([False] * 4)],
        lambda x, t: x[:, t.tensor([True, False])],
        lambda x, t: x[..., t.tensor([True])],
        lambda x, t: x[None, t.ones(3, 1) > 0],
        lambda x, t: x[t.ones(1, 4) > 0],
        lambda x, t: x.__setitem__(t.tensor([True]), 1.0),
        lambda x, t: x.__setitem__(t.ones(3, 1) > 0, 1.0),
        lambda x, t: x.__setitem__((..., t.tensor([True])), 1.0),
        lambda x, t: x.__setitem__(t.tensor([True, False]), t.ones(1, 4)),
    ],
)
def test_a_mask_has_the_shape_of_what_it_selects_from(library: Any, call: Any) -> None:
    """A shorter one selected among the first, one of size 1 was broadcast."""
    runs = [call, distcompile.compile(call, backend="eager")] if library is distcompile else [call]
    for run in runs:
        with pytest.raises(IndexError, match="The shape of the mask"):
            run(library.zeros(3, 4), library)


@BOTH
def test_gradients_with_respect_to_what_an_iterator_gives(library: Any) -> None:
    module = library.nn.Linear(2, 1)
    grads = library.autograd.grad(module(library.ones(1, 2)).sum(), module.parameters(), create_graph=True)
    assert [g.tolist() for g in grads] == [[[1, 1]], [1]]
    module(library.ones(1, 2)).sum().backward(inputs=(p for p in module.parameters() if p.dim() == 1))
    assert module.weight.grad is None
    assert module.bias.grad.tolist() == [1]


@BOTH
@pytest.mark.parametrize(
    ("kind", "call"),
    [
        (RuntimeError, lambda t: t.nn.utils.rnn.pack_padded_sequence(t.ones(2, 3, 4), [1, 3], batch_first=True)),
        (RuntimeError, lambda t: t.nn.utils.rnn.pack_padded_sequence(t.ones(2, 3, 4), [3, 0], batch_first=True)),
        (ValueError, lambda t: t.optim.SGD([t.ones(1)], 0.1).load_state_dict({"param_groups": [], "state": {}})),
        (RuntimeError, lambda t: t.nn.Linear(1, 1).load_state_dict({})),
    ],
)
def test_errors_of_arguments_are_those_that_torch_raises(library: Any, kind: type[Exception], call: Any) -> None:
    with pytest.raises(kind):
        call(library)


def printed(library: Any) -> list[str]:
    """What scripts print of a model's state and its optimizer."""
    module = library.nn.Linear(1, 1, bias=False)
    module.load_state_dict({"weight": library.ones(1, 1)})
    groups = [{"params": [library.ones(1)]}, {"params": [library.ones(2)], "lr": 0.5}]
    found = module.load_state_dict({"other": library.ones(1)}, strict=False)
    optimizer = str(library.optim.SGD(groups, 0.1)).split("\n")
    return [str(module.state_dict()), str(found), *(line for line in optimizer if "=" not in line)]


def test_printed_as_by_torch() -> None:
    assert printed(distcompile) == printed(torch)
