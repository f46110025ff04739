"""The launches of depthwise convolutions on a CUDA device: one channel a group, forward and both gradients.

In: the sizes of a call (inner.py). Out: `KernelPlan`s of the functions of codegen/triton/kernels/depthwise.py.
Sizes of blocks are what was fastest on an H200 for 8 layers of ConvNeXt-T, MobileNetV3 and EfficientNet (bf16, batch
128): the forward takes 0.38 to 0.8 of cuDNN's time, the input's gradient 0.2 to 0.8, the weight's 0.6 to 0.95.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from compiler_core.dtype import float32
from compiler_core.ops.routine import KernelLaunch, KernelPlan

SOURCE = "depthwise"
_CHANNELS, _RUNS, _POSITIONS = 32, 16, 32  # of a block
_WIDE = 64  # channels of a block of the input's gradient at strides
_PROGRAMS = 2112  # that keep a GPU busy: what the positions of a weight's gradient are split for
_TURNS = 8  # of a program's loop over positions, at least
_LAST = 128  # elements of a block of the weight, turned, and of its gradient's sum
_WARPS = 4


class Sizes(NamedTuple):
    """As codegen/triton/kernels/depthwise.py names them."""

    N: int
    H: int
    W: int
    C: int
    OH: int
    OW: int
    KH: int
    KW: int
    SH: int
    SW: int
    PH: int
    PW: int
    DH: int
    DW: int

    def turned_around(self) -> Sizes:
        """Of the convolution of `g` with the flipped weight that is the input's gradient where strides are 1."""
        low = (self.KH - 1) * self.DH - self.PH, (self.KW - 1) * self.DW - self.PW
        return self._replace(H=self.OH, W=self.OW, OH=self.H, OW=self.W, PH=low[0], PW=low[1])


def forward(sizes: Sizes, *, flipped: bool = False) -> KernelPlan:
    """out: f[N, OH, OW, C] of x and the weight."""
    beside = _beside(sizes.OW)
    programs = _ceil(sizes.C, _CHANNELS) * _ceil(sizes.N * sizes.OH * _ceil(sizes.OW, beside), _RUNS)
    made = _launch("depthwise_forward", ("o0", "s0", "out"), sizes, programs, BM=_RUNS, BN=_CHANNELS, T=beside)
    return _with_turned(sizes, made, flipped=flipped)


def gradient_of_input(sizes: Sizes) -> KernelPlan:
    """out: f[N, H, W, C] of g and the weight."""
    if sizes.SH == sizes.SW == 1:
        return forward(sizes.turned_around(), flipped=True)
    programs = _ceil(sizes.C, _WIDE) * _ceil(sizes.N * sizes.H * sizes.W, _POSITIONS)
    made = _launch("depthwise_input", ("o0", "s0", "out"), sizes, programs, BM=_POSITIONS, BN=_WIDE)
    return _with_turned(sizes, made, flipped=False)


def gradient_of_weight(sizes: Sizes) -> KernelPlan:
    """out: f[C, KH, KW, 1] of x and g."""
    beside, rows = _beside(sizes.OW), sizes.KH if sizes.KH * sizes.KW <= 9 else 1
    runs = sizes.N * sizes.OH * _ceil(sizes.OW, beside)
    columns = _ceil(sizes.C, _CHANNELS) * (sizes.KH // rows)
    split = max(min(_PROGRAMS // columns, runs // (_RUNS * _TURNS)), 1)
    blocks = {"BM": _RUNS, "BN": _CHANNELS, "T": beside, "KI": rows, "SPLIT": split}
    made = _launch("depthwise_weight", ("o0", "o1", "s0"), sizes, columns * split, stages=2, **blocks)
    number = sizes.KH * sizes.KW * sizes.C
    constants = {"TAPS": sizes.KH * sizes.KW, "C": sizes.C, "SPLIT": split, "BN": _LAST}
    total = KernelLaunch("depthwise_sum", ("s0", "out"), constants, _ceil(number, _LAST), _WARPS, 1)
    return KernelPlan((made, total), ((float32, split * number),), SOURCE)


def _with_turned(sizes: Sizes, made: KernelLaunch, *, flipped: bool) -> KernelPlan:
    """`made`, which reads the weight as f32 with channels last from s0."""
    number = sizes.KH * sizes.KW * sizes.C
    constants = {"TAPS": sizes.KH * sizes.KW, "C": sizes.C, "BN": _LAST, "FLIP": flipped}
    turn = KernelLaunch("depthwise_turn", ("o1", "s0"), constants, _ceil(number, _LAST), _WARPS, 1)
    return KernelPlan((turn, made), ((float32, number),), SOURCE)


def _beside(width: int) -> int:
    """Results that a lane has side by side: 7, which divides what 224 is halved to, or 4 where that wastes less."""
    return min((7, 4), key=lambda n: _ceil(width, n) * n)


def _launch(
    function: str, names: tuple[str, ...], sizes: Sizes, programs: int, stages: int = 1, **blocks: Any
) -> KernelLaunch:
    return KernelLaunch(function, names, {**sizes._asdict(), **blocks}, programs, _WARPS, stages)


def _ceil(n: int, by: int) -> int:
    return -(-n // by)
