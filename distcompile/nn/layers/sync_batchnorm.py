"""SyncBatchNorm: batch normalisation whose statistics are those of all ranks' batches together.

In: f[N, C, ...] on each rank, N may differ and be 0. Out: what BatchNorm gives on the joined batch: outputs, gradients
of the input, running statistics; gradients of weight and bias are this rank's sums, which DDP averages as any others.
Method: ranks exchange count, mean and sum of squared deviations per channel, joined in rank order in float64 (Chan,
Golub, LeVeque 1983), so that all ranks hold the same bits; backward sums two numbers per channel over the ranks.
In evaluation, and on one rank, it is BatchNorm. Under `compile` the exchange is a graph break in training: what stands
before it and after it is compiled. These collectives have a communicator of their own, for they come in the middle of a
backward whose buckets are on their way.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from collectives import Communicator
from compiler_core.breaking import breaks_graph
from compiler_core.dtype import DType
from compiler_core.errors import ShapeError
from compiler_core.ops.registry import Array
from compiler_core.tensor.autograd.function import Function
from compiler_core.tensor.making.creation import DeviceLike
from compiler_core.tensor.tensor import Tensor
from distcompile.nn import functional as F
from distcompile.nn.layers.batchnorm import _BatchNorm
from distcompile.nn.module import Module


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation over the batches of all ranks of `process_group` (None: the default group), for f[N, C, ...].

    On one rank, and in evaluation, it is `BatchNorm1d`, whose arguments it takes. Batches may differ in size.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
        >>> nn.SyncBatchNorm.convert_sync_batchnorm(model)[1]
        SyncBatchNorm(8, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Communicator | None = None,
        device: DeviceLike = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() < 2:
            raise ShapeError(f"expected at least 2D input (got {input.dim()}D input)")
        from distcompile.distributed.group import has_peers

        if (self.training or self.running_mean is None) and has_peers(self.process_group):
            return self._joined(input)
        return self._local(input)

    def _local(self, input: Tensor) -> Tensor:
        """What BatchNorm does."""
        use_batch = self.training or self.running_mean is None
        return F.batch_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias, use_batch, self._share(), self.eps
        )

    @breaks_graph(
        "SyncBatchNorm exchanges statistics between ranks in the middle of its forward",
        "compile with fullgraph=False; in evaluation it needs no exchange",
    )
    def _joined(self, input: Tensor) -> Tensor:
        from distcompile.distributed.group import group_or_default, twin

        group = group_or_default(self.process_group)
        statistics = Statistics(twin(group), input._own_array("SyncBatchNorm"), self.eps)
        factor = float(self._share())
        if self.running_mean is not None and self.running_var is not None and self.training:
            for buffer, now in ((self.running_mean, statistics.mean), (self.running_var, statistics.unbiased())):
                kept = buffer._own_array("SyncBatchNorm")
                buffer._cell.write((kept * (1 - factor) + now * factor).astype(kept.dtype))
        return _Normalise.apply(input, self.weight, self.bias, statistics)  # type: ignore[no-any-return]

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Communicator | None = None) -> Module:
        """`module` with each BatchNorm in it replaced by a SyncBatchNorm that has its parameters and buffers."""
        converted = module
        if isinstance(module, _BatchNorm) and not isinstance(module, SyncBatchNorm):
            converted = cls._like(module, process_group)
        for name, child in module.named_children():
            replacement = cls.convert_sync_batchnorm(child, process_group)
            if replacement is not child:
                setattr(converted, name, replacement)
        return converted

    @classmethod
    def _like(cls, module: _BatchNorm, process_group: Communicator | None) -> SyncBatchNorm:
        made = cls(
            module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats, process_group
        )
        made.weight, made.bias = module.weight, module.bias
        made.running_mean, made.running_var = module.running_mean, module.running_var
        made.num_batches_tracked = module.num_batches_tracked
        made.training = module.training
        return made


class Statistics:
    """Per channel of the joined batch x[N, C, ...]: count, mean, variance, 1/√(variance + eps), f64[C]. Collective."""

    def __init__(self, group: Communicator, x: Array, eps: float) -> None:
        self.group = group
        self.axes = (0, *range(2, x.ndim))
        channels, count = x.shape[1], x.size // x.shape[1] if x.shape[1] else 0

        def zeros(*shape: int) -> Array:  # where x is
            return np.zeros_like(x, np.float64, "C", shape=shape)

        mine = zeros(3, channels)  # count, mean, sum of squared deviations
        if count:
            mine[0], mine[1] = count, x.mean(axis=self.axes, dtype=np.float64)
            mine[2] = np.square(x - self.spread(mine[1], x)).sum(axis=self.axes, dtype=np.float64)
        rows = zeros(group.world_size, 3, channels)
        group.all_gather(rows, mine, label="SyncBatchNorm, statistics")
        self.count, self.mean, deviations = zeros(channels), zeros(channels), zeros(channels)
        for more, mean, squares in rows:
            total = np.maximum(self.count + more, 1)
            delta = mean - self.mean
            deviations += squares + np.square(delta) * self.count * more / total
            self.mean += delta * more / total
            self.count += more
        if channels and self.count[0] < 2:
            raise ShapeError(
                f"expected more than 1 value per channel when training, over all ranks; got {int(self.count[0])}"
            )
        self.variance = deviations / self.count
        self.inverse = 1 / np.sqrt(self.variance + eps)

    def unbiased(self) -> Array:
        """The variance with N-1 in its denominator."""
        return self.variance * (self.count / (self.count - 1))  # type: ignore[no-any-return]

    @staticmethod
    def spread(channel: Array, like: Array) -> Array:
        """f[C] as an array that broadcasts against `like`, f[N, C, ...], of its dtype but not below float32."""
        dtype = np.result_type(like.dtype, np.float32) if like.dtype.itemsize > 2 else np.dtype(np.float32)
        return channel.astype(dtype).reshape(1, -1, *[1] * (like.ndim - 2))


class _Normalise(Function):
    """(x - mean) / √(variance + eps) · weight + bias, with joined statistics."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, statistics: Statistics) -> Tensor:
        array = x._own_array("SyncBatchNorm")
        ctx.save_for_backward(x, weight)
        ctx.statistics, ctx.has_bias = statistics, bias is not None
        normal = (array - statistics.spread(statistics.mean, array)) * statistics.spread(statistics.inverse, array)
        for parameter, combine in ((weight, np.multiply), (bias, np.add)):
            if parameter is not None:
                normal = combine(normal, statistics.spread(parameter._own_array("SyncBatchNorm"), array))
        return Tensor._wrap(normal.astype(array.dtype, copy=False))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        statistics: Statistics = ctx.statistics
        array, dy = x._own_array("SyncBatchNorm"), grad._own_array("SyncBatchNorm")
        spread, inverse = statistics.spread, statistics.spread(statistics.inverse, array)
        normal = (array - spread(statistics.mean, array)) * inverse
        sums = np.stack([part.sum(axis=statistics.axes, dtype=np.float64) for part in (dy, dy * normal)])  # [2, C]
        mine = sums.copy()
        statistics.group.all_reduce(sums, label="SyncBatchNorm, gradients")
        average, along = (spread(total / statistics.count, array) for total in sums)
        dx = (dy - average - normal * along) * inverse
        if weight is not None:
            dx = dx * spread(weight._own_array("SyncBatchNorm"), array)
        made = (dx, mine[1] if weight is not None else None, mine[0] if ctx.has_bias else None)
        likes = (array, *(None if p is None else p._own_array("SyncBatchNorm") for p in (weight, weight)))
        dtypes = [array.dtype if like is None else like.dtype for like in likes]
        first, second, third = (None if g is None else Tensor._wrap(g.astype(d)) for g, d in zip(made, dtypes))
        return first, second, third, None
