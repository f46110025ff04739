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
    "layout",
    "legacy_contiguous_format",
    "memory_format",
    "preserve_format",
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
    """How a tensor is stored: `strided` is the only one here."""

    name: str

    def __repr__(self) -> str:
        return spelled(self.name)


contiguous_format = memory_format("contiguous_format")
legacy_contiguous_format = contiguous_format
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")
strided = layout("strided")
