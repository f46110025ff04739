"""What of a program lies elsewhere at every call, and is copied to where it stays: a CUDA graph serves fixed addresses.

In: the addresses of a program's calls. Out: `Settling`: which inputs are copied into memory of ours before a call
(a batch, the gradient that a backward begins with), and which blocks of outputs out of it after one (a loss that the
program keeps). They are found by comparing calls: what little differs from an earlier call would have to be copied for
that call's graph to serve. What is large or much (a model's buffers, which lie in two places in turns) is left, and so
are places that the caller gives.
A place belongs to a thread and a stream, like everything that a graph refers to: copies and launches stand in order.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable, Sequence
from typing import Any

from compiler_core import cuda
from compiler_core.runtime.cuda import context, driver
from compiler_core.runtime.cuda.executable import CudaExecutable, Prepared

MOST = 8  # inputs and blocks that are copied: each takes the host microseconds
MOST_NBYTES = 64 << 20  # of them all: some 40 us of an H200's memory


class Settling:
    """Of one program. inputs, blocks: those that are copied."""

    def __init__(self, run: CudaExecutable) -> None:
        self.run, self.entry = run, run.entry
        # a stack moves as a whole, or not; the host's memory not
        self._lasting = (*(k for k, _ in run.entry.stack), *run.entry.fetched)
        self.inputs: set[int] = set()
        self.blocks: set[int] = set()
        self._places: dict[tuple[int, int, str, int], Any] = {}  # by thread, stream, kind and number: pointers

    def place(self, kind: str, number: int, nbytes: int, stream: int) -> Any:
        """A pointer to this thread's memory for an "input" or a "block" on a stream."""
        key = (threading.get_ident(), stream, kind, number)
        found = self._places.get(key)
        if found is None:
            with cuda.allocating(cuda.current()):
                found = self._places[key] = context.cupy().cuda.alloc(nbytes)
        return found

    def bring_in(self, prepared: Prepared, stream: int) -> None:
        """Copy the inputs of a call."""
        uploaded = {k for k, _ in prepared.uploads}
        for k in self.inputs - uploaded:
            nbytes = self.entry.inputs[k].nbytes
            place = self.place("input", k, nbytes, stream)
            self._copy(place.ptr, prepared.addresses[k], nbytes, stream)
            prepared.addresses[k] = place.ptr

    def bring_out(self, prepared: Prepared, fresh: dict[int, Any], stream: int) -> None:
        """Copy blocks of the outputs. fresh: where to."""
        if fresh:
            pointers = list(prepared.pointers)
            for k, pointer in fresh.items():
                self._copy(pointer.ptr, pointers[k].ptr, self.run.blocks.sizes[k], stream)
                pointers[k] = pointer
            prepared.pointers = pointers

    def _copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        arguments = ctypes.c_uint64(target), ctypes.c_uint64(source), ctypes.c_size_t(nbytes), ctypes.c_void_p(stream)
        driver.call("cuMemcpyDtoDAsync_v2", *arguments, where=f"compiled graph {self.entry.symbol}")

    def learn(self, prepared: Prepared, earlier: Iterable[Sequence[int]]) -> None:
        """A call has come for whose addresses there is no graph. earlier: the addresses of other calls."""
        for others in earlier:
            differ = [k for k, (one, other) in enumerate(zip(prepared.addresses, others)) if one != other]
            if self._take(differ, prepared):
                return

    def _take(self, places: Sequence[int], prepared: Prepared) -> bool:
        """Copy what lies at these places among the addresses from now on, if it is little. Returns whether."""
        layout, first = self.run.blocks, len(self.entry.inputs) + len(self.run.constants)
        outputs = [k - first for k in places if k >= first]
        if any(prepared.results[k] is not None for k in outputs) or any(k in places for k in self._lasting):
            return False
        inputs = self.inputs | {k for k in places if k < len(self.entry.inputs)}
        blocks = self.blocks | {layout.places[k][0] for k in outputs}
        nbytes = sum(self.entry.inputs[k].nbytes for k in inputs) + sum(layout.sizes[k] for k in blocks)
        if len(inputs) + len(blocks) > MOST or nbytes > MOST_NBYTES:
            return False
        self.inputs, self.blocks = inputs, blocks
        return True
