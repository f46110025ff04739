"""Eager definitions of composites that work by rows, on a CUDA device: those of eager/rows.py, of some warps a row.

In: a Composite that says it works by rows; CuPy's arrays, of f32, f64, f16 or bf16. Out: its definition (ops/whole.py),
proved as all are (proof.py); its kernels, for definitions that use them (rules.py). Parameters' gradients
are sums of parts of the rows, of a block each, which are added up. What is kept of a row is of the dtype computed in.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

from compiler_core import cuda
from compiler_core.dtype import float32, float64
from compiler_core.eager.device.define import Grads, alike, define_there
from compiler_core.eager.device.kernels import F64, I64, MOST_ROWS, DeviceKernels, compiled, dense, is_wide
from compiler_core.eager.device.kernels import source as text_of
from compiler_core.eager.device.orders import row_major
from compiler_core.eager.device.sums import added
from compiler_core.eager.pointwise import identity, told
from compiler_core.ops.registry import Array
from compiler_core.ops.whole import COMPOSITES, Composite, Made
from compiler_core.runtime.cache import Manifest, load_or_build, make_key
from compiler_core.runtime.cuda.replay import empty, replays, replays_backward

_FILE = "kernels.cu"
_ROWS_A_PART, _PARTS = 32, 1024  # of a sum down the rows: rows of a part, which a block makes, at least, and parts
_BLOCKS = 1 << 12  # that keep a device busy


def row_kernels(name: str, dtype: Any, present: tuple[bool, ...] = ()) -> DeviceKernels | None:
    """The kernels `forward`, `backward` and `columns` of a composite with these parameters."""

    def text() -> str:
        return text_of(dtype, "pointwise.cu") + made_text(COMPOSITES[name], is_wide(dtype), present)

    return compiled(dtype, f"{name}{present}", text, probe="forward")


@cache
def made_text(composite: Composite, wide: bool, present: tuple[bool, ...]) -> str:
    """What the compiler makes of it; the first line says how many arrays are kept, and which operands are read."""
    computed = float64 if wide else float32

    def build(folder: Path) -> Manifest:
        from compiler_core.codegen.device_rows import cuda_text

        (folder / _FILE).write_text(cuda_text(told(composite, present), computed))
        return {}

    parts = {"computed in": computed.short, "present": repr(present), **identity(composite)}
    return load_or_build(make_key({"kind": "row kernels", **parts}), build).read(_FILE).decode()


def define_rows_there(composite: Composite) -> None:
    """Give it the definition for devices that is made of its composition."""
    made = _Definition(composite)
    find, from_result = made.find, composite.gradient is not None
    forward, backward = replays(made.forward), replays_backward(made.backward)
    define_there(composite.name, forward, backward, reads=(), reads_out=from_result, find=find)


class _Definition:
    def __init__(self, composite: Composite) -> None:
        self.composite, self.place, self.names = composite, composite.place, composite.numbers
        self.count = composite.operands - 1
        self.all = (True,) * self.count
        self._known: dict[Any, tuple[DeviceKernels, int]] = {}

    def find(self, dtype: Any) -> DeviceKernels | None:
        """Those with all parameters, which are proved."""
        found = self._of(dtype, self.all)
        return None if found is None else found[0]

    def _of(self, dtype: Any, present: tuple[bool, ...]) -> tuple[DeviceKernels, int] | None:
        """The kernels for these parameters, and how many arrays they keep."""
        return self._known.get((id(cuda.module()), dtype, present)) or self._made(dtype, present)

    def _made(self, dtype: Any, present: tuple[bool, ...]) -> tuple[DeviceKernels, int] | None:
        """The same, compiled; the operands that they read are noted."""
        of = row_kernels(self.composite.name, dtype, present)
        if of is None:
            return None
        said, there = made_text(self.composite, is_wide(dtype), present).split("\n", 1)[0], self.composite.there
        bits = int(said.removeprefix("// "))
        if there is not None and not there.reads_out:
            there.reads = (there.reads or frozenset()) | {number for number in range(32) if bits >> number & 1}
        found = self._known[id(cuda.module()), dtype, present] = of, bits >> 32
        return found

    def _turned(self, x: Array, attrs: dict[str, Any]) -> Array:
        """x with its rows along the last dim, or back."""
        return x.swapaxes(attrs["dim"], -1) if self.place == "dim" and attrs["dim"] != x.ndim - 1 else x

    def forward(self, k: DeviceKernels, x: Array, *parameters: Array | None, **attrs: Any) -> Made:
        found = self._of(k.dtype, tuple([p is not None for p in parameters]) if parameters else ())
        given = [attrs[name] for name in self.names]
        if found is None or not x.size or not x.ndim or not all(type(number) in (float, int) for number in given):
            return None
        rowed, dims = self._turned(x, attrs), attrs["dims"] if self.place == "dims" else 1
        lead, ends = rowed.shape[:-dims], rowed.shape[-dims:]
        rows, n, there = math.prod(lead), math.prod(ends), [dense(p) for p in parameters if p is not None]
        if rows >= MOST_ROWS or not alike(k, *there) or any(p.shape != ends for p in there):
            return None
        of, count = found
        out, kept = empty(rowed.shape, x.dtype), tuple([empty(lead, k.wide) for _ in range(count)])
        sizes = (I64(n), I64(lead[-1] if lead else 1), *map(F64, given))
        of.lines("forward", rows, n, row_major(rowed), *there, out, *kept, *sizes)
        return row_major(self._turned(out, attrs)), kept

    def backward(
        self, k: DeviceKernels, needs: Any, g: Array, out: Array, kept: Any, x: Array, *parameters: Any, **attrs: Any
    ) -> Grads | None:
        kernels = self._of(k.dtype, tuple([p is not None for p in parameters]) if parameters else ())
        if kernels is None:
            return None
        of, read = kernels[0], self._turned(x if self.composite.gradient is None else out, attrs)
        g, dims, dx = self._turned(g, attrs), attrs["dims"] if self.place == "dims" else 1, None
        numbers = [F64(attrs[name]) for name in self.names]
        lead, ends = g.shape[:-dims], g.shape[-dims:]
        rows, n = math.prod(lead), math.prod(ends)
        arrays = (row_major(g), row_major(read), *[_read(p) for p in parameters if p is not None], *kept)
        if needs[0]:
            dx = empty(g.shape, x.dtype)
            of.lines("backward", rows, n, *arrays, dx, I64(n), I64(lead[-1] if lead else 1), *numbers)
            dx = row_major(self._turned(dx, attrs))
        if not any(needs[1:]):
            return [dx, *[None] * self.count]
        parts = min(-(-rows // _ROWS_A_PART), _PARTS, max(1, _BLOCKS * 32 // n))
        wanted = [number for number, need in enumerate(needs[1:]) if need]
        made = empty((len(wanted), parts, n), k.wide)
        sums = dict(zip(wanted, made))
        columns = [sums.get(number) for number, p in enumerate(parameters) if p is not None]
        sizes = (I64(n), I64(rows), I64(-(-rows // parts)), *numbers)
        of.block("columns", *arrays, *columns, *sizes, grid=(-(-n // 32), parts))
        totals = added(made, 1).astype(x.dtype, copy=False)
        found = dict(zip(wanted, totals.reshape(len(wanted), *ends)))
        return [dx, *map(found.get, range(self.count))]


def _read(p: Array) -> Array | None:
    """p for a kernel; None where the tape has let go of it, since the kernel does not read it."""
    return dense(p) if cuda.is_array(p) else None
