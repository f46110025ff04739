"""What was compiled keeps nothing of the program's alive: not the inputs of its first call, no module that it had,
no global that was replaced; and a graph goes with the first thing that it was compiled for.

A case compiles and calls, drops or replaces what it used, and gives the compiled function with weak references to what
must be gone by then.
"""

from __future__ import annotations

import functools
import gc
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from distcompile import nn

Case = Callable[[str], "tuple[Any, list[weakref.ref[Any]]]"]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    CASES[function.__name__.replace("_", " ")] = function
    return function


def refs(*things: Any) -> list[weakref.ref[Any]]:
    """To things, and of tensors to the memory too."""
    cells = [thing._cell for thing in things if isinstance(thing, dc.Tensor)]
    return [weakref.ref(thing) for thing in (*things, *cells)]


class Thing:
    def __init__(self, value: Any) -> None:
        self.value = value


class Net(nn.Module):
    def __init__(self, callback: Any = None) -> None:
        super().__init__()
        self.layer, self.table, self.numbers = nn.Linear(4, 4), {"a": 2.0}, [1, 2]
        self.callback, self.own, self.up = callback, {"self": self}, (self,)
        self.register_buffer("kept", dc.ones(4))

    def forward(self, x: Any) -> Any:
        if self.callback is not None:
            self.callback(1)
        return self.layer(x) * self.table["a"] + sum(self.numbers) + self.kept + len(self.own) + len(self.up)


def of_net(net: Net) -> list[weakref.ref[Any]]:
    return refs(net, net.layer, net.layer.weight, net.kept)


def named(text: str, **names: Any) -> dict[str, Any]:
    """The globals of a function `f` with this text."""
    exec(text, names)
    return names


@case
def inputs_of_the_first_call(backend: str) -> Any:
    compiled = dc.compile(lambda x, xs, t: (x * 2 + xs[0] + t.value).sum(), backend=backend)
    x, y, t = dc.ones(4, requires_grad=True), dc.ones(4), Thing(dc.ones(4))
    compiled(x, [y], t).backward()
    return compiled, refs(x, y, t, t.value)


@case
def inputs_that_are_written_and_viewed(backend: str) -> Any:
    compiled = dc.compile(lambda x, y: (x.add_(1), y.view(2, 2)), backend=backend)
    x, y = dc.ones(4), dc.ones(4)
    compiled(x, y)
    return compiled, refs(x, y)


@case
def arrays(backend: str) -> Any:
    compiled, array = dc.compile(lambda a: a * 2, backend=backend), np.ones(4)
    compiled(array)
    return compiled, refs(array)


@case
def an_attribute_of_an_input(backend: str) -> Any:
    compiled, x = dc.compile(lambda x: x * x.more.value, backend=backend), dc.ones(4)
    x.more = Thing(2.0)
    compiled(x)
    return compiled, refs(x, x.more)


@case
def a_module_that_is_given(backend: str) -> Any:
    compiled, net = dc.compile(lambda x, net: net(x).sum(), backend=backend), Net()
    for _ in range(2):
        compiled(dc.ones(4), net).backward()
    return compiled, of_net(net)


@case
def a_module_in_a_dict(backend: str) -> Any:
    compiled, nets = dc.compile(lambda x, nets: nets["a"](x), backend=backend), {"a": Net()}
    compiled(dc.ones(4), nets)
    return (compiled, nets), of_net(nets.pop("a"))


@case
def a_bound_method_and_a_partial(backend: str) -> Any:
    compiled, net, other = dc.compile(lambda x, f, g: f(x) + g(x), backend=backend), Net(), Net()
    compiled(dc.ones(4), net.forward, functools.partial(other))
    return compiled, of_net(net) + of_net(other)


@case
def a_hook_and_what_it_closes_over(backend: str) -> Any:
    compiled, net, thing = dc.compile(lambda x, net: net(x), backend=backend), Net(), Thing(2.0)
    net.register_forward_hook(lambda module, args, out: out * thing.value)
    compiled(dc.ones(4), net)
    return compiled, refs(net, thing)


@case
def a_callback_of_a_module(backend: str) -> Any:
    class Log:
        def __init__(self) -> None:
            self.seen: list[Any] = []

        def note(self, value: Any) -> None:
            self.seen.append(value)

    compiled, log = dc.compile(lambda x, net: net(x), backend=backend), Log()
    net = Net(log.note)
    for _ in range(3):
        compiled(dc.ones(4), net)
    return compiled, refs(net, log)


@case
def a_closure_that_is_given(backend: str) -> Any:
    thing = Thing(dc.ones(4))
    compiled = dc.compile(lambda x, g: g(x), backend=backend)

    def g(x: Any) -> Any:
        return x + thing.value

    compiled(dc.ones(4), g)
    return compiled, refs(g, thing)


@case
def globals_that_are_replaced(backend: str) -> Any:
    names = named("def f(x): return net(x) + tensor + thing.value + tensors[0] + g(x) + table[key]",
                  net=Net(), tensor=dc.ones(4), thing=Thing(2.0), tensors=[dc.ones(4)], g=lambda x, n=[]: x,
                  key=Thing(0), table={})  # fmt: skip
    names["table"][names["key"]] = 3.0
    compiled = dc.compile(names["f"], backend=backend)
    compiled(dc.ones(4))
    gone = refs(*(names[name] for name in ("net", "tensor", "thing", "g", "key")), names["tensors"][0])
    key = Thing(0)
    names.update(net=Net(), tensor=dc.ones(4), thing=Thing(2.0), tensors=[dc.ones(4)], g=lambda x: x, key=key)
    names["table"] = {key: 3.0}
    return (compiled, names), gone


@case
def what_a_module_holds_no_more(backend: str) -> Any:
    net = Net()
    compiled = dc.compile(net, backend=backend)
    compiled(dc.ones(4)).sum().backward()
    gone = refs(net.layer, net.layer.weight, net.layer.bias, net.kept)
    net.layer, net.kept = nn.Linear(4, 4), dc.ones(4)
    return compiled, gone


@case
def a_parameter_that_is_replaced(backend: str) -> Any:
    net = Net()
    compiled = dc.compile(net, backend=backend)
    compiled(dc.ones(4)).sum().backward()
    gone = refs(net.layer.weight)
    net.layer.weight = nn.Parameter(dc.ones(4, 4))
    return compiled, gone


@case
def memory_that_parameters_had(backend: str) -> Any:
    net = Net()
    compiled = dc.compile(net, backend=backend)
    compiled(dc.ones(4)).sum().backward()
    gone = [weakref.ref(p._cell) for p in net.parameters()]
    net.double()
    compiled(dc.ones(4, dtype=dc.float64))  # only then is it known
    return compiled, gone


@case
def what_calls_leave_behind(backend: str) -> Any:
    kept: list[Any] = []

    def function(x: Any) -> Any:
        kept.append(x * 2)
        return x + 1

    compiled = dc.compile(function, backend=backend)
    results = [compiled(dc.ones(4)) for _ in range(2)]
    gone = refs(*results, *kept)
    kept.clear()
    return compiled, gone


@case
def what_frames_held_at_a_break(backend: str) -> Any:
    def function(x: Any, thing: Any) -> Any:
        y = x * 2
        print(end="")
        return y + thing.value

    compiled, x, thing = dc.compile(function, backend=backend), dc.ones(4), Thing(dc.ones(4))
    compiled(x, thing)
    return compiled, refs(x, thing, thing.value)


@case
def what_a_call_had_that_raised(backend: str) -> Any:
    def function(x: Any, thing: Any) -> Any:
        raise ValueError(x * thing.value)

    compiled, x, thing = dc.compile(function, backend=backend), dc.ones(4), Thing(2.0)
    with pytest.raises(ValueError, match="tensor"):
        compiled(x, thing)
    return compiled, refs(x, thing)


@case
def what_a_call_had_that_runs_eager(backend: str) -> Any:
    def function(x: Any, thing: Any) -> Any:
        lock = threading.Lock()
        print(end="")
        with lock:
            return x * 2 + thing.value

    compiled, x, thing = dc.compile(function, backend=backend), dc.ones(4), Thing(dc.ones(4))
    compiled(x, thing)
    return compiled, refs(x, thing, thing.value)


@case
def a_module_that_only_uncompiled_code_calls(backend: str) -> Any:
    @dc.compiler.disable(recursive=False)
    def plain(net: Any, x: Any) -> Any:
        return net(x)

    compiled, net = dc.compile(lambda x, net: plain(net, x * 2), backend=backend), Net()
    for _ in range(2):
        compiled(dc.ones(4), net)
    return compiled, of_net(net)


@case
def a_model_with_its_optimizer(backend: str) -> Any:
    compiled, net = dc.compile(lambda optimizer: optimizer.step(), backend=backend), nn.Linear(4, 4)
    optimizer = dc.optim.Adam(net.parameters())
    net(dc.ones(4)).sum().backward()
    for _ in range(2):
        compiled(optimizer)
    return compiled, refs(net, optimizer, net.weight)


@case
def a_compiled_function_with_all_that_is_its_own(backend: str) -> Any:
    net = Net()

    def step(x: Any) -> Any:
        return net(x).sum()

    compiled, method, whole = (dc.compile(f, backend=backend) for f in (step, net.forward, net))
    for each in (compiled, method, whole):
        each(dc.ones(4)).sum().backward()
    return None, [*of_net(net), weakref.ref(step), weakref.ref(compiled), weakref.ref(whole)]


@pytest.mark.parametrize("backend", ["eager", "codegen"])
@pytest.mark.parametrize("name", CASES)
def test_what_is_compiled_keeps_nothing_alive(name: str, backend: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled, gone = CASES[name](backend)
    gc.collect()
    assert [type(alive).__name__ for one in gone if (alive := one()) is not None] == []
    del compiled


def test_a_graph_goes_with_what_it_was_compiled_for() -> None:
    compiled, kept = dc.compile(lambda x, net: net(x), backend="eager"), Net()
    compiled(dc.ones(4), kept)
    for _ in range(20):
        compiled(dc.ones(4), nn.Linear(4, 4))
    compiled(dc.ones(4), Net())  # in a circle
    assert len(compiled._state.root.entries) == 2
    gc.collect()
    assert len(compiled._state.root.entries) == 1
    before = len(compiled.explain().entries)
    compiled(dc.ones(4), kept)
    assert len(compiled.explain().entries) == before
    assert "what it was compiled for is there" in compiled.explain().recompiles


def test_what_is_compiled_for_things_that_go_at_once_runs_eager_in_the_end() -> None:
    compiled = dc.compile(lambda x, net: net(x), backend="eager")

    def call(times: int) -> None:
        for _ in range(times):
            compiled(dc.ones(4), nn.Linear(4, 4))

    call(256)
    with pytest.warns(UserWarning, match="was compiled 256 times"):
        call(2)
    assert len(compiled.explain().entries) == 256


def test_a_module_in_the_place_of_another_that_is_gone() -> None:
    """Objects get the addresses of those that are gone: no graph is taken for another's."""
    compiled = dc.compile(lambda x, thing: x * thing.net.numbers[0] + thing.net(x), backend="eager")
    for step in range(12):
        thing = Thing(0)
        thing.net = Net()
        thing.net.numbers = [step, 1]
        assert compiled(dc.ones(4), thing).tolist() == (dc.ones(4) * step + thing.net(dc.ones(4))).tolist()
        del thing
        gc.collect()
