"""What a schedule is made for: the facts of a machine that decide which axes are parallel and how sums are cut.

In: nothing. Out: `Target`, and the two that are used: `CPU` and `GPU` (an H200's numbers; the device's own where there
is one). Facts only: the rules that use them stand where the kernels are built (kernel.py, gpu.py) and printed
(codegen/triton/tiles.py).
"""

from __future__ import annotations

from typing import Literal

from compiler_core.dtype import DType, bfloat16, float16
from compiler_core.records import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """kind: which builder of kernels. multiprocessors: of the GPU. patience: of events, when groups merge (fuse.py).

    A GPU waits for nobody while a bucket leaves some kernels later; each pass over memory that a merge saves counts.
    small: elements of what is computed in less time than a launch takes.
    many_sizes: the graph is one of many that differ in sizes, and that are to make the same code where they can.
    stacked: values that lie one after another in one block, if they are written over (schedule/lending.py).
    halves: the 16-bit floats that its library multiplies, summing in f32; others are converted for it.
    """

    kind: Literal["cpu", "gpu"]
    multiprocessors: int = 0
    patience: int = 0
    small: int = 0
    many_sizes: bool = False
    stacked: frozenset[str] = frozenset()
    halves: frozenset[DType] = frozenset()

    @property
    def is_gpu(self) -> bool:
        return self.kind == "gpu"


CPU = Target("cpu")
GPU = Target("gpu", multiprocessors=132, patience=4, small=4096, halves=frozenset({float16, bfloat16}))
