"""Saving where there is no room, or where something is that is no plain file: a named error, nothing by halves."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import distcompile as dc
from distcompile.errors import CheckpointError, CheckpointWriteError

SAVED_FROM = """
import resource, signal, sys
import distcompile as dc
from distcompile.errors import CheckpointWriteError

data = {"w": dc.ones(100_000)}
dc.save(data, sys.argv[2])  # what is compiled for it is compiled now
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    dc.save(data, sys.argv[1])
except CheckpointWriteError as error:
    print(error)
"""


@pytest.mark.parametrize("name", ["model.pt", "model.safetensors"])
@pytest.mark.parametrize("before", [None, b"what was there before"])
def test_no_half_file_is_left(tmp_path: Path, name: str, before: bytes | None) -> None:
    """The kernel refuses to let a file grow any further, in the middle of the tensors."""
    folder = tmp_path / "full"
    folder.mkdir()
    path, elsewhere = folder / name, tmp_path / name
    if before is not None:
        path.write_bytes(before)
    done = subprocess.run(
        [sys.executable, "-c", SAVED_FROM, str(path), str(elsewhere)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert f"{path} could not be written: File too large" in done.stdout
    assert "what to do: make room" in done.stdout
    assert "Exception ignored" not in done.stderr
    assert [each.name for each in folder.iterdir()] == ([name] if before is not None else [])
    assert before is None or path.read_bytes() == before


def test_the_error_is_what_programs_catch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointWriteError, match="No space left on device") as caught:
        dc.save({"w": dc.ones(3)}, tmp_path / "model.pt")
    assert isinstance(caught.value, (OSError, RuntimeError, CheckpointError))
    assert caught.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("save", [dc.save, dc.save_file])
def test_other_errors_of_the_system_stay_as_they_are(save: Callable[..., None], tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        save({"w": dc.ones(3)}, tmp_path / "absent" / "model.safetensors")


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    """So does a device: /dev/null would otherwise be replaced by a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE)
    dc.save({"w": dc.ones(3)}, pipe)
    assert reader.communicate(timeout=30)[0][:2] == b"PK"
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_link_is_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "target.pt", tmp_path / "link.pt"
    link.symlink_to(target)
    for value in (1.0, 2.0):
        dc.save(dc.tensor(value), link)
        assert link.is_symlink()
        assert dc.load(target).item() == value


def test_a_file_has_the_rights_of_any_new_file(tmp_path: Path) -> None:
    plain: Any = tmp_path / "plain"
    plain.touch()
    dc.save(dc.ones(3), tmp_path / "model.pt")
    assert (tmp_path / "model.pt").stat().st_mode == plain.stat().st_mode
