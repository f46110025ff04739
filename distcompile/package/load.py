"""A package, loaded: called as the module was that it was made of.

In: a file of `aot_compile`. Out: `Package`: a function of arrays or Tensors. Nothing is compiled or captured.
The code is that of native.py or, of a program for a GPU, of on_cuda.py; it prepares one instance (the program for one
set of sizes) when such sizes first come.
A Tensor among the arguments gives Tensors, otherwise the results are arrays. What the program writes to buffers it
writes to its own; what it writes to arguments it writes to the caller's. It computes without a tape. What it draws it
draws with keys of the default generator, as the exported program does (`manual_seed`).
Raises: PackageError for a file that is none, is damaged, of a newer format, or for another machine, and where a library
that it names is not installed; ArgumentError, ShapeError, DTypeError for what is not what the program takes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from compiler_core.errors import DTypeError, ShapeError
from distcompile.errors import ArgumentError, PackageError
from distcompile.package.container import Array, Contents, read
from distcompile.package.instances import Described, Instance

if TYPE_CHECKING:
    from distcompile.package import native, on_cuda

    Ready: TypeAlias = native.Ready | on_cuda.Ready


_GENERATORS = "compiler_core.tensor.making.random"


def load_package(path: str | os.PathLike[str], *, threads: int = 0) -> Package:
    """The package at `path`. threads: that loops on the CPU share; 0: OMP_NUM_THREADS, by default one a core. See the
    head of this file."""
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
    known = cpu_features()
    if missing := [name for name in target["features"] if name not in known]:
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
        self._lock = Lock()
        self._ready: dict[tuple[tuple[int, ...], ...], Ready] = {}
        self.place: native.OnHost | on_cuda.OnCuda
        if "gpu" in self.manifest:
            from distcompile.package.on_cuda import OnCuda

            self.place = OnCuda(contents)
        else:
            from distcompile.package.native import OnHost

            self.place = OnHost(contents, threads)

    @property
    def instances(self) -> Sequence[Instance]:
        return self.place.instances

    @property
    def inputs(self) -> list[Described]:
        first = self.instances[0]
        return [first.inputs[k] for k in first.given]

    @property
    def outputs(self) -> list[Described]:
        return [one for one in self.instances[0].outputs if not one.kind]

    def run(self, *given: Any) -> list[Any]:
        """The tensors of the result, in order, of those among the arguments, in order; constants are what they are."""
        constants = iter(given)
        leaves = [next(constants, None) if "tensor" in one else one["value"] for one in self.manifest["arguments"]]
        if any(True for _ in constants) or any(leaves[k] is None for k in self._tensors):
            expected = ", ".join(map(str, self.inputs))
            raise ArgumentError("the package takes other arguments", expected=expected, got=f"{len(given)} arrays")
        return [one for one, told in zip(*self._called(leaves, tensors=False)) if "tensor" in told]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._tree.result(self._called(self._tree.leaves(args, kwargs), tensors=self.gives_tensors)[0])

    def _called(self, leaves: Sequence[Any], *, tensors: bool) -> tuple[list[Any], Sequence[Any]]:
        """The leaves of the result, and what is told of each. tensors: they are Tensors in any case."""
        given = self._arrays(leaves)
        ready = self._fitting(tuple(array.shape for array in given))
        outputs = ready.run(given, self._key())
        instance, mine = ready.instance, [leaves[k] for k in self._tensors]
        for k, place in instance.written:
            if place in instance.given:
                self.place.write(mine[instance.given.index(place)], outputs[k])
        hand = self.place.handed(mine, tensors)
        told = instance.results
        return [hand(outputs[one["tensor"]]) if "tensor" in one else one["value"] for one in told], told

    def _fitting(self, shapes: tuple[tuple[int, ...], ...]) -> Ready:
        ready = self._ready.get(shapes)
        if ready is None:
            with self._lock:
                ready = self._ready[shapes] = self._ready.get(shapes) or self._prepared(shapes)
        return ready

    def _prepared(self, shapes: tuple[tuple[int, ...], ...]) -> Ready:
        ready = self.place.prepared(shapes)
        if ready is None:
            known = "; ".join(", ".join(map(str, (one.inputs[k] for k in one.given))) for one in self.instances)
            raise ShapeError("the package has no code for these sizes", expected=known, got=str(list(shapes)),
                             remedy="aot_compile(program, path, sizes=[...]) compiles for several")  # fmt: skip
        return ready

    @cached_property
    def _tree(self) -> Any:
        from distcompile.package.trees import Trees

        return Trees(self.manifest["in_spec"], self.manifest["out_spec"])

    @cached_property
    def _tensors(self) -> list[int]:
        """Which of the leaves of a call are tensors."""
        return [k for k, one in enumerate(self.manifest["arguments"]) if "tensor" in one]

    def _arrays(self, leaves: Sequence[Any]) -> list[Array]:
        given: list[Array] = []
        for leaf, one in zip(leaves, self.manifest["arguments"], strict=True):
            if "tensor" not in one:
                if leaf != one["value"] or isinstance(leaf, bool) != isinstance(one["value"], bool):
                    raise ArgumentError(f"{one['name']} is a constant of the package", expected=repr(one["value"]),
                                        got=repr(leaf))  # fmt: skip
                continue
            expected = self.inputs[len(given)]
            array = self.place.array(leaf, expected)
            if array.dtype != expected.dtype:
                raise DTypeError(f"{expected.name}: the package takes another dtype", expected=str(expected.dtype),
                                 got=str(array.dtype))  # fmt: skip
            given.append(array)
        return given

    def _key(self) -> Array | None:
        """The key of the draws of a call, if it draws."""
        if not (draws := self.manifest.get("draws")):
            return None
        if _GENERATORS not in sys.modules:  # nobody can have seeded one: the system's seed would be theirs, too
            return np.array((int.from_bytes(os.urandom(8), "little"), 0, self.manifest["shard"]), np.uint64)
        from compiler_core.tensor.making.random import keys_for

        return keys_for(self.place.device, draws, self.manifest["shard"])
