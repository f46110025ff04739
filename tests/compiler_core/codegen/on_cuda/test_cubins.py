"""Cubins: compiled without a GPU, kept in the cache, and what Triton refuses or wants."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from compiler_core.codegen.cuda import cubins, worker, workers
from compiler_core.codegen.cuda_backend import CudaBackend
from compiler_core.codegen.triton.module import Launch, TritonModule
from compiler_core.config import config
from compiler_core.dtype import float32
from compiler_core.errors import BackendError
from compiler_core.ops import prims
from compiler_core.runtime.cuda.executable import CudaExecutable
from tests.fake_cuda.programs import graph_of, vector

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.triton,
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT"),
    pytest.mark.usefixtures("no_cache"),
]


@pytest.mark.parametrize("capability", [80, 90])
def test_cubins_are_made_without_a_gpu(capability: int) -> None:
    run = compiled_for(capability)
    assert all(run._cubins[f.file].startswith(b"\x7fELF") for f in run.entry.functions)
    assert {f.overlaps for f in run.entry.functions} == {capability >= 90}


def test_a_kernel_waits_for_the_one_before_it_ere_it_does_anything() -> None:
    entry = ".visible .entry k_0(\n\t.param .u64 k_0_param_0\n)\n.reqntid 128\n{\n"
    body = "\t.reg .b64 \t%rd<9>;\n\tld.param.u64 %rd1, [k_0_param_0];\n\tret;\n}\n"
    wait = "\tgriddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;\n"
    assert worker.waiting(f"// head\n.func f()\n{{ ret; }}\n{entry}{body}") == (
        f"// head\n.func f()\n{{ ret; }}\n{entry}{wait}{body}"
    )


def compiled_for(capability: int) -> CudaExecutable:
    (run,) = CudaBackend(capability).compile([graph_of(prims.exp, vector(4096, float32))], "cubins")
    return run


def test_a_function_that_triton_refuses_or_that_wants_memory_is_an_error() -> None:
    launch = Launch("f", 1, (), False, {"p0": "*fp32"})
    good = {"name": "f", "threads": 128, "overlaps": True, "shared": 0, "extra": 2, "scratch": [0, 0], "seconds": 0.1}

    class Answers:
        def __init__(self, **changed: object) -> None:
            self.changed = changed

        def compile(self, requests: Any) -> Any:
            return [good | self.changed for _ in requests]

    def made(**changed: object) -> cubins.Cubin:
        with TemporaryDirectory() as folder:
            module, wanted = TritonModule("", {"f": (launch,)}, ()), [cubins.Wanted(launch, (0,))]
            return cubins.compile_cubins(module, wanted, 90, Path(folder), Answers(**changed))[0]  # type: ignore[arg-type]

    assert cubins.Cubin.from_json(made().to_json()) == cubins.Cubin("f.cubin", "f", 128, 0, True)
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
print(len(run.entry.functions), *sorted({"triton", "cupy"} & set(sys.modules)))
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


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[workers._Kept]:
    """Workers of this test's own."""
    made = workers._Kept()
    monkeypatch.setattr(workers, "_kept", made)
    yield made
    made.close()


def test_workers_stay_for_whoever_compiles_next(kept: workers._Kept) -> None:
    compiled_for(90)
    pool = kept._pool
    assert pool is not None
    compiled_for(90)
    assert kept._pool is pool


def test_a_refusal_of_triton_ends_no_worker(kept: workers._Kept, tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text("")
    (answer,) = kept.compile(
        [{"source": str(tmp_path / "kernels.py"), "length": 0, "function": "f", "cache": "", "signature": {}}]
    )
    assert "error" in answer
    assert kept._pool is not None


def test_workers_leave_when_nobody_asks(kept: workers._Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "IDLE_S", 0.01)
    compiled_for(90)
    pool = kept._pool
    if pool is not None:  # it may have left already
        pool._process.wait(60)
    while kept._pool is not None:
        time.sleep(0.01)
    compiled_for(90)


def test_workers_that_end_are_told_and_replaced(kept: workers._Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "__file__", str(Path(worker.__file__).with_name("no_such_file.py")))
    with pytest.raises(BackendError, match="the process that compiles it ended"):
        compiled_for(90)
    monkeypatch.undo()
    compiled_for(90)


def test_a_fork_has_workers_of_its_own(kept: workers._Kept) -> None:
    compiled_for(90)
    pool = kept._pool
    child = os.fork()
    if child == 0:
        os._exit(0 if workers._kept._pool is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert kept._pool is pool
    compiled_for(90)


def test_two_integers_in_one_register_are_added_one_by_one() -> None:
    """ptxas 12.8 loses the 255 of this sum, whose other half is undefined."""
    ptx = (
        "\tmov.b32 %r1, {%rs9, %rs2};\n\tadd.s16x2 %r3, %r1, 16711680;\n"
        "\t@%p4 max.u16x2 %r5, %r3, %r6;\n\tadd.s32 %r7, %r5, 1;\n"
    )
    changed = worker.unpacked(ptx)
    assert "16x2" not in changed
    assert changed.startswith("\tmov.b32 %r1, {%rs9, %rs2};\n\t{ .reg .b16 dc_a0")
    assert "mov.b32 dc_a, %r1; mov.b32 dc_b, 16711680;" in changed
    assert "add.s16 dc_a0, dc_a0, dc_b0; add.s16 dc_a1, dc_a1, dc_b1;\n\tmov.b32 %r3, {dc_a0, dc_a1}; }" in changed
    assert "max.u16 dc_a1, dc_a1, dc_b1;\n\t@%p4 mov.b32 %r5, {dc_a0, dc_a1}; }" in changed
    assert changed.endswith("\n\tadd.s32 %r7, %r5, 1;\n")


def test_ptxas_takes_what_it_is_given_for_packed_sums(tmp_path: Path) -> None:
    from triton import knobs

    text = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry f(.param .u64 p) .reqntid 32
{
	.reg .b16 %rs<3>; .reg .b32 %r<5>; .reg .b64 %rd<2>; .reg .pred %p<2>;
	ld.param.b64 %rd1, [p];
	ld.global.b16 %rs2, [%rd1];
	mov.b32 %r1, {%rs1, %rs2};
	add.s16x2 %r2, %r1, 16711680;
	setp.ne.b16 %p1, %rs2, 0;
	@%p1 max.s16x2 %r2, %r2, %r1;
	st.global.b32 [%rd1], %r2;
	ret;
}
"""
    source = tmp_path / "f.ptx"
    source.write_text(worker.unpacked(text))
    made = subprocess.run(
        [knobs.nvidia.ptxas.path, "-arch=sm_90a", str(source), "-o", str(tmp_path / "f.cubin")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
