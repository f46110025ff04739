"""PowerSGD: gradients travel as low-rank factors, and what that loses is added to the next step's gradients.

In: PowerSGDState, and buckets of local gradients. Out: Futures of the approximate averages, in place.
Method (Vogels, Karimireddy, Jaggi, NeurIPS 2019, algorithm 1; the choices are torch's): each gradient, as a matrix
M[n, m] with the residual added, becomes P = MQ, summed over ranks and orthogonalised, then Q = M^T P, averaged; the
result is P Q^T, the new residual M minus that. Vectors, and matrices too small to gain, are averaged whole.
Q starts random, alike on all ranks, and with warm_start as the last step's.
Residuals and Qs belong to parameters: when the bucket plan changes, they are carried over to the new one.
All is computed where the gradients are. The first Qs are drawn on the CPU, so that they are the same anywhere.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from collectives import Communicator, Work
from compiler_core.device import array_module, device_of
from compiler_core.ops.registry import Array
from compiler_core.tensor.tensor import Tensor
from distcompile.ddp.comm_hook import GradBucket
from distcompile.ddp.plan.bucket_plan import Bucket
from distcompile.distributed.algorithms.ddp_comm_hooks.default_hooks import average_future
from distcompile.distributed.group import ProcessGroup, group_or_default
from distcompile.errors import ArgumentError
from distcompile.futures import Future

logger = logging.getLogger(__name__)


class PowerSGDState:
    """Options and memory of one DDP instance's PowerSGD; names and defaults are torch's.

    matrix_approximation_rank: columns of P and Q. start_powerSGD_iter: steps of plain averaging before (at least 2 with
    error feedback or warm start, as torch has it). min_compression_rate: matrices that gain less are averaged whole.
    orthogonalization_epsilon: added to norms. random_seed: of the first Qs.
    compression_stats_logging_frequency: steps between two lines in the log (`logging`, at INFO).
    batch_tensors_with_same_shape: taken for torch's sake: all factors of a bucket travel together anyway.
    """

    def __init__(
        self,
        process_group: ProcessGroup | None,
        matrix_approximation_rank: int = 1,
        start_powerSGD_iter: int = 1000,
        min_compression_rate: float = 2,
        use_error_feedback: bool = True,
        warm_start: bool = True,
        orthogonalization_epsilon: float = 0,
        random_seed: int = 0,
        compression_stats_logging_frequency: int = 10_000,
        batch_tensors_with_same_shape: bool = False,
    ) -> None:
        if (use_error_feedback or warm_start) and start_powerSGD_iter <= 1:
            raise ArgumentError(
                "Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is enabled",
                got=str(start_powerSGD_iter),
            )
        if matrix_approximation_rank < 1:
            raise ArgumentError("matrix_approximation_rank must be at least 1", got=str(matrix_approximation_rank))
        self.process_group = process_group
        self.matrix_approximation_rank = matrix_approximation_rank
        self.start_powerSGD_iter, self.min_compression_rate = start_powerSGD_iter, min_compression_rate
        self.use_error_feedback, self.warm_start = use_error_feedback, warm_start
        self.orthogonalization_epsilon = orthogonalization_epsilon
        self.compression_stats_logging_frequency = max(1, compression_stats_logging_frequency)
        self.rng = np.random.RandomState(random_seed)
        self.iter = 0
        self.total_numel_before_compression = self.total_numel_after_compression = 0
        self.error_dict: dict[str, Array] = {}  # parameter -> residual, of its shape
        self.q_memory_dict: dict[str, Array] = {}  # parameter (or bucket, if batched) -> Q of the last step

    def maybe_increase_iter(self, bucket: GradBucket) -> None:
        """Count a step when its last bucket comes."""
        if bucket.is_last():
            self.iter += 1
            if self.iter == self.start_powerSGD_iter:
                logger.info("PowerSGD starts after %d steps", self.iter)

    def compression_stats(self) -> tuple[float, int, int]:
        """(rate, elements before, elements after), over all buckets so far."""
        before, after = self.total_numel_before_compression, self.total_numel_after_compression
        return (before / after if after else 0.0), before, after

    def random_qs(self, shapes: Sequence[tuple[int, int]], dtype: np.dtype[np.generic]) -> list[Array]:
        """Normal numbers in the host's memory, the same on all ranks, other ones each time."""
        generator = np.random.default_rng(self.rng.randint(1_000_000_000))
        return [generator.standard_normal(shape).astype(dtype) for shape in shapes]

    def note(self, bucket: GradBucket, before: int, after: int) -> None:
        """Count what went in and what travels; say it now and then."""
        self.total_numel_before_compression += before
        self.total_numel_after_compression += after
        if bucket.is_last() and self.iter % self.compression_stats_logging_frequency == 0:
            logger.info(
                "PowerSGD after %d steps: rate %.2f, %d elements became %d", self.iter, *self.compression_stats()
            )


@dataclass(slots=True)
class Matrix:
    """One gradient to be compressed. value: a view of the bucket, f[n, m]. q: f[m, r], what it starts from."""

    key: str
    value: Array
    q: Array

    def shapes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Of P and of Q."""
        (n, m), rank = self.value.shape, self.q.shape[1]
        return (n, rank), (m, rank)


def powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future[Tensor]:
    """Compress every large matrix of the bucket on its own; average the rest."""
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return average_future(state.process_group, bucket.buffer())
    flat = _writable(bucket)
    with device_of(flat).working():
        return _compress(state, bucket, flat)


def _compress(state: PowerSGDState, bucket: GradBucket, flat: Array) -> Future[Tensor]:
    layout = bucket.plan.buckets[bucket.index()]
    kept = _add_residuals(state, layout, flat)
    matrices, others = _sorted_out(state, layout, flat)
    travelling = sum(math.prod(shape) for matrix in matrices for shape in matrix.shapes())
    state.note(bucket, sum(slot.numel for slot in layout.slots), travelling + sum(other.size for other in others))
    finish = _Compression(state, flat, matrices, others).finish
    return _future(state, bucket, layout, flat, kept, finish)


def batched_powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future[Tensor]:
    """Compress the whole bucket as one square matrix: faster, and less accurate."""
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return average_future(state.process_group, bucket.buffer())
    flat = _writable(bucket)
    with device_of(flat).working():
        return _compress_whole(state, bucket, flat)


def _compress_whole(state: PowerSGDState, bucket: GradBucket, flat: Array) -> Future[Tensor]:
    layout = bucket.plan.buckets[bucket.index()]
    kept = _add_residuals(state, layout, flat)
    side = math.ceil(math.sqrt(flat.size))
    square = array_module(flat).zeros((side, side), flat.dtype)
    square.reshape(-1)[: flat.size] = flat
    key, rank = f"bucket {bucket.plan.hash} {bucket.index()}", min(side, state.matrix_approximation_rank)
    (matrix,) = _with_qs(state, [(key, square)], [(side, rank)])
    state.note(bucket, flat.size, 2 * side * rank)
    compression = _Compression(state, flat, [matrix], [])

    def finish() -> None:
        compression.finish()
        flat[...] = square.reshape(-1)[: flat.size]

    return _future(state, bucket, layout, flat, kept, finish)


class _Compression:
    """The two rounds of one bucket: P and what is not compressed leave at once, Q when P is back."""

    def __init__(self, state: PowerSGDState, flat: Array, matrices: list[Matrix], others: list[Array]) -> None:
        self.state, self.matrices, self.others, xp = state, matrices, others, array_module(flat)
        self.group: Communicator = group_or_default(state.process_group)
        self.ps = _joined([m.shapes()[0] for m in matrices], flat)
        self.qs = _joined([m.shapes()[1] for m in matrices], flat)
        self.whole = xp.concatenate([other.reshape(-1) for other in others]) if others else xp.empty(0, flat.dtype)
        self.whole /= self.whole.dtype.type(self.group.world_size)
        for matrix, p in zip(matrices, self.ps[1]):
            orthogonalise(matrix.q, state.orthogonalization_epsilon)
            multiply(matrix.value, matrix.q, out=p)
        self.works = [
            self._sum(array, what) for array, what in ((self.whole, "whole"), (self.ps[0], "P")) if array.size
        ]

    def _sum(self, array: Array, what: str) -> Work:
        return self.group.all_reduce_async(array, "sum", label=f"PowerSGD, {what}")

    def finish(self) -> None:
        """Wait for P, send Q, and write the approximate averages over the gradients."""
        for work in self.works:
            work.wait()
        for matrix, p, q in zip(self.matrices, self.ps[1], self.qs[1]):
            orthogonalise(p, self.state.orthogonalization_epsilon)
            multiply(matrix.value.T, p, out=q)
        if self.qs[0].size:
            self._sum(self.qs[0], "Q").wait()
        self.qs[0][...] /= self.qs[0].dtype.type(self.group.world_size)
        for matrix, p, q in zip(self.matrices, self.ps[1], self.qs[1]):
            multiply(p, q.T, out=matrix.value)
            if self.state.warm_start:
                self.state.q_memory_dict[matrix.key] = q.copy()
        start = 0
        for other in self.others:
            other[...] = self.whole[start : start + other.size].reshape(other.shape)
            start += other.size


def multiply(a: Array, b: Array, out: Array) -> None:
    """out = a b. On a device 16-bit floats are multiplied as f32."""
    xp = array_module(out)
    if xp is np or out.dtype.itemsize > 2:
        xp.matmul(a, b, out=out)
    else:
        out[...] = xp.matmul(a.astype(np.float32), b.astype(np.float32))


def orthogonalise(matrix: Array, epsilon: float = 0) -> None:
    """Make the columns of `matrix`, f[n, r], orthonormal in place: Gram-Schmidt (zeros stay zero), above rank 2 QR."""
    xp = array_module(matrix)
    if matrix.shape[1] > 2 and matrix.dtype.name in ("float32", "float64"):
        matrix[...] = xp.linalg.qr(matrix)[0]
        return
    for i in range(matrix.shape[1]):
        column, rest = matrix[:, i : i + 1], matrix[:, i + 1 :]
        norm = xp.sqrt(xp.square(column.astype(np.float64)).sum()) + epsilon
        column *= xp.where(norm > 0, 1 / xp.where(norm > 0, norm, 1), 0).astype(column.dtype)
        rest -= (column * rest).sum(axis=0, keepdims=True) * column


def _writable(bucket: GradBucket) -> Array:
    """The bucket's flat gradients, to be worked on in place; a wrapper may have put others into their place."""
    array: Array = bucket.buffer()._own_array("PowerSGD")
    return array if array is bucket.array else array.reshape(-1).copy()


def _add_residuals(state: PowerSGDState, layout: Bucket, flat: Array) -> Array | None:
    """Add what the last step lost; a copy of the sum, from which the new residual is taken."""
    if not state.use_error_feedback:
        return None
    for slot in layout.slots:
        residual = state.error_dict.get(slot.name)
        if residual is not None:
            flat[slot.offset : slot.offset + slot.numel] += residual
    return flat.copy()


def _future(
    state: PowerSGDState,
    bucket: GradBucket,
    layout: Bucket,
    flat: Array,
    kept: Array | None,
    finish: Callable[[], None],
) -> Future[Tensor]:
    def produce() -> Tensor:
        with device_of(flat).working():
            finish()
            if kept is not None:
                lost = kept - flat
                for slot in layout.slots:
                    state.error_dict[slot.name] = lost[slot.offset : slot.offset + slot.numel]
        return Tensor._wrap(flat)

    state.maybe_increase_iter(bucket)
    return Future.produced_by(produce, lambda: False)


def _sorted_out(state: PowerSGDState, layout: Bucket, flat: Array) -> tuple[list[Matrix], list[Array]]:
    """The gradients worth compressing, with their Qs, and the others: views of `flat`."""
    large: list[tuple[str, Array]] = []
    shapes: list[tuple[int, int]] = []
    others: list[Array] = []
    for slot in layout.slots:
        view = flat[slot.offset : slot.offset + slot.numel]
        n = slot.shape[0] if slot.shape else 1
        m = slot.numel // n if n else 0
        rank = min(n, m, state.matrix_approximation_rank)
        if (n + m) * rank * state.min_compression_rate < n * m:
            large.append((slot.name, view.reshape(n, m)))
            shapes.append((m, rank))
        else:
            others.append(view)
    return _with_qs(state, large, shapes), others


def _with_qs(state: PowerSGDState, found: list[tuple[str, Array]], shapes: list[tuple[int, int]]) -> list[Matrix]:
    """Each matrix with the Q it starts from: the last step's, or random."""
    remembered = state.q_memory_dict if state.warm_start else {}
    missing = [key for key, _ in found if key not in remembered]
    if not missing:
        return [Matrix(key, value, remembered[key].copy()) for key, value in found]
    device = device_of(found[0][1])
    drawn = [device.put(q) for q in state.random_qs(shapes, found[0][1].dtype)]
    return [
        Matrix(key, value, remembered[key].copy() if key in remembered else q) for (key, value), q in zip(found, drawn)
    ]


def _joined(shapes: Sequence[tuple[int, int]], like: Array) -> tuple[Array, list[Array]]:
    """One flat array, where and of the dtype that `like` is, and views of these shapes one after the other in it."""
    sizes = [math.prod(shape) for shape in shapes]
    flat = array_module(like).empty(sum(sizes), like.dtype)
    ends = np.cumsum(sizes, dtype=np.int64).tolist()
    return flat, [flat[end - size : end].reshape(shape) for shape, size, end in zip(shapes, sizes, ends)]
