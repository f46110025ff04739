"""Passes over Graph. Each is a frozen dataclass: a valid Graph in, a valid Graph out, nothing else changed.

`SIMPLIFY` is what captured graphs go through, `SIMPLIFY_JOINT` what joint graphs (and graphs that no one will
differentiate) do, `EXPAND` what the lowering starts with, `Decompose` what other
engines are given. `run_passes` verifies after each pass when
DISTCOMPILE_VERIFY=1.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler_core.config import config
from compiler_core.graph.ir import Graph
from compiler_core.graph.passes.attention import RecogniseAttention
from compiler_core.graph.passes.attention_narrow import NarrowAttention
from compiler_core.graph.passes.attention_sums import AttentionSums
from compiler_core.graph.passes.canonicalise import Canonicalise
from compiler_core.graph.passes.channels_last import ChannelsLast
from compiler_core.graph.passes.column_sums import ColumnSums
from compiler_core.graph.passes.cse import Cse
from compiler_core.graph.passes.dce import Dce
from compiler_core.graph.passes.decompose import Decompose
from compiler_core.graph.passes.expand import AttentionComposed, Expand, PoolingComposed, attends_f32
from compiler_core.graph.passes.few_places import FewPlaces
from compiler_core.graph.passes.fold import Fold
from compiler_core.graph.passes.gpu_products import GpuProducts
from compiler_core.graph.passes.long_rows import LongRows
from compiler_core.graph.passes.rename import Rename
from compiler_core.graph.passes.result_masks import ResultMasks
from compiler_core.graph.passes.rewrite import Pass
from compiler_core.graph.verify import verify

SIMPLIFY: tuple[Pass, ...] = (
    Dce(),
    Fold(),
    Canonicalise(),
    Cse(),
    RecogniseAttention(),
    NarrowAttention(),
    Dce(),
    Rename(),
)
SIMPLIFY_JOINT: tuple[Pass, ...] = (
    Dce(),
    *(Fold(after_autograd=True), Canonicalise(after_autograd=True), Cse()),
    *(Fold(after_autograd=True), Canonicalise(after_autograd=True), Cse()),
    ResultMasks(),
    Dce(),
    Rename(),
)
EXPAND: tuple[Pass, ...] = (Expand(),)


def run_passes(graph: Graph, passes: Sequence[Pass] = SIMPLIFY) -> Graph:
    """`graph` after each of `passes` in turn."""
    for step in passes:
        graph = step.apply(graph)
        if config.verify:
            verify(graph)
    return graph


__all__ = [
    "EXPAND",
    "SIMPLIFY",
    "SIMPLIFY_JOINT",
    "AttentionComposed",
    "AttentionSums",
    "Canonicalise",
    "ChannelsLast",
    "ColumnSums",
    "Cse",
    "Dce",
    "Decompose",
    "Expand",
    "FewPlaces",
    "Fold",
    "GpuProducts",
    "LongRows",
    "NarrowAttention",
    "Pass",
    "PoolingComposed",
    "RecogniseAttention",
    "Rename",
    "attends_f32",
    "run_passes",
]
