"""How results lie in memory is how torch's lie: strides, contiguity, which `view` is refused; `layouts.py`.

Strides of dims of one element are of no consequence, and are not compared. Compiled code knows the same strides while
it is traced; its fresh results are row-major.
"""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import numpy as np
import pytest
from layouts import BINARY, IMAGES, LAYOUTS, MATRICES, UNARY, expressions, names_of

import distcompile

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SHAPES = {2: [(3, 4), (1, 3), (3, 1)], 3: [(2, 3, 4), (2, 1, 3)], 4: [(2, 4, 3, 5), (1, 3, 2, 2)]}
FREE = ("rand", "empty", "dropout", "svd", "qr", "topk", "median")  # values are drawn, or one of several right ones


def seen(t: Any, value: Any) -> Any:
    """Of tensors: shape, strides, contiguity; of arrays the same."""
    if isinstance(value, tuple | list):
        return [seen(t, part) for part in value]
    if isinstance(value, np.ndarray):
        steps = tuple(step // value.itemsize for step in value.strides)
        return value.shape, [step for n, step in zip(value.shape, steps) if n > 1]
    if not isinstance(value, t.Tensor):
        return value
    formats = [t.contiguous_format, t.channels_last] if value.dim() == 4 else [t.contiguous_format]
    lies = [step for n, step in zip(value.shape, value.stride()) if n > 1 and value.numel()]
    return tuple(value.shape), lies, [value.is_contiguous(memory_format=f) for f in formats]


def numbers(value: Any) -> Any:
    """What a value holds, as lists."""
    if isinstance(value, tuple | list):
        return [numbers(part) for part in value]
    return value.tolist() if hasattr(value, "tolist") else value


def evaluated(t: Any, text: str, *operands: Any) -> Any:
    """An expression of a table, and how its value lies; None if it is refused."""
    names = {"torch": t, "F": t.nn.functional, "copy": copy, "w": t.ones}
    try:
        value = eval(text, {**names, **dict(zip("xy", operands))})
    except (RuntimeError, ValueError, IndexError):
        return None, None
    return (seen(t, value), shares(t, value, operands)), value


def shares(t: Any, value: Any, operands: Any) -> bool:
    """Whether a tensor shows the memory of an operand."""
    if not isinstance(value, t.Tensor) or not value.numel():
        return False
    if t is torch:
        return any(value.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for x in operands)
    return any(value._cell.root is x._cell.root for x in operands)


def check(text: str, ndim: int, *, pairs: bool) -> None:
    for shape in SHAPES[ndim][: 1 if pairs else None]:
        for first in names_of(shape):
            for second in names_of(shape) if pairs else ["rows"]:
                made = [LAYOUTS[name] for name in (first, second)]
                want, value = evaluated(torch, text, *(make(torch, shape) for make in made))
                got, mine = evaluated(distcompile, text, *(make(distcompile, shape) for make in made))
                assert got == want, f"{text} of {first}, {second}, {shape}"
                if not any(word in text for word in FREE):
                    theirs, ours = numbers(value), numbers(mine)
                    np.testing.assert_allclose(*map(_flat, (ours, theirs)), rtol=1e-3, atol=1e-5, err_msg=text)


def _flat(value: Any) -> list[Any]:
    return [leaf for part in value for leaf in _flat(part)] if isinstance(value, list) else [value or 0]


@pytest.mark.parametrize("ndim", SHAPES)
@pytest.mark.parametrize("text", expressions(UNARY))
def test_results_lie_as_torch_s(text: str, ndim: int) -> None:
    check(text, ndim, pairs=False)


@pytest.mark.parametrize("ndim", SHAPES)
@pytest.mark.parametrize("text", expressions(BINARY))
def test_results_of_two_operands_lie_as_torch_s(text: str, ndim: int) -> None:
    check(text, ndim, pairs=True)


@pytest.mark.parametrize("text", expressions(MATRICES))
def test_products_lie_as_torch_s(text: str) -> None:
    check(text, 2, pairs=True)


@pytest.mark.parametrize("text", expressions(IMAGES))
def test_results_of_images_lie_as_torch_s(text: str) -> None:
    check(text, 4, pairs=bool(re.search(r"\by\b", text)))


@pytest.mark.parametrize("name", names_of((3, 4)))
def test_traced_code_knows_torch_s_strides_and_returns_rows(name: str) -> None:
    def function(x: Any) -> Any:
        copied, more = x.clone(), (x + 1).t()
        facts = [
            copied.stride(),
            copied.is_contiguous(),
            more.stride(),
            more.is_contiguous(),
            x.relu().mul_(2).stride(),
        ]
        return facts, copied * 2, more

    want, *values = function(LAYOUTS[name](torch, (3, 4)))
    native = distcompile.compile(function, fullgraph=True)
    got, *ours = native(LAYOUTS[name](distcompile, (3, 4)))
    assert got == want
    assert numbers(ours) == numbers(values)
    assert all(value.is_contiguous() for value in ours)


@pytest.mark.parametrize("text", ["x.clone().view(-1)", "(x+1).view(-1)", "torch.zeros_like(x).view(2,6)"])
def test_traced_code_refuses_the_views_that_torch_refuses(text: str) -> None:
    native = distcompile.compile(eval(f"lambda x: {text}", {"torch": distcompile}))
    rows, transposed = (LAYOUTS[name](distcompile, (3, 4)) for name in ("rows", "transposed"))
    assert native(rows).numel() == 12
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        native(transposed)
    assert native(rows).numel() == 12


def test_pickled_tensors_lie_as_they_did() -> None:
    for t in (torch, distcompile):
        made = [t.arange(12.0).reshape(3, 4).t() + 1, t.zeros(2, 3, 4, 5).to(memory_format=t.channels_last)]
        again = pickle.loads(pickle.dumps(made))
        assert [x.stride() for x in again] == [(1, 4), (60, 1, 15, 3)]
        assert again[0].tolist() == made[0].tolist()


def test_a_result_that_lies_as_its_operand_is_no_view() -> None:
    for t in (torch, distcompile):
        x = t.arange(12.0).reshape(3, 4).t()
        made = x + 1
        made[0] = 7
        made[:, 1].mul_(2)
        made.add_(1)
        assert made._base is None
        assert made._version == 3
        assert made.tolist() == [[8.0, 15.0, 8.0], [3.0, 13.0, 11.0], [4.0, 15.0, 12.0], [5.0, 17.0, 13.0]]
        assert made.numpy().strides == (4, 16)


def test_parameters_that_are_not_row_major_train() -> None:
    found = []
    for t in (torch, distcompile):
        weight = t.nn.Parameter(t.arange(12.0).reshape(3, 4).t() * 0.1)
        optimizer = t.optim.AdamW([weight], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            (t.ones(2, 4) @ weight).square().sum().backward()
            optimizer.step()
        found.append((weight.stride(), weight.detach().numpy()))
    assert found[0][0] == found[1][0] == (1, 4)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-5)


@pytest.mark.parametrize("is_compiled", [False, True])
def test_gradients_with_a_history_are_rows_for_parameters_that_are(is_compiled: bool) -> None:
    found = []
    for t in (torch, distcompile):
        model = t.nn.Sequential(t.nn.Linear(3, 4), t.nn.Tanh(), t.nn.Linear(4, 2)).double()
        weights = list(model.parameters())
        with t.no_grad():
            for k, p in enumerate(weights):
                p.copy_(t.arange(float(p.numel())).reshape(p.shape) * 0.1 - k * 0.2)
        x, call = t.arange(15.0).reshape(5, 3).double() * 0.1, model
        if is_compiled and t is distcompile:
            call = t.compile(model)
        grads = t.autograd.grad(call(x).square().sum(), weights, create_graph=True)
        flat = t.cat([g.view(-1) for g in grads])
        products = t.autograd.grad((flat * t.arange(float(len(flat)))).sum(), weights)
        call(x).square().sum().backward(create_graph=True)

        def loss(given: Any, model: Any = model, x: Any = x, t: Any = t) -> Any:
            return t.func.functional_call(model, given, (x,)).square().sum()

        by_func = t.func.grad(loss)(dict(model.named_parameters()))
        every = [*grads, *products, *(p.grad for p in weights), *by_func.values()]
        found.append([(g.stride(), g.view(-1).detach().numpy()) for g in every])
    for (strides, values), (ours, mine) in zip(*found):
        assert strides == ours
        np.testing.assert_allclose(mine, values, rtol=1e-9)
