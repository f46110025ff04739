"""The C++ and the Triton of many graphs are what they were: for changes that should change no program.

A line of tests/golden/generated.txt holds a graph, and hashes of its two texts. Where code is meant to change, update
it; the texts themselves can be looked at by `generated`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from gpt_graphs import gpt, mlp
from schedule_graphs import random_graph

from compiler_core.codegen.cpp.program import print_source
from compiler_core.codegen.triton.module import print_module
from compiler_core.codegen.triton_backend import TritonBackend
from compiler_core.graph.ir import Graph
from compiler_core.lowering.target import GPU
from compiler_core.schedule.from_graphs import lower_and_schedule

MODELS = {"mlp": mlp, "gpt": gpt, "gpt_tied": lambda: gpt(tied=True), "gpt_dropout": lambda: gpt(dropout=0.25)}


def generated(graphs: Sequence[Graph]) -> tuple[str, str]:
    """C++ and Triton."""
    source = print_source(lower_and_schedule(graphs))
    programs = lower_and_schedule([TritonBackend().lay_out(graph) for graph in graphs], target=GPU)
    kernels = dict.fromkeys(kernel for program in programs for kernel in program.kernels)
    return "".join(source.units.values()), print_module(list(kernels)).source


def graphs() -> Iterator[tuple[str, Sequence[Graph]]]:
    for name, make in MODELS.items():
        model = make()
        yield name, (model.forward, model.backward)
    yield from ((f"random_{seed}", (random_graph(seed)[0],)) for seed in range(40))


def test_generated_text_is_what_it_was(golden) -> None:
    lines = []
    for name, several in graphs():
        hashes = (hashlib.sha256(text.encode()).hexdigest()[:16] for text in generated(several))
        lines.append(" ".join([name, *hashes]) + "\n")
    golden("generated.txt", "".join(lines))
