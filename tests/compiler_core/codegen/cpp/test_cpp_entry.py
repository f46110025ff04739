"""Long entries in parts: the same bits as one function, and no function longer than a part."""

from __future__ import annotations

import re

import numpy as np
import pytest

from compiler_core.codegen.cpp import entry
from compiler_core.codegen.cpp.program import Source, print_source
from compiler_core.codegen.native_backend import with_symbols
from compiler_core.config import config
from compiler_core.dtype import float32
from compiler_core.graph.ir import Graph, GraphBuilder
from compiler_core.meta import TensorMeta
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.registry import use_trace
from compiler_core.pipeline import compile_graph
from compiler_core.schedule.from_graphs import lower_and_schedule

LAYERS, WIDTH = 12, 16


def layers() -> Graph:
    """Equal layers: product, norm, a transposition of a batch of products."""
    builder = GraphBuilder("layers")
    x = builder.placeholder("x", TensorMeta((4, WIDTH, WIDTH), float32))
    weights = [builder.placeholder(f"w{k}", TensorMeta((WIDTH, WIDTH), float32)) for k in range(LAYERS)]
    with use_trace(builder):
        for weight in weights:
            x = F.layer_norm(prims.add(x, prims.tanh(F.linear(x, weight))), (WIDTH,))
            x = F.softmax(prims.matmul(x, prims.permute(x, dims=(0, 2, 1))), -1)
    return builder.build([x])


def source(*, opened: bool = False) -> Source:
    return print_source(with_symbols(lower_and_schedule([layers()])), opened=opened)


def test_parts_compute_what_one_function_does(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((4, WIDTH, WIDTH), dtype=np.float32)]
    arrays += [rng.standard_normal((WIDTH, WIDTH), dtype=np.float32) for _ in range(LAYERS)]
    whole = compile_graph(layers())(arrays)
    monkeypatch.setattr(entry, "ONE_PART", 10)
    monkeypatch.setattr(entry, "PART_STEPS", 7)
    assert "_part1" in source().units["main"]
    with config.patch(cxx_flags="-DIN_PARTS"):  # another artefact
        in_parts = compile_graph(layers())(arrays)
    for one, other in zip(whole, in_parts, strict=True):
        np.testing.assert_array_equal(one, other)


def test_equal_calls_are_one_function_and_parts_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "_part" not in re.sub("k_[a-z0-9_]*_part", "", source().units["main"])
    assert "dc_gemm_0" in source().units["main"]
    assert "dc_gemm_0" not in source(opened=True).units["main"]  # at another size equal calls may differ
    monkeypatch.setattr(entry, "ONE_PART", 10)
    monkeypatch.setattr(entry, "PART_STEPS", 7)
    text = source().units["main"]
    assert len(re.findall(r"^static .*void dc_gemm_\d+\(", text, re.M)) == 2
    parts = re.findall(r"^static int32_t DC_CALLS run0_layers_part\d+\(.*?^}", text, re.M | re.S)
    assert len(parts) > LAYERS // 2
    assert max(part.count("DC_TICK") for part in parts) == 7


def test_what_only_calls_is_not_optimized_at_length() -> None:
    assert "int32_t DC_CALLS run0_layers(" in source().units["main"]
    assert "int32_t run0_layers(" in source(opened=True).units["main"]  # products are written in it


def test_a_step_declares_what_it_uses() -> None:
    """All buffers declared at once would live across every call, which takes a compiler long."""
    entry_text = source().units["main"].split("run0_layers(", 1)[1]
    before, *steps = re.split(r"^  \{\n", entry_text, flags=re.M)
    assert "*" not in before.split("{", 1)[1]
    assert max(step.count(" const ") for step in steps) < LAYERS


def test_equal_parts_of_kernels_stand_once() -> None:
    """Kernels that differ in the rows they share out alone; their results stay those of kernels of their own."""
    rows = (16, 24, 40)
    builder = GraphBuilder("rows")
    inputs = [builder.placeholder(f"x{n}", TensorMeta((n * 4096,), float32)) for n in rows]
    with use_trace(builder):
        results = [prims.add(prims.mul(x, x), x) for x in inputs]
    graph = builder.build(results)
    text = print_source(with_symbols(lower_and_schedule([graph])), units=1).units["main"]
    assert len(re.findall(r"^DC_APART static void k_.*_part0\(", text, re.M)) == 1
    assert len(re.findall(r"dc_parallel\((16|24|40), 1", text)) == len(rows)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(n * 4096, dtype=np.float32) for n in rows]
    for x, result in zip(arrays, compile_graph(graph)(arrays), strict=True):
        np.testing.assert_array_equal(result, x * x + x)
