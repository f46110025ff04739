"""The C++ compiler of this machine: where it is, what tells it apart from another, and with which flags we call it.

In: `config.cxx`, $CXX, PATH, /proc/cpuinfo. Out: `Toolchain`, found once per setting; `cpu_identity`;
`vector_functions`.

Invariant: finding a toolchain starts no process (a warm start must stay quick), so a compiler is identified by path,
size and modification time of the file it resolves to, not by what `--version` prints.
Vectorised mathematics comes from glibc's libmvec (x86-64 vector ABI), of which only the functions that this machine's
copy holds for every instruction set are declared to the compiler; without libmvec the loops call scalar libm.
Limits: `-march=native` means that artefacts do not move between kinds of CPU; `cpu_identity` is in the cache key.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path

from compiler_core.config import config
from compiler_core.errors import CompilerNotFoundError
from compiler_core.records import dataclass

# libm functions with one or two operands that glibc offers in vector form; the f32 name has an "f" appended
VECTOR_CANDIDATES: dict[str, int] = {
    "exp": 1, "expm1": 1, "log": 1, "log1p": 1, "sin": 1, "cos": 1, "tanh": 1, "erf": 1, "pow": 2,
}  # fmt: skip
_X86_LEVELS = {"b": (4, 2), "c": (8, 4), "d": (8, 4), "e": (16, 8)}  # vector ABI letter -> lanes of f32, f64
_FALLBACK_NAMES = ("c++", "g++", "clang++")


@dataclass(frozen=True, slots=True)
class Toolchain:
    """One C++ compiler. `identity` changes when the compiler does; `flags` make a shared object for this CPU."""

    path: str
    identity: str
    flags: tuple[str, ...]

    def key(self) -> str:
        """All that decides what this toolchain makes of a source text."""
        return "\n".join((self.identity, cpu_identity(), *self.flags, *sorted(vector_functions())))


def find_toolchain() -> Toolchain:
    """The compiler named by `config.cxx` or $CXX, else the first of c++, g++, clang++ on PATH.

    Raises CompilerNotFoundError, which names the remedy.
    """
    return _find_toolchain(config.cxx, os.environ.get("CXX", ""), config.cxx_flags, os.environ.get("PATH", ""))


@cache
def _find_toolchain(knob: str, environment: str, extra_flags: str, path: str) -> Toolchain:
    wanted = [name for name in (knob, environment) if name][:1] or list(_FALLBACK_NAMES)
    for name in wanted:
        found = shutil.which(name, path=path)
        if found:
            return Toolchain(found, _file_identity(Path(found)), (*_flags(), *extra_flags.split()))
    raise CompilerNotFoundError(
        f"no C++ compiler: {' or '.join(wanted)} not found on PATH",
        expected="g++ 11 or newer (or clang++ 14 or newer)",
        remedy='install one (Debian: "apt install g++"; macOS: "xcode-select --install"), or set DISTCOMPILE_CXX to its'
        ' path, or run without native code: compile(..., backend="aot_eager")',
    )


def _file_identity(path: Path) -> str:
    real = path.resolve()
    stat = real.stat()
    return f"{real} {stat.st_size} {stat.st_mtime_ns}"


def _flags() -> tuple[str, ...]:
    """Flags for every unit. Values stay IEEE (NaN, inf, signed zero); only errno and traps are given up.

    A product and a sum are rounded one after the other, as eager does: contracted, x * y - z is not 0 for z = x * y.
    sin and cos are no builtins: of one argument GCC makes them a sincos, of which there is no vector form (sin(cos(x))
    and its gradient of 256 x 4096: 11 ms, not 1.3).
    """
    common = (
        "-std=c++17", "-O3", _native_flag(), "-fPIC", "-fopenmp-simd",
        "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fno-exceptions", "-fno-rtti", "-fno-plt",
        "-fno-asynchronous-unwind-tables", "-fvisibility=hidden", "-pipe",
        *(f"-fno-builtin-{name}" for name in ("sin", "cos", "sinf", "cosf")),
    )  # fmt: skip
    if "avx512f" in cpu_features():
        return (*common, "-mprefer-vector-width=512")
    return common


def _native_flag() -> str:
    return "-march=native" if platform.machine() in ("x86_64", "AMD64") else "-mcpu=native"


@cache
def cpu_features() -> frozenset[str]:
    """The instruction-set flags of /proc/cpuinfo; empty where there is no such file."""
    return frozenset(_cpuinfo().get("flags", _cpuinfo().get("Features", "")).split())


def multiplies_bf16() -> bool:
    """Whether this CPU does (AVX512_BF16), and so computes products of bf16 (ops/linear_algebra/gemm_bf16.py)."""
    return platform.machine() in ("x86_64", "AMD64") and "avx512_bf16" in cpu_features()


@cache
def cpu_identity() -> str:
    """What `-march=native` looks at: machine, model and instruction sets, as a short digest."""
    info = _cpuinfo()
    facts = (platform.machine(), *(info.get(k, "") for k in ("vendor_id", "cpu family", "model", "flags", "Features")))
    return f"{platform.machine()}-{sha256('|'.join(facts).encode()).hexdigest()[:16]}"


@cache
def _cpuinfo() -> dict[str, str]:
    """The first processor's lines of /proc/cpuinfo (on macOS the processor's name from `platform`)."""
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return {"model": platform.processor()}
    first = path.read_text().split("\n\n", 1)[0]
    pairs = (line.split(":", 1) for line in first.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


@cache
def vector_functions() -> frozenset[str]:
    """The C names (`expf`, `exp`, ...) of which libmvec has every vector form that the compiler may ask for."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return frozenset()
    try:
        library = ctypes.CDLL("libmvec.so.1")
    except OSError:
        return frozenset()
    names = [
        (name + suffix, arity, lane) for name, arity in VECTOR_CANDIDATES.items() for lane, suffix in enumerate("f ")
    ]
    return frozenset(name.strip() for name, arity, lane in names if _has_all_forms(library, name.strip(), arity, lane))


def _has_all_forms(library: ctypes.CDLL, name: str, arity: int, lane: int) -> bool:
    forms = (f"_ZGV{level}N{lanes[lane]}{'v' * arity}_{name}" for level, lanes in _X86_LEVELS.items())
    return all(hasattr(library, form) for form in forms)
