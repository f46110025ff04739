"""Definitions are a form of their own: text and back, what is valid, what it means; each pass keeps what that is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gpt_graphs import gpt, mlp
from schedule_graphs import random_graph

from compiler_core.config import config
from compiler_core.dtype import bfloat16, float32, int64
from compiler_core.errors import GraphError, IndexError_
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph, GraphBuilder, Node
from compiler_core.graph.passes import EXPAND, run_passes
from compiler_core.lowering import definition, lower, passes
from compiler_core.lowering.define import define
from compiler_core.lowering.definition import Defined
from compiler_core.lowering.interpret import interpret_definitions
from compiler_core.lowering.parse import parse_definitions
from compiler_core.lowering.print import print_definitions
from compiler_core.lowering.target import CPU, GPU, Target
from compiler_core.lowering.verify import verify_definitions
from compiler_core.meta import TensorMeta
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.attention.composite import written_out
from compiler_core.ops.registry import Array, use_trace
from tests.sharing import every

NORM = """\
definitions norm
  input x: f32 (32, 128)
  greatest: f32 (32,) reduce max in f32 [d0:32, d1:128] at d0 = x[128*d0 + d1]
  y: f32 (32, 128) element [d0:32, d1:128] = sub(x[128*d0 + d1], greatest[d0])
  outputs y
"""
# what define makes of every kind of rule: names and layouts are not those of a graph that anybody wrote
KINDS = """\
definitions kinds
  input x: f32 (4, 6)
  input i: i64 (3,)
  input s: f32 () share
  taken: f32 (3, 6) element [d0:3, d1:6] = x[6*data(i[d0], 0, 3, 'take: index = 9 is out of range') + d1]
  added: f32 (4, 6) scatter add [d0:3, d1:6] onto [b0:4, b1:6] = taken[6*d0 + d1], 6*data(i[d0]) + d1, x[6*b0 + b1]
  left: f32 (2, 6) element [d0:2, d1:6] into both at 6*d0 + d1 = x[6*d0 + d1]
  right: f32 (2, 6) element [d0:2, d1:6] into both+12 at 6*d0 + d1 = where(index_lt(d1, 3), f32(-inf), x[6*d0 + d1])
  both: f32 (4, 6) assembly (left, right)
  best: i64 (4,) reduce argmax in f32 [d0:4, d1:6] at d0 = added[6*d0 + d1]
  running: f32 (4, 6) scan sum in f64 [d0:4, d1:6] along d1 reverse = cast(added[6*d0 + d1], f64)
  start: f32 (4, 4) element [d0:4, d1:4] = cast(index_value(d0 + d1//2, i64), f32)
  product: f32 (4, 4) gemm () 4 4 6 a x () 6 1 b x () 1 6 out product () 4 1 alpha=0.5 scale=s onto=start
  inverse: f32 (4, 4) routine matrix_exp (product: f32 (4, 4) (4, 1))
  storage start in product
  outputs both, best, running, product
"""


def stages(graph: Graph, target: Target) -> Iterator[tuple[str, Defined]]:
    """What define made, and each pass after it."""
    defined = define(run_passes(graph, EXPAND), target.halves)
    yield "define", defined
    for one in passes.PASSES:
        if one.is_for(target):
            defined = one.apply(defined, target)
            yield one.name, defined


def assert_same(defined: Defined, graph: Graph, arrays: Sequence[Array], wanted: Sequence[Array], step: str) -> None:
    given = {node.name: array for node, array in zip(graph.inputs, arrays)} | {n.name: n.array for n in graph.constants}
    for result, want in zip(interpret_definitions(defined, given), wanted, strict=True):
        assert (result.dtype, result.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-5, err_msg=f"{graph.name} after {step}")


GRAPHS: dict[str, Callable[[], list[tuple[Graph, Sequence[Array]]]]] = {
    f"random {seed}": lambda seed=seed: [random_graph(seed)] for seed in range(20)
}  # type: ignore[misc]
for _name, _model in {"mlp": mlp, "gpt": gpt, "gpt_tied": lambda: gpt(tied=True)}.items():

    def _both(make: Callable[..., object] = _model) -> list[tuple[Graph, Sequence[Array]]]:
        model = make()
        results = interpret(model.forward, list(model.arrays))
        return [(model.forward, model.arrays), (model.backward, model.backward_inputs(results))]

    GRAPHS[_name] = _both


@pytest.mark.parametrize("target", [CPU, GPU], ids=lambda target: target.kind)
@pytest.mark.parametrize("name", every(list(GRAPHS), 4))
def test_every_pass_keeps_what_definitions_mean(name: str, target: Target) -> None:
    for graph, arrays in GRAPHS[name]():
        wanted = interpret(graph, list(arrays))
        for step, defined in stages(graph, target):
            text = print_definitions(verify_definitions(defined))
            again = parse_definitions(text)
            assert print_definitions(verify_definitions(again)) == text
            assert_same(again, graph, arrays, wanted, step)


@pytest.mark.parametrize("text", [NORM, KINDS])
def test_text_round_trips(text: str) -> None:
    assert print_definitions(verify_definitions(parse_definitions(text))) == text


def test_the_example_on_the_first_page_is_the_language() -> None:
    assert definition.__doc__ is not None
    assert "\n".join(f"    {line}" for line in NORM.splitlines()) in definition.__doc__


def test_every_kind_by_hand() -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    i = np.array([2, 0, 2])
    both, best, running, product = interpret_definitions(parse_definitions(KINDS), {"x": x, "i": i, "s": np.float32(2)})
    added = x.copy()
    np.add.at(added, i, x[i])
    right = x[:2].copy()
    right[:, :3] = -np.inf
    np.testing.assert_array_equal(both, np.concatenate([x[:2], right]))
    np.testing.assert_array_equal(best, added.argmax(1))
    np.testing.assert_allclose(running, added[:, ::-1].cumsum(1)[:, ::-1])
    rows, columns = np.indices((4, 4))
    np.testing.assert_allclose(product, x @ x.T + rows + columns // 2, rtol=1e-6)
    with pytest.raises(IndexError_, match="index = 9 is out of range"):
        interpret_definitions(parse_definitions(KINDS), {"x": x, "i": i + 2, "s": np.float32(2)})


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("  input x: f32 (32, 128)\n", "", "undeclared name"),
        ("y: f32 (32, 128)", "y: f32 (32, 64)", "it has 4096 elements"),
        ("y: f32 (32, 128)", "y: f64 (32, 128)", "its value is f32"),
        ("outputs y", "outputs z", "an output is not defined"),
        ("outputs y", "outputs y, y", "stands twice"),
        ("outputs y", "storage y in q\n  outputs y", "storage of what is not defined"),
        ("greatest[d0])", "greatest[d1])", "leaves it"),
        ("greatest[d0])", "greatest[d7])", "neither an axis nor an integer"),
        ("= sub(x[128*d0 + d1], greatest[d0])", "= sub(x[128*d0 + d1], i64(1))", "argument dtypes differ"),
        ("at d0 =", "at 2*d0 =", "no row-major part"),
        ("[d0:32, d1:128] = sub", "[d0:32, d1:128] into x+8 at 128*d0 + d1 = sub", "it leaves x"),
    ],
)
def test_what_is_not_valid_is_refused(old: str, new: str, complaint: str) -> None:
    assert old in NORM
    with pytest.raises(GraphError, match=complaint):
        verify_definitions(parse_definitions(NORM.replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("(left, right)", "(left, taken)", "written into several values"),
        ("a x () 6 1", "a x+1 () 6 1", "it leaves x"),
        ("(4, 4) (4, 1))", "(4, 4) (5, 1))", "it leaves product"),
        ("scan sum in f64 [d0:4, d1:6]", "scan sum in f64 [d0:4, d1:3]", "it has 12 elements"),
    ],
)
def test_what_is_not_valid_of_other_kinds_is_refused(old: str, new: str, complaint: str) -> None:
    assert old in KINDS
    with pytest.raises(GraphError, match=complaint):
        verify_definitions(parse_definitions(KINDS.replace(old, new)))


def test_what_is_read_before_it_is_defined_is_refused() -> None:
    defined = parse_definitions(NORM)
    turned = dict(reversed(defined.definitions.items()))
    with pytest.raises(GraphError, match="reads greatest before that is defined"):
        verify_definitions(replace(defined, definitions=turned))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("program p", "expected `definitions NAME`"),
        ("definitions d\n  fly away", "not a line of definitions"),
        ("definitions d\n  x: f32 (3,) guess 7", "no such definition"),
        ("definitions d\n  x: f32 (3,) element d0:3 = f32(1.0)", "not a line of definitions"),
        ("definitions d\n  x: f32 (3,) routine frobnicate (y: f32 (3,) (1,))", "expected `routine NAME"),
    ],
)
def test_text_that_does_not_fit_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(GraphError, match=complaint):
        parse_definitions(text)


# ---- each pass on a graph of its own


def build(function: Callable[..., Node], *shapes: tuple[int, ...]) -> Graph:
    builder = GraphBuilder("g")
    inputs = [builder.placeholder(f"x{k}", TensorMeta(shape, float32)) for k, shape in enumerate(shapes)]
    with use_trace(builder):
        return builder.build([function(*inputs)])


EXAMPLES: dict[str, Graph] = {
    "inline": build(lambda x, y: F.add(F.tanh(prims.permute(prims.neg(x), (1, 0))), y), (3, 4), (4, 3)),
    "round": build(lambda x: prims.cast(F.sum(x, (0,)), bfloat16), (8, 4)),
    "epilogue": build(F.linear, (512, 512), (512, 512), (512,)),
    "place": build(lambda a, b: prims.permute(F.mul(F.matmul(a, b), 0.5), (1, 0)), (3, 4), (4, 5)),
    "triangle": build(lambda q, k, v: written_out(q, k, v, None, 0.0, True, 0.25), *[(128, 16)] * 3),
}


@pytest.mark.parametrize("name", [one.name for one in passes.PASSES])
def test_text_of_a_pass(name: str, golden: Callable[[str, str], None]) -> None:
    before = after = ""
    for step, defined in stages(EXAMPLES[name], GPU if name in ("round", "epilogue") else CPU):
        before, after = after, print_definitions(defined)
        if step == name:
            break
    assert before != after, "an example that the pass does not change shows nothing"
    golden(f"definitions/{name}.txt", f"{before}\n{after}")


# ---- the steps


def test_a_pass_that_breaks_definitions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = passes.DefinitionPass("place", lambda defined, _: replace(defined, outputs=("nothing",)))
    monkeypatch.setattr(lower, "PASSES", (*passes.PASSES[:1], broken))
    with config.patch(verify=True), pytest.raises(GraphError, match="an output is not defined"):
        lower.lower([EXAMPLES["place"]])


@pytest.mark.parametrize("target", [CPU, GPU], ids=lambda target: target.kind)
def test_every_pass_is_dumped_and_timed(target: Target, tmp_path: Path) -> None:
    from compiler_core.steps import compile_times

    with config.patch(dump_dir=str(tmp_path)):
        lower.lower([EXAMPLES["place"]], "passes", target)
    wanted = ["define", *(one.name for one in passes.PASSES if one.is_for(target))]
    files = sorted(path.stem.partition("_")[2] for path in tmp_path.rglob("*.txt"))
    assert files == sorted(f"{step}_g" for step in wanted)
    assert [time.step for time in compile_times() if time.graph == "passes"][-len(wanted) :] == wanted


def test_index_data_is_checked_only_where_it_counts() -> None:
    text = NORM.replace(
        "sub(x[128*d0 + d1], greatest[d0])", "where(index_lt(d0, 0), x[data(i[0], 0, 3, 'no')], f32(1.0))"
    )
    defined = parse_definitions(text.replace("  greatest", "  input i: i64 (1,)\n  greatest"))
    (ones,) = interpret_definitions(defined, {"x": np.zeros((32, 128), np.float32), "i": np.array([9], int64.numpy)})
    assert (ones == 1).all()
