"""Compiled code with subclasses of Tensor and modes: one graph, the same results and classes as eager, guards."""

from __future__ import annotations

from typing import Any

import distcompile as dc
import distcompile.nn.functional as F
from distcompile._C import DisableTorchFunctionSubclass
from distcompile.overrides import TorchFunctionMode

X, Y = dc.arange(6.0).reshape(2, 3), dc.ones(2, 3)
said: list[str] = []


class Plain(dc.Tensor):
    pass


class Logged(dc.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        said.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs)


class Unit(dc.Tensor):
    power: int

    @staticmethod
    def of(x: Any, power: int) -> Unit:
        made: Unit = x.as_subclass(Unit)
        made.power = power
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        powers = [arg.power for arg in args if isinstance(arg, Unit)]
        if isinstance(result, dc.Tensor):
            return Unit.of(result, sum(powers) if func is dc.Tensor.mul else max(powers))
        return result


class Tenfold(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result * 10 if func in (dc.add, dc.Tensor.add) else result


def body(x: Any, y: Any) -> Any:
    z = x * 2 + y
    if z.shape[0] > 1:
        z = z.relu()
    return F.softmax(z, 0)[0]


def one_graph(function: Any, *args: Any) -> Any:
    compiled = dc.compile(function, backend="eager", fullgraph=True)
    results = [compiled(*args) for _ in range(3)]
    assert len(compiled.explain().entries) == 1
    expected = function(*args)
    for result in results:
        assert type(result) is type(expected)
        assert dc.allclose(result.as_subclass(dc.Tensor), expected.as_subclass(dc.Tensor))
    return results


def test_results_keep_the_class() -> None:
    one_graph(body, X.as_subclass(Plain), Y)
    one_graph(body, X, Y.as_subclass(Plain))


def test_a_class_that_is_asked_is_part_of_the_graph_and_what_it_does_is_done_again() -> None:
    said.clear()
    one_graph(body, X.as_subclass(Logged), Y)
    once = ["mul", "add", "__get__", "relu", "softmax", "__getitem__"]
    assert said == once * 4


def test_attributes_that_it_gives_its_results() -> None:
    a, b = Unit.of(X, 2), Unit.of(Y, 3)
    assert [result.power for result in one_graph(lambda a, b: (a * b) + a, a, b)] == [5, 5, 5]


def test_another_class_is_another_entry() -> None:
    compiled = dc.compile(body, backend="eager")
    for kind in (dc.Tensor, Plain, Logged, Plain, dc.Tensor):
        assert type(compiled(X.as_subclass(kind), Y)) is kind
    assert len(compiled.explain().entries) == 3


def test_a_mode_inside_is_captured_and_one_around_runs_eager() -> None:
    def inside(x: Any) -> Any:
        with Tenfold():
            y = dc.add(x, 1) + x
        return y + 1

    one_graph(inside, X)
    compiled = dc.compile(lambda x: x + 1, backend="eager")
    assert compiled(Y).tolist() == (Y + 1).tolist()
    with Tenfold():
        assert compiled(Y).tolist() == (Y * 20).tolist()
    assert compiled(Y).tolist() == (Y + 1).tolist()
    assert "a TorchFunctionMode is on around" in str(compiled.explain())


def test_what_a_builtin_asks_is_entered() -> None:
    compiled = dc.compile(lambda x: len(x) * x.sum(), backend="eager", fullgraph=True)
    for _ in range(2):
        said.clear()
        assert type(compiled(X.as_subclass(Logged))) is Logged
        assert said.count("__len__") == 1


def test_gradients_through_classes() -> None:
    for kind in (Plain, Logged):
        leaf = X.clone().requires_grad_()
        dc.compile(lambda x: (x * x).sum(), fullgraph=True)(leaf.as_subclass(kind)).backward()
        assert leaf.grad.tolist() == (2 * X).tolist()
