"""An error inside a step of the compiler names the step, the graph, the node and the user's line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import distcompile as dc
from compiler_core import pipeline
from compiler_core.config import config
from compiler_core.errors import BackendError, CompilationError, LoweringError
from compiler_core.graph.ir import Call, Graph
from compiler_core.lowering import define, lower, passes
from compiler_core.schedule import from_graphs
from distcompile import _dynamo


class Fault(KeyError):
    """Nobody's catalogue has it."""


def model(x: dc.Tensor) -> dc.Tensor:
    h = dc.tanh(x)
    return (h * h).cumsum(0)  # MARK


LINE = model.__code__.co_firstlineno + next(
    number for number, line in enumerate(inspect.getsource(model).splitlines()) if "MARK" in line
)


def fails(*args: Any, **kwargs: Any) -> Any:
    raise Fault("lost")


def fails_at_cumsum(definer: define.Definer, node: Call) -> None:
    if node.op.name == "cumsum":
        fails()
    DEFINE_CALL(definer, node)


DEFINE_CALL = define.Definer.define_call
# step -> what is broken, by what, and the backend with which it runs all the same
FAULTS: dict[str, tuple[object, str, Callable[..., Any], str]] = {
    "simplify": (pipeline, "run_passes", fails, "eager"),
    "joint": (pipeline, "make_joint", fails, "eager"),
    "partition": (pipeline, "partition", fails, "eager"),
    "expand": (lower, "run_passes", fails, "aot_eager"),
    "define": (define.Definer, "define_call", fails_at_cumsum, "aot_eager"),
    "inline": (passes, "inline_reordered", fails, "aot_eager"),
    "place": (passes, "place_products", fails, "aot_eager"),
    "triangle": (passes, "skip_masked_blocks", fails, "aot_eager"),
    "schedule": (from_graphs, "schedule", fails, "aot_eager"),
}


@pytest.mark.parametrize("step", FAULTS)
def test_a_step_that_fails_is_named(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, fault, simpler = FAULTS[step]
    monkeypatch.setattr(where, name, fault)
    x = dc.ones(4, requires_grad=True)
    with config.patch(use_cache=False), pytest.raises(CompilationError) as caught:
        dc.compile(model)(x)
    error = caught.value
    assert isinstance(error, BackendError)
    assert isinstance(error, RuntimeError)
    assert isinstance(error.__cause__, Fault)
    assert (error.step, error.graph.startswith("model")) == (step, True)
    assert f"Fault in step '{step}' of graph model" in str(error)
    assert f"backend='{simpler}' runs without this step" in str(error)
    if step == "define":
        assert "cumsum(" in error.node
        assert error.where == f"{__file__}:{LINE}"
        assert f"at: {__file__}:{LINE}" in str(error)


@pytest.mark.parametrize("error", [LoweringError("said by us"), OSError("no disk"), MemoryError("no memory")])
def test_what_is_named_already_stays_what_it_is(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(pipeline, "run_passes", raises)
    with pytest.raises(type(error)) as caught:
        dc.compile(model)(dc.ones(4))
    assert caught.value is error


def test_the_users_own_error_stays_his() -> None:
    def raises(x: dc.Tensor) -> dc.Tensor:
        raise Fault("of the program")

    with pytest.raises(Fault, match="of the program"):
        dc.compile(raises)(dc.ones(2))


def test_a_backend_of_the_users_that_raises_is_named() -> None:
    def mine(graph: Graph, examples: object) -> Any:
        raise Fault("in his backend")

    _dynamo.reset()
    with pytest.raises(CompilationError, match="backend 'mine' raised Fault: 'in his backend'") as caught:
        dc.compile(model, backend=mine)(dc.ones(2))
    assert isinstance(caught.value.__cause__, Fault)
