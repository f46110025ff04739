"""Run under the sanitizers, against eager: every case of the op conformance corpus in the dtypes named.

"large" stands for the graphs of test_conformance_large.py, at whose sizes loops are split into chunks and blocks.
"""

from __future__ import annotations

import sys

import numpy as np
from cases import all_cases, assert_same
from exact_buffers import compile_graphs
from one_op_graphs import graph_of
from test_conformance_large import assert_near, graphs, values

from compiler_core.dtype import DType, by_name, float32
from compiler_core.graph.interpret import interpret


def check_ops(dtype: DType) -> None:
    cases = [c for c in all_cases() if c.dtype is dtype and c.variant != "strided"]
    for case, function in zip(cases, compile_graphs([graph_of(c) for c in cases]), strict=True):
        with np.errstate(all="ignore"):
            expected = case.eager()
        print(case.name, file=sys.stderr)  # the last one is the one that is wrong
        (result,) = function(*case.arrays)
        assert_same(result, expected, dtype)
    print(f"{dtype.short}: {len({case.op.name for case in cases})} ops right")


def check_large() -> None:
    chosen = graphs(float32)
    for graph, function in zip(chosen, compile_graphs(chosen), strict=True):
        print(graph.name, file=sys.stderr)
        x = values(graph)
        assert_near(function(x)[0], interpret(graph, [x])[0], float32)
    print(f"{len(chosen)} large graphs right")


def main(parts: list[str]) -> None:
    for part in parts:
        check_large() if part == "large" else check_ops(by_name(part))


if __name__ == "__main__":
    main(sys.argv[1:])
