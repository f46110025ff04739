"""Sequences of different lengths: padded to one length, or packed step by step for recurrent layers. torch's names.

In: sequences, or a padded batch and its lengths. Out: a `PackedSequence` (rows of step 0, then of step 1, ...: only the
sequences that are long enough), or padded tensors again. Batches are sorted by length, longest first, inside.
Lengths are read: they are Python numbers to a trace.
"""

# mypy: disable-error-code="no-any-return"
# The core's functions take and return any Value: array, graph node or Tensor.
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from compiler_core.ops import functional as C
from compiler_core.tensor.making.creation import tensor
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]


class _Packed(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(_Packed):
    """data: f[sum of lengths, ...]; batch_sizes: i64[longest], how many sequences reach each step.

    sorted_indices: where each sequence of the sorted batch came from; unsorted_indices: the way back (None: as given).
    """

    def __new__(
        cls,
        data: Tensor,
        batch_sizes: Tensor | None = None,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> Self:
        if batch_sizes is None:
            data, batch_sizes = data
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """The same sequences with `data.to(...)`."""
        return type(self)(self.data.to(*args, **kwargs), *self[1:])

    def cpu(self) -> Self:
        return self.to("cpu")

    def double(self) -> Self:
        return type(self)(self.data.double(), *self[1:])

    def float(self) -> Self:
        return type(self)(self.data.float(), *self[1:])

    @property
    def is_cuda(self) -> bool:
        """False: there is no device memory."""
        return False


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes this one, i64[N]; None of None."""
    if permutation is None:
        return None
    return tensor(np.argsort(np.asarray(permutation.tolist(), np.int64)), device=permutation.device)


def _numbers(lengths: Tensor | Sequence[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.asarray(lengths.tolist() if isinstance(lengths, Tensor) else list(lengths), np.int64)


def pack_padded_sequence(
    input: Tensor, lengths: Tensor | list[int], batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack f[T, B, ...] (batch_first: f[B, T, ...]). enforce_sorted: lengths must fall; else the batch is sorted."""
    sizes = _numbers(lengths)
    steps, batch = (input.shape[1], input.shape[0]) if batch_first else (input.shape[0], input.shape[1])
    if sizes.shape != (batch,):
        raise ArgumentError("Expected `len(lengths)` to be equal to batch_size", expected=str(batch),
                            got=str(len(sizes)))  # fmt: skip
    if len(sizes) == 0 or sizes.min() <= 0 or sizes.max() > steps:
        raise ArgumentError("lengths must be at least 1, and at most the padded length", got=str(sizes.tolist()))
    order = np.argsort(-sizes, kind="stable")
    if enforce_sorted and (np.diff(sizes) > 0).any():
        raise ArgumentError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True",
            got=str(sizes.tolist()),
            remedy="pass enforce_sorted=False",
        )
    source = np.arange(batch) if enforce_sorted else order
    batch_sizes = (np.arange(sizes.max())[:, None] < sizes).sum(1)
    rows = [source[:count] * steps + t if batch_first else t * batch + source[:count]
            for t, count in enumerate(batch_sizes)]  # fmt: skip
    flat = input.reshape(-1, *input.shape[2:])
    data = C.index_select(flat, 0, tensor(np.concatenate(rows), device=input.device))
    kept = None if enforce_sorted else tensor(order, device=input.device)
    return PackedSequence(data, tensor(batch_sizes, device="cpu"), kept)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """(f[T, B, ...] or f[B, T, ...], lengths i64[B]): the batch as it was given to `pack_padded_sequence`."""
    batch_sizes = _numbers(sequence.batch_sizes)
    steps, batch = len(batch_sizes), int(batch_sizes[0])
    if total_length is not None:
        if total_length < steps:
            raise ArgumentError(
                "Expected total_length to be at least the length of the longest sequence in input",
                expected=f"at least {steps}",
                got=str(total_length),
            )
        steps = total_length
    starts = np.cumsum(batch_sizes) - batch_sizes
    place = np.full((steps, batch), sequence.data.shape[0])  # of the row of padding, after all others
    for t, (start, count) in enumerate(zip(starts, batch_sizes, strict=True)):
        place[t, :count] = np.arange(start, start + count)
    lengths = (np.arange(batch)[:, None] < batch_sizes).sum(1)
    if sequence.unsorted_indices is not None:
        back = _numbers(sequence.unsorted_indices)
        place, lengths = place[:, back], lengths[back]
    data = sequence.data
    rows = C.cat([data, data.new_full((1, *data.shape[1:]), padding_value)], 0)
    return rows[tensor(place.T if batch_first else place, device="cpu")], tensor(lengths, device="cpu")


def pad_sequence(
    sequences: Tensor | list[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Tensors f[Lᵢ, ...] as f[longest, B, ...] (batch_first: f[B, longest, ...])."""
    if padding_side not in ("left", "right"):
        raise ArgumentError("padding_side is 'left' or 'right'", got=padding_side)
    if not isinstance(sequences, Iterable):
        raise ArgumentError("pad_sequence: Expected iterable for input sequences", got=type(sequences).__name__)
    given = list(sequences)
    if not given:
        raise ArgumentError("pad_sequence: there are no sequences")
    longest = max(sequence.shape[0] for sequence in given)
    padded = []
    for sequence in given:
        missing = longest - sequence.shape[0]
        around = [0, 0] * (sequence.dim() - 1) + ([missing, 0] if padding_side == "left" else [0, missing])
        padded.append(C.pad(sequence, around, value=padding_value) if missing else sequence)
    return C.stack(padded, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """The sequences of a padded batch, each of its own length."""
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [row[:length] for row, length in zip(rows, lengths.tolist(), strict=True)]


def pack_sequence(sequences: list[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack tensors f[Lᵢ, ...]."""
    lengths = [sequence.shape[0] for sequence in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences that were packed, in the order in which they were given."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
