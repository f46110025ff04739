"""compile(): Python that needs the data of a traced value, or that no guard vouches for, runs eager and says so."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from compiler_core.capture import CompiledFunction, compile
from compiler_core.dtype import float32
from compiler_core.errors import GraphBreak
from compiler_core.tensor.making.creation import full, ones, tensor
from compiler_core.tensor.tensor import Tensor
from distcompile import nn, testing


def array(*shape: int, seed: int = 0) -> Tensor:
    return Tensor._wrap(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def entries(compiled: CompiledFunction) -> int:
    return len(compiled.explain().entries)


def branches(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x * 2
    return x * 3


def test_a_break_names_the_users_line_under_fullgraph() -> None:
    with pytest.raises(GraphBreak) as error:
        compile(branches, backend="aot_eager", fullgraph=True)(ones(1))
    line = branches.__code__.co_firstlineno + 1
    assert error.value.where == f"{__file__}:{line}"


def test_a_break_is_remembered_by_its_place_and_nothing_runs_twice() -> None:
    runs = 0

    def function(x: Tensor) -> Tensor:
        nonlocal runs
        runs += 1
        return branches(x)

    compiled = compile(function, backend="aot_eager")
    for n, (given, result) in enumerate([(1.0, 2.0), (-1.0, -3.0)] * 3, 1):
        assert compiled(full((1,), given)).tolist() == [result]
        assert runs == n
    (found,) = compiled.explain().breaks
    assert found.where == f"{__file__}:{branches.__code__.co_firstlineno + 1}"
    assert entries(compiled) <= 4  # up to the branch (twice: the counter becomes an input), and either way on


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * float(x.sum()),
        lambda x: x * x.sum().item(),
        lambda x: x[x > 0].cumsum(0),
        lambda x: x * len(x.numpy().tolist()),
        lambda x: (x, object())[0] * len(x.tolist()),
        lambda x: [x * i for i in range(int(x.sum()))][-1],
        lambda x: x * 2 if bool((x > 0).all()) else x,
        lambda x: {"a": x, "b": {1, 2}}["a"] * np.unique(x.detach().numpy()).sum(),
    ],
)
def test_python_that_needs_data_breaks_and_is_right(function: Callable[[Tensor], Tensor]) -> None:
    x = tensor([1.0, 2.0])
    compiled = compile(function, backend="aot_eager")
    for _ in range(3):
        np.testing.assert_array_equal(compiled(x).numpy(), function(x).numpy())
    assert compiled.explain().breaks


@dataclasses.dataclass(frozen=True)
class Config:
    factor: float


def test_a_break_is_no_exception_that_the_program_sees() -> None:
    def function(x: Tensor) -> Tensor:
        try:
            scale = x.sum().item()
        except Exception:  # noqa: BLE001 (what users write)
            scale = -1.0
        return x * scale

    compiled = compile(function, backend="aot_eager")
    for _ in range(3):
        assert compiled(full((2,), 2.0)).tolist() == [8.0, 8.0]
    with pytest.raises(GraphBreak, match=r"that the graph computes: item\(\)"):
        compile(function, backend="aot_eager", fullgraph=True)(ones(2))


class Mutable:
    factor = 2.0


def test_objects_as_arguments_are_guarded_as_they_are_read() -> None:
    compiled = compile(lambda x, m: x * m.factor, backend="aot_eager", fullgraph=True)
    thing = Mutable()
    assert compiled(ones(1), thing).tolist() == [2.0]
    thing.factor = 5.0
    assert compiled(ones(1), thing).tolist() == [5.0]
    assert compiled(ones(1), Config(3.0)).tolist() == [3.0]
    assert compiled(ones(1), thing).tolist() == [5.0]


def test_objects_from_outside_come_out_as_they_are() -> None:
    thing = Mutable()
    compiled = compile(lambda x: (x * 2, thing), backend="aot_eager", fullgraph=True)
    for _ in range(2):
        result, other = compiled(ones(1))
        assert result.tolist() == [2.0]
        assert other is thing


def test_results_that_cannot_be_rebuilt_run_eager_and_say_so() -> None:
    compiled = compile(lambda x: (x * 2, threading.Lock()), backend="aot_eager")
    for _ in range(2):
        result, lock = compiled(ones(1))
        assert result.tolist() == [2.0]
        assert not lock.locked()


class Cache:
    def __init__(self) -> None:
        self.layers: list[Any] = []
        self.kind = float32


class Layer:
    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys, self.values, self.made = keys, values, Layer


class Sliding(Cache):
    def __init__(self, window: int) -> None:
        super().__init__()
        self.window = window

    def add(self, *tensors: Tensor) -> None:
        self.layers.append(Layer(*tensors))


def cached(x: Tensor) -> tuple[Tensor, Sliding]:
    cache = Sliding(3)
    for factor in (2.0, 3.0):
        y = x * factor
        cache.add(y, y[:1])
    return x.sum(), cache


@pytest.mark.parametrize("backend", ["aot_eager", "codegen"])
def test_objects_that_the_function_makes_come_out_made_anew(backend: str) -> None:
    compiled = compile(cached, backend=backend, fullgraph=True)
    caches = []
    for number in (1.0, 5.0):
        x = full((2,), number, requires_grad=True)
        total, cache = compiled(x)
        assert (type(cache), cache.window, cache.kind) == (Sliding, 3, float32)
        assert [type(layer) for layer in cache.layers] == [Layer, Layer]
        assert [layer.keys.tolist() for layer in cache.layers] == [[2 * number] * 2, [3 * number] * 2]
        assert cache.layers[0].made is Layer
        (total + cache.layers[1].values.sum()).backward()
        assert x.grad is not None
        assert x.grad.tolist() == [4.0, 1.0]
        caches.append(cache)
    assert caches[0] is not caches[1]
    assert caches[0].layers is not caches[1].layers
    caches[1].layers[0].keys.fill_(0)  # views of one memory, as eager
    assert caches[1].layers[0].values.tolist() == [0.0]
    assert caches[0].layers[0].values.tolist() == [2.0]
    assert entries(compiled) == 1


@compile(backend="aot_eager", fullgraph=True)
def same_twice(x: Tensor) -> Any:
    cache = Cache()
    return cache, cache, x * 2


@compile(backend="aot_eager", fullgraph=True)
def slotted(x: Tensor) -> Any:
    return Slotted(x * 2)


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x: Tensor) -> None:
        self.x = x


@compile(backend="aot_eager", fullgraph=True)
def itself(x: Tensor) -> Any:
    cache = Cache()
    cache.layers.append(cache)
    return cache


def test_made_objects_keep_their_identities() -> None:
    for _ in range(2):
        first, second, _ = same_twice(ones(1))
        assert first is second
        around = itself(ones(1))
        assert around.layers[0] is around
        assert slotted(full((1,), 3.0)).x.tolist() == [6.0]


def test_dtypes_and_devices_come_out() -> None:
    out = compile(lambda x: (x * 2, x.dtype, x.device), fullgraph=True)(ones(1))
    assert out[1:] == (float32, ones(1).device)


def test_the_users_own_errors_pass_through() -> None:
    def function(x: Tensor) -> Tensor:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        compile(function, backend="aot_eager")(ones(1))


def test_an_error_in_the_middle_leaves_no_trace_behind() -> None:
    with pytest.raises(ValueError, match="shape"):
        compile(lambda x: x.reshape(5), backend="aot_eager", fullgraph=True)(ones(2, 3))
    assert (ones(1) + 1).tolist() == [2.0]


def test_a_break_in_a_loop_over_many_layers_warms_up() -> None:
    layers = [lambda x, n=n: x * n for n in range(1, 21)]
    seen: list[int] = []

    @compile(backend="aot_eager")
    def function(x: Tensor) -> Tensor:
        for number, layer in enumerate(layers):
            x = layer(x).clamp(max=100.0)
            print(number, file=Out)
            seen.append(number)
        return x

    for n in range(1, 4):
        assert function(ones(1)).tolist() == [100.0]
        assert seen == [*range(20)] * n
    warm = entries(function)
    function(ones(1))
    assert entries(function) == warm


class Out:
    @staticmethod
    def write(text: str) -> None:
        """Nothing is shown."""


class Bound:
    def __init__(self, n: int) -> None:
        self.n = n

    def __index__(self) -> int:
        return self.n


def test_slices_by_objects_of_the_program() -> None:
    compiled = compile(lambda x, bound: x[:bound], backend="aot_eager")
    bound = Bound(1)
    for n in (1, 3, 2):
        bound.n = n
        assert compiled(ones(4), bound).tolist() == [1.0] * n


def test_a_variable_of_an_inner_function_is_set_after_a_break() -> None:
    def step(x: Tensor) -> Tensor:
        doubled = x * x.sum().item()

        def inner() -> Tensor:
            return doubled + 1

        return inner()

    compiled = compile(step, backend="eager")
    for value in (1.0, 2.0):
        assert compiled(full((2,), value)).tolist() == [2 * value**2 + 1] * 2


class Breaking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        time.sleep(0)
        return y.tanh()


@pytest.mark.parametrize("kind", [nn.ModuleList, nn.Sequential])
def test_a_loop_over_modules_that_breaks_is_captured_in_one_call(kind: Callable[..., Any]) -> None:
    """What is left of the loop is an iterator over a dict's values, at later calls too."""
    layers = [Breaking(), Breaking(), Breaking()]
    held = kind(layers) if kind is nn.ModuleList else kind(*layers)

    def through(x: Tensor) -> Tensor:
        for layer in held:
            x = layer(x)
        return x

    compiled = compile(through, backend="eager")
    found = []
    for _ in range(3):
        x = array(2, 3)
        testing.assert_close(compiled(x), through(x))
        found.append(entries(compiled))
    assert found[1:] == found[:1] * 2


def test_what_a_mask_selects_may_be_kept_at_a_break() -> None:
    kept: list[Tensor] = []

    def function(x: Tensor) -> Tensor:
        chosen = x[x > 0]
        kept.append(chosen)
        return x * len(chosen.tolist())

    compiled = compile(function, backend="aot_eager")
    for _ in range(3):
        assert compiled(tensor([1.0, -1.0, 2.0])).tolist() == [2.0, -2.0, 4.0]
    assert [one.tolist() for one in kept] == [[1.0, 2.0]] * 3


def test_what_handles_data_that_a_graph_cannot_take_runs_at_the_first_call_too() -> None:
    log: list[str] = []

    def look_up(table: Tensor, index: Tensor) -> Tensor | str:
        log.append("asked")
        try:
            found = nn.functional.embedding(index, table) + 1
        except IndexError:
            log.append("caught")
            return "nothing"
        log.append("found")
        return found

    table = ones(3, 2)
    for fullgraph in (False, True):
        compiled = compile(look_up, backend="aot_eager", fullgraph=fullgraph)
        for place in (5, 5, 1, 7):
            log.clear()
            result = compiled(table, tensor([place]))
            assert log == ["asked", "caught" if place > 2 else "found"]
            assert result == "nothing" if place > 2 else result.tolist() == [[2.0, 2.0]]
        assert entries(compiled) == 1
