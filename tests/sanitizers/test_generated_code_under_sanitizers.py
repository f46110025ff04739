"""Generated C++ under AddressSanitizer and UndefinedBehaviorSanitizer: the op corpus and models touch only their own.

Each test is a program started with the sanitizers' libraries loaded before Python; see exact_buffers.py for how every
buffer ends where it ends. That a wrong access would be found is shown on programs that have one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from compiler_core.runtime.toolchain import find_toolchain

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PLACES = [HERE, ROOT / "tests/conformance", ROOT / "tests/compiler_core/codegen", ROOT / "tests/distcompile/nn", ROOT]
# not optimised: every access that the source has is there to be checked, and compiling takes half the time
FLAGS = "-O0 -fsanitize=address,undefined -fno-sanitize-recover=all"


def runtime_libraries() -> list[str]:
    """The sanitizers' libraries, to be loaded before Python; empty where the compiler does not bring them."""
    if "clang" in find_toolchain().path:  # its sanitizers are linked in another way
        return []
    ask = [find_toolchain().path, "-print-file-name="]
    names = ("libasan.so", "libubsan.so")
    found = [subprocess.run([ask[0], ask[1] + n], capture_output=True, text=True, check=True).stdout for n in names]
    paths = [path.strip() for path in found]
    return paths if all(Path(path).is_absolute() for path in paths) else []


pytestmark = pytest.mark.skipif(not runtime_libraries(), reason="the compiler has no sanitizers")


def start(tmp_path: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `program` of this folder under the sanitizers. Memory that nobody wrote reads as NaN."""
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(runtime_libraries()),
        "ASAN_OPTIONS": "detect_leaks=0:detect_odr_violation=0:max_malloc_fill_size=100000000:malloc_fill_byte=255",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        "DISTCOMPILE_CXX_FLAGS": FLAGS,
        "DISTCOMPILE_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(map(str, PLACES)),
    }
    command = [sys.executable, str(HERE / program), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)


def assert_right(job: subprocess.CompletedProcess[str]) -> None:
    assert job.returncode == 0, job.stderr[-4000:]
    assert job.stdout.split()[-1] == "right"


def test_a_program_without_fault_passes(tmp_path: Path) -> None:
    assert_right(start(tmp_path, "out_of_bounds.py", "nothing", "i0"))


OUTSIDE = [(buffer, "i0 + 1") for buffer in ("input", "constant", "temp", "local", "output")]


@pytest.mark.long
@pytest.mark.parametrize(("buffer", "index"), [*OUTSIDE, ("temp", "i0 - 1")])
def test_an_access_outside_is_found(buffer: str, index: str, tmp_path: Path) -> None:
    job = start(tmp_path, "out_of_bounds.py", buffer, index)
    assert job.returncode != 0
    assert f"{'stack' if buffer == 'local' else 'heap'}-buffer-" in job.stderr or "runtime error: index" in job.stderr


@pytest.mark.long
@pytest.mark.parametrize("parts", ["f32", "bf16", "c64 i64 u8 bool", "large"])  # other dtypes: other sizes of element
def test_the_op_corpus_touches_only_its_own(parts: str, tmp_path: Path) -> None:
    assert_right(start(tmp_path, "corpus.py", *parts.split()))


@pytest.mark.long
@pytest.mark.parametrize("model", ["gpt", "resnet", "lstm"])
def test_a_model_touches_only_its_own(model: str, tmp_path: Path) -> None:
    assert_right(start(tmp_path, "models.py", model))
