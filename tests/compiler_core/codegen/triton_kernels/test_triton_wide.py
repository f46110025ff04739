"""Kernels over more than 2^31 elements: every axis that is multiplied by a stride has 64 bits."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from compiler_core.codegen.triton.module import print_module
from compiler_core.dtype import float32
from compiler_core.graph.ir import GraphBuilder
from compiler_core.lowering.target import GPU
from compiler_core.meta import TensorMeta
from compiler_core.ops import functional as F
from compiler_core.ops.registry import use_trace
from compiler_core.schedule.from_graphs import lower_and_schedule

pytest.importorskip("triton")
FUNCTIONS = {"sum": lambda x: F.sum(x, 0), "softmax": lambda x: F.softmax(x, 0)}


@pytest.mark.parametrize("shape", [(1024, 4194304), (3, 1500000000)], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_product_wraps_before_a_term_of_64_bits_is_added(name: str, shape: tuple[int, int]) -> None:
    function: Callable[[Any], Any] = FUNCTIONS[name]
    builder = GraphBuilder("wide")
    x = builder.placeholder("x", TensorMeta(shape, float32))
    with use_trace(builder):
        graph = builder.build([function(x)])
    (program,) = lower_and_schedule([graph], target=GPU)
    source = print_module(list(dict.fromkeys(program.kernels))).source
    multiplied = set(re.findall(rf"{shape[1]}\*(i\d+)", source))
    assert multiplied
    for function_text in source.split("@triton.jit")[1:]:
        for axis in multiplied & set(re.findall(rf"{shape[1]}\*(i\d+)", function_text)):
            (*_, value) = re.findall(rf"^ *{axis} = (.*)$", function_text, re.M)
            assert "tl.int64" in value or value.startswith(("program", "(program"))
