"""What a schedule is made for: the facts of a machine that decide which axes are parallel and how sums are cut.

In: nothing. Out: `Target`, and the two that are used: `CPU` and `GPU` (an H200's numbers; the device's own where there
is one). Facts only: the rules that use them stand where the kernels are built (kernel.py, gpu.py) and printed
(codegen/triton/tiles.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Target:
    """kind: which builder of kernels. multiprocessors: of the GPU."""

    kind: Literal["cpu", "gpu"]
    multiprocessors: int = 0

    @property
    def is_gpu(self) -> bool:
        return self.kind == "gpu"


CPU = Target("cpu")
GPU = Target("gpu", multiprocessors=132)
