"""Finding MPI: the real one, and made-up mpiexecs that must be refused with the remedy."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from launch.errors import MpiexecNotFoundError, MPIMismatchError, MPINotFoundError
from launch.machine import mpi_discovery
from launch.machine.mpi_discovery import FAMILIES, discover, mpiexec_family

HYDRA = "HYDRA build details:\n    Version:                                 4.2.1\n"
OPEN_MPI = "mpirun (Open MPI) 5.0.3\n\nReport bugs to https://www.open-mpi.org/community/help/\n"
OPEN_MPI_4 = "mpirun (Open MPI) 4.1.4\n"
INTEL = "Intel(R) MPI Library for Linux* OS, Version 2021.11 Build 20231005 (id: 74c4a23)\n"

MPICH_REPORT = {"version": "MPICH Version:      4.2.1\nMPICH ABI: ...", "library": "", "bin": "/nowhere"}
OPEN_MPI_REPORT = {"version": "Open MPI v5.0.3, package: Open MPI", "library": "", "bin": "/nowhere"}


def fake_mpiexec(folder: Path, name: str, says: str) -> str:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\ncat <<'EOF'\n{says}EOF\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def only_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nothing of MPI on it but what the test puts into the folder returned."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "cat").symlink_to(shutil.which("cat") or "/bin/cat")
    monkeypatch.setenv("PATH", str(folder))
    return folder


def loads(monkeypatch: pytest.MonkeyPatch, report: dict[str, str]) -> None:
    monkeypatch.setattr(mpi_discovery, "_probe", lambda changes: report)


def test_the_mpi_of_this_environment_is_found_whole() -> None:
    mpi = discover()
    assert Path(mpi.library).name.startswith("libmpi")
    said = mpiexec_family(mpi.mpiexec)
    assert said is not None
    assert said[0] is mpi.family


@pytest.mark.parametrize(
    ("says", "family", "version"),
    [(HYDRA, "MPICH", "4.2.1"), (OPEN_MPI, "Open MPI", "5.0.3"), (INTEL, "Intel MPI", "2021.11")],
)
def test_an_mpiexec_says_what_it_is(tmp_path: Path, says: str, family: str, version: str) -> None:
    said = mpiexec_family(fake_mpiexec(tmp_path, "mpiexec", says))
    assert said is not None
    assert (said[0].name, said[1]) == (family, version)


def test_something_else_is_no_mpiexec(tmp_path: Path) -> None:
    assert mpiexec_family(fake_mpiexec(tmp_path, "mpiexec", "hello\n")) is None
    assert mpiexec_family(str(tmp_path / "absent")) is None


def test_mpich_loaded_but_open_mpi_on_path_is_refused(only_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads(monkeypatch, MPICH_REPORT)
    fake_mpiexec(only_path, "mpiexec", OPEN_MPI)
    with pytest.raises(MPIMismatchError) as caught:
        discover()
    assert "Open MPI 5.0.3" in caught.value.got
    assert "MPICH 4.2.1" in caught.value.expected
    assert 'pip install "distcompile[mpich]"' in caught.value.remedy


def test_an_mpiexec_of_the_same_family_is_preferred_to_the_first_on_path(
    only_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads(monkeypatch, MPICH_REPORT)
    fake_mpiexec(only_path, "mpiexec", OPEN_MPI)
    right = fake_mpiexec(only_path, "mpiexec.mpich", HYDRA)
    assert discover().mpiexec == right


def test_the_library_s_own_mpiexec_comes_before_path(
    only_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = tmp_path / "prefix"
    prefix.mkdir()
    loads(monkeypatch, {**MPICH_REPORT, "library": str(prefix / "lib" / "libmpi.so.12")})
    fake_mpiexec(only_path, "mpiexec", HYDRA)
    own = fake_mpiexec(prefix / "bin", "mpiexec", HYDRA)
    assert discover().mpiexec == own


def test_open_mpi_s_mpiexec_must_be_of_the_same_major_version(only_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads(monkeypatch, OPEN_MPI_REPORT)
    fake_mpiexec(only_path, "mpirun", OPEN_MPI_4)
    with pytest.raises(MPIMismatchError, match=r"Open MPI 4\.1\.4"):
        discover()


def test_a_wanted_mpiexec_of_another_mpi_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads(monkeypatch, OPEN_MPI_REPORT)
    with pytest.raises(MPIMismatchError):
        discover(fake_mpiexec(tmp_path, "mpiexec", HYDRA))


@pytest.mark.usefixtures("only_path")
def test_no_mpiexec_at_all_has_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    loads(monkeypatch, MPICH_REPORT)
    with pytest.raises(MpiexecNotFoundError, match="pip install"):
        discover()


def test_no_library_has_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPI4PY_MPIABI", "")
    monkeypatch.setenv("MPI4PY_LIBMPI", "/nowhere/libmpi.so")
    with pytest.raises(MPINotFoundError, match=r"distcompile\[mpich\]") as caught:
        discover()
    assert caught.value.where == sys.executable


def test_an_unknown_mpi_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    loads(monkeypatch, {"version": "Cray MPI 9", "library": "", "bin": ""})
    with pytest.raises(MPINotFoundError, match="Cray MPI 9"):
        discover()


def test_families_are_told_apart() -> None:
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
