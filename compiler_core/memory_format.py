"""torch's memory formats and layouts, for calls that name them: `x.to(memory_format=torch.channels_last)`.

In: nothing. Out: constants. Values have no strides of the user's choosing here: convolutions choose their own layout,
so a format is taken and changes nothing but what `is_contiguous(memory_format=...)` and `stride` would say in torch.
"""

from __future__ import annotations

from compiler_core.names.spelling import spelled

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


class _Constant:
    """A name that is one object: compared, copied and pickled as itself."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return spelled(self.name)

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return _named, (self.name,)


class memory_format(_Constant):
    """The order of a tensor's dims in memory."""

    __slots__ = ()


class layout(_Constant):
    """How a tensor is stored: every one here is `strided`; the others are names to compare with."""

    __slots__ = ()


def _named(name: str) -> _Constant:
    found: _Constant = globals()[name]
    return found


contiguous_format = memory_format("contiguous_format")
legacy_contiguous_format = contiguous_format
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")
strided = layout("strided")
sparse_coo, sparse_csr, sparse_csc = layout("sparse_coo"), layout("sparse_csr"), layout("sparse_csc")
sparse_bsr, sparse_bsc, jagged = layout("sparse_bsr"), layout("sparse_bsc"), layout("jagged")
