"""A package, loaded: called as the module was that it was made of.

In: a file of `aot_compile`. Out: `Package`: a function of arrays or Tensors. Nothing is compiled or captured.
The code is loaded from the file's bytes; it prepares one instance (the program for one set of sizes) when such sizes
first come. Of distcompile this imports errors alone, of others NumPy, so that a process has its first result soon.
A Tensor among the arguments gives Tensors, otherwise the results are NumPy arrays. What the program writes to buffers
it writes to its own; what it writes to arguments it writes to the caller's. It computes without a tape.
Raises: PackageError for a file that is none, is damaged, of a newer format, or for another machine, and where a library
that it names is not installed; ArgumentError, ShapeError, DTypeError for what is not what the program takes.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from compiler_core.errors import DTypeError, ShapeError, failed_check
from distcompile.errors import ArgumentError, PackageError
from distcompile.package.container import Array, Contents, numpy_dtype, read

Words = ctypes.POINTER(ctypes.c_int64)
_ERROR = 512


class ArrayRow(ctypes.Structure):
    """dcpkg_array, of distcompile_package.h."""

    _fields_ = [
        ("name", ctypes.c_char_p), ("dtype", ctypes.c_char_p), ("ndim", ctypes.c_int64), ("shape", Words),
        ("nbytes", ctypes.c_int64), ("kind", ctypes.c_int64), ("place", ctypes.c_int64),
    ]  # fmt: skip


class InstanceRow(ctypes.Structure):
    """dcpkg_instance, of distcompile_package.h."""

    kept: Any = None  # what the fields of one that was made here point to

    _fields_ = [
        ("entry", ctypes.c_void_p), ("inputs", ctypes.POINTER(ArrayRow)), ("constants", ctypes.POINTER(ArrayRow)),
        ("outputs", ctypes.POINTER(ArrayRow)), ("ninputs", ctypes.c_int64), ("nconstants", ctypes.c_int64),
        ("noutputs", ctypes.c_int64), ("arena_nbytes", ctypes.c_int64), ("scratch_nbytes", ctypes.c_int64),
        ("numbers", Words), ("symbols", ctypes.POINTER(ctypes.c_char_p)), ("nsymbols", ctypes.c_int64),
        ("ncallbacks", ctypes.c_int64),
        ("convolutions", ctypes.c_void_p), ("nconvolutions", ctypes.c_int64), ("messages", ctypes.c_void_p),
        ("nmessages", ctypes.c_int64),
    ]  # fmt: skip


@dataclass(frozen=True)
class Described:
    """One input or output. kind: see distcompile_package.h."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    kind: int
    place: int

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)}"


class Instance:
    """The program for one set of sizes. code: the number of the code that it is of."""

    def __init__(self, library: ctypes.CDLL, raw: InstanceRow, results: Sequence[Any], code: int) -> None:
        self.library, self.raw, self.results, self.code = library, raw, results, code

    @cached_property
    def inputs(self) -> list[Described]:
        return _described(self.raw.inputs, self.raw.ninputs)

    @cached_property
    def outputs(self) -> list[Described]:
        return _described(self.raw.outputs, self.raw.noutputs)

    @cached_property
    def constants(self) -> list[int]:
        return [self.raw.constants[k].place for k in range(self.raw.nconstants)]

    @cached_property
    def given(self) -> list[int]:
        """Which of the inputs the caller gives."""
        return [k for k, one in enumerate(self.inputs) if not one.kind]

    @cached_property
    def sizes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of what the caller gives."""
        return tuple(self.inputs[k].shape for k in self.given)


def _described(arrays: Any, count: int) -> list[Described]:
    found = (arrays[k] for k in range(count))
    return [Described((a.name or b"").decode(), numpy_dtype(a.dtype.decode()), tuple(a.shape[: a.ndim]), a.kind,
                      a.place) for a in found]  # fmt: skip


def load_package(path: str | os.PathLike[str], *, threads: int = 0) -> Package:
    """The package at `path`. threads: that loops share; 0: OMP_NUM_THREADS, by default one a core. See the head of
    this file."""
    contents = read(Path(path))
    check_machine(contents)
    return Package(contents, threads or _threads())


def _threads() -> int:
    told = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(told) if told.isdecimal() and int(told) else cores


def check_machine(contents: Contents) -> None:
    """Raises PackageError for a package of another machine."""
    target = contents.manifest["target"]
    here = (sys.platform, os.uname().machine)
    if here != (target["system"], target["machine"]):
        raise PackageError(f"{contents.path} is a package for another system", got=" ".join(here),
                           expected=f"{target['system']} {target['machine']}", remedy="compile it there")  # fmt: skip
    missing = [name for name in target["features"] if name not in cpu_features()]
    if missing:
        raise PackageError(f"{contents.path} is a package for another CPU", expected=f"one with {' '.join(missing)}",
                           remedy="compile it on a CPU like this one")  # fmt: skip


def cpu_features() -> frozenset[str]:
    """The instruction sets of this CPU, as /proc/cpuinfo names them."""
    try:
        with open("/proc/cpuinfo") as file:
            lines = (line.partition(":") for line in file)
            return frozenset(next((v for k, _, v in lines if k.strip() in ("flags", "Features")), "").split())
    except OSError:
        return frozenset()


class Package:
    """See the head of this file. inputs, outputs: of the first instance. gives_tensors: also where it is given none."""

    gives_tensors = False

    def __init__(self, contents: Contents, threads: int) -> None:
        self.path, self.manifest = contents.path, contents.manifest
        self._contents, self._threads = contents, threads
        self._lock, self._writing = Lock(), Lock()  # of what is prepared; of the program's own buffers
        self._base = contents.arrays["code:0"].ctypes.data - contents.places["code:0"]  # of the file's data
        self._ready: dict[tuple[tuple[int, ...], ...], _Ready] = {}
        self._own: dict[str, Array] = {}  # what the program writes: name -> its own copy
        self.instances = list(self._instances())

    def _instances(self) -> Iterator[Instance]:
        for number, results in enumerate(self.manifest["results"]):
            library = load_code(self._contents.arrays[f"code:{number}"])
            library.dcpkg_threads(self._threads)
            count = ctypes.c_int64()
            found = library.dcpkg_instances(ctypes.byref(count))
            yield from (Instance(library, found[k], results[k], number) for k in range(count.value))

    @property
    def inputs(self) -> list[Described]:
        first = self.instances[0]
        return [first.inputs[k] for k in first.given]

    @property
    def outputs(self) -> list[Described]:
        return [one for one in self.instances[0].outputs if not one.kind]

    def run(self, *given: Array) -> list[Array]:
        """The tensors of the result, in order, of those among the arguments, in order; constants are what they are."""
        constants = iter(given)
        leaves = [next(constants, None) if "tensor" in one else one["value"] for one in self.manifest["arguments"]]
        if any(True for _ in constants) or any(leaves[k] is None for k in self._tensors):
            expected = ", ".join(map(str, self.inputs))
            raise ArgumentError("the package takes other arguments", expected=expected, got=f"{len(given)} arrays")
        arrays, _ = self._arrays(leaves)
        ready = self._fitting(arrays)
        outputs, written = ready.run(arrays)
        for place, array in written:
            np.copyto(given[ready.instance.given.index(place)], array)
        return [outputs[one["tensor"]] for one in ready.instance.results if "tensor" in one]

    def _fitting(self, given: Sequence[Array]) -> _Ready:
        shapes = tuple(array.shape for array in given)
        ready = self._ready.get(shapes)
        if ready is None:
            with self._lock:
                ready = self._ready[shapes] = self._prepared(shapes)
        return ready

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves = self._tree.leaves(args, kwargs)
        given, as_tensors = self._arrays(leaves)
        ready = self._fitting(given)
        outputs, written = ready.run(given)
        for place, array in written:
            _write(leaves[self._tensors[ready.instance.given.index(place)]], array)
        results = [_result(one, outputs, as_tensors or self.gives_tensors) for one in ready.instance.results]
        return self._tree.result(results)

    @cached_property
    def _tree(self) -> Any:
        from distcompile.package.trees import Trees

        return Trees(self.manifest["in_spec"], self.manifest["out_spec"])

    @cached_property
    def _tensors(self) -> list[int]:
        """Which of the leaves of a call are tensors."""
        return [k for k, one in enumerate(self.manifest["arguments"]) if "tensor" in one]

    def _arrays(self, leaves: Sequence[Any]) -> tuple[list[Array], bool]:
        given: list[Array] = []
        as_tensors = False
        for leaf, one in zip(leaves, self.manifest["arguments"], strict=True):
            if "tensor" not in one:
                if leaf != one["value"] or isinstance(leaf, bool) != isinstance(one["value"], bool):
                    raise ArgumentError(f"{one['name']} is a constant of the package", expected=repr(one["value"]),
                                        got=repr(leaf))  # fmt: skip
                continue
            expected = self.inputs[len(given)]
            array, is_tensor = _as_array(leaf, expected)
            as_tensors |= is_tensor
            if array.dtype != expected.dtype:
                raise DTypeError(f"{expected.name}: the package takes another dtype", expected=str(expected.dtype),
                                 got=str(array.dtype))  # fmt: skip
            given.append(array)
        return given, as_tensors

    def _prepared(self, shapes: tuple[tuple[int, ...], ...]) -> _Ready:
        instance = next((one for one in self.instances if one.sizes == shapes), None)
        if instance is None and self.manifest["opened"]:
            from distcompile.package.more_sizes import instance_of

            instance = instance_of(self.manifest, self.instances, shapes, self._base)
        if instance is None:
            known = "; ".join(", ".join(map(str, (one.inputs[k] for k in one.given))) for one in self.instances)
            raise ShapeError("the package has no code for these sizes", expected=known, got=str(list(shapes)),
                             remedy="aot_compile(program, path, sizes=[...]) compiles for several")  # fmt: skip
        return _Ready(instance, self._base, self._own, self.manifest["libraries"], self._writing)


class _Ready:
    """An instance that can be called: the addresses of what it holds, and what was prepared. lock: held while what the
    program has of its own is written."""

    def __init__(
        self, instance: Instance, base: int, own: dict[str, Array], libraries: Sequence[str], lock: Lock
    ) -> None:
        self.instance, self.lock = instance, lock
        error = ctypes.create_string_buffer(_ERROR)
        blas, dnnl = (LIBRARIES[name]() if name in libraries else None for name in ("openblas", "onednn"))
        handles = [ctypes.c_void_p(None if one is None else one._handle) for one in (blas, dnnl)]
        self.prepared = instance.library.dcpkg_prepare(ctypes.byref(instance.raw), *handles, error, _ERROR)
        if not self.prepared:
            raise PackageError(f"a package cannot be prepared: {error.value.decode()}")
        self.written = [(k, one.place) for k, one in enumerate(instance.outputs) if one.kind]
        self.kept = [(k, place) for k, place in self.written if instance.inputs[place].kind]
        for _, place in self.kept:
            one = instance.inputs[place]
            if one.name not in own:
                own[one.name] = _copy_at(base + one.place, one)
        self.own = own
        addresses = [
            (own[one.name].ctypes.data if one.name in own else base + one.place) if one.kind else 0
            for one in instance.inputs
        ]
        self.addresses = [*addresses, *(base + place for place in instance.constants)]

    def run(self, given: Sequence[Array]) -> tuple[list[Array], list[tuple[int, Array]]]:
        """The outputs, and the new values of arguments: (number of the input, value)."""
        instance = self.instance
        given = [np.require(array, requirements=["C", "A"]) for array in given]
        outputs: list[Array] = [np.empty(one.shape, one.dtype) for one in instance.outputs]
        addresses = list(self.addresses)
        for k, array in zip(instance.given, given):
            addresses[k] = array.ctypes.data
        addresses += [array.ctypes.data for array in outputs]
        with self.lock if self.kept else nullcontext():
            failed = instance.library.dcpkg_call(self.prepared, (ctypes.c_void_p * len(addresses))(*addresses))
            if failed:
                raise failed_check(failed.decode(), "a package")
            for k, place in self.kept:
                np.copyto(self.own[instance.inputs[place].name], outputs[k])
        return outputs, [(place, outputs[k]) for k, place in self.written if not instance.inputs[place].kind]


def _copy_at(address: int, one: Described) -> Array:
    nbytes = int(np.prod(one.shape, dtype=np.int64)) * one.dtype.itemsize
    made: Array = np.frombuffer(ctypes.string_at(address, nbytes), one.dtype).reshape(one.shape).copy()
    return made


def _as_array(leaf: Any, one: Described) -> tuple[Array, bool]:
    if isinstance(leaf, np.ndarray):
        return leaf, False
    if hasattr(leaf, "detach") and hasattr(leaf, "numpy"):
        made: Array = leaf.detach().numpy()
        return made, True
    raise ArgumentError(f"{one.name} is an array or a Tensor", got=type(leaf).__name__)


def _write(leaf: Any, array: Array) -> None:
    if isinstance(leaf, np.ndarray):
        np.copyto(leaf, array)
    else:
        from distcompile import from_numpy, no_grad

        with no_grad():
            leaf.copy_(from_numpy(array))


def _result(one: Mapping[str, Any], outputs: Sequence[Array], as_tensors: bool) -> Any:
    if "tensor" not in one:
        return one["value"]
    if not as_tensors:
        return outputs[one["tensor"]]
    from distcompile import from_numpy

    return from_numpy(outputs[one["tensor"]])


# -- libraries


_codes: dict[bytes, ctypes.CDLL] = {}  # by digest: code has no state but its threads'


def load_code(code: Array) -> ctypes.CDLL:
    """A shared object of these bytes, once in a process."""
    digest = sha256(code.data).digest()
    if digest not in _codes:
        _codes[digest] = _typed(_loaded(code))
    return _codes[digest]


def _typed(library: ctypes.CDLL) -> ctypes.CDLL:
    library.dcpkg_instances.restype = ctypes.POINTER(InstanceRow)
    library.dcpkg_prepare.restype = ctypes.c_void_p
    library.dcpkg_call.restype = ctypes.c_char_p
    library.dcpkg_call.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    return library


def _loaded(code: Array) -> ctypes.CDLL:
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("distcompile-package", os.MFD_CLOEXEC)  # stays open: the loader knows code by this name
        with os.fdopen(os.dup(file), "wb") as out:
            out.write(code.data)
        return ctypes.CDLL(f"/proc/self/fd/{file}")
    import tempfile

    with tempfile.NamedTemporaryFile(suffix=".so") as named:
        named.write(code.data)
        named.flush()
        return ctypes.CDLL(named.name)


def _openblas() -> ctypes.CDLL:
    library = _library("scipy-openblas32", _wheel_files("scipy_openblas32"))
    library.scipy_openblas_set_num_threads(1)
    return library


def _onednn() -> ctypes.CDLL:
    places = [Path(sys.prefix, "lib", "libdnnl.so.3"), *_recorded("onednn-cpu-gomp", "libdnnl.so.3")]
    if "GOMP_SPINCOUNT" in os.environ or "OMP_WAIT_POLICY" in os.environ:
        return _library("onednn-cpu-gomp", places)
    os.environ["GOMP_SPINCOUNT"] = "10000"  # libgomp reads it when it is loaded: its threads soon sleep
    try:
        return _library("onednn-cpu-gomp", places)
    finally:
        del os.environ["GOMP_SPINCOUNT"]


LIBRARIES = {"openblas": _openblas, "onednn": _onednn}


def _wheel_files(module: str) -> list[Path]:
    spec = find_spec(module)
    folders = spec.submodule_search_locations if spec is not None else None
    return [path for folder in folders or () for path in sorted(Path(folder, "lib").glob("lib*openblas*.*"))]


def _recorded(wheel: str, name: str) -> list[Path]:
    """Where a wheel's record says that a file is."""
    from importlib.metadata import PackageNotFoundError, files

    try:
        return [Path(str(entry.locate())) for entry in files(wheel) or [] if entry.name == name]
    except PackageNotFoundError:
        return []


def _library(wheel: str, places: Sequence[Path]) -> ctypes.CDLL:
    for path in places:
        if path.suffix in (".so", ".dylib", ".3") and path.exists():
            return ctypes.CDLL(str(path))
    what = f"the package calls the library of {wheel}, which is not installed"
    raise PackageError(what, remedy=f"pip install {wheel}")
