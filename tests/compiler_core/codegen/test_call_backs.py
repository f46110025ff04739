"""Routines that native code calls NumPy back for: strides, errors, text, every backend, and what `explain` says."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from native_harness import compile_programs

import distcompile as dc
from compiler_core.capture.compiled.function import CompiledFunction
from compiler_core.dtype import float32, int64
from compiler_core.errors import GraphError
from compiler_core.loop_ir.interpret import interpret_program
from compiler_core.loop_ir.ir import Buffer, Program, RoutineCall, Slot, View
from compiler_core.loop_ir.parse import parse_program
from compiler_core.loop_ir.verify import verify_program
from compiler_core.ops.routine import ROUTINES, Strided, call_back
from compiler_core.tensor.tensor import Tensor


def argsort_program(layout: Strided, offset: int = 0, result: str = "y") -> Program:
    """The places along dim 0 of a part of `x`, 24 numbers."""
    out = Strided(int64, layout.shape, (layout.shape[1], 1))
    attrs = (("descending", False), ("dim", 0))
    call = RoutineCall(ROUTINES["argsort"], (View(Slot("x", offset), layout),), View(Slot(result), out), attrs)
    buffers = (Buffer("x", float32, 24, "input"), Buffer("y", int64, out.numel, "output"))
    return Program("program", buffers, (call,), ("x",), ("y",))


TRANSPOSED = Strided(float32, (4, 5), (1, 4))


def test_text_reads_back() -> None:
    program = argsort_program(TRANSPOSED, 4)
    verify_program(program)
    text = str(program)
    assert "routine argsort (x+4: f32 (4, 5) (1, 4)) -> y: i64 (4, 5) (5, 1) descending=False dim=0" in text
    assert parse_program(text) == program


@pytest.mark.parametrize("layout", [TRANSPOSED, Strided(float32, (4, 5), (0, 2)), Strided(float32, (3, 2), (8, 3))])
def test_operands_are_read_by_their_strides(layout: Strided) -> None:
    x = np.random.default_rng(0).standard_normal(24).astype(np.float32)
    shown = np.lib.stride_tricks.as_strided(x[2:], layout.shape, [4 * s for s in layout.strides])
    program = argsort_program(layout, 2)
    np.testing.assert_array_equal(interpret_program(program, [x])[0].reshape(layout.shape), np.argsort(shown, 0))


@pytest.mark.parametrize(
    ("program", "complaint"),
    [
        (argsort_program(TRANSPOSED, 5), "leaves its buffer"),
        (argsort_program(Strided(int64, (4, 5), (5, 1))), "leaves its buffer"),
        (argsort_program(Strided(float32, (4, 5), (5, -1))), "no such strides"),
        (argsort_program(Strided(float32, (4, 5), (5, 1)), result="x"), "leaves its buffer"),
    ],
)
def test_the_verifier_refuses(program: Program, complaint: str) -> None:
    with pytest.raises(GraphError, match=complaint):
        verify_program(program)


def divisors(x: Any) -> Any:
    return dc.gcd(dc.transpose(x * 20, 0, 1).long(), dc.tensor(12))


def expected_divisors(x: Tensor) -> np.ndarray[Any, Any]:
    return np.gcd((x.numpy().T * np.float32(20)).astype(np.int64), 12)


def test_native_code_goes_on_around_a_call_back() -> None:
    x = dc.randn(6, 7)
    compiled = dc.compile(lambda x: (divisors(x).float() + x.t()).sum(0), fullgraph=True)
    expected = (expected_divisors(x) + x.numpy().T).sum(0)
    np.testing.assert_allclose(compiled(x).numpy(), expected, rtol=1e-5)
    text = str(compiled.explain())
    assert "calls back into NumPy: gcd in the forward (its number of steps" in text
    assert "test_call_backs.py" in text


@pytest.mark.parametrize("backend", ["aot_eager", "codegen", "triton"])
def test_every_backend_calls_back(backend: str) -> None:
    if backend == "triton":
        pytest.importorskip("triton")
    x = dc.randn(4, 5)
    compiled = dc.compile(divisors, backend=backend, fullgraph=True)
    np.testing.assert_array_equal(compiled(x).numpy(), expected_divisors(x))


class Odd(Exception):
    """Raised by a routine."""


def raises_for_negative(xp: Any, x: np.ndarray[Any, Any], dim: int, descending: bool) -> np.ndarray[Any, Any]:
    if (x < 0).any():
        raise Odd(f"{threading.current_thread().name}")
    return np.argsort(x, dim)


@pytest.fixture
def picky(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ROUTINES, "argsort", ROUTINES["argsort"])  # put back when the test ends
    call_back("argsort", raises_for_negative, "test")


@pytest.mark.usefixtures("picky")
def test_what_a_routine_raises_reaches_the_caller(tmp_path: Any) -> None:
    (run,) = compile_programs([argsort_program(TRANSPOSED)], tmp_path)
    good = np.arange(24, dtype=np.float32)
    assert run([good])[0].tolist() == np.repeat(np.arange(4), 5).tolist()
    with pytest.raises(Odd, match="MainThread"):
        run([-good])
    assert run([good])[0].tolist() == np.repeat(np.arange(4), 5).tolist()


@pytest.mark.usefixtures("picky")
def test_threads_get_their_own_errors(tmp_path: Any) -> None:
    (run,) = compile_programs([argsort_program(TRANSPOSED)], tmp_path)
    seen: dict[str, str] = {}

    def work(sign: float) -> None:
        name = threading.current_thread().name
        for _ in range(50):
            try:
                run([sign * np.arange(24, dtype=np.float32)])
                seen[name] = "right"
            except Odd as error:
                seen[name] = str(error)

    threads = [threading.Thread(target=work, args=(sign,), name=f"t{sign}") for sign in (1.0, -1.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert seen == {"t1.0": "right", "t-1.0": "t-1.0"}


def test_a_cached_artefact_calls_back() -> None:
    function: Callable[[Tensor], Tensor] = lambda x: divisors(x) + 1  # noqa: E731
    for _ in range(2):
        compiled = dc.compile(function, fullgraph=True)
        assert isinstance(compiled, CompiledFunction)
        x = dc.randn(3, 2)
        np.testing.assert_array_equal(compiled(x).numpy(), expected_divisors(x) + 1)
