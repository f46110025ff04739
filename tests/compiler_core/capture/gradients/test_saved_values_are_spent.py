"""What a compiled backward writes over: saved values themselves where no later pass can read them, else copies."""

from typing import Any

import pytest

import distcompile as dc
from compiler_core.aot import wrapper
from compiler_core.aot.strategy import LocalPlan
from compiler_core.device import copy_of


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the saved values that backwards have copied."""
    made: list[int] = []

    def copied(array: Any) -> Any:
        made.append(array.size)
        return copy_of(array)

    monkeypatch.setattr(wrapper, "copy_of", copied)
    return made


def two_losses(x: Any) -> Any:
    """Two results, whose gradients need no value in common."""
    a, b = x.reshape(2, 64, 64).unbind()
    for _ in range(3):
        a, b = (a @ a / 32).tanh(), (b @ b / 32).sin()
    return a.sum(), b.sum()


def of_eager(which: tuple[int, ...]) -> Any:
    x = dc.linspace(-1, 1, 8192).requires_grad_()
    sum(two_losses(x)[k] for k in which).backward()
    return x.grad


def test_a_result_that_is_dropped_costs_no_copies(copies: list[int]) -> None:
    x = dc.linspace(-1, 1, 8192).requires_grad_()
    dc.compile(two_losses)(x)[0].backward()
    assert copies == []
    dc.testing.assert_close(x.grad, of_eager((0,)))


@pytest.mark.parametrize("retain", [False, True])
def test_results_that_are_kept_can_be_differentiated_in_turn(copies: list[int], retain: bool) -> None:
    x = dc.linspace(-1, 1, 8192).requires_grad_()
    first, second = dc.compile(two_losses)(x)
    first.backward(retain_graph=retain)
    second.backward()
    dc.testing.assert_close(x.grad, of_eager((0, 1)))


def test_a_graph_that_is_retained_gives_the_same_again(copies: list[int]) -> None:
    x = dc.linspace(-1, 1, 8192).requires_grad_()
    first = dc.compile(two_losses)(x)[0]
    first.backward(retain_graph=True)
    once = x.grad.clone()
    first.backward()
    dc.testing.assert_close(x.grad, 2 * once)
    with pytest.raises(RuntimeError, match=r"second time|freed"):
        first.backward()


def test_a_hook_that_fails_behind_a_call_leaves_what_was_saved(copies: list[int]) -> None:
    """As in torch: values are freed after the hooks. They were written over, and a second pass read what was there."""
    x = dc.linspace(-3, 3, 8192).requires_grad_()
    first = dc.compile(two_losses)(x)[0]
    fails = iter([True])

    def hook(*grads: Any) -> None:
        if next(fails, False):
            raise ValueError("once")

    assert first.grad_fn is not None
    first.grad_fn.register_hook(hook)
    with pytest.raises(ValueError, match="once"):
        first.backward()
    assert x.grad is None
    first.backward()
    y = dc.linspace(-3, 3, 8192).requires_grad_()
    two_losses(y)[0].backward()
    dc.testing.assert_close(x.grad, y.grad)


def test_what_was_written_over_is_not_read_again_if_the_pass_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    x = dc.linspace(-3, 3, 8192).requires_grad_()
    first = dc.compile(two_losses)(x)[0]

    def fail(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(LocalPlan, "segment_done", fail)
    with pytest.raises(MemoryError):
        first.backward()
    monkeypatch.undo()
    with pytest.raises(RuntimeError, match=r"second time|freed"):
        first.backward()
