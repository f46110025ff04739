"""Buffers may carry any name; what reaches C++ is an identifier of its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from native_harness import I0, check, pointwise, program_of

from compiler_core.codegen.cpp.names import with_identifiers
from compiler_core.dtype import float32
from compiler_core.loop_ir.expr import Load, ScalarCall
from compiler_core.loop_ir.ir import KernelCall, Program, Slot

ADD = pointwise([float32, float32], 4, ScalarCall("add", (Load("p0", I0, float32), Load("p1", I0, float32)), float32))


def named(first: str, second: str, out: str) -> Program:
    program, names = program_of(ADD), (first, second, out)
    buffers = tuple(replace(buffer, name=name) for buffer, name in zip(program.buffers, names, strict=True))
    return Program("run", buffers, (KernelCall(ADD, tuple(map(Slot, names))),), names[:2], names[2:])


@pytest.mark.parametrize(
    "names",
    [
        ("a.b", "a_b", "a b"),
        ("class", "lib", "args"),
        ("0", "", "größe"),
        ("dc_gemm", "k_k", "int"),
        ("b0", "exp", "arena"),
    ],
    ids=str,
)
def test_any_names_compile_and_stay_apart(names, tmp_path) -> None:
    data = [np.arange(4, dtype=np.float32), np.ones(4, np.float32)]
    check(named(*names), data, tmp_path)


def test_identifiers_stay_as_they_are() -> None:
    program = named("weight", "bias_1", "_out")
    assert with_identifiers(program) == program
