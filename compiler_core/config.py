"""Every knob of the compiler, declared once: environment name, type, default, doc, does it change generated code?

In: the environment (read once, at first use of each knob) and `patch`. Out: typed attributes of the one `config`.
Only knobs with `affects_codegen` enter the cache key (`config.codegen_key()`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar, overload

from compiler_core.errors import ConfigError

T = TypeVar("T")


class Knob(Generic[T]):
    """One knob: a descriptor that reads its override, else its environment variable, else its default."""

    def __init__(self, env: str, parse: Callable[[str], T], default: T, doc: str, *, affects_codegen: bool) -> None:
        self.env, self.parse, self.default, self.__doc__, self.affects_codegen = (
            env,
            parse,
            default,
            doc,
            affects_codegen,
        )

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Knob[T]: ...
    @overload
    def __get__(self, instance: Config, owner: type) -> T: ...
    def __get__(self, instance: Config | None, owner: type) -> Knob[T] | T:
        if instance is None:
            return self
        if self.name not in instance.values:
            instance.values[self.name] = self.read_environment()
        return instance.values[self.name]  # type: ignore[return-value]

    def read_environment(self) -> T:
        text = os.environ.get(self.env)
        return self.default if text is None else self.read(text, self.env)

    def read(self, text: str, name: str) -> T:
        """The value that `text`, of the variable `name`, spells. Raises ConfigError for what is none."""
        try:
            return self.parse(text)
        except ValueError as error:
            raise ConfigError(f"{name}={text!r} is not valid: {error}", expected=self.__doc__ or "") from error


def available_cores() -> int:
    """The cores that this process may run on: its affinity mask, where the system has such."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _level(text: str) -> int:
    level = int(text)
    if not 0 <= level <= 5:
        raise ValueError("expected 0 to 5")
    return level


def _threads(text: str) -> int:
    """The first number of OpenMP's list, which is that of the outermost level."""
    number = int(text.split(",")[0])
    if number < 1:
        raise ValueError("it must be at least 1")
    return number


def _part(text: str) -> float:
    part = float(text)
    if not 0 <= part <= 1:
        raise ValueError("expected 0 to 1")
    return part


def _megabytes(text: str) -> float:
    value = float(text)
    if value < 0:
        raise ValueError("0 or more")
    return value


def _flag(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off", ""):
        return False
    raise ValueError("expected 0 or 1")


def _seconds(text: str) -> float | None:
    if not text:
        return None
    seconds = float(text)
    if not 0 <= seconds < float("inf"):
        raise ValueError("expected seconds, 0 or more")
    return seconds


def _mebibytes(text: str) -> int:
    limit = int(text)
    if limit < 0:
        raise ValueError("it must be 0 or more")
    return limit


def _names(text: str) -> frozenset[str]:
    return frozenset(part.strip() for part in text.split(",") if part.strip())


def _boundary(text: str) -> str:
    if text not in ("notification", "cut"):
        raise ValueError("expected notification or cut")
    return text


def _draws(text: str) -> str:
    if text not in ("torch", "counter"):
        raise ValueError("expected torch or counter")
    return text


def _traceback(text: str) -> str:
    if text not in ("", "folded", "full"):
        raise ValueError("expected folded or full")
    return text or "folded"


def _repro(text: str) -> str:
    if text not in ("", "error", "accuracy"):
        raise ValueError("expected error or accuracy")
    return text


def _repro_after(text: str) -> str | None:
    if text not in ("", "dynamo", "aot"):
        raise ValueError("expected dynamo or aot")
    return text or None


def _repro_level(text: str) -> int:
    level = int(text)
    if not 1 <= level <= 4:
        raise ValueError("expected 1, 2, 3 or 4")
    return level


def _progress(text: str) -> str:
    if text not in ("auto", "0", "1"):
        raise ValueError("expected auto, 0 or 1")
    return text


def _cache_home() -> Path:
    """Below $XDG_CACHE_HOME or ~/.cache; a user without a home (some containers) has one in the temporary directory."""
    told = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(told):  # XDG's rule: a relative one is none
        return Path(told) / "distcompile"
    home = os.path.expanduser("~")
    if os.path.isabs(home):
        return Path(home) / ".cache" / "distcompile"
    import tempfile

    return Path(tempfile.gettempdir()) / f"distcompile-cache-{os.getuid()}"


def _folder(text: str) -> Path:
    """An empty text, as `export NAME=` leaves it, is as none: it does not mean the current directory."""
    return Path(text) if text else _cache_home()


PREFIX = "DISTCOMPILE_"
# names that are no knobs: a switch of collectives, and what the launcher tells its ranks
OTHER_NAMES = frozenset(
    PREFIX + name
    for name in (
        *("COPY_ENGINES", "BOARD", "LAUNCHER", "RANK_PROCESS", "SCRATCH"),
        *("RUN_COLUMNS", "RUN_CORES", "RUN_NOFILE", "RUN_TMPDIR"),
    )
)
_OF_TESTS = PREFIX + "FUZZ_"


class Config:
    """All knobs. Read them as attributes; change them with `with config.patch(name=value):`."""

    debug = Knob(
        "DISTCOMPILE_DEBUG",
        _level,
        0,
        "0..5: 1 steps, 2 graphs, 3 fusion, 4 loop IR, 5 generated source",
        affects_codegen=False,
    )
    logs = Knob(
        "DISTCOMPILE_LOGS",
        _names,
        frozenset[str](),
        "comma-separated log artefacts, see compiler_core/log.py",
        affects_codegen=False,
    )
    dump_dir = Knob(
        "DISTCOMPILE_DUMP", str, "", "directory that receives every stage as text; empty: none", affects_codegen=False
    )
    trace = Knob(
        "DISTCOMPILE_TRACE",
        str,
        "",
        "file that receives a timeline of what was compiled, for `distcompile timeline` and Perfetto; empty: none",
        affects_codegen=False,
    )
    cache_dir = Knob(
        "DISTCOMPILE_CACHE_DIR",
        _folder,
        _cache_home(),
        "directory of the compiled-artefact cache",
        affects_codegen=False,
    )
    use_cache = Knob(
        "DISTCOMPILE_CACHE", _flag, True, "0: neither read nor write the artefact cache", affects_codegen=False
    )
    cache_limit = Knob(
        "DISTCOMPILE_CACHE_LIMIT",
        _mebibytes,
        10240,
        "MiB that the artefact cache may take: what was used longest ago goes when there is more; 0: no limit",
        affects_codegen=False,
    )
    share_code = Knob(
        "DISTCOMPILE_SHARE_CODE",
        _flag,
        True,
        "0: hosts of a job that have no common cache compile each for itself",
        affects_codegen=False,
    )
    verify = Knob(
        "DISTCOMPILE_VERIFY", _flag, False, "1: verify every intermediate form between passes", affects_codegen=False
    )
    progress = Knob(
        "DISTCOMPILE_PROGRESS",
        _progress,
        "auto",
        "1: a compilation of more than two seconds says what it is doing; 0: never; auto: on terminals, in notebooks",
        affects_codegen=False,
    )
    traceback = Knob(
        "DISTCOMPILE_TRACEBACK",
        _traceback,
        "folded",
        "what is printed of an error that nobody catches: folded (without our own frames), or full",
        affects_codegen=False,
    )
    recompile_limit = Knob(
        "DISTCOMPILE_RECOMPILE_LIMIT",
        int,
        8,
        "guard keys per compiled function before it runs eager",
        affects_codegen=False,
    )
    suppress_errors = Knob(
        "DISTCOMPILE_SUPPRESS_ERRORS",
        _flag,
        False,
        "1: a graph that a backend fails on runs op by op, with a warning; so torch._dynamo.config.suppress_errors",
        affects_codegen=False,
    )
    size_instances = Knob(
        "DISTCOMPILE_SIZE_INSTANCES",
        int,
        64,
        "for how many sets of sizes an entry whose sizes the call decides keeps what was compiled; with dynamic=None so"
        " many are compiled when they first come",
        affects_codegen=False,
    )
    cxx = Knob("DISTCOMPILE_CXX", str, "", "C++ compiler; empty: $CXX, then c++, g++, clang++", affects_codegen=True)
    cxx_flags = Knob("DISTCOMPILE_CXX_FLAGS", str, "", "flags appended to the C++ compiler's", affects_codegen=True)
    fusion = Knob("DISTCOMPILE_FUSION", _flag, True, "0: one kernel per graph node", affects_codegen=True)
    measure = Knob(
        "DISTCOMPILE_MEASURE",
        _flag,
        True,
        "0: products on a CUDA device are computed by the algorithm that cuBLASLt names first, not by the fastest",
        affects_codegen=True,
    )
    boundary = Knob(
        "DISTCOMPILE_BOUNDARY",
        _boundary,
        "notification",
        "how a compiled backward tells that a bucket is complete: notification (inside one artefact) or cut",
        affects_codegen=False,
    )
    record_times = Knob(
        "DISTCOMPILE_RECORD",
        _flag,
        True,
        "0: DistributedDataParallel records no times, and overlap reports are empty",
        affects_codegen=False,
    )
    cuda_device = Knob(
        "DISTCOMPILE_CUDA_DEVICE",
        int,
        -1,
        "number of the CUDA device that is current at first; distcompile-run gives each rank its local rank's",
        affects_codegen=False,
    )
    trace_numpy = Knob(
        "DISTCOMPILE_TRACE_NUMPY",
        _flag,
        True,
        "0: functions of NumPy break the graph, instead of being part of it",
        affects_codegen=False,
    )
    automatic_dynamic_shapes = Knob(
        "DISTCOMPILE_AUTOMATIC_DYNAMIC_SHAPES",
        _flag,
        True,
        "0: a size that changed from one call to the next is a constant again, instead of a symbol",
        affects_codegen=False,
    )
    assume_static_by_default = Knob(
        "DISTCOMPILE_ASSUME_STATIC_BY_DEFAULT",
        _flag,
        True,
        "0: all sizes of arguments are captured as symbols, as by compile(dynamic=True)",
        affects_codegen=False,
    )
    allow_ignore_mark_dynamic = Knob(
        "DISTCOMPILE_ALLOW_IGNORE_MARK_DYNAMIC",
        _flag,
        False,
        "1: a size that is marked as dynamic, and that the code fixes, is a constant instead of an error",
        affects_codegen=False,
    )
    collective_bucket_mb = Knob(
        "DISTCOMPILE_COLLECTIVE_BUCKET_MB",
        _megabytes,
        4.0,
        "up to how many MiB of small collectives of a graph, one behind the other, travel as one; 0: each alone",
        affects_codegen=False,
    )
    gpu_collective_bucket_mb = Knob(
        "DISTCOMPILE_GPU_COLLECTIVE_BUCKET_MB",
        _megabytes,
        25.0,
        "the same of a GPU's, whose collectives need large messages",
        affects_codegen=False,
    )
    frame_evaluation = Knob(
        "DISTCOMPILE_FRAME_EVALUATION",
        _flag,
        True,
        "0: functions that compiled code reaches only through uncompiled code run plain",
        affects_codegen=False,
    )
    cuda_blocking = Knob(
        "CUDA_LAUNCH_BLOCKING",
        _flag,
        False,
        "1: a compiled call on a CUDA device waits for its checks, so that an error is raised where it happened",
        affects_codegen=False,
    )
    nccl_messages = Knob(
        "DISTCOMPILE_NCCL_MESSAGES",
        _flag,
        False,
        "1: send and recv of CUDA tensors go by NCCL, instead of through host memory; on all ranks alike",
        affects_codegen=False,
    )
    draws = Knob(
        "DISTCOMPILE_DRAWS",
        _draws,
        "torch",
        "what eager code on the CPU draws: torch (its numbers), or counter (the bits that compiled code draws)",
        affects_codegen=False,
    )
    memory_budget = Knob(
        "DISTCOMPILE_MEMORY_BUDGET",
        _part,
        1.0,
        "0 to 1: which part of what a forward would save for its backward may be saved; the rest is computed again",
        affects_codegen=False,
    )
    offload = Knob(
        "DISTCOMPILE_OFFLOAD",
        _part,
        0.0,
        "0 to 1: which part of the bytes that a forward saves on a CUDA device waits for its backward in host memory",
        affects_codegen=False,
    )
    fallback_random = Knob(
        "DISTCOMPILE_FALLBACK_RANDOM",
        _flag,
        False,
        "1: compiled code draws what eager code draws: its random numbers are made before the graph runs",
        affects_codegen=False,
    )
    watchdog_s = Knob(
        "DISTCOMPILE_WATCHDOG_S",
        _seconds,
        None,
        "time limit of waits for other ranks that were given none, in seconds; 0: no watchdog",
        affects_codegen=False,
    )
    repro = Knob(
        "DISTCOMPILE_REPRO",
        _repro,
        "",
        "error: a step of the compiler that raises is made a script that fails alike; accuracy: so is a step that makes"
        " something which computes something else",
        affects_codegen=False,
    )
    repro_after = Knob[str | None](
        "DISTCOMPILE_REPRO_AFTER",
        _repro_after,
        None,
        "torch's TORCHDYNAMO_REPRO_AFTER: dynamo: a script of the graph as captured; aot: of what the backend gets",
        affects_codegen=False,
    )
    repro_level = Knob(
        "DISTCOMPILE_REPRO_LEVEL",
        _repro_level,
        2,
        "torch's TORCHDYNAMO_REPRO_LEVEL, with the one before: 1: the whole graph of an error; 2: made small; 3: every"
        " graph, before it is compiled; 4: accuracy",
        affects_codegen=False,
    )
    repro_dir = Knob(
        "DISTCOMPILE_REPRO_DIR",
        str,
        "distcompile_repro",
        "directory that receives these scripts",
        affects_codegen=False,
    )
    num_threads = Knob(
        "OMP_NUM_THREADS",
        _threads,
        available_cores(),
        "threads that compiled code computes with; unset: as many as there are cores that this process may use",
        affects_codegen=False,
    )

    def __init__(self) -> None:
        self.values: dict[str, object] = {}

    @classmethod
    def knobs(cls) -> dict[str, Knob[object]]:
        return {name: knob for name, knob in vars(cls).items() if isinstance(knob, Knob)}

    def codegen_key(self) -> tuple[tuple[str, str], ...]:
        """(name, value) of every knob that changes generated code, in declaration order."""
        return tuple((name, repr(getattr(self, name))) for name, knob in self.knobs().items() if knob.affects_codegen)

    @contextmanager
    def patch(self, **overrides: object) -> Iterator[None]:
        """Override knobs within a `with` block. Raises ConfigError for an unknown name."""
        unknown = overrides.keys() - self.knobs().keys()
        if unknown:
            raise ConfigError(f"no such knob: {', '.join(sorted(unknown))}", expected=", ".join(self.knobs()))
        before = dict(self.values)
        self.values.update(overrides)
        try:
            yield
        finally:
            self.values = before


config = Config()


def check_environment(environment: Mapping[str, str] = os.environ) -> None:
    """Warn of names in the environment that look like knobs and are none; of ranks, which all have them, the first."""
    known = {knob.env for knob in Config.knobs().values()} | OTHER_NAMES
    unknown = [name for name in environment if name.startswith(PREFIX) and name not in known]
    unknown = [name for name in unknown if not name.startswith(_OF_TESTS)]
    if not unknown or environment.get("RANK", "0") != "0":
        return
    from compiler_core.log import warn_once  # which imports this file
    from compiler_core.names.nearest import nearest

    for name in sorted(unknown):
        near = nearest(name.removeprefix(PREFIX), [one.removeprefix(PREFIX) for one in known])
        meant = f"did you mean {PREFIX}{near}?" if near else "distcompile reads no such name"
        warn_once(f"environment: {name}", f"{name} has no effect: {meant}", stacklevel=4)
