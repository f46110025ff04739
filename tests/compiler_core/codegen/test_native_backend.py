"""Backend "codegen" on real graphs: right, cached by text, safe among processes, quick when warm."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from small_network import MLP, graph_of, mlp, mlp_inputs

from compiler_core import log
from compiler_core.backend import find_backend
from compiler_core.codegen.native_backend import NativeBackend, artefact_key
from compiler_core.config import config
from compiler_core.dtype import float32, int64
from compiler_core.errors import CompilerFailedError, CompilerNotFoundError, IndexError_, ShapeError
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph
from compiler_core.ops import functional as F
from compiler_core.runtime.profiler import profiling
from compiler_core.runtime.toolchain import find_toolchain

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def own_cache(tmp_path):
    with config.patch(cache_dir=tmp_path / "cache"):
        yield tmp_path / "cache"


def test_a_small_network_equals_the_interpreter() -> None:
    (native,) = find_backend("codegen").compile([MLP], "mlp")
    inputs = mlp_inputs()
    np.testing.assert_allclose(native(inputs)[0], interpret(MLP, inputs)[0], rtol=2e-6, atol=1e-7)


def test_graphs_of_one_name_compile_together() -> None:
    graphs = [graph_of(F.exp, (4,)), graph_of(F.sin, (4,)), graph_of(F.exp, (4,))]
    x = np.linspace(0, 1, 4).astype(np.float32)
    for native, function in zip(NativeBackend().compile(graphs, "three"), (np.exp, np.sin, np.exp), strict=True):
        np.testing.assert_allclose(native([x])[0], function(x), rtol=1e-6)


def test_constants_are_kept_in_the_artefact() -> None:
    table = np.arange(40, dtype=np.float32).reshape(8, 5) ** 2
    offsets = np.arange(3, dtype=np.int64)
    graph = graph_of(lambda i: F.add(F.embedding(F.add(i, offsets), table), 1.0), (3,), dtypes=[int64])
    for _ in range(2):  # built, then read back
        (native,) = NativeBackend().compile([graph], "constants")
        np.testing.assert_array_equal(native([np.array([0, 2, 5])])[0], table[[0, 3, 7]] + 1)


def test_errors_of_the_user_reach_the_user() -> None:
    (native,) = NativeBackend().compile([graph_of(F.embedding, (3,), (8, 5), dtypes=[int64, float32])], "embedding")
    table = np.zeros((8, 5), np.float32)
    with pytest.raises(IndexError_, match="out of range"):
        native([np.array([0, 8, 1]), table])
    with pytest.raises(ShapeError, match="input 1"):
        native([np.array([0, 7, 1]), table[:7]])


def test_the_key_follows_what_matters_and_nothing_else() -> None:
    toolchain = find_toolchain()

    def key(*graphs: Graph) -> str:
        return artefact_key(graphs, toolchain)

    assert key(MLP) == key(graph_of(mlp, (6, 5), (7, 5), (7,), (3, 7), name="mlp"))
    assert len({key(MLP), key(MLP, MLP), key(graph_of(mlp, (7, 5), (7, 5), (7,), (3, 7), name="mlp"))}) == 3
    ones, twos = (graph_of(lambda x, c=c: F.mul(x, np.full(99, c, np.float32)), (99,)) for c in (1, 2))
    assert key(ones) != key(twos)
    before = key(MLP)
    with config.patch(debug=0, recompile_limit=3):
        assert key(MLP) == before
    with config.patch(fusion=False):
        assert key(MLP) != before


def entry_folder(cache: Path) -> Path:
    (manifest,) = cache.rglob("manifest.json")
    return manifest.parent


@pytest.mark.parametrize("damage", ["truncated", "removed", "garbled"])
def test_a_damaged_library_is_rebuilt(damage: str, own_cache) -> None:
    NativeBackend().compile([MLP], "mlp")
    library = entry_folder(own_cache) / "kernels.so"
    content = library.read_bytes()
    library.unlink()  # not written over: this process has it mapped
    if damage != "removed":
        library.write_bytes(content[: len(content) // 2] if damage == "truncated" else content[::-1])
    with pytest.warns(log.DistCompileWarning, match="damaged cache entry"):
        (native,) = NativeBackend().compile([MLP], "mlp")
    np.testing.assert_allclose(native(mlp_inputs())[0].sum(1), 1, rtol=1e-6)


def test_no_compiler_names_the_remedy() -> None:
    with config.patch(cxx="no-such-compiler"), pytest.raises(CompilerNotFoundError, match='backend="aot_eager"'):
        NativeBackend().compile([MLP], "mlp")


def test_a_compiler_that_fails_is_shown_with_the_source() -> None:
    with config.patch(cxx_flags="-no-such-flag"), pytest.raises(CompilerFailedError, match="no-such-flag") as caught:
        NativeBackend().compile([MLP], "mlp")
    source = Path(caught.value.where)
    assert "mlp" in source.read_text()
    shutil.rmtree(source.parent)


def test_outputs_are_not_overwritten_by_the_next_call() -> None:
    (native,) = NativeBackend().compile([graph_of(F.exp, (4,))], "exp")
    kept = [native([np.full(4, k, np.float32)])[0] for k in range(6)]
    np.testing.assert_allclose(np.stack(kept)[:, 0], np.exp(np.arange(6)), rtol=1e-6)


def test_gradients_land_where_the_caller_says() -> None:
    (native,) = NativeBackend().compile([MLP], "mlp")
    flat = np.zeros(40, np.float32)
    place = flat[10:28].reshape(6, 3)
    (result,) = native(mlp_inputs(), [place])
    assert result is place
    np.testing.assert_allclose(place.sum(1), 1, rtol=1e-6)
    assert not flat[:10].any()
    assert not flat[28:].any()


def test_source_and_user_lines_are_kept_beside_the_library(own_cache) -> None:
    NativeBackend().compile([MLP], "mlp")
    text = (entry_folder(own_cache) / "main.cpp").read_text()
    assert "tanh" in text
    assert "// %matmul" in text


def test_stages_behind_the_cache_are_shown_on_a_hit_too(tmp_path, capsys) -> None:
    NativeBackend().compile([MLP], "mlp")
    with config.patch(dump_dir=str(tmp_path / "dump"), logs=frozenset({"code"})):
        NativeBackend().compile([MLP], "mlp")
    stages = {path.name for path in (tmp_path / "dump" / "rank0" / "mlp").iterdir()}
    assert {"09_define_mlp.txt", "15_schedule_mlp.txt", "16_emit_main.txt"} <= stages
    assert "#pragma omp simd" in capsys.readouterr().err


def test_profile_rows_cover_every_step() -> None:
    (native,) = NativeBackend().compile([MLP], "mlp")
    inputs = mlp_inputs()
    before = native(inputs)[0].copy()
    with profiling() as profile:
        for _ in range(3):
            measured = native(inputs)[0].copy()
    np.testing.assert_array_equal(measured, before)
    gemms = [row for row in profile.rows if row.label.startswith("gemm")]
    assert {row.label: (row.calls, row.flops) for row in gemms} == {
        "gemm f32 6x5 5x7": (3, 3 * 2 * 6 * 7 * 5),
        "gemm f32 6x7 7x3": (3, 3 * 2 * 6 * 3 * 7),
    }
    assert all(row.seconds > 0 and row.nbytes > 0 for row in profile.rows)
    assert "GFLOP/s" in profile.table()
    assert profile.limits is not None
    copied, computed = profile.limits
    assert f"{copied / 1e9:.1f} GB/s, a large product makes {computed / 1e9:.1f} GFLOP/s" in profile.table()
    native(inputs)  # back to the plain library
    with profiling() as empty:
        pass
    assert (empty.rows, empty.limits) == ([], None)


def test_threads_are_in_the_artefact() -> None:
    graph = graph_of(lambda x: F.softmax(x, -1), (600, 128))
    x = np.random.default_rng(0).normal(size=(600, 128)).astype(np.float32)
    (one,) = NativeBackend().compile([graph], "softmax")
    with config.patch(num_threads=2):
        (two,) = NativeBackend().compile([graph], "softmax")
    np.testing.assert_array_equal(one([x])[0], two([x])[0])


@pytest.mark.parametrize("compiled_before", [True, False])
def test_a_forked_child_does_not_wait_for_the_parents_threads(compiled_before: bool) -> None:
    """In a process of its own, which another test has not given threads yet."""
    script = f"""
import os, time
import numpy as np
from compiler_core.capture import compile
from compiler_core.tensor.making.creation import ones
run, x = compile(lambda x: (x * 2).exp().sum(1)), ones(512, 2048)
other = compile(lambda x: (x * 3).exp().sum(1))
run(x)
child = os.fork()
if child == 0:
    ({"run" if compiled_before else "other"})(x)
    os._exit(7)
for _ in range(600):
    done, status = os.waitpid(child, os.WNOHANG)
    if done:
        raise SystemExit(os.waitstatus_to_exitcode(status))
    time.sleep(0.05)
os.kill(child, 9)
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 7, done.stderr


PROCESS = textwrap.dedent("""
    import sys
    sys.path.insert(0, {tests!r})
    from compiler_core.codegen.native_backend import NativeBackend
    from small_network import MLP, mlp_inputs
    (native,) = NativeBackend().compile([MLP], "mlp")
    native(mlp_inputs())
    heavy = [name for name in ("networkx", "compiler_core.lowering", "compiler_core.codegen.cpp.program")
             if name in sys.modules]
    print("heavy:", ",".join(heavy))
""")


def start(cache: Path) -> subprocess.Popen[str]:
    code = PROCESS.format(tests=str(Path(__file__).parent))
    environment = {
        **os.environ,
        "DISTCOMPILE_CACHE_DIR": str(cache),
        "PYTHONPATH": str(ROOT),
        "DISTCOMPILE_LOGS": "cache",
    }
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code], stdout=pipe, stderr=pipe, text=True, env=environment)


def test_of_four_ranks_one_compiles_and_a_warm_start_is_light(tmp_path) -> None:
    ranks = [start(tmp_path / "shared") for _ in range(4)]
    outputs = [rank.communicate(timeout=120) for rank in ranks]
    assert all(rank.returncode == 0 for rank in ranks), outputs
    assert sum("cache: miss" in err for _, err in outputs) == 1
    out, err = start(tmp_path / "shared").communicate(timeout=120)
    assert "cache: hit" in err
    assert out.strip() == "heavy:"
