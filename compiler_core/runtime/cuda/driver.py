"""The CUDA driver, cuBLAS and cuDNN, opened when first asked for: their functions' addresses, and their errors as ours.

In: names of functions. Out: `address_of(name)`, for generated code; `call(name, ...)`, for the few calls that we make
ourselves; `failure(...)`: a named error with the driver's own words. Nothing is linked and no header of CUDA's is
needed: an artefact builds, and loads, on a machine without a GPU.

    libcuda     the driver's, on the loader's path (where it is not: "libcuda.so.1" is told in the error)
    libcublas   where cuda-pathfinder finds it, which CuPy brings and asks itself; else on the loader's path; so the
                copy that CuPy has loaded is the one that we use
    libcudnn    the same way; where it is missing, convolutions are our own kernels
Source: CUDA Driver API and cuBLAS manuals (numbers of attributes and the forms of calls). Raises: DeviceError.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from compiler_core.errors import DeviceError

MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
STATIC_LIMIT = 48 << 10  # bytes of shared memory that a block may have without asking
_CUBLAS = ("libcublas.so.13", "libcublas.so.12")
_CUBLASLT = ("libcublasLt.so.13", "libcublasLt.so.12")
_CUDNN = ("libcudnn.so.9",)


@cache
def load_driver() -> ctypes.CDLL:
    """The driver's library. Raises DeviceError where there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise DeviceError(
            "the CUDA driver cannot be opened",
            got=str(error),
            remedy="install NVIDIA's driver (in a container: run it with --gpus), or use device='cpu'",
        ) from error


@cache
def load_cublas() -> ctypes.CDLL:
    """cuBLAS. Raises DeviceError where it is not found."""
    return _load("cublas", _CUBLAS, "cuBLAS cannot be opened, and products on a CUDA device need it")


@cache
def load_cublaslt() -> ctypes.CDLL:
    """cuBLASLt. Raises DeviceError where it is not found."""
    return _load("cublasLt", _CUBLASLT, "cuBLASLt cannot be opened, and products on a CUDA device need it")


@cache
def load_cudnn() -> ctypes.CDLL:
    """cuDNN 9. Raises DeviceError where it is not found."""
    return _load("cudnn", _CUDNN, "cuDNN cannot be opened")


def _load(name: str, files: tuple[str, ...], what: str) -> ctypes.CDLL:
    found = _found_by_pathfinder(name)
    failures = []
    for file in (*([found] if found else []), *files):
        try:
            return ctypes.CDLL(file)
        except OSError as error:
            failures.append(str(error))
    raise DeviceError(
        what,
        got="; ".join(failures),
        remedy='pip install "distcompile[cuda]", or put CUDA\'s libraries on LD_LIBRARY_PATH',
    )


def _found_by_pathfinder(name: str) -> str | None:
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib
    except ImportError:
        return None
    try:
        path: str | None = load_nvidia_dynamic_lib(name).abs_path
    except Exception:  # noqa: BLE001  its own kinds of "not found": we look further
        return None
    return path


def function(name: str) -> Any:
    """The C function `name` of its library, by its prefix. Raises DeviceError if the library at hand has none."""
    if name.startswith("cublas"):
        library = load_cublaslt() if name.startswith("cublasLt") else load_cublas()
    else:
        library = load_cudnn() if name.startswith("cudnn") else load_driver()
    try:
        return getattr(library, name)
    except AttributeError as error:
        raise DeviceError(f"the CUDA libraries at hand have no {name}", remedy="update NVIDIA's driver") from error


def address_of(name: str) -> int:
    """Its address."""
    return ctypes.cast(function(name), ctypes.c_void_p).value or 0


def call(name: str, *arguments: Any, where: str = "") -> None:
    """Call it. Arguments that are no integers of 32 bits must be ctypes objects. Raises DeviceError if it fails."""
    code = int(function(name)(*arguments))
    if code:
        raise failure(name, code, where)


def failure(name: str, code: int, where: str = "") -> DeviceError:
    """What to raise when `name` returned `code`. where: what it was called for, the user's line."""
    return DeviceError(f"{name} failed", where=where, got=_words(name, code), remedy=_REMEDIES.get(code, ""))


_REMEDIES = {
    700: "an earlier kernel of this process read or wrote outside its memory: run with compute-sanitizer",
    209: "the kernel was compiled for another kind of GPU: delete the cache, or set DISTCOMPILE_CACHE_DIR",
}


def _words(name: str, code: int) -> str:
    """The library's name and text of an error."""
    if name.startswith("cublas"):
        get = function("cublasGetStatusString")
        get.restype = ctypes.c_char_p
        return f"{get(code).decode()} (status {code})"
    if name.startswith("cudnn"):
        get = function("cudnnGetErrorString")
        get.restype = ctypes.c_char_p
        return f"{get(code).decode()} (status {code})"
    texts = []
    for getter in ("cuGetErrorName", "cuGetErrorString"):
        text = ctypes.c_char_p()
        if function(getter)(code, ctypes.byref(text)) == 0 and text.value:
            texts.append(text.value.decode())
    return f"{': '.join(texts) or 'no text'} (error {code})"
