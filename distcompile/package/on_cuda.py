"""A package on a GPU: its cubins and host functions, loaded without Triton and without a compiler.

In: what the file holds. Out: `OnCuda`, on which load.py's Package runs, on the device that is current when it is made.
It takes arrays of the device as they are, CuPy's or Tensors; NumPy arrays are copied there, and if there are no others,
the results are copied back. Work is enqueued on CuPy's current stream. What the program has of its own is written in
the order of the calls, whatever streams they are on.
Needs CuPy, and NVIDIA's libraries where the code calls them (runtime/cuda/driver.py).
Raises: PackageError where there is no GPU, one of another compute capability, or another cuDNN than the code was
compiled for; DeviceError for arguments that are not on the device, and what a call of the driver or a check says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any

import numpy as np

from compiler_core import cuda
from compiler_core.errors import DeviceError
from compiler_core.runtime.constants import read_constants
from compiler_core.runtime.cuda.entry import CudaEntry
from compiler_core.runtime.cuda.executable import CudaExecutable
from distcompile.errors import ArgumentError, PackageError
from distcompile.package.container import Array, Contents, numpy_dtype
from distcompile.package.instances import HELD, Described, Instance
from distcompile.package.native import is_tensor, open_code


class CudaInstance(Instance):
    """told: what the manifest has of it."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self.told, self.results = told, told["results"]
        self.inputs, self.outputs = (list(map(_described, told[side])) for side in ("inputs", "outputs"))


def _described(row: Sequence[Any]) -> Described:
    name, dtype, shape, _, kind, place = row
    return Described(name, numpy_dtype(dtype), tuple(shape), kind, place)


class OnCuda:
    """See the head of this file. own: name -> what the program has of its own, on the device."""

    def __init__(self, contents: Contents) -> None:
        _check(contents)
        self.contents, self.number = contents, cuda.current()
        self.device = f"cuda:{self.number}"
        self.instances = [CudaInstance(told) for told in contents.manifest["instances"]]
        self.own: dict[str, Array] = {}
        self.writing = Lock()
        self.written: Any = None  # an event behind the last call that wrote

    def prepared(self, shapes: tuple[tuple[int, ...], ...]) -> Ready | None:
        """What runs for arguments of these shapes; None: there is no code for them."""
        instance = next((one for one in self.instances if one.sizes == shapes), None)
        return None if instance is None else Ready(instance, self)

    def array(self, leaf: Any, one: Described) -> Array:
        """The array of an argument, on the device."""
        if isinstance(leaf, np.ndarray):
            leaf = cuda.put(leaf, self.number, dense=True)
        array: Array = leaf.detach()._own_array("a package") if is_tensor(leaf) else leaf
        if cuda.is_array(array):
            return array
        if is_tensor(leaf):
            raise DeviceError(f"{one.name} is not on the device of the package", expected=self.device,
                              got=str(leaf.device), remedy=f"move it there with .to({self.device!r})")  # fmt: skip
        raise ArgumentError(f"{one.name} is an array or a Tensor", got=type(leaf).__name__)

    def write(self, leaf: Any, array: Array) -> None:
        """Give an argument a new value."""
        if is_tensor(leaf):
            from distcompile import no_grad

            with no_grad():
                leaf.copy_(_tensor(array))
        else:
            leaf[...] = cuda.fetch(array) if isinstance(leaf, np.ndarray) else array

    def handed(self, leaves: Sequence[Any], tensors: bool) -> Callable[[Array], Any]:
        """What makes results of arrays, for a call with these arguments."""
        if tensors or any(map(is_tensor, leaves)):
            return _tensor
        return (lambda array: array) if any(map(cuda.is_array, leaves)) else cuda.fetch


def _check(contents: Contents) -> None:
    wanted = contents.manifest["gpu"]
    if why := cuda.why_not():
        raise PackageError(f"{contents.path} is a package for a GPU, and there is none here", got=why,
                           remedy="load it on a machine with one, or export the program on the CPU")  # fmt: skip
    capability = int(cuda.module().cuda.Device().compute_capability)
    if capability != wanted["capability"]:
        raise PackageError(f"{contents.path} is a package for GPUs of another compute capability",
                           expected=f"sm_{wanted['capability']}", got=f"sm_{capability}",
                           remedy="compile it on such a GPU")  # fmt: skip
    if wanted["cudnn"]:
        from compiler_core.runtime.cuda import cudnn

        here = cudnn.why_not() or cudnn.identity()
        if here != wanted["cudnn"]:
            raise PackageError(f"{contents.path} calls cuDNN by engines of another one", expected=wanted["cudnn"],
                               got=here, remedy="compile it here, or with that version")  # fmt: skip


def _tensor(array: Array) -> Any:
    from compiler_core.tensor.tensor import Tensor

    return Tensor._wrap(array)


class Ready:
    """An instance that can be called."""

    def __init__(self, instance: CudaInstance, place: OnCuda) -> None:
        self.instance, self.place = instance, place
        told, arrays = instance.told, place.contents.arrays
        entry = CudaEntry.from_json(told["entry"])
        if entry.callbacks:
            import distcompile  # ops are registered

            assert distcompile
        cubins = {file: arrays[name].tobytes() for file, name in told["cubins"].items()}
        constants = read_constants(arrays[told["constants"]].tobytes(), told["entry"]["constants"])
        self.executable = CudaExecutable(entry, open_code(arrays[told["code"]]), cubins, constants, place.number)
        with cuda.on(place.number), cuda.allocating(place.number):
            for one in instance.inputs:
                if one.kind == HELD and one.name not in place.own:
                    place.own[one.name] = cuda.module().asarray(arrays[one.name])

    def run(self, given: Sequence[Array], key: Array | None) -> list[Array]:
        """The outputs. key: of its draws, the last input."""
        instance, place = self.instance, self.place
        inputs: list[Any] = [place.own.get(one.name) if one.kind == HELD else None for one in instance.inputs]
        for k, array in zip(instance.given, given):
            inputs[k] = array
        if key is not None:
            inputs[-1] = key
        if not instance.kept:
            return self.executable(inputs)
        with place.writing, cuda.on(place.number):
            stream = cuda.module().cuda.get_current_stream()
            if place.written is not None:
                stream.wait_event(place.written)
            outputs = self.executable(inputs)
            for k, name in instance.kept:
                place.own[name][...] = outputs[k]
            place.written = stream.record()
        return outputs
