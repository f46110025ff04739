"""compile(): hits, recompiles, limits, graph breaks, and what guards notice. Eager is always the oracle."""

from __future__ import annotations

import dataclasses
import threading
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import compiler_core.backend as backend_module
import compiler_core.dtype as dtypes
from compiler_core.backend import CallableBackend, backend_names, find_backend, register_backend
from compiler_core.capture import CompiledFunction, compile
from compiler_core.config import config
from compiler_core.errors import AutogradError, BackendError, RecompileLimitError
from compiler_core.graph.interpret import interpret
from compiler_core.log import DistCompileWarning
from compiler_core.steps import compile_times
from compiler_core.tensor.autograd.backward import grad
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.making.creation import full, ones
from compiler_core.tensor.tensor import Tensor

BACKENDS = ["eager", "aot_eager"]


def array(*shape: int, seed: int = 0) -> Tensor:
    return Tensor._wrap(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def entries(compiled: CompiledFunction) -> int:
    return len(compiled.explain().entries)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_same_result_and_gradients_as_eager(backend: str) -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        return ((x @ w).tanh() * 2).sum()

    x, w = array(3, 4), array(4, 2, seed=1).requires_grad_()
    compiled = compile(function, backend=backend, fullgraph=True)
    for _ in range(2):
        (wanted,) = grad(function(x, w), [w])
        result = compiled(x, w)
        np.testing.assert_array_equal(result.detach().numpy(), function(x, w).detach().numpy())
        np.testing.assert_allclose(grad(result, [w])[0].numpy(), wanted.numpy(), rtol=1e-6)
    assert entries(compiled) == 1


def test_trees_of_arguments_and_results(backend: str) -> None:
    @compile(backend=backend, fullgraph=True)
    def function(batch: dict[str, Any], *, scale: float) -> dict[str, Any]:
        """Doc."""
        return {"sum": batch["a"] + batch["rest"][0], "scaled": [batch["a"] * scale], "n": 3, "none": None}

    a, b = array(2), array(2, seed=1)
    result = function({"a": a, "rest": (b,)}, scale=3.0)
    assert result["n"] == 3
    assert result["none"] is None
    np.testing.assert_array_equal(result["sum"].numpy(), (a + b).numpy())
    np.testing.assert_array_equal(result["scaled"][0].numpy(), (a * 3.0).numpy())
    assert function.__name__ == "function"
    assert function.__doc__ == "Doc."


def test_dataclasses_and_named_results(backend: str) -> None:
    @dataclasses.dataclass
    class Output:
        logits: Tensor
        loss: Tensor | None = None

    compiled = compile(lambda x: Output(x * 2), backend=backend, fullgraph=True)
    result = compiled(array(2))
    assert isinstance(result, Output)
    assert result.loss is None


@pytest.mark.parametrize(
    ("first", "second", "guard"),
    [
        (lambda: (array(2, 3),), lambda: (array(4, 3),), "args[0].shape == (2, 3)"),
        (lambda: (array(2),), lambda: (Tensor._wrap(np.ones(2)),), "args[0].dtype == float32"),
        (lambda: (array(2),), lambda: (array(2).requires_grad_(),), "args[0].requires_grad is False"),
        (lambda: (array(2), 1), lambda: (array(2), 2), "args[1] == 1"),
        (lambda: (array(2), 1), lambda: (array(2), True), "args[1] == 1"),
        (lambda: (array(2), None), lambda: (array(2),), "2 positional arguments"),
        (lambda: ([array(2)],), lambda: ((array(2),),), "args[0] is a list"),
        (lambda: ((array(2),),), lambda: ((array(2), array(2)),), "args[0] has 1 items"),
        (lambda: ({"a": array(2)},), lambda: ({"b": array(2)},), "args[0] has the keys 'a'"),
        (lambda: (array(2), dtypes.float32), lambda: (array(2), dtypes.float64), "args[1] is the same DType"),
    ],
)
def test_what_differs_recompiles_and_is_named(first: Callable[[], Any], second: Callable[[], Any], guard: str) -> None:
    def function(x: Any, *rest: Any) -> Any:
        while not isinstance(x, Tensor):
            x = next(iter(x.values())) if isinstance(x, dict) else x[-1]
        factor = float(rest[0]) if rest and isinstance(rest[0], int) else 3.0
        return x * factor

    compiled = compile(function, backend="aot_eager", fullgraph=True)
    for make in (first, second, first, second):
        args = make()
        np.testing.assert_array_equal(compiled(*args).detach().numpy(), function(*args).detach().numpy())
    assert entries(compiled) == 2
    assert compiled.explain().recompiles == (guard,)


SCALE = 2.0
OFFSETS = [1.0, 2.0]
FLAGS = {"deep": True}
TABLE = ones(2)


def test_globals_are_guarded(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    def function(x: Tensor) -> Tensor:
        y = x * SCALE + sum(OFFSETS) + TABLE
        return helper(y) if FLAGS["deep"] else y

    def check() -> None:
        x = array(2)
        np.testing.assert_array_equal(compiled(x).numpy(), function(x).numpy())

    compiled = compile(function, backend=backend, fullgraph=True)
    check()
    for name, value in [("SCALE", 5.0), ("OFFSETS", [9.0]), ("TABLE", full((2,), 7.0)), ("helper", lambda y: y - 1)]:
        monkeypatch.setitem(globals(), name, value)
        check()
    FLAGS["deep"] = False
    try:
        check()
    finally:
        FLAGS["deep"] = True
    check()
    assert entries(compiled) == 5  # another tensor of the same kind is another input


def helper(x: Tensor) -> Tensor:
    return x * INNER


INNER = 4.0


def test_globals_of_functions_it_calls_are_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compile(lambda x: helper(x), backend="aot_eager", fullgraph=True)
    assert compiled(ones(1)).tolist() == [4.0]
    monkeypatch.setitem(globals(), "INNER", 5.0)
    assert compiled(ones(1)).tolist() == [5.0]


def test_closures_are_guarded() -> None:
    factor, weight = 2.0, ones(2)

    def function(x: Tensor) -> Tensor:
        return x * factor + weight

    compiled = compile(function, backend="aot_eager", fullgraph=True)
    assert compiled(ones(2)).tolist() == [3.0, 3.0]
    factor = 3.0
    assert compiled(ones(2)).tolist() == [4.0, 4.0]
    weight = full((2,), 10.0)
    assert compiled(ones(2)).tolist() == [13.0, 13.0]
    weight.add_(1)  # the same tensor with another value: no new entry
    assert compiled(ones(2)).tolist() == [14.0, 14.0]
    assert entries(compiled) == 2
    weight = ones(1)
    assert compiled(ones(2)).tolist() == [4.0, 4.0]
    assert entries(compiled) == 3


def test_variables_that_were_one_tensor_must_be_one_again() -> None:
    a = b = ones(2)
    other = lambda: b  # noqa: E731

    def function(x: Tensor) -> Tensor:
        return x * a + other()

    compiled = compile(function, backend="aot_eager", fullgraph=True)
    assert compiled(ones(2)).tolist() == [2.0, 2.0]
    a = full((2,), 5.0)
    assert compiled(ones(2)).tolist() == [6.0, 6.0]
    b = full((2,), 7.0)
    assert compiled(a).tolist() == [32.0, 32.0]
    assert compiled(ones(2)).tolist() == [12.0, 12.0]


loss = 0.0


def test_a_global_is_no_attribute() -> None:
    class Result(NamedTuple):
        loss: Tensor

    def function(x: Tensor) -> Tensor:
        return Result(x * 2).loss

    global loss
    compiled = compile(function, backend="aot_eager", fullgraph=True)
    for _ in range(3):
        loss += compiled(ones(1)).item()
    assert entries(compiled) == 1


def test_a_tensor_in_a_variable_may_be_written(backend: str) -> None:
    state = ones(1) * 0

    def function(x: Tensor) -> Tensor:
        state.add_(x)
        return state * 10

    compiled = compile(function, backend=backend, fullgraph=True)
    assert [compiled(ones(1)).item() for _ in range(3)] == [10.0, 20.0, 30.0]
    first, state = state, full((1,), 5.0)
    assert compiled(ones(1)).item() == 60.0
    assert (first.item(), state.item()) == (3.0, 6.0)
    assert entries(compiled) == 1


def test_grad_mode_and_default_dtype_are_guarded() -> None:
    def function(x: Tensor) -> Tensor:
        return (x * 2).to(dtypes.get_default_dtype())

    compiled = compile(function, backend="aot_eager", fullgraph=True)
    x = ones(2).requires_grad_()
    assert compiled(x).requires_grad
    with no_grad():
        assert not compiled(x).requires_grad
    dtypes.set_default_dtype(dtypes.float64)
    try:
        assert compiled(x).dtype is dtypes.float64
    finally:
        dtypes.set_default_dtype(dtypes.float32)
    assert entries(compiled) == 3


def test_past_the_limit_calls_run_eager_and_say_why() -> None:
    compiled = compile(lambda x, n: x[:n], backend="aot_eager")
    strict = compile(lambda x, n: x[:n], backend="aot_eager", fullgraph=True)
    with config.patch(recompile_limit=2):
        for n in (1, 2):
            compiled(ones(4), n)
            strict(ones(4), n)
        with pytest.warns(DistCompileWarning, match=r"compiled 2 times.*args\[1\] == "):
            assert compiled(ones(4), 3).tolist() == [1.0] * 3
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert compiled(ones(4), 4).tolist() == [1.0] * 4
            assert compiled(ones(4), 2).tolist() == [1.0] * 2
        assert entries(compiled) == 2
        with pytest.raises(RecompileLimitError, match="recompile_limit"):
            strict(ones(4), 3)


# -- autograd


def test_a_backward_can_be_differentiated() -> None:
    x = ones(2).requires_grad_()
    y = compile(lambda x: (x * x * x).sum(), backend="aot_eager", fullgraph=True)(x)
    (slope,) = grad(y, x, create_graph=True)
    (curvature,) = grad(slope.sum(), x)
    assert (slope.tolist(), curvature.tolist()) == ([3.0, 3.0], [6.0, 6.0])


def test_backward_twice_needs_retain_graph() -> None:
    x = ones(2).requires_grad_()
    y = compile(lambda x: x.exp().sum(), backend="aot_eager", fullgraph=True)(x)
    y.backward(retain_graph=True)
    y.backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.exp(np.ones(2)), rtol=1e-6)
    with pytest.raises(AutogradError, match="second time"):
        y.backward()


def test_changing_what_the_backward_reads_is_refused() -> None:
    x, w = ones(2), full((2,), 3.0).requires_grad_()
    y = compile(lambda x, w: (x * w * w).sum(), backend="aot_eager", fullgraph=True)(x, w)
    with no_grad():
        w.add_(1)
    with pytest.raises(AutogradError, match="was changed in place"):
        y.backward()


def test_an_output_without_a_gradient_counts_as_zero() -> None:
    x = ones(2).requires_grad_()
    compiled = compile(lambda x: (x.exp(), x * 3), backend="aot_eager", fullgraph=True)
    _, b = compiled(x)
    b.sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]


def test_gradients_of_arguments_that_need_them_only() -> None:
    def function(a: Tensor, b: Tensor) -> Tensor:
        return (a * b).sum()

    a, b = ones(2).requires_grad_(), full((2,), 2.0)
    compiled = compile(function, backend="aot_eager", fullgraph=True)
    compiled(a, b).backward()
    assert a.grad.tolist() == [2.0, 2.0]
    assert b.grad is None
    hidden = a * 1  # not a leaf
    compiled(hidden, b).backward()
    assert a.grad.tolist() == [4.0, 4.0]


# -- backends


def test_any_callable_is_a_backend() -> None:
    seen = []

    def my_backend(graph: Any, example_inputs: Any) -> Callable[..., Any]:
        seen.append((graph.ir.name, [a.shape for a in example_inputs]))
        return lambda *tensors: interpret(graph.ir, tensors)

    x = ones(2).requires_grad_()
    compile(lambda x: x.exp().sum(), backend=my_backend, fullgraph=True)(x).backward()
    np.testing.assert_allclose(x.grad.numpy(), np.exp(np.ones(2)), rtol=1e-6)
    assert [len(shapes) for _, shapes in seen] == [1, 2]
    assert find_backend(my_backend).name == "my_backend"
    assert isinstance(find_backend(my_backend), CallableBackend)


def test_a_backend_that_lies_is_found_out() -> None:
    compiled = compile(lambda x: x * 2, backend=lambda g, e: lambda *a: [np.zeros(7)])
    with pytest.raises(BackendError, match="returned something else"):
        compiled(ones(2))
    with pytest.raises(BackendError, match="returned a NoneType"):
        compile(lambda x: x * 2, backend=lambda g, e: None)(ones(2))


def test_unknown_backends_are_refused() -> None:
    with pytest.raises(BackendError, match="there is no backend 'fast'"):
        compile(lambda x: x, backend="fast")
    with pytest.raises(BackendError, match="this is no backend") as caught:
        compile(lambda x: x, backend=3)
    assert caught.value.got == "3 (int)"


def test_what_cannot_be_called_is_registered_as_no_backend() -> None:
    with pytest.raises(BackendError, match="backend 'five' is nothing that can be called") as caught:
        register_backend(5, name="five")  # type: ignore[arg-type]
    assert caught.value.got == "5 (int)"
    assert "five" not in backend_names()


def test_a_misspelt_backend_is_answered_with_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(backend_module._registered, "counting", lambda graph, examples: None)
    with pytest.raises(BackendError) as caught:
        compile(lambda x: x, backend="countign")
    assert caught.value.remedy == "did you mean 'counting'?"


# -- looking at it


def test_explain_shows_graphs_guards_and_times() -> None:
    compiled = compile(lambda x: (x * 2).sum(), backend="aot_eager")
    compiled(ones(2).requires_grad_()).backward()
    text = str(compiled.explain())
    for part in ("1 compiled", "args[0].shape == (2,)", "graph lambda_forward", "graph lambda_backward", "partition"):
        assert part in text
    assert {t.step for t in compile_times()} >= {"capture", "simplify", "joint", "partition", "plan", "backend"}


def test_every_step_is_dumped(tmp_path: Any) -> None:
    with config.patch(dump_dir=str(tmp_path), verify=True):
        compile(lambda x: (x * 2).sum(), backend="aot_eager")(ones(2).requires_grad_())
    files = sorted(path.name for path in (tmp_path / "rank0" / "lambda").iterdir())
    assert files == [
        "00_capture.txt",
        "01_simplify.txt",
        "02_joint.txt",
        "03_simplify_joint.txt",
        "05_partition_backward.txt",
        "05_partition_forward.txt",
        "05_partition_saved.txt",
    ]
    assert f"# {__file__}" in (tmp_path / "rank0" / "lambda" / "00_capture.txt").read_text()


def test_compiled_inside_compiled_is_inlined() -> None:
    inner = compile(lambda x: x * 2, backend="aot_eager")
    outer = compile(lambda x: inner(x) + 1, backend="aot_eager", fullgraph=True)
    assert outer(ones(1)).tolist() == [3.0]
    assert entries(inner) == 0
    assert entries(outer) == 1


class Tripled:
    @compile(backend="aot_eager")
    def of(self, x: Any) -> Any:
        return x * 3


MADE_INSIDE: dict[str, Callable[[Any], Any]] = {
    "function": lambda x: compile(lambda a: a * 3, backend="aot_eager")(x),
    "decorator": lambda x: compile(fullgraph=True, dynamic=True)(lambda a: a * x)(x) * 3,
    "compiled before": lambda x: compile(compile(lambda a: a * 3))(x),
    "method of a compiled function": lambda x: compile(Tripled().of)(x),
}


@pytest.mark.parametrize("name", MADE_INSIDE)
def test_compile_in_captured_code(name: str) -> None:
    x = ones(2, requires_grad=True)
    made = compile(MADE_INSIDE[name], backend="aot_eager", fullgraph=True)
    for _ in range(2):
        assert made(x).tolist() == [3.0, 3.0]
    assert entries(made) == 1
    made(x).sum().backward()
    assert x.grad.tolist() == ([6.0, 6.0] if name == "decorator" else [3.0, 3.0])


def test_what_compile_makes_in_captured_code_is_kept_by_eager_code() -> None:
    made = compile(lambda x: compile(lambda a: a * x, backend="aot_eager"), backend="aot_eager")
    with pytest.warns(DistCompileWarning, match="belongs to the compiler"):
        held = made(ones(1) * 3)
    assert held(ones(1)).tolist() == [3.0]
    assert entries(held) == 1


def test_threads_share_a_compiled_function() -> None:
    """Two threads compile at once, each waiting for the other in the middle, as ranks that agree on a plan do."""
    both = threading.Barrier(2, timeout=60)

    def meeting_backend(graph: Any, example_inputs: Any) -> Callable[..., Any]:
        both.wait()
        return lambda *tensors: interpret(graph.ir, tensors)

    compiled = compile(lambda x, n: x * n, backend=meeting_backend, fullgraph=True)
    results: dict[int, list[float]] = {}

    def work(n: int) -> None:
        for _ in range(50):
            results[n] = compiled(ones(1), n).tolist()

    threads = [threading.Thread(target=work, args=(n,)) for n in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert results == {2: [2.0], 3: [3.0]}
    assert entries(compiled) == 2


def test_methods_can_be_compiled() -> None:
    class Model:
        factor = 2.0

        @compile(backend="aot_eager", fullgraph=True)
        def scale(self, x: Tensor) -> Tensor:
            return x * self.factor

    model, other = Model(), Model()
    assert model.scale(ones(1)).tolist() == [2.0]
    other.factor = 5.0
    assert other.scale(ones(1)).tolist() == [5.0]
    assert model.scale(ones(1)).tolist() == [2.0]
