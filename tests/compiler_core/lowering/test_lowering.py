"""Lowered graphs, run by the loop-IR interpreter, against the graph interpreter; and what the lowering avoids doing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from compiler_core.config import config
from compiler_core.dtype import DType, bfloat16, float16, float32, float64, int64
from compiler_core.errors import IndexError_, LoweringError
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph, GraphBuilder, Node
from compiler_core.loop_ir import ir
from compiler_core.loop_ir.interpret import interpret_program
from compiler_core.loop_ir.verify import verify_program
from compiler_core.meta import TensorMeta
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.registry import OPS, Array, Op, use_trace
from compiler_core.ops.rules import Pointwise
from compiler_core.schedule.from_graphs import lower_and_schedule

Function = Callable[..., Node | Sequence[Node]]


def build(
    function: Function, *shapes: tuple[int, ...], dtype: DType = float32, roles: Mapping[int, str] | None = None
) -> Graph:
    """roles: those of inputs that are more than inputs, by their place."""
    builder = GraphBuilder("g")
    metas, said = [TensorMeta(shape, dtype) for shape in shapes], roles or {}
    inputs = [builder.placeholder("x", meta, role=said.get(k, "input")) for k, meta in enumerate(metas)]
    with use_trace(builder):
        result = function(*inputs)
    return builder.build([result] if isinstance(result, Node) else result)


def check(graph: Graph, *arrays: Array, rtol: float = 1e-5) -> ir.Program:
    """Run the program of `graph` against the graph itself, fused and not."""
    wanted = interpret(graph, arrays)
    for fusion in (False, True):
        with config.patch(fusion=fusion):
            (program,) = lower_and_schedule([graph])
        verify_program(program)
        results = interpret_program(program, arrays)
        for result, want in zip(results, wanted, strict=True):
            assert result.dtype == want.dtype
            np.testing.assert_allclose(
                result.astype(np.float64), want.ravel().astype(np.float64), rtol=rtol, atol=rtol / 10
            )
    return program


def random_arrays(*shapes: tuple[int, ...], dtype: DType = float32, seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(dtype.numpy) for shape in shapes]


def gemms(program: ir.Program) -> list[ir.RoutineCall]:
    return [step for step in program.steps if isinstance(step, ir.RoutineCall)]


def kernel_calls(program: ir.Program) -> list[ir.KernelCall]:
    return [step for step in program.steps if isinstance(step, ir.KernelCall)]


# ---- views and matrix products


def test_a_linear_layer_reads_its_weight_transposed_without_a_copy() -> None:
    graph = build(lambda x, w: F.linear(x, w), (2, 5, 8), (6, 8))
    program = check(graph, *random_arrays((2, 5, 8), (6, 8)))
    assert not kernel_calls(program)
    (gemm,) = gemms(program)
    a, b = (view.layout for view in gemm.operands)
    assert (a.shape, b.shape, b.strides) == ((10, 8), (8, 6), (1, 8))


def attention_scores(qkv: Node) -> Node:
    """(B, T, 3*H*D) -> (B, H, T, T), as GPT does it."""
    q, k, _ = F.split(qkv, 8, 2)
    q, k = (F.transpose(F.view(t, 2, 5, 2, 4), 1, 2) for t in (q, k))
    return F.matmul(q, F.transpose(k, -2, -1))


def test_heads_are_read_out_of_a_fused_projection_by_strides() -> None:
    program = check(build(attention_scores, (2, 5, 24)), *random_arrays((2, 5, 24)))
    assert not kernel_calls(program)
    (gemm,) = gemms(program)
    assert gemm.operands[0].layout.shape[:2] == (2, 2)
    assert gemm.operands[0].layout.strides[:3] == (120, 4, 24)
    assert gemm.operands[1].slot.offset == 8


def test_an_operand_that_strides_cannot_describe_is_copied() -> None:
    program = check(build(lambda x, w: F.matmul(F.flip(x, 1), w), (4, 3), (3, 2)), *random_arrays((4, 3), (3, 2)))
    assert len(kernel_calls(program)) == 1


@pytest.mark.parametrize("dtype", [float16, bfloat16])
def test_16_bit_products_are_computed_in_f32(dtype: DType) -> None:
    arrays = random_arrays((3, 4), (4, 5), dtype=dtype)
    program = check(build(F.matmul, (3, 4), (4, 5), dtype=dtype), *arrays, rtol=1e-2)
    assert gemms(program)[0].result.layout.dtype is float32


@pytest.mark.parametrize("shapes", [((3, 0), (0, 2)), ((0, 3), (3, 2)), ((2, 1, 3), (2, 3, 1)), ((1, 4), (4, 1))])
def test_products_of_odd_sizes(shapes: tuple[tuple[int, ...], ...]) -> None:
    check(build(prims.matmul, *shapes), *random_arrays(*shapes))


# ---- what is never computed


def test_a_causal_mask_is_index_comparison_only() -> None:
    program = check(build(lambda x: F.tril(x), (4, 4)), *random_arrays((4, 4)))
    assert len(program.steps) == 1
    assert "index_ge" in str(program) or "index_le" in str(program)
    assert "index_value" not in str(program)
    assert not [b for b in program.buffers if b.kind == "temp"]


def test_constants_are_written_into_their_readers() -> None:
    def function(x: Node) -> Node:
        return prims.mul(x, prims.add(prims.full_like(x, 2.0), prims.full_like(x, 1.0)))

    (call,) = kernel_calls(check(build(function, (7,)), *random_arrays((7,))))
    assert [p.access for p in call.kernel.params] == ["in", "out"]


def test_dead_nodes_cost_nothing() -> None:
    def function(x: Node) -> Node:
        prims.exp(x)
        return prims.neg(x)

    assert "exp" not in str(check(build(function, (3,)), *random_arrays((3,))))


# ---- outputs


def test_outputs_that_are_inputs_views_and_repeats_are_copies_of_their_own() -> None:
    def function(x: Node) -> list[Node]:
        y = prims.exp(x)
        return [x, y, y, prims.permute(y, (1, 0))]

    program = check(build(function, (2, 3)), *random_arrays((2, 3)))
    assert len(set(program.outputs)) == 4


def test_empty_arrays_need_no_steps() -> None:
    graph = build(lambda x: [prims.exp(x), prims.sum(x, (0,)), prims.expand(x, (2, 0, 3))], (0, 3))
    program = check(graph, np.zeros((0, 3), np.float32))
    assert len(program.steps) == 1  # the sum over nothing


# ---- scatters


def index_graph(function: Function, n: int, *shapes: tuple[int, ...]) -> Graph:
    builder = GraphBuilder("g")
    index = builder.placeholder("index", TensorMeta((n,), int64))
    inputs = [builder.placeholder("x", TensorMeta(shape, float32)) for shape in shapes]
    with use_trace(builder):
        return builder.build([function(index, *inputs)])


def test_repeated_rows_add_up_in_order() -> None:
    graph = index_graph(lambda i, base, rows: prims.index_add(base, i, rows), 6, (4, 5), (6, 5))
    program = check(graph, np.array([1, 3, 1, 0, 3, 3]), *random_arrays((4, 5), (6, 5)))
    assert "+=" in str(program)


@pytest.mark.parametrize("adds_to_zeros", [True, False])
def test_picking_one_class_a_row_goes_back_as_a_comparison(adds_to_zeros: bool) -> None:
    def function(index: Node, logits: Node, g: Node) -> Node:
        base = prims.full_like(logits, 0.0) if adds_to_zeros else logits
        return prims.scatter_add(base, prims.reshape(index, (6, 1)), g, 1)

    program = check(
        index_graph(function, 6, (6, 5), (6, 1)), np.array([1, 3, 1, 0, 4, 4]), *random_arrays((6, 5), (6, 1))
    )
    assert "+=" not in str(program)
    assert "index_eq" in str(program)


def test_an_index_out_of_range_is_an_error_of_the_program() -> None:
    graph = index_graph(lambda i, x: F.embedding(i, x), 3, (4, 5))
    (program,) = lower_and_schedule([graph])
    with pytest.raises(IndexError_, match="out of range"):
        interpret_program(program, [np.array([0, 4, 1]), *random_arrays((4, 5))])


def test_an_index_under_a_condition_is_not_read_outside_its_array() -> None:
    """Rows of padding gather nothing: the index array is shorter than the result."""
    graph = index_graph(lambda i, x: prims.pad(prims.take(x, i), (1, 0), (2, 0), 0.5), 3, (4, 5))
    check(graph, np.array([0, 3, 1]), *random_arrays((4, 5)))


# ---- errors


@pytest.mark.parametrize(("shape", "dim"), [((1, 2), 0), ((1, 3), 0), ((2, 1), 1), ((5, 1), 1)])
def test_an_index_of_fewer_lines_is_not_read_beyond_them(shape: tuple[int, ...], dim: int) -> None:
    """One place a line, of some lines: the adjoint of gather reads the index where it has an element."""
    builder = GraphBuilder("g")
    index = builder.placeholder("i", TensorMeta(shape, int64))
    base, g = (builder.placeholder("x", TensorMeta(s, float32)) for s in ((6, 5), shape))
    with use_trace(builder):
        graph = builder.build([F.scatter_add(base, dim, index, g)])
    places = np.arange(int(np.prod(shape))).reshape(shape) % (6, 5)[dim]
    check(graph, places, *random_arrays((6, 5), shape))


def test_unknown_scalars_and_routines_are_lowering_errors() -> None:
    exp = OPS["exp"]

    def renamed(rule: Any) -> Op:
        return Op("odd", exp.infer, exp.eager, exp.vjp, rule, exp.samples, exp.dtypes)

    for rule, complaint in ((Pointwise("odd"), "not in the loop IR"), (object(), "unknown kind")):
        builder = GraphBuilder("g")
        node = builder.call(renamed(rule), [builder.placeholder("x", TensorMeta((3,), float64))], {})
        with pytest.raises(LoweringError, match=complaint):
            lower_and_schedule([builder.build([node])])


# ---- elements read in another order


def test_a_permuted_read_of_a_single_use_element_needs_one_kernel() -> None:
    program = check(build(lambda x: prims.permute(prims.exp(x), (1, 0)), (4, 6)), *random_arrays((4, 6)))
    assert len(program.steps) == 1


def test_an_element_that_is_read_twice_is_stored_once() -> None:
    def function(x: Node) -> list[Node]:
        y = prims.exp(x)
        return [prims.permute(y, (1, 0)), prims.reshape(prims.neg(y), (24,))]

    program = check(build(function, (4, 6)), *random_arrays((4, 6)))
    assert str(program).count("exp(") == 1


# ---- products where their reader wants them


def test_attention_writes_heads_next_to_each_other() -> None:
    def function(p: Node, v: Node, w: Node) -> Node:
        a = F.matmul(p, v)  # (B, H, T, D)
        return F.linear(F.reshape(F.transpose(a, 1, 2), (2, 5, 8)), w)

    shapes = ((2, 2, 5, 5), (2, 2, 5, 4), (3, 8))
    program = check(build(function, *shapes), *random_arrays(*shapes))
    assert not kernel_calls(program)


def test_gradients_of_heads_are_written_into_one_array() -> None:
    def function(q: Node, k: Node, g: Node) -> Node:
        dq = F.reshape(F.transpose(F.matmul(g, k), 1, 2), (2, 5, 8))
        dk = F.reshape(F.transpose(F.matmul(F.transpose(g, -1, -2), q), 1, 2), (2, 5, 8))
        kt = F.reshape(F.permute(F.matmul(F.transpose(q, -1, -2), g), (0, 3, 1, 2)), (2, 5, 8))
        return F.cat([dq, dk, kt], 2)

    shapes = ((2, 2, 5, 4), (2, 2, 5, 4), (2, 2, 5, 5))
    program = check(build(function, *shapes), *random_arrays(*shapes))
    assert not kernel_calls(program)
    assert [gemm.result.slot.offset for gemm in gemms(program)] == [0, 8, 16]


def scaled_product(a: Node, b: Node, scale: Node) -> Node:
    product = prims.permute(F.matmul(a, b), (1, 0))
    return F.mul(F.mul(product, 0.5), prims.expand(scale, (5, 3)))


def test_scales_become_alpha() -> None:
    shapes = ((3, 4), (4, 5), ())
    program = check(build(scaled_product, *shapes, roles={2: "scale"}), *random_arrays(*shapes))
    (gemm,) = gemms(program)
    assert not kernel_calls(program)
    assert dict(gemm.attrs)["alpha"] == 0.5
    assert gemm.operands[2].slot == ir.Slot("x_2")


def test_a_number_does_not_join_a_scale_of_which_nothing_is_known() -> None:
    shapes = ((3, 4), (4, 5), ())
    program = check(build(scaled_product, *shapes), *random_arrays(*shapes))
    (gemm,) = gemms(program)
    assert dict(gemm.attrs)["alpha"] == 0.5
    assert len(gemm.operands) == 2
    assert len(kernel_calls(program)) == 1


def test_a_bias_that_only_products_read_is_where_accumulation_starts() -> None:
    def function(x: Node, w: Node, bias: Node, v: Node) -> Node:
        return F.matmul(F.linear(x, w, bias), v)

    shapes = ((40, 3), (4, 3), (4,), (4, 2))
    program = check(build(function, *shapes), *random_arrays(*shapes))
    assert [dict(gemm.attrs)["beta"] for gemm in gemms(program)] == [1.0, 0.0]
    assert len(kernel_calls(program)) == 1


def test_a_product_that_two_read_keeps_its_own_memory() -> None:
    def function(a: Node, b: Node) -> list[Node]:
        product = F.matmul(a, b)
        return [prims.permute(product, (1, 0)), F.mul(product, 2.0)]

    program = check(build(function, (3, 4), (4, 5)), *random_arrays((3, 4), (4, 5)))
    assert len(gemms(program)) == 1


def test_a_product_moved_twice_still_lies_right() -> None:
    def function(a: Node, b: Node, c: Node) -> Node:
        half = F.mul(prims.permute(F.matmul(a, b), (1, 0)), 0.5)
        return F.cat([half, F.matmul(c, a)], 0)

    shapes = ((3, 3), (3, 3), (4, 3))
    check(build(function, *shapes), *random_arrays(*shapes))


def rotate_half(x: Node) -> Node:
    """(-b, a) of halves (a, b): rotary position embedding's."""
    a, b = F.chunk(x, 2, -1)
    return F.cat([F.neg(b), a], -1)


def test_rotary_embedding_is_one_kernel_with_plain_strides_both_ways() -> None:
    def forward(x: Node, cos: Node, sin: Node) -> Node:
        return F.add(F.mul(x, cos), F.mul(rotate_half(x), sin))

    def backward(g: Node, cos: Node, sin: Node) -> Node:
        h = F.mul(g, sin)
        low, high = F.narrow(h, 2, 0, 4), F.narrow(h, 2, 4, 4)
        return F.add(F.mul(g, cos), F.add(F.pad(F.neg(low), (4, 0)), F.pad(high, (0, 4))))

    for function in (forward, backward):
        shapes = ((3, 5, 8), (5, 8), (5, 8))
        program = check(build(function, *shapes), *random_arrays(*shapes))
        assert len(kernel_calls(program)) == 1
        assert "//" not in str(program)
        assert "%" not in str(program)


def test_padding_of_a_reshape_reads_plainly_inside() -> None:
    function = lambda x: F.pad(F.reshape(x, (4, 6)), (1, 2, 2, 0), value=0.5)  # noqa: E731
    program = check(build(function, (4, 2, 3)), *random_arrays((4, 2, 3)))
    assert "%" not in str(program)


def test_a_scaled_product_stays_where_its_operands_are_fresh() -> None:
    """DDP scales all gradients at the end of a segment; the products must not wait until then."""

    def function(x: Node, w: Node, v: Node, scale: Node) -> list[Node]:
        first = F.matmul(F.transpose(x, 0, 1), x)
        second = F.matmul(F.tanh(F.matmul(x, w)), v)
        return [F.mul(first, prims.expand(scale, first.shape)), F.mul(second, prims.expand(scale, second.shape))]

    shapes = ((4, 3), (3, 5), (5, 2), ())
    program = check(build(function, *shapes), *random_arrays(*shapes))
    assert [len(gemm.operands) == 3 for gemm in gemms(program)] == [True, False, True]


# ---- concatenations of one array's parts


def test_parts_of_one_array_put_together_again_are_no_copy() -> None:
    """The gradient of a permuted projection to queries, keys and values, which one routine wrote heads beside heads."""

    def f(x: Node, w: Node) -> Node:
        packed = prims.reshape(F.matmul(x, w), (2, 3, 12, 4))  # (B, T, 3 heads, D)
        parts = [prims.permute(F.narrow(packed, 2, 4 * k, 4), (0, 2, 1, 3)) for k in range(3)]
        whole = F.cat([prims.reshape(part, (1, 2, 4, 3, 4)) for part in parts], 0)
        rows = prims.reshape(prims.permute(whole, (1, 3, 0, 2, 4)), (6, 48))
        return F.matmul(prims.permute(rows, (1, 0)), x)

    program = check(build(f, (6, 5), (5, 48)), *random_arrays((6, 5), (5, 48)))
    assert len(gemms(program)) == 2
    assert not kernel_calls(program)


def _rows(x: Node, *spans: tuple[int, int]) -> list[Node]:
    return [F.narrow(x, 0, start, length) for start, length in spans]


@pytest.mark.parametrize(
    ("parts", "copies"),
    [
        (lambda x, y: _rows(x, (1, 2), (3, 3)), 0),  # neighbours of unequal sizes
        (lambda x, y: _rows(x, (1, 1), (3, 1), (5, 1)), 0),  # every other row
        (lambda x, y: _rows(x, (5, 1), (3, 1), (1, 1)), 1),  # upside down: no library reads that
        (lambda x, y: _rows(x, (0, 1), (2, 1), (5, 1)), 1),  # not on one line
        (lambda x, y: _rows(x, (0, 2), (3, 2)), 1),  # with a gap
        (lambda x, y: _rows(x, (2, 2), (0, 2)), 1),  # the other way round
        (lambda x, y: [*_rows(x, (0, 2)), *_rows(y, (2, 2))], 1),  # of two arrays
        (lambda x, y: [prims.reshape(F.narrow(x, 1, 0, 6), (6, 6)), x], 1),  # one twice
    ],
)
def test_parts_that_are_not_the_array_are_copied(parts: Callable[..., list[Node]], copies: int) -> None:
    def f(x: Node, y: Node) -> Node:
        return F.matmul(F.cat(parts(x, y), 0), y)

    program = check(build(f, (6, 6), (6, 6)), *random_arrays((6, 6), (6, 6)))
    assert len(kernel_calls(program)) == copies


# ---- concatenations of many


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_many_operands_are_written_into_their_parts(dim: int) -> None:
    def function(*xs: Node) -> Node:
        pieces = [prims.tanh(x) if k % 3 else prims.flip(x, (1,)) for k, x in enumerate(xs)]
        return F.mul(F.cat(pieces, dim), 2.0)

    shapes = [tuple(n + (k % 2 if d == dim else 0) for d, n in enumerate((2, 3, 4))) for k in range(12)]
    program = check(build(function, *shapes), *random_arrays(*shapes))
    assert "where" not in str(program)


def test_a_stack_of_hundreds_of_sums_does_not_nest() -> None:
    graph = build(lambda *xs: F.sum(F.stack([F.sum(F.mul(x, x)) for x in xs])), *[(3,)] * 300)
    check(graph, *random_arrays(*[(3,)] * 300))


def test_an_empty_operand_among_many_takes_no_part() -> None:
    shapes = [(0, 2) if k == 4 else (k, 2) for k in range(1, 13)]
    check(build(lambda *xs: F.cat(xs, 0), *shapes), *random_arrays(*shapes))


def test_products_among_many_are_written_into_their_parts() -> None:
    def function(x: Node, w: Node, *xs: Node) -> Node:
        product = prims.permute(F.matmul(x, w), (1, 0))
        return F.cat([*xs, product, F.matmul(x, x)], 1)

    shapes = ((3, 3), (3, 3), *[(3, 2)] * 9)
    program = check(build(function, *shapes), *random_arrays(*shapes))
    assert [gemm.result.slot.buffer for gemm in gemms(program)] == ["cat", "cat"]
