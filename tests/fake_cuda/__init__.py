"""A CUDA driver and a cuBLAS that are not there: they keep a record of what they are asked, and do it in host memory.

In: what the launcher calls. Out: `FakeCuda.calls`: (name, facts) in order; and the effects: kernels run in Triton's
interpreter, products in NumPy, read as cuBLAS reads them (column-major, in the dtypes of its type codes), copies at
once. Memory of the "device" is the host's, as tests/fake_cupy has it. `fails` makes a call return an error.
The functions are given to generated code by address, as the real ones are.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from compiler_core.codegen import cuda_backend
from compiler_core.codegen.cuda import cubins, tune, workers
from compiler_core.codegen.triton.load import HostArray, load
from compiler_core.codegen.triton.module import Launch, TritonModule
from compiler_core.errors import DeviceError
from compiler_core.runtime.cuda import checks, context, driver, products
from tests.fake_cuda import lt
from tests.fake_cuda.lt import FakeLt
from tests.fake_cupy import on_fake_device

_TYPES = {0: np.float32, 1: np.float64, 2: np.float16, 14: ml_dtypes.bfloat16, 4: np.complex64, 5: np.complex128}
_POINTEE = {"fp32": np.float32, "fp64": np.float64, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}
_P, _I, _L, _Z = ctypes.c_void_p, ctypes.c_int32, ctypes.c_longlong, ctypes.c_size_t
_MATRIX = (_P, _I, _I)

_FORMS: dict[str, tuple[Any, ...]] = {
    "cuModuleLoadData": (_P, _P),
    "cuModuleUnload": (_P,),
    "cuModuleGetFunction": (_P, _P, ctypes.c_char_p),
    "cuFuncSetAttribute": (_P, _I, _I),
    "cuLaunchKernel": (_P, *(ctypes.c_uint32,) * 7, _P, _P, _P),
    "cuLaunchKernelEx": (_P, _P, _P, _P),
    "cuMemcpyHtoDAsync_v2": (ctypes.c_uint64, _P, _Z, _P),
    "cuMemcpyDtoHAsync_v2": (_P, ctypes.c_uint64, _Z, _P),
    "cuMemcpyDtoDAsync_v2": (ctypes.c_uint64, ctypes.c_uint64, _Z, _P),
    "cuMemcpyAsync": (ctypes.c_uint64, ctypes.c_uint64, _Z, _P),
    "cuStreamWaitEvent": (_P, _P, ctypes.c_uint32),
    "cuMemsetD32Async": (ctypes.c_uint64, ctypes.c_uint32, _Z, _P),
    "cuStreamSynchronize": (_P,),
    "cuEventRecord": (_P, _P),
    "cuMemHostAlloc": (_P, _Z, ctypes.c_uint32),
    "cuStreamBeginCapture_v2": (_P, _I),
    "cuStreamEndCapture": (_P, _P),
    "cuGraphInstantiateWithFlags": (_P, _P, ctypes.c_ulonglong),
    "cuGraphLaunch": (_P, _P),
    "cuGraphDestroy": (_P,),
    "cuGraphExecDestroy": (_P,),
    "cuGetErrorName": (_I, _P),
    "cuGetErrorString": (_I, _P),
    "cublasCreate_v2": (_P,),
    "cublasSetMathMode": (_P, _I),
    "cublasSetStream_v2": (_P, _P),
    "cublasSetWorkspace_v2": (_P, _P, _Z),
    "cublasSetPointerMode_v2": (_P, _I),
    "cublasGemmEx": (_P, _I, _I, _I, _I, _I, _P, *_MATRIX, *_MATRIX, _P, *_MATRIX, _I, _I),
    "cublasGemmStridedBatchedEx": (
        *(_P, _I, _I, _I, _I, _I, _P, *_MATRIX, _L, *_MATRIX, _L, _P, *_MATRIX, _L, _I, _I, _I),
    ),
}


@dataclass
class FakeCuda:
    """The driver. modules: what was "compiled". fails: name -> the code that this call returns from now on.

    overlaps: whether what is compiled from now on may be launched while the kernel before it ends.
    """

    calls: list[tuple[str, Any]] = field(default_factory=list)
    fails: dict[str, int] = field(default_factory=dict)
    functions: dict[str, tuple[Launch, Any]] = field(default_factory=dict)  # by the text of the "cubin"
    numbers: Iterator[int] = field(default_factory=count)
    images: list[str] = field(default_factory=list)  # "cubins" that were loaded, by module - 1
    names: list[str] = field(default_factory=list)  # the images of kernels, by handle - 1
    pointers_on_device: bool = False
    overlaps: bool = False
    is_slow: bool = False  # copies to the host come when somebody waits for them
    under_way: list[Callable[[], object]] = field(default_factory=list)
    travelling: list[tuple[int, int, int, int]] = field(default_factory=list)  # copies beside: stream, to, from, bytes
    reached: dict[int, list[tuple[int, int, int, int]]] = field(default_factory=dict)  # by event: those before it
    pinned: list[Any] = field(default_factory=list)
    threads: threading.local = field(default_factory=threading.local)
    graphs: list[list[Callable[[], object]]] = field(default_factory=list)  # by handle - 1

    def __post_init__(self) -> None:
        self.lt = FakeLt(self._multiply)
        forms = _FORMS | lt.FORMS
        made = {name: ctypes.CFUNCTYPE(_I, *form)(self._serve(name)) for name, form in forms.items()}
        self._words = ctypes.create_string_buffer(b"the status's text")
        words = ctypes.CFUNCTYPE(_P, _I)(lambda code: ctypes.addressof(self._words))
        version = ctypes.CFUNCTYPE(_Z)(lambda: 130000)
        self._made: dict[str, Any] = {**made, "cublasGetStatusString": words, "cublasLtGetVersion": version}

    @property
    def recording(self) -> list[Callable[[], object]] | None:
        """What this thread's stream is told while it is captured."""
        return getattr(self.threads, "recording", None)

    @recording.setter
    def recording(self, told: list[Callable[[], object]] | None) -> None:
        self.threads.recording = told

    def named(self, name: str) -> list[Any]:
        """The facts of all calls of `name`, in order."""
        return [facts for called, facts in self.calls if called == name]

    def function(self, name: str) -> Any:
        if name not in self._made:
            raise DeviceError(f"the CUDA libraries at hand have no {name}")
        return self._made[name]

    def _serve(self, name: str) -> Callable[..., int]:
        def serve(*arguments: Any) -> int:
            if name in self.fails:
                self.calls.append((name, "failed"))
                return self.fails[name]
            effect = getattr(self, f"_{name}", None) or getattr(self.lt, name, lambda *_: None)
            self.calls.append((name, effect(*arguments)))
            return 0

        return serve

    def _do(self, effect: Callable[[], object]) -> None:
        """Now; or, while a stream is captured, whenever its graph is launched."""
        if self.recording is None:
            effect()
        else:
            self.recording.append(effect)

    # -- compiling

    def compile_cubins(
        self, module: TritonModule, wanted: Sequence[cubins.Wanted], capability: int, folder: Path, workers: object
    ) -> list[cubins.Cubin]:
        """Instead of Triton's compiler: the functions are kept, for the interpreter."""
        loaded = load(module, interpret=True)
        for one in wanted:
            image = f"not a cubin for {capability}: {one.launch.function} {next(self.numbers)}"
            self.functions[image] = one.launch, loaded[one.launch.function]
            (folder / f"{one.launch.function}.cubin").write_text(f"{image}\0\n")
        names = [one.launch.function for one in wanted]
        return [cubins.Cubin(f"{name}.cubin", name, 128, 64, self.overlaps) for name in names]

    def compile_some(
        self, wanted: Sequence[tuple[Path, cubins.Wanted]], capability: int, workers: object
    ) -> list[cubins.Cubin | None]:
        """Of several folders: the same, under names that tell them apart."""
        loaded = {}
        for folder in dict.fromkeys(folder for folder, _ in wanted):
            launches = {one.launch.function: (one.launch,) for place, one in wanted if place == folder}
            loaded[folder] = load(TritonModule((folder / cubins.SOURCE).read_text(), launches, ()), interpret=True)
        made: list[cubins.Cubin | None] = []
        for folder, one in wanted:
            function = one.launch.function
            image = f"{function} as {one.launch.tile}"
            self.functions[image] = one.launch, loaded[folder][function]
            (folder / f"{function}.cubin").write_text(f"{image}\0\n")
            made.append(cubins.Cubin(f"{function}.cubin", function, 128, 64))
        return made

    # -- the driver

    def _cuModuleLoadData(self, module: int, image: int) -> str:
        self.images.append(ctypes.string_at(image).decode())
        ctypes.c_uint64.from_address(module).value = len(self.images)
        return self.images[-1]

    def _cuModuleGetFunction(self, handle: int, module: int, name: bytes) -> str:
        self.names.append(self.images[module - 1])
        ctypes.c_uint64.from_address(handle).value = len(self.names)
        return name.decode()

    def _cuLaunchKernel(self, handle: int, *facts: Any) -> dict[str, Any]:
        x, y, z, threads, _, _, shared, stream, params, extra = facts
        launch, kernel = self.functions[self.names[handle - 1]]
        count = len(launch.signature) + 2
        places = np.ctypeslib.as_array((ctypes.c_uint64 * count).from_address(params))
        addresses = [ctypes.c_uint64.from_address(int(place)).value for place in places]
        self._do(lambda: kernel[(x, y, z)](*map(_argument, addresses, launch.signature.values())))
        return {
            "kernel": launch.function,
            "grid": (x, y, z),
            "threads": threads,
            "shared": shared,
            "stream": stream,
            "addresses": addresses,
            "extra": extra,
        }

    def _cuLaunchKernelEx(self, config: int, handle: int, params: int, extra: int) -> dict[str, Any]:
        sizes = (ctypes.c_uint32 * 7).from_address(config)
        stream, attributes, count = (ctypes.c_uint64 * 3).from_address(config + 32)
        made = self._cuLaunchKernel(handle, *sizes, stream, params, extra)
        told = (ctypes.c_uint32 * 18).from_address(attributes)
        return made | {"attributes": [(told[0], told[2])], "count": count & 0xFFFFFFFF}

    def _cuMemcpyHtoDAsync_v2(self, target: int, source: int, nbytes: int, stream: int) -> int:
        ctypes.memmove(target, source, nbytes)
        return nbytes

    def _cuMemcpyDtoDAsync_v2(self, target: int, source: int, nbytes: int, stream: int) -> int:
        self._do(lambda: ctypes.memmove(target, source, nbytes))
        return nbytes

    def _cuMemcpyDtoHAsync_v2(self, target: int, source: int, nbytes: int, stream: int) -> int:
        data = ctypes.string_at(source, nbytes)
        self.under_way.append(lambda: ctypes.memmove(target, data, nbytes))
        if not self.is_slow:
            self.finish()
        return nbytes

    def finish(self) -> None:
        """The device has done what it was told."""
        for effect in self.under_way:
            effect()
        self.under_way.clear()

    def _cuMemcpyAsync(self, target: int, source: int, nbytes: int, stream: int) -> int:
        """As late as it may come, read as late, and written from the beginning: who reads or writes there sees it."""

        def begin() -> None:
            ctypes.memset(target, 0xA5, nbytes)
            self.travelling.append((stream, target, source, nbytes))

        self._do(begin)
        return nbytes

    def _cuEventRecord(self, event: int, stream: int) -> int:
        ctypes.cast(event, ctypes.py_object).value.record()  # tests/fake_cupy: an event's handle is its identity
        self._do(lambda: self.reached.update({event: [copy for copy in self.travelling if copy[0] == stream]}))
        return stream

    def _cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> int:
        def arrive() -> None:
            for copy in self.reached.get(event, ()):
                if copy in self.travelling:
                    self.travelling.remove(copy)
                    ctypes.memmove(*copy[1:])

        self._do(arrive)
        return stream

    def _cuStreamSynchronize(self, stream: int) -> None:
        self.finish()

    def _cuMemHostAlloc(self, address: int, nbytes: int, flags: int) -> int:
        self.pinned.append(ctypes.create_string_buffer(nbytes))
        ctypes.c_uint64.from_address(address).value = ctypes.addressof(self.pinned[-1])
        return nbytes

    def _cuMemsetD32Async(self, target: int, value: int, count: int, stream: int) -> int:
        words = np.ctypeslib.as_array((ctypes.c_uint32 * count).from_address(target))
        self._do(lambda: words.fill(value))
        return count

    def _cuStreamBeginCapture_v2(self, stream: int, mode: int) -> None:
        assert stream, "the default stream cannot be captured"
        self.recording = []

    def _cuStreamEndCapture(self, stream: int, graph: int) -> int:
        assert self.recording is not None
        self.graphs.append(self.recording)
        ctypes.c_uint64.from_address(graph).value = len(self.graphs)
        self.recording = None
        return len(self.graphs[-1])

    def _cuGraphInstantiateWithFlags(self, executable: int, graph: int, flags: int) -> None:
        ctypes.c_uint64.from_address(executable).value = graph

    def _cuGraphLaunch(self, executable: int, stream: int) -> None:
        for effect in self.graphs[executable - 1]:
            effect()

    def _cuGetErrorName(self, code: int, text: int) -> None:
        self._text = ctypes.c_char_p(f"CUDA_ERROR_{code}".encode())
        ctypes.memmove(text, ctypes.byref(self._text), 8)

    def _cuGetErrorString(self, code: int, text: int) -> None:
        self._string = ctypes.c_char_p(b"the driver's text")
        ctypes.memmove(text, ctypes.byref(self._string), 8)

    # -- cuBLAS

    def _cublasCreate_v2(self, handle: int) -> None:
        ctypes.c_uint64.from_address(handle).value = 77

    def _cublasSetPointerMode_v2(self, handle: int, mode: int) -> int:
        self.pointers_on_device = bool(mode)
        return mode

    def _cublasGemmEx(self, handle: int, *f: Any) -> dict[str, Any]:
        ta, tb, m, n, k, alpha, a, atype, lda, b, btype, ldb, beta, c, ctype, ldc, compute, _ = f
        product = [(a, lda, 0, atype), (b, ldb, 0, btype), (c, ldc, 0, ctype)]
        return self._multiply(ta, tb, m, n, k, alpha, beta, product, compute, 1)

    def _cublasGemmStridedBatchedEx(self, handle: int, *f: Any) -> dict[str, Any]:
        ta, tb, m, n, k, alpha, a, atype, lda, sa, b, btype, ldb, sb, beta, c, ctype, ldc, sc, batch, compute, _ = f
        product = [(a, lda, sa, atype), (b, ldb, sb, btype), (c, ldc, sc, ctype)]
        return self._multiply(ta, tb, m, n, k, alpha, beta, product, compute, batch)

    def _multiply(
        self,
        ta: int,
        tb: int,
        m: int,
        n: int,
        k: int,
        alpha: int,
        beta: int,
        product: Any,
        compute: int,
        batch: int,
        bias: int = 0,
    ) -> dict[str, Any]:
        """As the manual says: C (m, n) = alpha op(A) op(B) + beta C, column-major, leading dimensions in elements."""
        (a, lda, sa, atype), (b, ldb, sb, btype), (c, ldc, sc, ctype) = product
        dtype, result = np.dtype(_TYPES[atype]), np.dtype(_TYPES[ctype])
        assert atype == btype
        assert result == dtype or (result == np.float32 and dtype.itemsize == 2)
        wide = np.dtype(np.float32) if dtype.itemsize == 2 else dtype
        rows_a, rows_b = (k if ta else m), (n if tb else k)
        assert lda >= rows_a
        assert ldb >= rows_b
        assert ldc >= m
        first, second = (_host(pointer, wide) for pointer in (alpha, beta))

        def multiply() -> None:
            for each in range(batch):
                x = _columns(a + each * sa * dtype.itemsize, (m, k) if not ta else (k, m), lda, dtype).astype(wide)
                y = _columns(b + each * sb * dtype.itemsize, (k, n) if not tb else (n, k), ldb, dtype).astype(wide)
                z = _columns(c + each * sc * result.itemsize, (m, n), ldc, result)
                made = first * ((x.T if ta else x) @ (y.T if tb else y))
                made = made + second * z.astype(wide) if second != 0 else made
                z[...] = (made + _columns(bias, (m, 1), m, result).astype(wide) if bias else made).astype(result)

        self._do(multiply)
        facts = {"sizes": (m, n, k), "batch": batch, "compute": compute, "type": atype, "result": ctype}
        return facts | {"device": self.pointers_on_device}


def _host(pointer: int, dtype: np.dtype[Any]) -> Any:
    return np.frombuffer(ctypes.string_at(pointer, dtype.itemsize), dtype)[0]


def _columns(address: int, shape: tuple[int, int], leading: int, dtype: np.dtype[Any]) -> Any:
    rows, columns = shape
    memory = (ctypes.c_char * (((columns - 1) * leading + rows) * dtype.itemsize)).from_address(address)
    return np.ndarray(shape, dtype, memory, strides=(dtype.itemsize, leading * dtype.itemsize))


def _argument(word: int, kind: str) -> HostArray | int:
    """An integer of 32 or 64 bits; or the first element of what an address is of: the interpreter asks for no more."""
    if kind[0] == "*":
        return _memory(word, kind[1:])
    return {"i32": ctypes.c_int32, "i64": ctypes.c_int64}[kind](word).value


def _memory(address: int, name: str) -> HostArray:
    dtype = np.dtype(_POINTEE.get(name) or {"i": f"int{name[1:]}", "u": f"uint{name[1:]}"}[name[0]])
    memory = (ctypes.c_char * dtype.itemsize).from_address(address or ctypes.addressof(_NOWHERE))
    return HostArray(np.ndarray((1,), dtype, memory))


_NOWHERE = ctypes.c_uint64()


@pytest.fixture
def fake_cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    """No call leaves this process: the driver, cuBLAS and Triton's compiler are the fake's."""
    fake = FakeCuda()
    monkeypatch.setattr(driver, "function", fake.function)
    monkeypatch.setattr(cubins, "compile_cubins", fake.compile_cubins)
    monkeypatch.setattr(tune, "compile_some", fake.compile_some)
    monkeypatch.setattr(workers, "Workers", lambda folder, early=True: nullcontext())
    monkeypatch.setattr(context, "_threads", context._Threads())
    monkeypatch.setattr(context, "_units", {})
    monkeypatch.setattr(products, "_threads", products._Threads())
    monkeypatch.setattr(checks, "_words", checks._Words())
    monkeypatch.setattr(cuda_backend, "device_capability", lambda: 90)
    with on_fake_device():
        yield fake


def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of several threads run in Triton's interpreter one after the other: it knows no threads."""
    import triton

    monkeypatch.setattr(triton.knobs.runtime, "interpret", True)
    lock, kernel = threading.Lock(), FakeCuda._cuLaunchKernel

    def alone(self: FakeCuda, *arguments: Any) -> Any:
        with lock:
            return kernel(self, *arguments)

    monkeypatch.setattr(FakeCuda, "_cuLaunchKernel", alone)
