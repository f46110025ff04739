"""The launches of depthwise convolutions on a CUDA device: one channel a group, forward and both gradients.

In: the sizes of a call (sizes.py). Out: `KernelPlan`s of the functions of codegen/triton/kernels/depthwise.py.
Sizes of blocks are what was fastest on an H200 for 8 layers of ConvNeXt-T, MobileNetV3 and EfficientNet (bf16, batch
128): the forward takes 0.38 to 0.8 of cuDNN's time, the input's gradient 0.2 to 0.8, the weight's 0.6 to 0.95.
"""

from __future__ import annotations

from typing import Any

from compiler_core.dtype import float32
from compiler_core.ops.convolution.sizes import Sizes, ceil
from compiler_core.ops.routine import KernelLaunch, KernelPlan

SOURCE = "depthwise"
_CHANNELS, _RUNS, _POSITIONS = 32, 16, 32  # of a block
_WIDE = 64  # channels of a block of the input's gradient at strides
_PROGRAMS = 2112  # that keep a GPU busy: what the positions of a weight's gradient are split for
_TURNS = 8  # of a program's loop over positions, at least
_LAST = 128  # elements of a block of the weight, turned, and of its gradient's sum
_WARPS = 4


def forward(sizes: Sizes, *, flipped: bool = False) -> KernelPlan:
    """out: f[N, OH, OW, C] of x and the weight."""
    beside = _beside(sizes.OW)
    programs = ceil(sizes.G, _CHANNELS) * ceil(sizes.N * sizes.OH * ceil(sizes.OW, beside), _RUNS)
    made = _launch("depthwise_forward", ("o0", "s0", "out"), sizes, programs, BM=_RUNS, BN=_CHANNELS, T=beside)
    return _with_turned(sizes, made, flipped=flipped)


def gradient_of_input(sizes: Sizes) -> KernelPlan:
    """out: f[N, H, W, C] of g and the weight."""
    if sizes.SH == sizes.SW == 1:
        return forward(_turned_around(sizes), flipped=True)
    programs = ceil(sizes.G, _WIDE) * ceil(sizes.N * sizes.H * sizes.W, _POSITIONS)
    made = _launch("depthwise_input", ("o0", "s0", "out"), sizes, programs, BM=_POSITIONS, BN=_WIDE)
    return _with_turned(sizes, made, flipped=False)


def gradient_of_weight(sizes: Sizes) -> KernelPlan:
    """out: f[C, KH, KW, 1] of x and g."""
    beside, rows = _beside(sizes.OW), sizes.KH if sizes.kernel <= 9 else 1
    runs = sizes.N * sizes.OH * ceil(sizes.OW, beside)
    columns = ceil(sizes.G, _CHANNELS) * (sizes.KH // rows)
    split = max(min(_PROGRAMS // columns, runs // (_RUNS * _TURNS)), 1)
    blocks = {"BM": _RUNS, "BN": _CHANNELS, "T": beside, "KI": rows, "SPLIT": split}
    made = _launch("depthwise_weight", ("o0", "o1", "s0"), sizes, columns * split, stages=2, **blocks)
    number = sizes.kernel * sizes.G
    constants = {"TAPS": sizes.kernel, "C": sizes.G, "SPLIT": split, "BN": _LAST}
    total = KernelLaunch("depthwise_sum", ("s0", "out"), constants, ceil(number, _LAST), _WARPS, 1)
    return KernelPlan((made, total), ((float32, split * number),), SOURCE)


def _turned_around(sizes: Sizes) -> Sizes:
    """Of the convolution of `g` with the flipped weight that is the input's gradient where strides are 1."""
    low = (sizes.KH - 1) * sizes.DH - sizes.PH, (sizes.KW - 1) * sizes.DW - sizes.PW
    return sizes._replace(H=sizes.OH, W=sizes.OW, OH=sizes.H, OW=sizes.W, PH=low[0], PW=low[1])


def _with_turned(sizes: Sizes, made: KernelLaunch, *, flipped: bool) -> KernelPlan:
    """`made`, which reads the weight as f32 with channels last from s0."""
    number = sizes.kernel * sizes.G
    constants = {"TAPS": sizes.kernel, "C": sizes.G, "BN": _LAST, "FLIP": flipped}
    turn = KernelLaunch("depthwise_turn", ("o1", "s0"), constants, ceil(number, _LAST), _WARPS, 1)
    return KernelPlan((turn, made), ((float32, number),), SOURCE)


def _beside(width: int) -> int:
    """Results that a lane has side by side: 7, which divides what 224 is halved to, or 4 where that wastes less."""
    return min((7, 4), key=lambda n: ceil(width, n) * n)


def _launch(
    function: str, names: tuple[str, ...], sizes: Sizes, programs: int, stages: int = 1, **blocks: Any
) -> KernelLaunch:
    """The kernels' C is the number of channels, which is that of the groups."""
    constants = {name: n for name, n in sizes._asdict().items() if name not in ("G", "O")} | {"C": sizes.G}
    return KernelLaunch(function, names, {**constants, **blocks}, programs, _WARPS, stages)
