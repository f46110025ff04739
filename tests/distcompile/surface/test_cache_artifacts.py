"""torch.compiler's portable cache: torch's names and answers; a second process runs no compiler."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import distcompile as dc
from compiler_core.config import config
from compiler_core.log import DistCompileWarning
from compiler_core.runtime import bound, cache
from distcompile.surface.artefacts import CacheInfo

PROGRAM = """
import sys
import distcompile as torch
from distcompile import nn
if len(sys.argv) > 2:
    with open(sys.argv[2], "rb") as file:
        info = torch.compiler.load_cache_artifacts(file.read())
    print("loaded", len(info.inductor_artifacts))
torch.manual_seed(0)
model = torch.compile(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)))
out = model(torch.randn(4, 8)).sum()
out.backward()
print(out.item())
data, info = torch.compiler.save_cache_artifacts()
print("saved", len(info.inductor_artifacts))
open(sys.argv[1], "wb").write(data)
"""


def run(folder: Path, cache: str, *words: str, cxx: str = "") -> tuple[list[str], list[str]]:
    """(stdout, what the log says of the cache)."""
    environment = {**os.environ, "DISTCOMPILE_CACHE_DIR": str(folder / cache), "DISTCOMPILE_LOGS": "cache,code"}
    if cxx:
        environment["DISTCOMPILE_CXX"] = cxx
    command = [sys.executable, "-c", PROGRAM, *words]
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr.splitlines()


def test_a_second_process_runs_no_compiler(tmp_path: Path) -> None:
    first, said = run(tmp_path, "one", "a.bin")
    assert any("-shared" in line for line in said)
    second, said = run(tmp_path, "two", "b.bin", "a.bin")
    assert second == ["loaded 1", *first]
    assert not any("-shared" in line or "miss" in line for line in said)
    assert (tmp_path / "a.bin").read_bytes() == (tmp_path / "b.bin").read_bytes()


def test_signatures_and_answers_are_torchs(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    for name in ("save_cache_artifacts", "load_cache_artifacts"):
        mine, theirs = (inspect.signature(getattr(module.compiler, name)) for module in (dc, torch))
        assert list(mine.parameters) == list(theirs.parameters)
    from torch.compiler._cache import CacheInfo as Theirs

    mine, theirs = CacheInfo(), Theirs()
    assert {name for name in dir(theirs) if not name.startswith("_")} - {"add"} <= {*dir(mine)}
    assert (mine.inductor_artifacts, mine.empty()) == ([], True)
    for info in (mine, theirs):
        info.artifacts["inductor"].append("k")
        assert not info.empty()
        info.clear()
        assert info.empty()
    mine.artifacts["inductor"].append("k")
    assert mine.inductor_artifacts == ["k"]
    assert torch.compiler.load_cache_artifacts(b"garbage") is None


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cache, "USED", {})
    monkeypatch.setattr(bound, "_counted", {})
    with config.patch(cache_dir=tmp_path / "cache", use_cache=True):
        yield tmp_path


@pytest.mark.usefixtures("own")
def test_nothing_compiled_is_none_and_garbage_is_said() -> None:
    assert dc.compiler.save_cache_artifacts() is None
    with pytest.warns(DistCompileWarning, match="no artefacts are loaded: this is no file of compiled artefacts"):
        assert dc.compiler.load_cache_artifacts(b"garbage") is None
    with pytest.raises(TypeError, match="takes bytes, not str"):
        dc.compiler.load_cache_artifacts("text")  # type: ignore[arg-type]


def test_what_is_for_another_place_is_left_with_one_line(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    f = dc.compile(lambda x: x.sin() + 3)
    f(dc.ones(4))
    saved = dc.compiler.save_cache_artifacts()
    assert saved is not None
    here = cache.origin()
    monkeypatch.setattr(cache, "origin", lambda: {**here, "version of distcompile": "another"})
    with (
        config.patch(cache_dir=own / "two"),
        pytest.warns(DistCompileWarning, match="for another version of distcompile") as caught,
    ):
        info = dc.compiler.load_cache_artifacts(saved[0])
    assert info is not None
    assert (info.empty(), len(caught)) == (True, 1)


@pytest.mark.usefixtures("own")
def test_without_a_cache_nothing_is_loaded() -> None:
    f = dc.compile(lambda x: x.cos() + 3)
    f(dc.ones(4))
    saved = dc.compiler.save_cache_artifacts()
    assert saved is not None
    with config.patch(use_cache=False), pytest.warns(DistCompileWarning, match="DISTCOMPILE_CACHE=0"):
        assert dc.compiler.load_cache_artifacts(saved[0]) is None


def test_under_torchs_name_it_is_the_same(tmp_path: Path) -> None:
    script = tmp_path / "file.py"
    text = PROGRAM.replace("import distcompile as torch", "import torch").replace("from distcompile", "from torch")
    script.write_text(text + "\nfrom torch.compiler._cache import CacheInfo\nprint(isinstance(info, CacheInfo))\n")
    environment = {**os.environ, "DISTCOMPILE_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "distcompile.as_torch", str(script), str(tmp_path / "a.bin")],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines()[-2:] == ["saved 1", "True"], done.stderr
