"""The public namespace: torch's names, loaded lazily, from one installation; and functions that only it has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.config import config
from compiler_core.errors import DTypeError
from compiler_core.runtime.cuda import context
from distcompile.errors import ArgumentError, InstallationError
from distcompile.installation import check_installation
from distcompile.surface.names import SUBMODULES, TOP

ROOT = Path(dc.__file__).parents[1]
OURS_ONLY = {"data", "ddp", "debug", "demo", "errors", "explain", "parity", "save_file", "load_file"}


@pytest.mark.parametrize("name", [*sorted(SUBMODULES), *TOP])
def test_every_public_name_loads(name: str) -> None:
    assert (getattr(dc, name) is None) is (name == "newaxis")
    assert name in dir(dc)


@pytest.mark.torch
def test_public_names_are_torchs() -> None:
    torch = pytest.importorskip("torch")
    assert {name for name in dc.__all__ if not hasattr(torch, name)} == OURS_ONLY


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'conv7d'"):
        dc.conv7d  # noqa: B018


def run(code: str, folder: Path) -> str:
    """What `code` prints, run in `folder` with `folder` before this installation on the path."""
    environment = {"PYTHONPATH": f"{folder}:{ROOT}", "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        cwd=folder,
        check=False,
    )
    return done.stdout + done.stderr


def test_importing_and_building_a_model_loads_no_compiler_and_no_mpi(tmp_path: Path) -> None:
    heavy = ["networkx", "mpi4py", "triton", "rich", "safetensors", "torch"]
    heavy += ["compiler_core.capture.compiled.function", "compiler_core.bytecode", "compiler_core.numpy_trace"]
    heavy += ["compiler_core.graph.passes", "collectives.nccl.communicator", "distcompile.ddp", "distcompile.compiler"]
    code = "import distcompile as t, sys; t.nn.Linear(2, 2)(t.ones(1, 2)).sum().backward(); t.optim; "
    code += f"print([m for m in {heavy} if m in sys.modules])"
    assert run(code, tmp_path).strip() == "[]"


def test_a_shadowing_package_is_named_with_both_places(tmp_path: Path) -> None:
    (tmp_path / "launch").mkdir()
    (tmp_path / "launch" / "__init__.py").touch()
    out = run("import distcompile", tmp_path)
    assert f"InstallationError: rename {tmp_path}/launch: Python finds it in place of 'launch'" in out
    assert f"expected: {ROOT}/launch" in out
    assert f"got: {tmp_path}/launch" in out


def test_a_shadowing_module_is_named_by_the_command_of_the_launcher(tmp_path: Path) -> None:
    (tmp_path / "launch.py").touch()
    out = run("from distcompile.run import main; main()", tmp_path)  # what the installed script does
    assert f"InstallationError: rename {tmp_path}/launch.py: Python finds it" in out


@pytest.mark.parametrize("name", ["launch", "collectives", "compiler_core"])
def test_a_module_beside_the_program_is_named_first_by_ranks_too(name: str, tmp_path: Path) -> None:
    (tmp_path / f"{name}.py").touch()
    (tmp_path / "program.py").write_text("import distcompile\n")
    launcher = "import sys; from launch.cli import main; sys.exit(main(['program.py']))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", launcher], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    shadowed = f"InstallationError: rename {tmp_path}/{name}.py: Python finds it in place of {name!r}"
    assert (f"({tmp_path}/compiler_core.py)" if name == "compiler_core" else shadowed) in done.stderr


def test_a_missing_package_is_named() -> None:
    with pytest.raises(InstallationError, match="'no_such_package' is missing"):
        check_installation(("distcompile", "no_such_package"))


def test_the_number_of_threads_is_a_knob_of_what_is_compiled_next() -> None:
    before = dc.get_num_threads()
    dc.set_num_threads(2)
    assert dc.get_num_threads() == config.num_threads == 2
    dc.set_num_threads(before)
    with pytest.raises(ArgumentError, match="positive integer"):
        dc.set_num_threads(0)


def test_is_tensor() -> None:
    assert dc.is_tensor(dc.ones(1))
    assert not dc.is_tensor(np.ones(1))


@pytest.mark.parametrize(
    ("misuse", "error"),
    [
        (lambda: dc.finfo(dc.int64), DTypeError),
        (lambda: dc.iinfo(dc.float32), DTypeError),
        (lambda: dc.zeros(2, dtype=dc.float8_e4m3fn), DTypeError),
        (lambda: dc.ones(2).to(dc.float8_e5m2), DTypeError),
        (lambda: dc.tensor([1.0], dtype=dc.float8_e5m2), DTypeError),
        (lambda: dc.ones(2).sum(dtype=dc.float8_e5m2), DTypeError),
        (lambda: dc.empty_like(dc.ones(2), dtype=dc.float8_e8m0fnu), DTypeError),
        (lambda: dc.set_default_dtype(dc.float8_e5m2), DTypeError),
    ],
)
def test_misuse_is_a_named_error(misuse: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        misuse()


@pytest.mark.torch
def test_limits_are_torchs() -> None:
    torch = pytest.importorskip("torch")
    eights = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e8m0fnu")  # torch halves e5m2fnuz's eps
    for name in ("float64", "float32", "float16", "bfloat16", *eights):
        mine, want = dc.finfo(getattr(dc, name)), torch.finfo(getattr(torch, name))
        assert (mine.eps, mine.max, mine.min, mine.tiny, mine.bits) == (
            want.eps,
            want.max,
            want.min,
            want.tiny,
            want.bits,
        )
    for name in ("int64", "int32", "int16", "int8", "uint8"):
        mine_i, want = dc.iinfo(getattr(dc, name)), torch.iinfo(getattr(torch, name))
        assert (mine_i.max, mine_i.min, mine_i.bits) == (want.max, want.min, want.bits)


def test_switches_for_gpus_are_taken() -> None:
    dc.backends.cudnn.benchmark = True
    assert dc.backends.cudnn.benchmark
    dc.backends.cudnn.benchmark = False
    assert not dc.backends.mps.is_available()
    assert dc.get_float32_matmul_precision() == "highest"
    assert not context.tf32_is_permitted()
    try:
        dc.backends.cuda.matmul.allow_tf32 = True
        assert dc.get_float32_matmul_precision() == "high"
        assert context.tf32_is_permitted()
    finally:
        dc.set_float32_matmul_precision("highest")
    assert not dc.backends.cuda.matmul.allow_tf32
    assert not context.tf32_is_permitted()
    with pytest.raises(ArgumentError, match="fast"):
        dc.set_float32_matmul_precision("fast")


def test_dotted_paths_need_only_the_one_import(tmp_path: Path) -> None:
    """As in torch: `import torch` is enough for `torch.utils.data.distributed.DistributedSampler`, and the like."""
    paths = [
        "utils.data.distributed.DistributedSampler",
        "nn.functional.relu",
        "nn.parallel.DistributedDataParallel",
        "nn.utils.clip_grad_norm_",
        "nn.init.normal_",
        "optim.lr_scheduler.StepLR",
        "distributed.init_process_group",
        "autograd.Function",
        "random.manual_seed",
        "cuda.is_available",
        "backends.cudnn.benchmark",
    ]
    code = "import distcompile as torch; " + "; ".join(f"torch.{path}" for path in paths) + "; print('all found')"
    assert run(code, tmp_path).strip() == "all found"
