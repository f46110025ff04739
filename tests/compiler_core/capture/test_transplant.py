"""After the graph ran, handles of the trace are real tensors: values, aliasing, gradients, identity, attributes."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from compiler_core.capture import compile
from compiler_core.capture.recipes.plain_numbers import plain_numbers
from compiler_core.capture.recipes.recipes import Recipe
from compiler_core.capture.recipes.transplant import transplant
from compiler_core.capture.trace import CaptureTrace
from compiler_core.ops.registry import use_trace
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.making.creation import ones, tensor
from compiler_core.tensor.tensor import Tensor
from distcompile.nn import Parameter


def run(function: Callable[..., Any], *inputs: Tensor) -> Any:
    """What the first call of the compiled function leaves: handles of its trace, made real."""
    return compile(function, backend="aot_eager", fullgraph=False)(*inputs)


def leaf(*values: float) -> Tensor:
    return tensor(list(values), requires_grad=True)


def test_values_and_history() -> None:
    x = leaf(1.0, 2.0)
    made = run(lambda x: {"y": x * 3}, x)["y"]
    assert made.tolist() == [3, 6]
    made.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3, 3]


def test_what_the_program_gave_the_handle_stays() -> None:
    seen: list[Any] = []

    def function(x: Tensor) -> dict[str, Tensor]:
        y = x * 2
        y.tag = seen  # type: ignore[attr-defined]
        seen.append(weakref.ref(y))
        return {"y": y}

    made = run(function, leaf(1.0))["y"]
    assert made.tag is seen  # type: ignore[attr-defined]
    assert seen[0]() is made


def test_a_view_is_of_its_base() -> None:
    def function(x: Tensor) -> dict[str, Tensor]:
        y = x * 2
        return {"v": y[0], "y": y}

    def same(x: Tensor) -> tuple[Any, ...]:
        made = run(function, x)
        y, v = made["y"], made["v"]
        assert v._base is not None
        assert v._base is y
        v.mul_(5)
        y.add_(1)
        assert v.requires_grad is x.requires_grad
        return y, v

    x = leaf(1.0, 2.0)
    y, v = same(x)
    assert y.tolist() == [11, 5]
    assert v.item() == 11
    (v * y.sum()).backward()
    plain = leaf(1.0, 2.0)
    base = plain * 2
    view = base[0]
    view.mul_(5)
    base.add_(1)
    (view * base.sum()).backward()
    assert x.grad is not None
    assert plain.grad is not None
    assert x.grad.tolist() == plain.grad.tolist()


def test_a_view_made_without_gradients_has_none() -> None:
    def function(x: Tensor) -> dict[str, Tensor]:
        y = x * 2
        with no_grad():
            v = y[:1]
        return {"y": y, "v": v, "d": y.detach()}

    made = run(function, leaf(1.0, 2.0))
    assert made["y"].requires_grad
    assert not made["v"].requires_grad
    assert not made["d"].requires_grad
    made["d"].zero_()
    assert made["y"].tolist() == [0, 0]
    assert made["v"].tolist() == [0]


def test_a_view_of_a_tensor_from_outside() -> None:
    x = leaf(1.0, 2.0)
    made = run(lambda x: {"v": x[1:], "d": x.detach()}, x)
    made["v"].sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0, 1]
    made["d"].zero_()
    assert made["v"].tolist() == [0]


def test_real_already() -> None:
    x = ones(1)
    transplant(x, x)
    assert x.tolist() == [1]


def test_a_parameter_stays_one() -> None:
    def function(x: Tensor) -> dict[str, Tensor]:
        return {"p": Parameter(x * 2)}

    made = run(function, ones(2))["p"]
    assert type(made) is Parameter
    assert made.is_leaf
    assert made.requires_grad
    (made * 3).sum().backward()
    assert made.grad is not None
    assert made.grad.tolist() == [3, 3]


def test_recipes_give_handles_their_class() -> None:
    handle = Parameter(ones(2))
    recipe = Recipe(lambda o: None, lambda t: "fresh[0]", lambda v: None)
    recipe.root("p", [handle, handle])
    real = ones(2).requires_grad_()
    ((made, again),) = recipe.build("classed")([real], [])
    assert made is again is real
    assert (type(made), made.requires_grad, made.is_leaf) == (Parameter, True, True)


def test_recipes_keep_gradients() -> None:
    def function(x: Tensor) -> dict[str, Tensor]:
        y, g = x * 2, x * 0
        g.detach_()
        g.grad = (x * 3).detach()
        return {"y": y, "g": g}

    trace = CaptureTrace("test", ())
    x = leaf(1.0)
    with use_trace(trace):
        handles = function(x)
    order = [handles["y"], handles["g"], handles["g"].grad]
    recipe = Recipe(lambda o: None, lambda t: f"fresh[{[t is o for o in order].index(True)}]", lambda v: None)
    recipe.root("y", handles["y"])
    recipe.root("g", handles["g"])
    _, g = recipe.build("kept")([x * 2, ones(1), ones(1)], [])
    assert g.grad.tolist() == [1]


def test_nothing_of_the_trace_stays_alive() -> None:
    kept: list[Any] = []

    def function(x: Tensor) -> dict[str, Tensor]:
        y = x * 2
        kept.append(weakref.ref(y._cell))
        return {"y": y}

    made = run(function, leaf(1.0))
    gc.collect()
    assert kept[0]() is None
    assert isinstance(made["y"]._cell.value, np.ndarray)


# -- numbers


class Symbol(int):
    pass


class Real(float):
    pass


class Owner:
    __slots__ = ("__dict__", "slot")


def is_symbol(thing: Any) -> bool:
    return isinstance(thing, Symbol | Real)


def owner(**attributes: Any) -> Owner:
    made = Owner()
    made.slot = attributes.pop("slot", None)
    vars(made).update(attributes)
    return made


def closure(value: Any) -> Any:
    def function(default: Any = value) -> Any:
        return value, default

    return function


def cyclic() -> list[Any]:
    items: list[Any] = [Symbol(1)]
    items.append((items, Symbol(2)))
    return items


HOLDERS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "itself": (lambda: Symbol(3), lambda x: x),
    "float": (lambda: Real(0.5), lambda x: x),
    "list": (lambda: [Symbol(3), [Real(1.5)]], lambda x: (x[0], x[1][0])),
    "tuple": (lambda: (1, (Symbol(3),)), lambda x: x[1][0]),
    "dict": (lambda: {"a": Symbol(3), Symbol(4): 5}, lambda x: (x["a"], *x)),
    "set": (lambda: {Symbol(3)}, lambda x: next(iter(x))),
    "attributes": (lambda: owner(a=Symbol(3), slot=(Symbol(4),)), lambda x: (x.a, x.slot[0])),
    "closure": (lambda: closure(Symbol(3)), lambda x: x()),
    "cycle": (cyclic, lambda x: (x[0], x[1][1])),
    "slice": (lambda: [slice(Symbol(3)), range(Symbol(4))], lambda x: (x[0].stop, x[1].stop)),
    "error": (lambda: ValueError(Symbol(3)), lambda x: x.args[0]),
    "stop": (lambda: StopIteration(Symbol(3)), lambda x: (x.value, x.args[0])),
    "array": (lambda: np.array([Symbol(3)], dtype=object), lambda x: x[0]),
    "iterated": (lambda: iter([Symbol(3)]), lambda x: next(x)),
}


@pytest.mark.parametrize("kind", HOLDERS)
def test_numbers_become_plain(kind: str) -> None:
    make, look = HOLDERS[kind]
    thing = make()
    ((after,), left) = plain_numbers([thing], is_symbol)
    assert left == []
    found = look(after)
    for number in found if isinstance(found, tuple) else (found,):
        assert type(number) in (int, float, str)
    assert repr(found) == repr(look(make()))
    if not isinstance(thing, tuple | Symbol | Real):
        assert after is thing


def test_shared_tuples_stay_shared() -> None:
    pair = (Symbol(1), 2)
    ((after,), _) = plain_numbers([[pair, {"p": pair}]], is_symbol)
    assert after[0] is after[1]["p"]
    assert type(after[0][0]) is int


def test_what_is_outside_is_not_entered() -> None:
    outside = [Symbol(1)]
    plain_numbers([[outside]], is_symbol, lambda thing: thing is outside)
    assert type(outside[0]) is Symbol
    plain_numbers([outside], is_symbol, lambda thing: thing is outside)
    assert type(outside[0]) is int


def test_iterators_that_hold_one_are_named() -> None:
    import itertools

    numbers = itertools.repeat(Symbol(1))
    _, left = plain_numbers([[numbers]], is_symbol)
    assert left == [numbers]
