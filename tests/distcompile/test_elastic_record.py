"""torch.distributed.elastic's record: the function's own error, and its file where one is asked; names beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import distcompile as dc
from distcompile.distributed.elastic.multiprocessing.errors import record


def test_a_recorded_function_is_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_ERROR_FILE", raising=False)

    @record
    def main(x: int, y: int = 2) -> int:
        """Its words."""
        return x // y

    assert (main(6), main(6, y=3), main.__name__, main.__doc__) == (3, 2, "main", "Its words.")
    with pytest.raises(ZeroDivisionError):
        main(1, 0)


def test_an_error_is_written_where_a_launcher_wants_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(file))

    @record
    def main(error: BaseException) -> None:
        raise error

    with pytest.raises(SystemExit):
        main(SystemExit(0))
    assert not file.exists()
    with pytest.raises(ValueError, match="mine"):
        main(ValueError("mine"))
    said = json.loads(file.read_text())["message"]
    assert said["message"] == "ValueError: mine"
    assert "test_elastic_record.py" in said["extraInfo"]["py_callstack"]
    assert said["extraInfo"]["timestamp"].isdecimal()


@pytest.mark.torch
def test_the_file_is_torchs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torchs = pytest.importorskip("torch.distributed.elastic.multiprocessing.errors")
    files = []
    for name, mark in (("ours", record), ("theirs", torchs.record)):
        monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / name))

        @mark
        def main() -> None:
            raise KeyError("k")

        with pytest.raises(KeyError):
            main()
        files.append(json.loads((tmp_path / name).read_text()))
    ours, theirs = files
    assert ours.keys() == theirs.keys()
    assert ours["message"]["message"] == theirs["message"]["message"]
    assert ours["message"]["extraInfo"].keys() == theirs["message"]["extraInfo"].keys()


def test_running_out_of_memory_has_torchs_name() -> None:
    assert dc.OutOfMemoryError is dc.cuda.OutOfMemoryError
    assert issubclass(dc.OutOfMemoryError, RuntimeError)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_takes_no_prefetch_factor(workers: int) -> None:
    loader = dc.utils.data.DataLoader([1, 2, 3], num_workers=workers, prefetch_factor=None)
    assert loader.prefetch_factor == (2 if workers else None)
    assert len(list(loader)) == 3
