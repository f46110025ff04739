"""One source in as many units as are asked for: each kernel once, the work shared out, the same results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import distcompile as dc
from compiler_core.codegen.cpp.program import SPLIT_LINES, Source, print_source
from compiler_core.codegen.native_backend import with_symbols
from compiler_core.loop_ir.ir import Program
from compiler_core.runtime.build import build_library
from compiler_core.runtime.executor import load_library
from compiler_core.runtime.toolchain import find_toolchain
from compiler_core.schedule.from_graphs import lower_and_schedule
from distcompile import nn


def programs() -> list[Program]:
    dc.manual_seed(0)
    norms = [nn.Sequential(nn.LayerNorm(n), nn.GELU(), nn.Softmax(-1), nn.Linear(n, n + 1)) for n in range(20, 32)]
    compiled = dc.compile(nn.Sequential(*norms))
    compiled(dc.ones(3, 20)).sum().backward()
    graphs = dict(compiled.explain().entries[0].graphs)
    return with_symbols(lower_and_schedule([graphs["forward"], graphs["backward"]], "units"))


@pytest.fixture(scope="module")
def made() -> list[Program]:
    return programs()


def source(made: list[Program], units: int) -> Source:
    return print_source(made, units=units)


@pytest.mark.parametrize("units", [1, 2, 4, 7])
def test_each_kernel_stands_in_one_unit(made: list[Program], units: int) -> None:
    found = source(made, units)
    assert len(found.units) == units
    names = {kernel.name for program in made for kernel in program.kernels}
    for name in names:
        defined = [stem for stem, text in found.units.items() if _defines(text, f"k_{name}")]
        assert len(defined) == 1, name


def _defines(text: str, name: str) -> bool:
    return any(f" {name}(" in line and line.rstrip().endswith("{") for line in text.splitlines())


def test_the_work_is_shared_out(made: list[Program]) -> None:
    lengths = [len(text) for stem, text in source(made, 4).units.items() if stem != "main"]
    assert max(lengths) < 1.6 * min(lengths)


def test_a_short_source_is_one_unit() -> None:
    compiled = dc.compile(lambda x: x.sin() + 1)
    compiled(dc.ones(3))
    (graph,) = dict(compiled.explain().entries[0].graphs).values()
    short = with_symbols(lower_and_schedule([graph], "short"))
    found = print_source(short, units=8)
    assert sum(text.count("\n") for text in found.units.values()) < 3 * SPLIT_LINES
    assert [*found.units] == ["main"]


def test_units_of_any_number_link(made: list[Program], tmp_path: Path) -> None:
    for units in (1, 3):
        place = tmp_path / f"{units}.so"
        build_library(source(made, units).units, place, find_toolchain())
        library = load_library(place)
        assert all(hasattr(library, program.name) for program in made)


def test_cores_do_not_change_what_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    from compiler_core.codegen import native_backend
    from compiler_core.config import config

    found = []
    for cores in (1, 4):
        monkeypatch.setattr(native_backend, "available_cores", lambda cores=cores: cores)
        dc.manual_seed(0)
        net = nn.Sequential(*(nn.Sequential(nn.LayerNorm(n), nn.Softmax(-1), nn.Linear(n, n + 1)) for n in (9, 10, 11)))
        with config.patch(use_cache=False):
            dc.compile(net)(dc.ones(3, 9)).sum().backward()
        found.append([p.grad.numpy() for p in net.parameters()])
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)
