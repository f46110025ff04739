"""Grad modes as context managers, decorators, functions; nested, re-entered, left by an exception."""

from __future__ import annotations

from typing import Any

import pytest

from compiler_core.tensor.autograd.grad_mode import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from compiler_core.tensor.making import creation


def test_blocks_nest_and_restore() -> None:
    with no_grad():
        assert not is_grad_enabled()
        with enable_grad():
            assert is_grad_enabled()
        assert not is_grad_enabled()
    assert is_grad_enabled()


def test_an_exception_restores_the_mode() -> None:
    with pytest.raises(KeyError), no_grad():
        raise KeyError
    assert is_grad_enabled()


def test_one_block_may_be_entered_again() -> None:
    block = no_grad()
    with block, enable_grad(), block:
        assert not is_grad_enabled()
    assert is_grad_enabled()


def test_decorators_with_and_without_parentheses() -> None:
    @no_grad()
    def one(x: int) -> tuple[int, bool]:
        """Keeps its name."""
        return x, is_grad_enabled()

    @no_grad
    def two() -> bool:
        return is_grad_enabled()

    @inference_mode()
    def three() -> tuple[bool, bool]:
        return is_grad_enabled(), is_inference_mode_enabled()

    @set_grad_enabled(False)
    def four() -> bool:
        return is_grad_enabled()

    assert one(3) == (3, False)
    assert one.__name__ == "one"
    assert not two()
    assert three() == (False, True)
    assert not four()
    assert is_grad_enabled()


def test_a_decorated_function_may_call_itself() -> None:
    @no_grad()
    def down(n: int) -> int:
        return n if n == 0 or is_grad_enabled() else down(n - 1)

    assert down(5) == 0
    assert is_grad_enabled()


def test_set_grad_enabled_acts_at_once() -> None:
    set_grad_enabled(False)
    assert not is_grad_enabled()
    set_grad_enabled(True)
    with set_grad_enabled(False):
        assert not is_grad_enabled()
    assert is_grad_enabled()


def test_inference_mode() -> None:
    x = creation.ones(2, requires_grad=True)
    with inference_mode():
        assert is_inference_mode_enabled()
        y = x * 2.0
    assert not y.requires_grad
    assert not is_inference_mode_enabled()
    with inference_mode(False):
        assert is_grad_enabled()


@pytest.mark.parametrize("make", [no_grad, inference_mode, lambda: set_grad_enabled(False)])
def test_a_decorated_generator_holds_the_mode_while_its_body_runs(make: Any) -> None:
    seen: list[Any] = []

    @make()
    def numbers() -> Any:
        try:
            for i in range(9):
                try:
                    seen.append((yield i, is_grad_enabled()))
                except KeyError:
                    seen.append("thrown")
        finally:
            seen.append(is_grad_enabled())

    it = numbers()
    assert next(it) == (0, False)
    assert is_grad_enabled()  # of who iterates
    assert it.send("sent") == (1, False)
    assert it.throw(KeyError()) == (2, False)
    it.close()
    assert seen == ["sent", "thrown", False]
    assert is_grad_enabled()


def test_a_decorated_generator_returns_its_value() -> None:
    @no_grad()
    def one() -> Any:
        yield 1
        return "end"

    def outer() -> Any:
        seen.append((yield from one()))

    seen: list[Any] = []
    assert list(outer()) == [1]
    assert seen == ["end"]
