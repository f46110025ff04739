"""What hangs on the variables that traced code reads: changed behind the compiled function's back, it is noticed."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from compiler_core.capture import compile
from compiler_core.tensor.creation import full, ones
from compiler_core.tensor.tensor import Tensor
from distcompile import nn

Change = Callable[[], object]
Case = tuple[Callable[..., Tensor], Change]


def scaled_by(k: float) -> tuple[Callable[[Tensor], Tensor], Callable[[float], None]]:
    """A closure, and how to change its variable."""

    def scale(x: Tensor) -> Tensor:
        return x * k

    def change(value: float) -> None:
        nonlocal k
        k = value

    return scale, change


SCALE, CHANGE_SCALE = scaled_by(2.0)
TWOS = full((2,), 2.0)


def with_default(x: Tensor, k: float = 2.0) -> Tensor:
    return x * k


class Base:
    offset = 2.0


class Plain(Base):
    def __init__(self) -> None:
        self.factor = 2.0

    def __getitem__(self, index: int) -> float:
        return self.factor

    @property
    def doubled(self) -> float:
        return 2 * self.factor

    def multiply(self, x: Tensor) -> Tensor:
        return x * self.factor


class Slotted:
    __slots__ = ("factor",)

    def __init__(self) -> None:
        self.factor = 2.0


class Doubling(nn.Module):
    factor = 2.0

    def helper(self, x: Tensor) -> Tensor:
        return x * self.factor

    def forward(self, x: Tensor) -> Tensor:
        return self.helper(x)


def closure_of_a_global() -> Case:
    return lambda x: SCALE(x), lambda: CHANGE_SCALE(CHANGED)


def default_of_a_helper() -> Case:
    return lambda x: with_default(x), lambda: setattr(with_default, "__defaults__", (CHANGED,))


def code_of_a_helper() -> Case:
    def helper(x: Tensor) -> Tensor:
        return x * 2

    return lambda x: helper(x), lambda: setattr(helper, "__code__", (lambda x: x * 7).__code__)


def own_default() -> Case:
    def function(x: Tensor, k: float = 2.0) -> Tensor:
        return x * k

    return function, lambda: setattr(function, "__defaults__", (CHANGED,))


def item_of_an_own_default() -> Case:
    table = {"k": 2.0}

    def function(x: Tensor, *, table: dict[str, float] = table) -> Tensor:
        return x * table["k"]

    return function, lambda: table.update(k=CHANGED)


def closure_of_a_function_in_a_list() -> Case:
    k = 2.0
    functions = [lambda x: x * k]

    def change() -> None:
        nonlocal k
        k = CHANGED

    return lambda x: functions[0](x), change


def instance_of_a_bound_method() -> Case:
    plain = Plain()
    multiply = plain.multiply
    return lambda x: multiply(x), lambda: setattr(plain, "factor", CHANGED)


def compiled_bound_method() -> Case:
    plain = Plain()
    return plain.multiply, lambda: setattr(plain, "factor", CHANGED)


def property_of_an_object() -> Case:
    plain = Plain()
    return lambda x: x * plain.doubled, lambda: setattr(plain, "factor", CHANGED)


def attribute_of_a_base_class() -> Case:
    plain = Plain()
    return lambda x: x * plain.offset, lambda: setattr(Base, "offset", CHANGED)


def attribute_that_hides_the_classs() -> Case:
    plain = Plain()
    return lambda x: x * plain.offset, lambda: setattr(plain, "offset", CHANGED)


def attribute_of_a_function() -> Case:
    def helper(x: Tensor) -> Tensor:
        return x * helper.factor

    helper.factor = 2.0
    return lambda x: helper(x), lambda: setattr(helper, "factor", CHANGED)


def special_method() -> Case:
    plain = Plain()
    return lambda x: x * plain[0], lambda: setattr(Plain, "__getitem__", lambda self, index: CHANGED)


def deleted_slot() -> Case:
    slotted = Slotted()
    return lambda x: x * getattr(slotted, "factor", 3.0), lambda: delattr(slotted, "factor")


def deleted_method() -> Case:
    plain = Plain()
    return lambda x: plain.multiply(x) if hasattr(plain, "multiply") else x, lambda: delattr(Plain, "multiply")


def deleted_item_of_a_keyword_default() -> Case:
    def helper(x: Tensor, *, k: float = 2.0) -> Tensor:
        return x * k

    def change() -> None:
        helper.__kwdefaults__.clear()
        helper.__kwdefaults__["k"] = CHANGED

    return lambda x: helper(x), change


def slot() -> Case:
    slotted = Slotted()
    return lambda x: x * slotted.factor, lambda: setattr(slotted, "factor", CHANGED)


def attribute_named_by_a_text() -> Case:
    plain = Plain()
    return lambda x: x * getattr(plain, "factor"), lambda: setattr(plain, "factor", CHANGED)  # noqa: B009


def part_of_a_partial() -> Case:
    table = {"k": 2.0}
    partial = functools.partial(lambda table, x: x * table["k"], table)
    return lambda x: partial(x), lambda: table.update(k=CHANGED)


def a_type() -> Case:
    kind: Any = nn.ReLU

    def change() -> None:
        nonlocal kind
        kind = nn.Softplus

    return lambda x: x * (2.0 if kind is nn.ReLU else 3.0), change


def container(items: Any, key: Any) -> Case:
    return lambda x: x * float(items[key]), lambda: items.__setitem__(key, CHANGED)


def a_set() -> Case:
    options = {"fast"}
    return lambda x: x * (2.0 if "fast" in options else 3.0), options.clear


def class_attribute_of_a_module() -> Case:
    return Doubling(), lambda: setattr(Doubling, "factor", CHANGED)


def method_replaced_on_a_modules_class() -> Case:
    return Doubling(), lambda: setattr(Doubling, "helper", lambda self, x: x * 7)


def forward_replaced_on_a_childs_class() -> Case:
    return nn.Sequential(Doubling()), lambda: setattr(Doubling, "forward", lambda self, x: x * 7)


def forward_replaced_on_a_library_class() -> Case:
    return nn.Sequential(nn.ReLU()), lambda: setattr(nn.ReLU, "forward", lambda self, x: x * 7)


def tensor_default_of_a_helper() -> Case:
    def helper(x: Tensor, k: Tensor = TWOS) -> Tensor:
        return x * k

    return lambda x: helper(x), lambda: setattr(helper, "__defaults__", (full((2,), 7.0),))


CHANGED = 5.0
CASES: list[Callable[[], Case]] = [
    *(closure_of_a_global, default_of_a_helper, code_of_a_helper, own_default, item_of_an_own_default),
    *(closure_of_a_function_in_a_list, instance_of_a_bound_method, compiled_bound_method, property_of_an_object),
    *(attribute_of_a_base_class, attribute_that_hides_the_classs, slot, attribute_named_by_a_text, part_of_a_partial),
    *(attribute_of_a_function, special_method, deleted_slot, deleted_method, deleted_item_of_a_keyword_default),
    *(a_type, a_set, class_attribute_of_a_module, method_replaced_on_a_modules_class),
    *(forward_replaced_on_a_childs_class, forward_replaced_on_a_library_class, tensor_default_of_a_helper),
]
CONTAINERS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "long list": lambda: ([2.0] * 1000, 500),
    "OrderedDict": lambda: (collections.OrderedDict(k=2.0), "k"),
    "defaultdict": lambda: (collections.defaultdict(float, k=2.0), "k"),
    "deque": lambda: (collections.deque([2.0]), 0),
    "array": lambda: (np.full(3, 2.0), 1),
}


def assert_noticed(function: Callable[..., Tensor], change: Change) -> None:
    compiled = compile(function, backend="aot_eager", fullgraph=True)
    x = ones(2)
    before = compiled(x).tolist()
    assert before == function(x).tolist()
    change()
    assert compiled(x).tolist() == function(x).tolist() != before
    compiled(x)
    assert len(compiled.explain().entries) == 2


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes and functions of this file are as they were, after each test."""
    monkeypatch.setattr(Plain, "__getitem__", Plain.__getitem__)
    monkeypatch.setattr(Plain, "multiply", Plain.multiply)
    for thing, name in ((Base, "offset"), (Doubling, "factor"), (Doubling, "helper"), (Doubling, "forward")):
        monkeypatch.setattr(thing, name, getattr(thing, name))
    monkeypatch.setattr(nn.ReLU, "forward", nn.ReLU.forward)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_change_is_noticed(case: Callable[[], Case]) -> None:
    assert_noticed(*case())


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_changed_item_is_noticed(name: str) -> None:
    assert_noticed(*container(*CONTAINERS[name]()))


def test_a_closure_is_told_from_others_of_the_same_code() -> None:
    (mine, _), (_, change_other) = scaled_by(2.0), scaled_by(3.0)
    compiled = compile(lambda x: [mine][0](x), backend="aot_eager", fullgraph=True)
    for value in (4.0, 5.0):
        assert compiled(ones(2)).tolist() == [2.0, 2.0]
        change_other(value)
    assert len(compiled.explain().entries) == 1


def test_keyword_arguments_in_another_order() -> None:
    def function(**tensors: Tensor) -> Tensor:
        return next(iter(tensors.values())) * 1

    compiled = compile(function, backend="aot_eager", fullgraph=True)
    a, b = ones(2), full((2,), 3.0)
    assert compiled(a=a, b=b).tolist() == [1.0, 1.0]
    assert compiled(b=b, a=a).tolist() == [3.0, 3.0]
