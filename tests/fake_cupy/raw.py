"""The stand-in's RawModule: CUDA C run on the host, block after block, its threads as fibres that meet at barriers.

In: CUDA C with `extern "C" __global__` functions of one-dimensional blocks. Out: `RawModule`, as CuPy's; functions take
(grid, block, args). The text is compiled as C++ once (kept by its hash in the system's folder for temporary files).
Between two barriers the threads of a block run one after the other, forwards and backwards in turns, so that what
depends on their order gives other numbers. A barrier that some threads pass and others do not is an error, as is an
address that a device would call misaligned, and an argument whose type is not the parameter's: CuPy would read its
bytes as something else.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import os
import re
import subprocess
import tempfile
import threading
import types
from pathlib import Path
from typing import Any

import numpy as np

from tests.fake_cupy.array import ndarray

_PRELUDE = Path(__file__).with_name("raw.h")
_FUNCTION = re.compile(r"(?:extern \"C\" __global__ void|KERNEL) (\w+)\(([^)]*)\)")
_SIZES = {"float": 4, "double": 8, "i64": 8, "u64": 8, "int": 4, "unsigned": 4, "u8": 1, "long long": 8}
_DEFINED = re.compile(r"#define ([TC]) ([\w ]+)")
_STRUCTURE = re.compile(r"^struct (\w+) ", re.MULTILINE)
_SHORT = {**_SIZES, "unsigned short": 2}
_FAILURES = {
    1: "some threads passed a barrier, and others did not",
    2: "an address is no multiple of what its type asks for",
}
_one_at_a_time = threading.Lock()


class RawModule:
    """CUDA C, compiled when its first function is asked for."""

    def __init__(self, *, code: str, options: tuple[str, ...] = (), backend: str = "nvrtc") -> None:
        self._code, self._library = code, None
        self._sizes = {**_SHORT, **{name: _SHORT[kind.strip()] for name, kind in _DEFINED.findall(code)}}
        self._structures = set(_STRUCTURE.findall(code))
        self._parameters = {name: _split(text) for name, text in _FUNCTION.findall(code)}

    def get_function(self, name: str) -> Any:
        if self._library is None:
            self._library = ctypes.CDLL(str(_built(self._code, self._parameters)))
        call = getattr(self._library, f"run_{name}")
        parameters = self._parameters[name]

        def function(grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...]) -> None:
            assert len(args) == len(parameters), f"{name} takes {len(parameters)} arguments"
            kept = [self._as_c(a, p) for a, p in zip(args, parameters)]
            pointers = (ctypes.c_void_p * len(kept))(*(k.ctypes.data for k in kept))
            x, y = (*grid, 1)[:2]
            assert 0 < x < 1 << 31
            assert 0 < y < 1 << 16
            assert 0 < block[0] <= 1024
            with _one_at_a_time:  # ranks are threads, and a kernel's blocks and fibres are the library's
                failed = call(pointers, ctypes.c_uint(x), ctypes.c_uint(y), ctypes.c_uint(block[0]))
            if failed:
                raise RuntimeError(f"{name}: {_FAILURES[failed]}")

        function.kernel = types.SimpleNamespace(ptr=next(_numbers))  # type: ignore[attr-defined]
        _handles[function.kernel.ptr] = name, call, function  # type: ignore[attr-defined]
        return function

    def _as_c(self, value: Any, parameter: str) -> Any:
        """The argument's bytes, checked against the parameter's type."""
        kind = parameter.replace("const ", "").rsplit(" ", 1)[0]
        if kind.endswith("*"):
            if value is None or isinstance(value, np.uint64):
                return np.array(0 if value is None else value, np.uint64)
            assert isinstance(value, ndarray), f"{parameter}: {type(value)}"
            assert value.itemsize == self._sizes[kind[:-1].strip()], f"{parameter}: {value.dtype}"
            assert value.flags.c_contiguous, f"{parameter}: not dense"
            return np.array(value.data.ptr, np.uint64)
        if isinstance(value, np.ndarray) and value.dtype.names:  # a structure, which CuPy copies as it is
            assert kind in self._structures, parameter
            assert value.ndim == 0
            return value
        assert isinstance(value, np.generic), f"{parameter}: {type(value)}, whose size CuPy chooses"
        is_float = kind in ("float", "double") or (kind == "C")
        assert value.itemsize == self._sizes[kind], f"{parameter}: {value.dtype}"
        assert (value.dtype.kind == "f") == is_float, f"{parameter}: {value.dtype}"
        return np.array(value)


_numbers = itertools.count(1 << 40)
_handles: dict[int, Any] = {}  # functions by what the driver calls them


def launched(function: int, x: int, y: int, z: int, threads: int, *others: Any) -> int:
    """The driver's cuLaunchKernel of these kernels: (function, grid, block, shared, stream, arguments, None)."""
    call = _handles[function][1]
    one, also_one, shared, _, args, extra = others
    if (z, one, also_one, shared, extra) != (1, 1, 1, 0, None):
        return INVALID
    with _one_at_a_time:
        failed = call(ctypes.c_void_p(args), ctypes.c_uint(x), ctypes.c_uint(y), ctypes.c_uint(threads))
    return 700 + failed if failed else 0


INVALID = 1
_NUMBER, _POINTER = ctypes.c_uint, ctypes.c_void_p
LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, *(_NUMBER,) * 7, _POINTER, _POINTER, _POINTER)
launch = LAUNCH(launched)  # by address, as the driver's


def _split(text: str) -> list[str]:
    return [" ".join(part.split()) for part in text.split(",")]


def _built(code: str, functions: dict[str, list[str]]) -> Path:
    """The library."""
    runs = "".join(_run(name, parameters) for name, parameters in functions.items())
    text = f'#include "{_PRELUDE}"\n{code}\n{runs}'
    key = hashlib.sha256((text + _PRELUDE.read_text()).encode()).hexdigest()[:24]
    folder = Path(tempfile.gettempdir()) / f"distcompile-fake-cupy-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    path = folder / f"{key}.so"
    if not path.exists():
        source, made = folder / f"{key}.{os.getpid()}.cpp", folder / f"{key}.{os.getpid()}.so"
        source.write_text(text)
        command = ["g++", "-std=c++17", "-O0", "-w", "-fsanitize=alignment", "-shared", "-fPIC", "-Wl,--as-needed"]
        command += ["-o", str(made), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        source.unlink()
        if done.returncode:
            raise RuntimeError(f"CUDA C does not compile: {done.stderr}")
        made.replace(path)
    return path


def _run(name: str, parameters: list[str]) -> str:
    values = ", ".join(f"*({p.rsplit(' ', 1)[0]}*)fibre_args[{k}]" for k, p in enumerate(parameters))
    return (
        f"static void body_{name}() {{ {name}({values}); }}\n"
        f'extern "C" int run_{name}(void** args, unsigned x, unsigned y, unsigned threads) '
        f"{{ fibre_args = args; return run_blocks(body_{name}, x, y, threads); }}\n"
    )
