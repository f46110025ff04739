"""What a generated host function for a CUDA device expects: the record that its artefact keeps.

In: nothing. Out: `CudaEntry`, `CudaFunction`, to JSON and back; `GpuCall`, the surroundings of one call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, ClassVar

from compiler_core.dtype import by_name
from compiler_core.meta import TensorMeta
from compiler_core.ops.linear_algebra.gemm_product import Product
from compiler_core.records import dataclass
from compiler_core.runtime.callback import Callback
from compiler_core.runtime.cuda.blocks import whole

WORKSPACE_NBYTES = 32 << 20  # of cuBLAS: what its manual wants on Hopper
CALL_FAILED = 0x7FFFFFFC  # what an entry returns when a call of the driver's, or of cuBLAS's, has failed


class GpuCall(ctypes.Structure):
    """`dc_gpu` of codegen/cuda/launcher.py."""

    _fields_: ClassVar = [
        ("stream", ctypes.c_void_p),
        ("blas", ctypes.c_void_p),
        ("units", ctypes.c_void_p),
        ("tf32", ctypes.c_int64),
        ("events", ctypes.c_void_p),
        ("call", ctypes.c_char_p),
        ("code", ctypes.c_int64),
        ("step", ctypes.c_int64),
        ("blocks", ctypes.c_void_p),
        ("products", ctypes.c_void_p),
        ("workspace", ctypes.c_void_p),
        ("workspace_nbytes", ctypes.c_uint64),
        ("dnn", ctypes.c_void_p),
        ("record", ctypes.c_void_p),
        ("marks", ctypes.c_void_p),
        ("copies", ctypes.c_void_p),
    ]


@dataclass(frozen=True, slots=True)
class CudaFunction:
    """A kernel to be loaded: its file, its name there, bytes of dynamic shared memory, threads of a block."""

    file: str
    name: str
    shared: int
    threads: int
    overlaps: bool = False

    def to_json(self) -> list[Any]:
        return [self.file, self.name, self.shared, self.threads, self.overlaps]


@dataclass(frozen=True, slots=True)
class CudaEntry:
    """One program. arena_nbytes: of its block of device memory (codegen/cuda/plan.py), in which `status`, `host` and
    `workspace` are offsets, -1 for a part that is not there. staged: input that may come from the host -> its offset
    behind `host`. messages[k]: what to say when check k fails. steps: for each step, what it is and the user's line.
    `lib` is made of symbols, callbacks, planned (calls that cuDNN prepares) and functions, in this order; before it
    stands the address of `numbers`: the sizes of code for many sizes (codegen/cpp/many_sizes.py). announced,
    awaited: the outputs that it signals, the inputs that it waits for. spent: the inputs that it writes over.
    products: cuBLASLt's; choices: for each the algorithm that was measured to be the fastest, None: the first that
    cuBLASLt names; measured_on: where that was (products.py). over_inputs: (output, input) pairs that may be one memory
    (schedule/over_inputs.py). stack: (input, first byte) of those that lie in one block, what is between them the
    program's too (schedule/lending.py). fetched, sent: the inputs, and outputs, that lie in the host's pinned memory
    (schedule/hosting.py).
    """

    symbol: str
    inputs: tuple[TensorMeta, ...]
    outputs: tuple[TensorMeta, ...]
    arena_nbytes: int
    status: int
    host: int
    workspace: int
    staged: Mapping[int, int]
    messages: tuple[str, ...]
    steps: tuple[str, ...]
    symbols: tuple[str, ...]
    callbacks: tuple[Callback, ...]
    functions: tuple[CudaFunction, ...]
    announced: tuple[int, ...] = ()
    awaited: tuple[int, ...] = ()
    spent: tuple[int, ...] = ()
    products: tuple[Product, ...] = ()
    choices: tuple[tuple[int, ...] | None, ...] = ()
    measured_on: str = ""
    planned: tuple[Callback, ...] = ()
    numbers: tuple[int, ...] = ()
    over_inputs: tuple[tuple[int, int], ...] = ()
    stack: tuple[tuple[int, int], ...] = ()
    fetched: tuple[int, ...] = ()
    sent: tuple[int, ...] = ()

    @property
    def stack_nbytes(self) -> int:
        """Of the block in which the inputs of the stack lie."""
        return whole(max((start + self.inputs[k].nbytes for k, start in self.stack), default=0))

    def to_json(self) -> dict[str, Any]:
        return {
            "symbol": self.symbol,
            "inputs": [_meta_to_json(m) for m in self.inputs],
            "outputs": [_meta_to_json(m) for m in self.outputs],
            "block": [self.arena_nbytes, self.status, self.host, self.workspace],
            "staged": [list(row) for row in self.staged.items()],
            "messages": list(self.messages),
            "steps": list(self.steps),
            "symbols": list(self.symbols),
            "callbacks": [callback.to_json() for callback in self.callbacks],
            "functions": [function.to_json() for function in self.functions],
            "events": [list(self.announced), list(self.awaited)],
            "spent": list(self.spent),
            "products": [product.to_json() for product in self.products],
            "choices": [choice and list(choice) for choice in self.choices],
            "measured_on": self.measured_on,
            "planned": [call.to_json() for call in self.planned],
            "numbers": list(self.numbers),
            "over_inputs": [list(pair) for pair in self.over_inputs],
            "stack": [list(row) for row in self.stack],
            "hosted": [list(self.fetched), list(self.sent)],
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> CudaEntry:
        arena_nbytes, status, host, workspace = data["block"]
        announced, awaited = data["events"]
        fetched, sent = data["hosted"]
        return CudaEntry(
            data["symbol"],
            tuple(_meta_from_json(m) for m in data["inputs"]),
            tuple(_meta_from_json(m) for m in data["outputs"]),
            arena_nbytes,
            status,
            host,
            workspace,
            dict(data["staged"]),
            tuple(data["messages"]),
            tuple(data["steps"]),
            tuple(data["symbols"]),
            tuple(Callback.from_json(row) for row in data["callbacks"]),
            tuple(CudaFunction(*row) for row in data["functions"]),
            tuple(announced),
            tuple(awaited),
            tuple(data["spent"]),
            tuple(Product.from_json(row) for row in data["products"]),
            tuple(choice and tuple(choice) for choice in data["choices"]),
            data["measured_on"],
            tuple(Callback.from_json(row) for row in data["planned"]),
            tuple(data["numbers"]),
            tuple((output, place) for output, place in data["over_inputs"]),
            tuple((k, start) for k, start in data["stack"]),
            tuple(fetched),
            tuple(sent),
        )


def _meta_to_json(meta: TensorMeta) -> list[Any]:
    return [meta.dtype.short, *meta.shape]


def _meta_from_json(data: list[Any]) -> TensorMeta:
    return TensorMeta(tuple(data[1:]), by_name(data[0]))
