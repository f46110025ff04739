"""Graphs cut between an engine and our own code: as few segments as can be, and the same numbers.

The engine here is a table of names; its programs are the definitions (`interpret`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from compiler_core.engines.backend import EngineBackend
from compiler_core.engines.engine import Places, Program
from compiler_core.errors import BackendError, IndexError_
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Call, Graph
from compiler_core.graph.parse import parse_graph
from compiler_core.log import DistCompileWarning, forget_warnings
from compiler_core.ops.registry import Array


@dataclass
class Fake:
    """An engine that takes the ops named, and writes results into their places."""

    takes: frozenset[str]
    devices: frozenset[bool] = frozenset((False,))
    name: str = "fake"
    whole: dict[str, str] = field(default_factory=dict)
    built: list[str] = field(default_factory=list)
    placed: list[bool] = field(default_factory=list)
    spoil: Callable[[Array], Array] = lambda array: array

    def refuses(self, call: Call) -> str:
        return "" if call.op.name in self.takes else "it is not in the table"

    def build(self, graph: Graph) -> Program:
        self.built.append(graph.name)

        def run(inputs: Sequence[Array], outs: Places) -> Sequence[Array]:
            self.placed += [out is not None for out in outs]
            return [self.spoil(np.asarray(x)) for x in interpret(graph, inputs, outs)]

        return run


def backend(*takes: str, **more: object) -> tuple[Fake, EngineBackend]:
    engine = Fake(frozenset(takes), **more)  # type: ignore[arg-type]
    return engine, EngineBackend(engine, own="aot_eager")


# two chains: sin-tanh-sin, and tanh-sin; tanh is not the engine's
CHAINS = """graph chains(%x: f32[4] input '', %y: f32[4] input '') {
  %a: f32[4] = sin(%x)
  %b: f32[4] = tanh(%a)
  %c: f32[4] = sin(%b)
  %d: f32[4] = tanh(%y)
  %e: f32[4] = sin(%d)
  %f: f32[4] = add(%c, %e)
  return %f, %b
}"""
X, Y = np.linspace(-1, 1, 4, dtype=np.float32), np.linspace(0, 2, 4, dtype=np.float32)
pytestmark = pytest.mark.filterwarnings("ignore:.*is run by our own code")


def test_segments_are_cut_by_dependency_not_by_place() -> None:
    engine, made = backend("sin", "add")
    graph = parse_graph(CHAINS)
    parts = made.segments(made.decomposed(graph))
    assert [(part.by_engine, [call.op.name for call in part.graph.calls]) for part in parts] == [
        (True, ["sin"]), (False, ["tanh", "tanh"]), (True, ["sin", "sin", "add"]),
    ]  # fmt: skip
    (run,) = made.compile([graph], "chains")
    for got, expected in zip(run([X, Y]), interpret(graph, [X, Y]), strict=True):
        np.testing.assert_array_equal(got, expected)
    assert engine.built == ["chains_engine0", "chains_engine2"]


def test_what_runs_beside_is_said_once_by_name_reason_and_line() -> None:
    forget_warnings()
    _, made = backend("sin", "add")
    graph = parse_graph(CHAINS)
    with pytest.warns(
        DistCompileWarning, match="tanh.* is run by our own code beside fake: it is not in the table"
    ) as told:
        made.compile([graph, graph], "chains")
    assert len(told) == 1


def test_results_go_to_their_places_and_events_come() -> None:
    engine, made = backend("sin", "tanh", "add")
    (run,) = made.compile([parse_graph(CHAINS)], "chains")
    outs = [np.empty(4, np.float32), None]
    got = run([X, Y], outs)
    assert got[0] is outs[0]
    assert sorted(engine.placed) == [False, True]
    np.testing.assert_array_equal(got[0], interpret(parse_graph(CHAINS), [X, Y])[0])


def test_a_place_that_is_an_inputs_memory_is_written_last() -> None:
    engine, made = backend("sin", "add")
    graph = parse_graph(CHAINS)
    (run,) = made.compile([graph], "chains")
    memory = np.stack([X, Y]).reshape(8)
    x, y = memory[:4], memory[4:]
    expected = interpret(graph, [X, Y])
    got = run([x, y], [y, x])  # the results change places with the inputs
    np.testing.assert_array_equal(memory, np.concatenate(expected[::-1]))
    assert got[0] is y
    assert engine.placed == [False] * len(engine.placed)


def test_inputs_and_constants_may_be_results() -> None:
    _, made = backend("add")
    text = """graph g(%x: f32[2] input '') {
      %z: f32[2] = full() dtype=f32 shape=(2,) value=3.0
      %y: f32[2] = add(%x, %z)
      return %x, %z, %y, %y
    }"""
    graph = parse_graph(text)
    (run,) = made.compile([graph], "g")
    outs = [np.zeros(2, np.float32) for _ in range(4)]
    for got, out, expected in zip(run([X[:2]], outs), outs, interpret(graph, [X[:2]]), strict=True):
        assert got is out
        np.testing.assert_array_equal(got, expected)


def test_movement_alone_between_our_own_segments_is_no_segment() -> None:
    _, made = backend("sin", "reshape")
    text = """graph g(%x: f32[4] input '') {
      %a: f32[4] = tanh(%x)
      %b: f32[2, 2] = reshape(%a) shape=(2, 2)
      %c: f32[2, 2] = tanh(%b)
      return %c
    }"""
    (part,) = made.segments(made.decomposed(parse_graph(text)))
    assert not part.by_engine


def test_an_engine_that_fails_is_an_error_and_the_ops_own_comes_first() -> None:
    def fail(array: Array) -> Array:
        raise ValueError("out of memory")

    _, made = backend("sin", "add", "tanh", "take", spoil=fail)
    (run,) = made.compile([parse_graph(CHAINS)], "chains")
    with pytest.raises(BackendError, match="fake failed on chains_engine0: out of memory"):
        run([X, Y])
    taking = parse_graph("graph g(%x: f32[4] input '', %i: i64[2] input '') { %y: f32[2] = take(%x, %i) return %y }")
    (run,) = made.compile([taking], "g")
    with pytest.raises(IndexError_):
        run([X, np.array([0, 9])])


def test_results_of_another_shape_are_an_error() -> None:
    _, made = backend("sin", "add", "tanh", spoil=lambda array: array[:2])
    (run,) = made.compile([parse_graph(CHAINS)], "chains")
    with pytest.raises(BackendError, match="returned something else"):
        run([X, Y])


def test_a_graph_of_a_device_that_it_has_not_is_refused() -> None:
    _, made = backend("sin")
    graph = parse_graph("graph g(%x: f32[4] input '') on cuda:0 { %y: f32[4] = sin(%x) return %y }")
    with pytest.raises(BackendError, match="does not run graphs of cuda:0"):
        made.compile([graph], "g")


def test_an_op_that_is_to_stay_whole_is_not_decomposed() -> None:
    text = """graph g(%x: f32[4] input '') {
      %a: f32[4] = expm1(%x)
      return %a
    }"""
    takes = ("tanh", "mul", "exp", "add", "full")
    for whole, expected in (({}, "tanh"), ({"expm1": "ours is better"}, "expm1")):
        _, made = backend(*takes, whole=whole)
        calls = made.decomposed(parse_graph(text)).calls
        assert expected in {call.op.name for call in calls}
