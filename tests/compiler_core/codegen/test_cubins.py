"""Cubins: compiled without a GPU, kept in the cache, and what Triton refuses or wants."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from compiler_core.codegen.cuda import cubins
from compiler_core.codegen.cuda_backend import CudaBackend
from compiler_core.codegen.triton.module import Launch, Module
from compiler_core.config import config
from compiler_core.dtype import float32
from compiler_core.errors import BackendError
from compiler_core.ops import prims
from compiler_core.runtime.cuda.executable import CudaExecutable
from tests.fake_cuda.programs import graph_of, vector

pytest.importorskip("triton")
pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore:TRITON_DEFAULT")]


@pytest.fixture(autouse=True)
def no_cache() -> Iterator[None]:
    """What the fake compiles must not be found by others."""
    with config.patch(use_cache=False):
        yield


@pytest.mark.parametrize("capability", [80, 90])
def test_cubins_are_made_without_a_gpu(capability: int) -> None:
    run = compiled_for(capability)
    assert all(run._cubins[f.file].startswith(b"\x7fELF") for f in run.entry.functions)


def compiled_for(capability: int) -> CudaExecutable:
    (run,) = CudaBackend(capability).compile([graph_of(prims.exp, vector(4096, float32))], "cubins")
    return run


def test_a_function_that_triton_refuses_or_that_wants_memory_is_an_error() -> None:
    launch = Launch("f", 1, (), False, {"p0": "*fp32"})
    good = {"name": "f", "threads": 128, "shared": 0, "extra": 2, "scratch": [0, 0], "seconds": 0.1}

    class Answers:
        def __init__(self, **changed: object) -> None:
            self.changed = changed

        def compile(self, requests: Any) -> Any:
            return [good | self.changed for _ in requests]

    def made(**changed: object) -> cubins.Cubin:
        with TemporaryDirectory() as folder:
            module, wanted = Module("", {"f": (launch,)}, ()), [cubins.Wanted(launch, (0,))]
            return cubins.compile_cubins(module, wanted, 90, Path(folder), Answers(**changed))[0]  # type: ignore[arg-type]

    assert cubins.Cubin.from_json(made().to_json()) == cubins.Cubin("f.cubin", "f", 128, 0)
    with pytest.raises(BackendError, match=r"Triton does not compile f[\s\S]*no such type"):
        made(error="no such type")
    with pytest.raises(BackendError, match=r"not given[\s\S]*\[64, 0\]"):
        made(scratch=[64, 0])
    with pytest.raises(BackendError, match=r"not given[\s\S]*3 arguments"):
        made(extra=3)


HIT = """
import sys
from compiler_core.codegen.cuda_backend import CudaBackend
from compiler_core.config import config
from compiler_core.graph.parse import parse_graph
import compiler_core.ops.prims
(run,) = CudaBackend(90).compile([parse_graph(sys.argv[1])], "hit")
print(len(run.entry.functions), *sorted({"triton", "sympy", "cupy"} & set(sys.modules)))
"""


def test_a_filled_cache_needs_no_triton(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of(lambda x: prims.exp(prims.neg(x)), vector(64))
    with config.patch(use_cache=True, cache_dir=tmp_path):
        CudaBackend(90).compile([graph], "fill")
    monkeypatch.setenv("DISTCOMPILE_CACHE_DIR", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", HIT, str(graph)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["1"]


def test_many_functions_are_compiled_side_by_side(tmp_path: Any) -> None:
    graphs = [graph_of(function, vector(64)) for function in (prims.exp, prims.log, prims.neg)]
    runs = CudaBackend(90).compile(graphs, "side_by_side")
    assert [len(run.entry.functions) for run in runs] == [1, 1, 1]
    assert len({data for run in runs for data in run._cubins.values()}) == 3
