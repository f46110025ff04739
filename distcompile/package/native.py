"""A package on the CPU: its shared objects, from the bytes of the file, and instances, prepared when first called.

In: what the file holds. Out: `OnHost`, which load.py's Package runs on: instances, and one that can be called. Of
distcompile this imports errors alone, of others NumPy, so that a process has its first result soon; what calls Python,
or has no code for the sizes of a call, imports the compiler.
Raises: PackageError where a library is missing; what a check or Python raises.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import cached_property
from hashlib import sha256
from threading import Lock
from typing import Any

import numpy as np

from compiler_core.errors import failed_check
from distcompile.errors import ArgumentError, PackageError
from distcompile.package.container import Array, Contents, numpy_dtype
from distcompile.package.instances import GIVEN, KEY, Described, Instance
from distcompile.package.libraries import LIBRARIES

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


class NativeInstance(Instance):
    """An instance of a code. code: its number. callbacks: what the code calls Python for, as JSON; none: nothing."""

    def __init__(
        self, library: ctypes.CDLL, raw: InstanceRow, results: Sequence[Any], code: int, callbacks: Sequence[Any] = ()
    ) -> None:
        self.library, self.raw, self.results, self.code, self.callbacks = library, raw, results, code, callbacks

    @cached_property
    def inputs(self) -> list[Described]:  # type: ignore[override]
        return _described(self.raw.inputs, self.raw.ninputs)

    @cached_property
    def outputs(self) -> list[Described]:  # type: ignore[override]
        return _described(self.raw.outputs, self.raw.noutputs)

    @cached_property
    def constants(self) -> list[int]:
        return [self.raw.constants[k].place for k in range(self.raw.nconstants)]


def _described(arrays: Any, count: int) -> list[Described]:
    found = (arrays[k] for k in range(count))
    return [Described((a.name or b"").decode(), numpy_dtype(a.dtype.decode()), tuple(a.shape[: a.ndim]), a.kind,
                      a.place) for a in found]  # fmt: skip


class OnHost:
    """See the head of this file. own: what the program writes: name -> its own copy; writing: held meanwhile."""

    device = "cpu"

    def __init__(self, contents: Contents, threads: int) -> None:
        self.contents, self.manifest = contents, contents.manifest  # contents: held, for addresses are in it
        self.base = contents.arrays["code:0"].ctypes.data - contents.places["code:0"]  # of the file's data
        self.own: dict[str, Array] = {}
        self.writing = Lock()
        self.instances = list(_instances(contents, threads))

    def prepared(self, shapes: tuple[tuple[int, ...], ...]) -> Ready | None:
        """What runs for arguments of these shapes; None: there is no code for them."""
        instance = next((one for one in self.instances if one.sizes == shapes), None)
        if instance is None and self.manifest["opened"]:
            from distcompile.package.more_sizes import instance_of

            instance = instance_of(self.manifest, self.instances, shapes, self.base)
        return None if instance is None else Ready(instance, self)

    def array(self, leaf: Any, one: Described) -> Array:
        """The array of an argument."""
        if isinstance(leaf, np.ndarray):
            return leaf
        if is_tensor(leaf):
            made: Array = leaf.detach().numpy()
            return made
        raise ArgumentError(f"{one.name} is an array or a Tensor", got=type(leaf).__name__)

    def write(self, leaf: Any, array: Array) -> None:
        """Give an argument a new value."""
        if isinstance(leaf, np.ndarray):
            np.copyto(leaf, array)
        else:
            from distcompile import from_numpy, no_grad

            with no_grad():
                leaf.copy_(from_numpy(array))

    def handed(self, leaves: Sequence[Any], tensors: bool) -> Callable[[Array], Any]:
        """What makes results of arrays, for a call with these arguments."""
        if tensors or any(map(is_tensor, leaves)):
            from distcompile import from_numpy

            return from_numpy
        return lambda array: array


def is_tensor(leaf: Any) -> bool:
    """Whether an argument is a Tensor, which need not be imported here."""
    return hasattr(leaf, "detach") and hasattr(leaf, "numpy")


def _instances(contents: Contents, threads: int) -> Iterator[NativeInstance]:
    manifest = contents.manifest
    for number, results in enumerate(manifest["results"]):
        library = load_code(contents.arrays[f"code:{number}"])
        library.dcpkg_threads(threads)
        count = ctypes.c_int64()
        found = library.dcpkg_instances(ctypes.byref(count))
        callbacks = manifest["callbacks"][number] if manifest.get("python") else [()] * count.value
        yield from (NativeInstance(library, found[k], results[k], number, callbacks[k]) for k in range(count.value))


class Ready:
    """An instance that can be called: the addresses of what it holds, and what was prepared."""

    def __init__(self, instance: NativeInstance, place: OnHost) -> None:
        self.instance, self.place = instance, place
        error = ctypes.create_string_buffer(_ERROR)
        libraries = place.manifest["libraries"]
        blas, dnnl = (LIBRARIES[name]() if name in libraries else None for name in ("openblas", "onednn"))
        handles = [ctypes.c_void_p(None if one is None else one._handle) for one in (blas, dnnl)]
        self.prepared = instance.library.dcpkg_prepare(ctypes.byref(instance.raw), *handles, error, _ERROR)
        if not self.prepared:
            raise PackageError(f"a package cannot be prepared: {error.value.decode()}")
        self.callbacks = _callbacks(instance, self.prepared) if instance.callbacks else None
        own, base = place.own, place.base
        for k, name in instance.kept:
            if name not in own:
                one = instance.inputs[instance.outputs[k].place]
                own[name] = _copy_at(base + one.place, one)
        addresses = [
            0 if one.kind in (GIVEN, KEY) else own[one.name].ctypes.data if one.name in own else base + one.place
            for one in instance.inputs
        ]
        self.addresses = [*addresses, *(base + place for place in instance.constants)]

    def run(self, given: Sequence[Array], key: Array | None) -> list[Array]:
        """The outputs. key: of its draws, the last input."""
        instance = self.instance
        given = [np.require(array, requirements=["C", "A"]) for array in given]
        outputs: list[Array] = [np.empty(one.shape, one.dtype) for one in instance.outputs]
        addresses = list(self.addresses)
        for k, array in zip(instance.given, given):
            addresses[k] = array.ctypes.data
        if key is not None:
            addresses[len(instance.inputs) - 1] = key.ctypes.data
        addresses += [array.ctypes.data for array in outputs]
        with self.place.writing if instance.kept else nullcontext():
            failed = instance.library.dcpkg_call(self.prepared, (ctypes.c_void_p * len(addresses))(*addresses))
            if failed:
                raise (self.callbacks and self.callbacks.take_any_error()) or failed_check(failed.decode(), "a package")
            for k, name in instance.kept:
                np.copyto(self.place.own[name], outputs[k])
        return outputs


def _callbacks(instance: NativeInstance, prepared: int) -> Any:
    """What the code calls Python for."""
    import distcompile  # ops are registered
    from compiler_core.runtime.callback import Callback, Callbacks

    assert distcompile
    made = Callbacks([Callback.from_json(row) for row in instance.callbacks])
    addresses = (ctypes.c_void_p * len(made.addresses))(*made.addresses)
    instance.library.dcpkg_call_back(ctypes.c_void_p(prepared), addresses)
    return made


def _copy_at(address: int, one: Described) -> Array:
    nbytes = int(np.prod(one.shape, dtype=np.int64)) * one.dtype.itemsize
    made: Array = np.frombuffer(ctypes.string_at(address, nbytes), one.dtype).reshape(one.shape).copy()
    return made


# -- code


_codes: dict[bytes, ctypes.CDLL] = {}  # by digest: code has no state but its threads'


def load_code(code: Array) -> ctypes.CDLL:
    """A shared object of these bytes, once in a process."""
    digest = sha256(code.data).digest()
    if digest not in _codes:
        _codes[digest] = _typed(open_code(code))
    return _codes[digest]


def _typed(library: ctypes.CDLL) -> ctypes.CDLL:
    library.dcpkg_instances.restype = ctypes.POINTER(InstanceRow)
    library.dcpkg_prepare.restype = ctypes.c_void_p
    library.dcpkg_call.restype = ctypes.c_char_p
    library.dcpkg_call.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    return library


def open_code(code: Array) -> ctypes.CDLL:
    """A shared object of these bytes."""
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
