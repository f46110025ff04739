"""The sizes of a convolution with channels innermost, as the constants of the Triton kernels name them.

In: numbers. Out: `Sizes`: N images of H x W, in G groups of C channels; the result's O channels a group, OH x OW; the
filter K, strides S, padding P on the low side, dilation D. One spatial dim is two of which the first is 1.
"""

from __future__ import annotations

from typing import NamedTuple


class Sizes(NamedTuple):
    """See the head of this file."""

    N: int
    H: int
    W: int
    G: int
    C: int
    O: int  # noqa: E741
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

    @property
    def kernel(self) -> int:
        """Taps of a filter."""
        return self.KH * self.KW

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel has a filter of its own."""
        return self.C == self.O == 1 < self.G


def ceil(n: int, by: int) -> int:
    """How many blocks of `by` hold n."""
    return -(-n // by)
