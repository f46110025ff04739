"""torch's memory formats and layouts, for calls that name them: `x.to(memory_format=torch.channels_last)`.

In: nothing. Out: constants. Values have no strides of the user's choosing here: convolutions choose their own layout,
so a format is taken and changes nothing but what `is_contiguous(memory_format=...)` and `stride` would say in torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler_core.spelling import spelled

__all__ = [
    "channels_last",
    "channels_last_3d",
    "contiguous_format",
    "jagged",
    "layout",
    "legacy_contiguous_format",
    "memory_format",
    "preserve_format",
    "sparse_bsc",
    "sparse_bsr",
    "sparse_coo",
    "sparse_csc",
    "sparse_csr",
    "strided",
]


@dataclass(frozen=True, slots=True)
class memory_format:
    """The order of a tensor's dims in memory."""

    name: str

    def __repr__(self) -> str:
        return spelled(self.name)


@dataclass(frozen=True, slots=True)
class layout:
    """How a tensor is stored: every one here is `strided`; the others are names to compare with."""

    name: str

    def __repr__(self) -> str:
        return spelled(self.name)


contiguous_format = memory_format("contiguous_format")
legacy_contiguous_format = contiguous_format
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")
strided = layout("strided")
sparse_coo, sparse_csr, sparse_csc = layout("sparse_coo"), layout("sparse_csr"), layout("sparse_csc")
sparse_bsr, sparse_bsc, jagged = layout("sparse_bsr"), layout("sparse_bsc"), layout("jagged")
