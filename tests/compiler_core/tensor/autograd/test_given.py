"""A gradient on NumPy's memory is read in place by a compiled call, and never kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.tensor.memory.lent import LentCell

SCALED: Callable[..., Any] = lambda x, y: x * y + 1.0  # noqa: E731
PASSED: Callable[..., Any] = lambda x, y: x + y  # noqa: E731
TURNED: Callable[..., Any] = lambda x, y: x.t() + y.t()  # noqa: E731
BACKENDS = {"codegen": "codegen", "aot_eager": "aot_eager", "own": lambda gm, inputs: gm}


def leaves() -> tuple[Any, Any]:
    made = (dc.arange(12, dtype=dc.float32).reshape(3, 4) + k for k in (1, 2))
    return tuple(x.detach().requires_grad_() for x in made)  # type: ignore[return-value]


def shows(tensor: Any, memory: np.ndarray[Any, Any]) -> bool:
    return np.may_share_memory(tensor._read(), memory)


@pytest.fixture
def copies(monkeypatch) -> list[LentCell]:
    """The storages on memory of others that are copied."""
    found: list[LentCell] = []
    taken = LentCell.taken
    monkeypatch.setattr(LentCell, "taken", lambda cell: (found.append(cell), taken(cell))[1])
    return found


@pytest.mark.parametrize("function", [SCALED, PASSED, TURNED], ids=["scaled", "passed", "turned"])
@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
def test_gradients_are_those_of_eager_and_nobodys_memory(function, backend) -> None:
    (x, y), (a, b) = leaves(), leaves()
    out = dc.compile(function, backend=backend)(x, y)
    memory = np.arange(12, dtype=np.float32).reshape(out.shape)
    out.backward(dc.from_numpy(memory))
    function(a, b).backward(dc.from_numpy(memory.copy()))
    assert not shows(x.grad, memory)
    assert not shows(y.grad, memory)
    memory[:] = 7
    np.testing.assert_array_equal(x.grad.numpy(), a.grad.numpy())
    np.testing.assert_array_equal(y.grad.numpy(), b.grad.numpy())


def test_a_compiled_call_reads_it_in_place(copies) -> None:
    x, y = leaves()
    memory = np.ones((3, 4), np.float32)
    dc.compile(SCALED)(x, y).backward(dc.from_numpy(memory))
    assert not copies
    np.testing.assert_array_equal(memory, 1)
    SCALED(x, y).backward(dc.from_numpy(memory))
    assert copies


def test_gradients_that_are_kept_are_copies() -> None:
    (x, y), memory = leaves(), np.ones((3, 4), np.float32)
    out = dc.compile(SCALED)(x, y)
    out.retain_grad()
    out.backward(dc.from_numpy(memory))
    assert not shows(out.grad, memory)


def test_gradients_that_hooks_see_are_copies() -> None:
    (x, y), memory, seen = leaves(), np.ones((3, 4), np.float32), []
    out = dc.compile(SCALED)(x, y)
    out.register_hook(lambda g: seen.append(g))
    out.backward(dc.from_numpy(memory))
    assert len(seen) == 1
    assert not shows(seen[0], memory)


def test_gradients_that_are_asked_for_are_copies() -> None:
    (x, y), memory = leaves(), np.ones((3, 4), np.float32)
    out = dc.compile(SCALED)(x, y)
    of_out, of_x = dc.autograd.grad(out, [out, x], dc.from_numpy(memory))
    assert not shows(of_out, memory)
    np.testing.assert_array_equal(of_x.numpy(), y.detach().numpy())


def test_two_gradients_of_one_result_are_added_beside_them() -> None:
    (x, y), one, two = leaves(), np.ones((3, 4), np.float32), np.full((3, 4), 2, np.float32)
    out = dc.compile(SCALED)(x, y)
    dc.autograd.backward([out, out], [dc.from_numpy(one), dc.from_numpy(two)])
    np.testing.assert_array_equal(x.grad.numpy(), 3 * y.detach().numpy())
    assert (one.max(), two.max()) == (1, 2)


def test_a_window_of_an_array(copies) -> None:
    (x, y), memory = leaves(), np.arange(24, dtype=np.float32).reshape(3, 8)
    dc.compile(SCALED)(x, y).backward(dc.from_numpy(memory)[:, ::2])
    assert not copies
    np.testing.assert_array_equal(x.grad.numpy(), memory[:, ::2] * y.detach().numpy())
