"""Plain tensors pay nothing: functions keep identity and code until something overrides, and then their identity."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from typing import Any

import pytest

import distcompile as dc
import distcompile.nn.functional as F
import distcompile.overrides as overrides


def alone(program: str) -> None:
    """Run a program in an interpreter of its own, in which nothing has overridden yet."""
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=120)


def test_methods_run_their_own_code_until_an_instance_overrides() -> None:
    alone("""
        import distcompile as dc
        from compiler_core.overrides import switch
        method, getter = dc.Tensor.exp, dc.Tensor.shape
        code, table = method.__code__, {dc.Tensor.exp: 1, dc.exp: 2, dc.Tensor.shape.__get__: 3}
        class Sub(dc.Tensor):
            pass
        x = dc.ones(2)
        x.exp(), dc.exp(x), x.shape
        assert not switch.is_on and dc.Tensor.exp.__code__ is code
        y = x.as_subclass(Sub)
        assert switch.is_on and dc.Tensor.exp.__code__ is not code
        assert dc.Tensor.exp is method and dc.Tensor.shape is getter
        assert table[dc.Tensor.exp] == 1 and table[dc.exp] == 2 and table[dc.Tensor.shape.__get__] == 3
        assert type(y.exp()) is Sub and type(x.exp()) is dc.Tensor
    """)


def test_subclasses_without_overriding_leave_the_switch_off() -> None:
    alone("""
        import distcompile as dc
        from distcompile import nn
        from compiler_core.overrides import switch
        class Weight(nn.Parameter):
            pass
        w = Weight(dc.ones(2))
        assert type(w) is Weight and type(w * 2) is dc.Tensor and not switch.is_on
    """)


def test_the_first_thing_to_override_may_be_no_tensor() -> None:
    for call in (
        "dc.mean(d)",
        "dc.nn.functional.relu(d)",
        "dc.ones(2) + d",
        "dc.cat([dc.ones(2), d])",
        "dc.add(1, other=d)",
    ):
        alone(f"""
            import distcompile as dc
            import distcompile.nn.functional
            class Duck:
                @classmethod
                def __torch_function__(cls, func, types, args=(), kwargs=None):
                    return func.__name__, types
            d = Duck()
            name, types = {call}
            assert types == (Duck,), types
        """)


def test_a_method_of_a_tensor_does_not_see_the_first_of_them_and_says_so() -> None:
    alone("""
        import distcompile as dc
        class Duck:
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                return func.__name__
        try:
            dc.ones(2).add(Duck())
        except TypeError as error:
            assert "an operand must be a Tensor, not a Duck" in str(error), error
        else:
            raise AssertionError
        assert dc.ones(2).add(Duck()) == "add"
        assert dc.ones(2).view_as(Duck()) == "view_as"
    """)


class Duck:
    def __init__(self, value: Any) -> None:
        self.value = value

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args = [a.value if isinstance(a, Duck) else a for a in args]
        return Duck(func(*args, **(kwargs or {})))


def test_what_is_no_tensor_overrides_functions_and_methods() -> None:
    x, d = dc.ones(2), Duck(dc.tensor([1.0, 2.0]))
    for made in (dc.add(x, d), x + d, x.add(d), F.relu(d), dc.Tensor.add(x, d)):
        assert type(made) is Duck
    assert dc.add(d, x).value.tolist() == [2, 3]


class Never:
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented


def test_a_call_that_nobody_takes_is_a_type_error() -> None:
    with pytest.raises(TypeError, match=r"Multiple dispatch failed for 'torch.add'; all __torch_function__ handlers"):
        dc.add(dc.ones(2), Never())
    with pytest.raises(TypeError, match=r"no implementation found for 'torch.nn.functional.relu' on types"):
        F.relu(Never())
    with pytest.raises(TypeError, match=r"unsupported operand type\(s\) for \+: 'Tensor' and 'Never'"):
        dc.ones(2) + Never()


def test_a_mode_belongs_to_its_thread() -> None:
    said: list[str] = []

    class Mode(overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            said.append(func.__name__)
            return func(*args, **(kwargs or {}))

    with Mode():
        thread = threading.Thread(target=lambda: dc.ones(2).exp())
        thread.start()
        thread.join(timeout=60)
        assert not thread.is_alive()
        dc.ones(2)
    assert said == ["ones"]


def test_what_the_core_calls_in_itself_is_not_handed_over() -> None:
    said: list[str] = []

    class Mode(overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            said.append(func.__name__)
            with self:  # what the function calls is asked too
                return func(*args, **(kwargs or {})) if len(said) < 50 else None

    x = dc.ones(3, 3)
    with Mode():
        overrides.redispatch_function(dc.Tensor.sum, (), (x,))
    assert said == []


def test_signatures_and_pickles_of_functions_stay() -> None:
    import inspect
    import pickle

    assert str(inspect.signature(F.relu)) == "(input: 'Tensor', inplace: 'bool' = False) -> 'Tensor'"
    for function in (dc.add, F.relu, dc.linalg.norm):
        assert pickle.loads(pickle.dumps(function)) is function


def test_a_thread_that_needs_the_switch_waits_until_another_has_turned_it_on() -> None:
    """A rank's first sparse gradient met functions that did not ask yet: another thread was in the middle of them."""
    alone("""
        import threading
        import distcompile as dc
        from compiler_core.overrides import switch
        assert dc.Tensor
        begun, go_on, give_code = threading.Event(), threading.Event(), switch._give_code
        waiting = len(switch._waiting)
        def slow(function, entry):
            begun.set()
            assert go_on.wait(60)
            give_code(function, entry)
        switch._give_code = slow
        threads = [threading.Thread(target=switch.turn_on, daemon=True) for _ in range(2)]
        threads[0].start()
        assert waiting and begun.wait(60)
        threads[1].start()
        threads[1].join(0.2)
        assert threads[1].is_alive(), "it went on while functions still wait"
        go_on.set()
        for thread in threads:
            thread.join(60)
        assert switch.is_on and not switch._waiting
    """)


def test_arguments_in_containers_and_by_name_are_looked_at() -> None:
    class Sub(dc.Tensor):
        pass

    class Seen(overrides.TorchFunctionMode):
        names: list[str]

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.names.append(func.__name__)
            return func(*args, **(kwargs or {}))

    x = dc.ones(2, 2)
    sub = x.as_subclass(Sub)
    assert type(F.relu(input=sub)) is type(dc.stack([x, sub])) is type(F.layer_norm(x, (2,), weight=sub[0])) is Sub
    assert type(F.relu(input=x)) is type(dc.stack([x, x])) is type(F.layer_norm(x, (2,), weight=x[0])) is dc.Tensor
    with Seen() as mode:
        mode.names = []
        F.layer_norm(x, (2,))
        with pytest.raises(RuntimeError):
            dc.cat([])
    assert mode.names == ["layer_norm", "cat"]
