"""What traced code reads beside its arguments: a change recompiles, or the call runs eager; never a stale result."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import os
import random
import threading
import types
from collections.abc import Callable
from random import choice
from typing import Any

import numpy as np
import pytest

from compiler_core.capture import CompiledFunction, compile
from compiler_core.dtype import float32
from compiler_core.tensor.making.creation import full, ones
from compiler_core.tensor.tensor import Tensor
from distcompile import nn


@dataclasses.dataclass
class Inner:
    scale: float = 2.0


@dataclasses.dataclass
class Config:
    offset: float = 1.0
    inner: Inner = dataclasses.field(default_factory=Inner)
    unread: float = 0.0


class Constants:
    FACTOR = 2.0


CONFIG = Config()
SPACE = types.SimpleNamespace(offset=1.0)
TENSORS = [ones(2), full((2,), 2.0)]
TABLE: dict[str, Any] = {"bias": ones(2), "n": 2}
GLOBAL_MODULE = nn.Linear(2, 2)


def value_of(function: Callable[..., Any], x: Tensor) -> list[float]:
    result: list[float] = function(x).tolist()
    return result


def assert_notices(function: Callable[[Tensor], Tensor], change: Callable[[], None]) -> None:
    """Compiled before and after `change` is eager before and after; the change matters, and recompiles once."""
    compiled: CompiledFunction = compile(function, backend="aot_eager", fullgraph=True)
    x = ones(2)
    before = value_of(compiled, x)
    assert before == value_of(function, x)
    change()
    assert value_of(compiled, x) == value_of(function, x) != before
    value_of(compiled, x)
    assert len(compiled.explain().entries) <= 2  # another tensor of the same kind is another input


CASES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[], None], Callable[[], None]]] = {
    "dataclass": (
        lambda x: x + CONFIG.offset,
        lambda: setattr(CONFIG, "offset", 5.0),
        lambda: setattr(CONFIG, "offset", 1.0),
    ),
    "nested dataclass": (
        lambda x: x * CONFIG.inner.scale,
        lambda: setattr(CONFIG.inner, "scale", 5.0),
        lambda: setattr(CONFIG.inner, "scale", 2.0),
    ),
    "replaced nested object": (
        lambda x: x * CONFIG.inner.scale,
        lambda: setattr(CONFIG, "inner", Inner(7.0)),
        lambda: setattr(CONFIG, "inner", Inner()),
    ),
    "namespace": (
        lambda x: x + SPACE.offset,
        lambda: setattr(SPACE, "offset", 5.0),
        lambda: setattr(SPACE, "offset", 1.0),
    ),
    "class attribute": (
        lambda x: x * Constants.FACTOR,
        lambda: setattr(Constants, "FACTOR", 5.0),
        lambda: setattr(Constants, "FACTOR", 2.0),
    ),
    "list of tensors": (
        lambda x: x + TENSORS[1],
        lambda: TENSORS.__setitem__(1, full((2,), 9.0)),
        lambda: TENSORS.__setitem__(1, full((2,), 2.0)),
    ),
    "longer list": (
        lambda x: x + sum(TENSORS[1:]),
        lambda: TENSORS.append(ones(2)),
        lambda: TENSORS.__delitem__(2),
    ),
    "dict": (lambda x: x * TABLE["n"], lambda: TABLE.update(n=3), lambda: TABLE.update(n=2)),
    "global module": (
        lambda x: GLOBAL_MODULE(x),
        lambda: setattr(GLOBAL_MODULE, "weight", nn.Parameter(ones(2, 2))),
        lambda: None,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_changes_are_noticed(name: str) -> None:
    function, change, restore = CASES[name]
    try:
        assert_notices(function, change)
    finally:
        restore()


def test_what_the_code_does_not_mention_is_not_guarded() -> None:
    compiled = compile(lambda x: x + CONFIG.offset, backend="aot_eager", fullgraph=True)
    compiled(ones(2))
    CONFIG.unread += 1
    compiled(ones(2))
    assert len(compiled.explain().entries) == 1


class Model(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.masks = [ones(2), full((2,), 3.0)]
        self.plain = full((2,), 4.0)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.config.offset + self.masks[1] + self.plain


@pytest.mark.parametrize(
    "change",
    [
        lambda m: setattr(m.config, "offset", 9.0),
        lambda m: m.masks.__setitem__(1, ones(2)),
        lambda m: setattr(m, "plain", ones(2)),
        lambda m: setattr(m, "config", Config(3.0)),
    ],
    ids=["attribute of an attribute", "item of a list", "tensor attribute", "replaced attribute"],
)
def test_what_modules_hold_is_guarded(change: Callable[[Model], None]) -> None:
    model = Model(Config())
    compiled = compile(model, backend="aot_eager", fullgraph=True)
    assert value_of(compiled, ones(2)) == value_of(model, ones(2)) == [8.0, 8.0]
    change(model)
    assert value_of(compiled, ones(2)) == value_of(model, ones(2)) != [8.0, 8.0]
    model.plain.add_(1)  # a new value of a guarded tensor is an input, no new entry
    assert value_of(compiled, ones(2)) == value_of(model, ones(2))
    assert len(compiled.explain().entries) <= 2


def test_tensors_by_computed_names() -> None:
    holder = types.SimpleNamespace(tensor=ones(2))
    compiled = compile(lambda x: x + getattr(holder, "".join(["ten", "sor"])), backend="aot_eager", fullgraph=True)
    assert value_of(compiled, ones(2)) == [2.0, 2.0]
    holder.tensor = full((2,), 5.0)
    assert value_of(compiled, ones(2)) == [6.0, 6.0]


def test_gradients_read_in_the_function_are_never_stale() -> None:
    weight = ones(2).requires_grad_()
    compiled = compile(lambda x: x + weight.grad, backend="aot_eager", fullgraph=True)
    for scale in (1.0, 2.0, 3.0):
        weight.grad = None
        (weight * scale).sum().backward()
        assert value_of(compiled, ones(2)) == [1.0 + scale] * 2


@pytest.mark.parametrize(
    "draw",
    [lambda: random.random(), lambda: np.random.rand(), lambda: choice([0.5, 1.5, 2.5, 3.5])],
    ids=["random", "numpy", "choice"],
)
def test_pythons_randomness_is_drawn_in_every_call(draw: Callable[[], float]) -> None:
    def function(x: Tensor) -> Tensor:
        return x * draw()

    def draws(call: Callable[[Tensor], Tensor]) -> list[float]:
        random.seed(0)
        np.random.seed(0)
        return [call(ones(1)).item() for _ in range(3)]

    compiled = compile(function, backend="aot_eager")
    got = draws(compiled)
    assert got == draws(function)
    assert compiled.explain().breaks
    assert len(set(got)) > 1


def test_draws_of_other_threads_are_none_of_the_functions_business() -> None:
    drawn, stop = threading.Event(), threading.Event()

    def background() -> None:
        while not stop.is_set():
            random.gauss(0, 1)
            drawn.set()

    def wait(x: Tensor) -> Tensor:
        drawn.clear()
        assert drawn.wait(timeout=30)
        return x * 2

    thread = threading.Thread(target=background)
    thread.start()
    try:
        assert compile(wait, backend="aot_eager")(ones(1)).tolist() == [2.0]
    finally:
        stop.set()
        thread.join(timeout=30)


def test_functions_around_compiled_modules() -> None:
    model = compile(nn.Linear(2, 2), backend="aot_eager")
    step = compile(lambda x: model(x) * 2, backend="aot_eager", fullgraph=True)
    x = ones(2)
    np.testing.assert_array_equal(step(x).detach().numpy(), (model(x) * 2).detach().numpy())
    graph = dict(step.explain().entries[0].graphs)["forward"]
    assert [node.source for node in graph.inputs if node.role == "parameter"] == ["model.weight", "model.bias"]
    model.weight = nn.Parameter(ones(2, 2))
    np.testing.assert_array_equal(step(x).detach().numpy(), (model(x) * 2).detach().numpy())


def test_a_lazy_name_of_a_module_is_no_reason_to_compile_again() -> None:
    """`module.name` through the module's `__getattr__`, which keeps what it made."""
    lazy = types.ModuleType("lazy")
    made: list[str] = []

    def make(name: str) -> float:
        made.append(name)
        setattr(lazy, name, 3.0)
        return 3.0

    vars(lazy)["__getattr__"] = make
    compiled = compile(lambda x: x * lazy.scale, backend="aot_eager", fullgraph=True)
    assert [compiled(ones(1)).tolist() for _ in range(3)] == [[3.0]] * 3
    assert made == ["scale"]
    assert len(compiled.explain().entries) == 1


def test_a_size_is_an_argument_of_a_function_that_caches_its_results() -> None:
    asked: list[tuple[int, ...]] = []

    @functools.lru_cache
    def plan(shape: tuple[int, ...], times: int) -> tuple[int, int]:
        asked.append(shape)
        return shape[0] * times, len(shape)

    def function(x: Tensor) -> Tensor:
        rows, ndim = plan(x.shape, 2)
        return x * rows + ndim

    compiled = compile(function, backend="aot_eager", fullgraph=True)
    for rows in (2, 2, 3):
        assert compiled(ones(rows, 2)).tolist() == [[2.0 * rows + 2] * 2] * rows
    assert asked == [(2, 2), (3, 2)]


class Settings:
    """A configuration as libraries have it: nested, shared, in a cycle, with a dtype."""

    def __init__(self) -> None:
        self.scale, self.layers, self.dtype = 1.5, [1, 2], float32
        self.named = {"layers": self.layers}
        self.root = self


def test_a_deep_copy_of_a_configuration_is_in_the_graph() -> None:
    settings = Settings()

    def function(x: Tensor) -> Tensor:
        copied = copy.deepcopy(settings)
        copied.layers.append(3)
        assert copied.named["layers"] is copied.layers
        assert copied.root is copied
        assert copied.dtype is float32
        return x * copied.scale + len(copied.layers)

    compiled = compile(function, backend="aot_eager", fullgraph=True)
    assert [compiled(ones(1)).item() for _ in range(2)] == [4.5, 4.5]
    settings.layers.append(9)
    settings.scale = 2.5
    assert [compiled(ones(1)).item() for _ in range(2)] == [6.5, 6.5]
    assert settings.layers == [1, 2, 9]
    assert len(compiled.explain().entries) == 2


class Speaking:
    def __deepcopy__(self, memo: dict[int, Any]) -> Speaking:
        print("copied")
        return Speaking()


@pytest.mark.filterwarnings("ignore:.*a deep copy is half made")
def test_a_deep_copy_that_prints_is_made_once_a_call(capsys: Any) -> None:
    shared = [1]
    both = [Speaking(), shared, shared]

    def function(x: Tensor) -> Tensor:
        _, first, second = copy.deepcopy(both)
        return x * (first is second) + (first is shared)

    compiled = compile(function, backend="aot_eager")
    assert [compiled(ones(1)).item() for _ in range(3)] == [1.0] * 3
    assert capsys.readouterr().out == "copied\n" * 3


def test_the_environment_is_read_as_a_dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Tensor) -> Tensor:
        if "OF_THE_TEST_TOO" in os.environ:
            x = -x
        return x * float(os.environ.get("OF_THE_TEST", "2")) + float(os.getenv("OF_THE_TEST", "1"))

    compiled = compile(function, backend="aot_eager", fullgraph=True)
    assert [compiled(ones(1)).item() for _ in range(2)] == [3.0, 3.0]
    monkeypatch.setenv("OF_THE_TEST", "5")
    assert compiled(ones(1)).item() == 10.0
    monkeypatch.setenv("OF_THE_TEST_TOO", "")
    assert compiled(ones(1)).item() == 0.0


def test_a_signature_is_a_constant() -> None:
    layer = nn.Linear(2, 2)

    def function(x: Tensor, *functions: Callable[..., Any]) -> Tensor:
        return x * sum(len(inspect.signature(one).parameters) for one in functions)

    compiled = compile(function, backend="aot_eager", fullgraph=True)
    assert compiled(ones(1), layer.forward, lambda a, b=1: a).item() == 3.0
    assert compiled(ones(1), layer.forward, lambda *args: args).item() == 2.0
