"""Connectionist temporal classification: the loss of a label sequence against unaligned frames.

In: log probabilities f[T, N, C], label sequences, lengths. Out: -log p(labels), by the forward recursion, unrolled over
T; its gradient is the recursion's own, so all of it compiles where lengths need no reading (targets of [N, S]).
Source: Graves et al. 2006. As torch's, the gradient is that of log_softmax's input where log_probs are a log_softmax:
it counts the softmax in, which vanishes behind log_softmax and differs from the plain derivative elsewhere.
"""

# mypy: disable-error-code="no-any-return"
# The core's functions take and return any Value: array, graph node or Tensor.
from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from compiler_core.dtype import int64
from compiler_core.errors import ShapeError
from compiler_core.ops import functional as C
from compiler_core.ops import prims
from compiler_core.ops.casting import in_float32
from compiler_core.ops.refusals import need_kind
from compiler_core.tensor.making.creation import arange, tensor
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError
from distcompile.nn.functional.losses import checked_reduction

Lengths = Tensor | Sequence[int]


@in_float32
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """-log p of labels under frames: f[T, N, C] -> f[N], f[T, C] -> f[]; "mean" divides by the label counts first.

    targets: i[N, S], or all sequences end to end, i[sum of target_lengths]. Lengths: i[N], or sequences of int.
    zero_infinity: no loss and no gradient where a sequence is too long for its frames.

    Example:
        >>> F.ctc_loss(torch.zeros(3, 2).log_softmax(1), torch.tensor([1]), torch.tensor(3), torch.tensor(1))
        tensor(0.2877)
    """
    need_kind("ctc_loss", "f", log_probs)
    reduction = checked_reduction(reduction)
    is_batched = log_probs.dim() == 3
    frames = log_probs if is_batched else log_probs.unsqueeze(1)
    if frames.dim() != 3:
        raise ShapeError("log_probs have a wrong number of dimensions", expected="(T, N, C) or (T, C)",
                         got=str(tuple(log_probs.shape)))  # fmt: skip
    steps, batch, classes = frames.shape
    if not 0 <= blank < classes:
        raise ArgumentError("blank must be in label range", expected=f"0..{classes - 1}", got=str(blank))
    labels, label_counts = (given.to(frames.device) for given in _padded(targets, target_lengths, batch))
    counts = prims.check_index(label_counts, labels.shape[1] + 1)
    frame_counts = prims.check_index(_lengths(input_lengths, batch).to(frames.device), steps + 1)
    loss = _negative_log_likelihood(frames, labels, frame_counts, counts, blank)
    if zero_infinity:
        loss = C.where(loss == math.inf, 0.0, loss)
    if reduction == "mean":
        return (loss / counts.clamp(min=1).to(loss.dtype)).mean()
    if reduction == "sum":
        return loss.sum()
    return loss if is_batched else loss[0]


def _lengths(lengths: Lengths, batch: int) -> Tensor:
    """i64[N]."""
    result = lengths.to(int64) if isinstance(lengths, Tensor) else tensor(list(lengths), dtype=int64, device="cpu")
    result = result.reshape(-1)
    if tuple(result.shape) != (batch,):
        raise ShapeError("there must be one length for each of the batch", expected=str(batch), got=str(result.shape))
    return result


def _padded(targets: Tensor, target_lengths: Lengths, batch: int) -> tuple[Tensor, Tensor]:
    """(labels i64[N, S], their counts i64[N]); sequences end to end are laid out, which reads the lengths."""
    counts = _lengths(target_lengths, batch)
    if targets.dim() == 2 or (targets.dim() == 1 and batch == 1):
        return targets.to(int64).reshape(batch, -1), counts
    if targets.dim() != 1:
        raise ShapeError("targets have a wrong number of dimensions", expected="1 or 2", got=str(targets.dim()))
    numbers = np.asarray(counts.tolist(), np.int64)
    if int(numbers.sum()) != targets.shape[0]:
        raise ArgumentError(
            "targets and the sum of target_lengths differ", expected=str(numbers.sum()), got=str(targets.shape[0])
        )
    starts = np.cumsum(numbers) - numbers
    column = np.arange(max(int(numbers.max(initial=0)), 1))
    place = np.where(column < numbers[:, None], starts[:, None] + column, 0)
    if targets.shape[0] == 0:
        return tensor(np.zeros(place.shape, np.int64), device="cpu"), counts
    return targets.to(int64)[tensor(place, device="cpu")], counts


def _negative_log_likelihood(
    frames: Tensor, labels: Tensor, frame_counts: Tensor, label_counts: Tensor, blank: int
) -> Tensor:
    """f[N]. States are the labels with blanks between and around them, 2S + 1 of them."""
    steps, batch, _ = frames.shape
    places = 2 * labels.shape[1] + 1
    inside = arange(labels.shape[1], device=labels.device) < label_counts.unsqueeze(1)
    labels = C.where(inside, labels, blank)  # what pads is not looked at
    blanks = labels.new_full(tuple(labels.shape), blank)
    states = C.cat([C.stack([blanks, labels], -1).reshape(batch, places - 1), blanks.new_full((batch, 1), blank)], 1)
    emitted = C.gather(frames, 2, states.unsqueeze(0).expand(steps, batch, places))
    before = C.pad(states, (2, 0), value=-1)[:, :places]
    may_skip = (states != blank) & (states != before) & (arange(places, device=states.device) >= 2)
    score = C.pad(frames.new_zeros((batch, 1)), (0, places - 1), value=-math.inf)
    for step in range(steps):
        one, two = (C.pad(score, (k, 0), value=-math.inf)[:, :places] for k in (1, 2))
        moved = _log_sum_exp(score, one, C.where(may_skip, two, -math.inf)) + emitted[step]
        score = C.where((frame_counts > step).unsqueeze(1), moved, score)
    last = C.gather(score, 1, (2 * label_counts).unsqueeze(1))[:, 0]
    label = C.gather(score, 1, (2 * label_counts - 1).clamp(min=0).unsqueeze(1))[:, 0]
    loss = -_log_sum_exp(last, C.where(label_counts > 0, label, -math.inf))
    probability = frames.exp() * (arange(steps, device=frames.device).unsqueeze(1) < frame_counts).unsqueeze(2).to(
        frames.dtype
    )
    softmax = (probability - probability.detach()).sum((0, 2))  # 0, with the gradient of the softmax
    return C.where(loss == math.inf, loss, loss + softmax)


def _log_sum_exp(*scores: Tensor) -> Tensor:
    """log Σ exp, -inf (with gradient 0) where all are -inf."""
    top = scores[0].detach()
    for score in scores[1:]:
        top = C.maximum(top, score.detach())
    dead = top == -math.inf
    shift = C.where(dead, 0.0, top)
    total = (scores[0] - shift).exp()
    for score in scores[1:]:
        total = total + (score - shift).exp()
    return C.where(dead, -math.inf, C.where(dead, 1.0, total).log() + shift)
