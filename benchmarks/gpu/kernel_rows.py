"""The kernel rows of the GPU's table: each an operation written with our ops and with torch's, and its least bytes.

In: nothing. Out: `ROWS`, and `programs(row)`: the programs of its forward and backward, scheduled for a GPU. Needs no
device and no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from compiler_core.aot.joint import make_joint
from compiler_core.aot.partition import partition
from compiler_core.dtype import DType, bfloat16, float32, int64
from compiler_core.graph.ir import GraphBuilder, Node
from compiler_core.graph.passes import SIMPLIFY, SIMPLIFY_JOINT, run_passes
from compiler_core.loop_ir.ir import Program
from compiler_core.lowering.target import GPU
from compiler_core.meta import TensorMeta
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.registry import use_trace
from compiler_core.schedule.from_graphs import lower_and_schedule
from distcompile.optim.adam import AdamRule
from distcompile.optim.update_rules.fused import update_graph

T, C, V = 16384, 768, 50304  # tokens, channels, classes of GPT-2 124M at 16 x 1024 tokens


@dataclass(frozen=True)
class Row:
    """inputs: shapes and dtypes. ours: over nodes; theirs: over tensors, with torch first. wanted: takes a gradient.

    numbers: the exclusive upper bound of integer inputs. nbytes: what must be moved at least, forward and backward.
    """

    name: str
    inputs: Sequence[tuple[tuple[int, ...], DType]]
    wanted: Sequence[bool]
    ours: Callable[..., Node]
    theirs: Callable[..., Any]
    nbytes: int
    numbers: int = 0


ROWS = [
    Row(
        "layer_norm 16384x768",
        [((T, C), bfloat16), ((C,), bfloat16), ((C,), bfloat16)],
        [True] * 3,
        lambda x, w, b: F.layer_norm(x, (C,), w, b),
        lambda torch, x, w, b: torch.nn.functional.layer_norm(x, (C,), w, b),
        5 * T * C * 2,
    ),
    Row(
        "gelu 16384x3072",
        [((T, 4 * C), bfloat16)],
        [True],
        lambda x: F.gelu(x, approximate="tanh"),
        lambda torch, x: torch.nn.functional.gelu(x, approximate="tanh"),
        5 * T * 4 * C * 2,
    ),
    Row(
        "bias and gelu 16384x3072",
        [((T, 4 * C), bfloat16), ((4 * C,), float32)],
        [True, True],
        lambda x, b: F.gelu(F.add(x, prims.cast(b, bfloat16)), approximate="tanh"),
        lambda torch, x, b: torch.nn.functional.gelu(x + b.bfloat16(), approximate="tanh"),
        5 * T * 4 * C * 2,
    ),
    Row(
        "cross_entropy 16384x50304",
        [((T, V), bfloat16), ((T,), int64)],
        [True, False],
        lambda x, y: F.cross_entropy(prims.cast(x, float32), y),
        lambda torch, x, y: torch.nn.functional.cross_entropy(x.float(), y),
        3 * T * V * 2,
        V,
    ),
    Row(
        "softmax 4096x4096",
        [((4096, 4096), bfloat16)],
        [True],
        lambda x: F.softmax(x, -1),
        lambda torch, x: torch.softmax(x, -1),
        5 * 4096 * 4096 * 2,
    ),
    Row(
        "column sum 8192x4096",
        [((8192, 4096), float32)],
        [True],
        lambda x: F.sum(F.mul(x, x), (0,)),
        lambda torch, x: (x * x).sum(0),
        3 * 8192 * 4096 * 4,
    ),
    Row(
        "pointwise 16M",
        [((1 << 24,), float32)],
        [True],
        lambda x: prims.tanh(F.add(F.mul(prims.sin(x), prims.cos(x)), F.mul(x, x))),
        lambda torch, x: (x.sin() * x.cos() + x * x).tanh(),
        5 * (1 << 24) * 4,
    ),
    Row(
        "embedding 50304x768",
        [((V, C), bfloat16), ((T,), int64)],
        [True, False],
        lambda w, i: F.embedding(i, w),
        lambda torch, w, i: torch.nn.functional.embedding(i, w),
        2 * T * C * 2 + (T + V) * C * 2,
        V,
    ),
]


def programs(row: Row) -> list[Program]:
    """Forward and backward of `row`, as the compiler makes them for a GPU."""
    builder = GraphBuilder("row")
    builder.device = "cuda:0"
    inputs = [builder.placeholder(f"x{i}", TensorMeta(shape, dtype)) for i, (shape, dtype) in enumerate(row.inputs)]
    with use_trace(builder):
        output = row.ours(*inputs)
    joint = make_joint(run_passes(builder.build([output]), SIMPLIFY), row.wanted, results=1)
    parts = partition(
        replace(joint, graph=run_passes(joint.graph, SIMPLIFY_JOINT)),
    )
    return lower_and_schedule([parts.forward, parts.backward], "row", GPU)


ADAMW_SHAPES = [
    (V, C),
    (1024, C),
    *12 * [(C,), (C,), (3 * C, C), (3 * C,), (C, C), (C,), (C,), (C,), (4 * C, C), (4 * C,), (C, 4 * C), (C,)],
]


def adamw_program() -> Program:
    """One AdamW step over the parameters of GPT-2 124M, as the optimizer compiles it."""
    rule = AdamRule(amsgrad=False, maximize=False, weight_decay=True, decoupled=True)
    group = {"betas": (0.9, 0.999), "lr": 1e-3, "weight_decay": 1e-2, "eps": 1e-8}
    scalars = {name: np.asarray(number, np.float32) for name, number in rule.numbers(group, 1).items()}
    zero = np.zeros((), np.float32)
    layout = [(rule, np.broadcast_to(zero, shape), 0) for shape in ADAMW_SHAPES]
    graph = run_passes(update_graph(layout, [scalars]), SIMPLIFY_JOINT)
    return lower_and_schedule([graph], "adamw", GPU)[0]
