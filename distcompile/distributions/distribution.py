"""What every distribution has: batch and event shapes, draws, log density, moments; and Independent.

In: parameters that have one shape, the batch shape. Out: `sample(s)` and `rsample(s)` of shape s + batch + event,
`log_prob` and `entropy` of the batch shape. Values of parameters are checked where they are known: not while tracing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import distcompile as dc
from compiler_core.ops.registry import current_trace
from distcompile.errors import ArgumentError, NotSupportedError

Shape = tuple[int, ...]


class Distribution:
    """A distribution over events of `event_shape`, one for each place of `batch_shape`."""

    has_rsample = False

    def __init__(self, batch_shape: Sequence[int] = (), event_shape: Sequence[int] = ()) -> None:
        self.batch_shape, self.event_shape = dc.Size(batch_shape), dc.Size(event_shape)

    def sample(self, sample_shape: Sequence[int] = ()) -> dc.Tensor:
        """A draw without a gradient, of shape sample_shape + batch_shape + event_shape."""
        with dc.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> dc.Tensor:
        """A draw whose gradient reaches the parameters. Raises NotSupportedError (a NotImplementedError) without."""
        raise NotSupportedError(f"{type(self).__name__} has no draws with a gradient", remedy="sample()")

    def log_prob(self, value: dc.Tensor) -> dc.Tensor:
        """The logarithm of the density, or probability, of `value`."""
        raise NotImplementedError

    def entropy(self) -> dc.Tensor:
        """The mean of -log_prob."""
        raise NotImplementedError

    @property
    def mean(self) -> dc.Tensor:
        """The mean."""
        raise NotImplementedError

    @property
    def variance(self) -> dc.Tensor:
        """The variance."""
        raise NotImplementedError

    @property
    def stddev(self) -> dc.Tensor:
        """The root of the variance."""
        return self.variance.sqrt()

    def _extended(self, sample_shape: Sequence[int]) -> Shape:
        return (*sample_shape, *self.batch_shape, *self.event_shape)


def parameters(*values: Any) -> list[dc.Tensor]:
    """Numbers and Tensors as Tensors of one shape."""
    tensors = [value for value in values if isinstance(value, dc.Tensor)]
    made = [v if isinstance(v, dc.Tensor) else dc.tensor(float(v), dtype=tensors[0].dtype if tensors else None)
            for v in values]  # fmt: skip
    return list(dc.broadcast_tensors(*made))


def require(holds: dc.Tensor, message: str) -> None:
    """Raise ArgumentError (a ValueError) unless all of it holds; nothing while tracing."""
    if current_trace() is None and not bool(holds.all()):
        raise ArgumentError(message)


class Independent(Distribution):
    """`base` with its last `reinterpreted_batch_ndims` batch dims taken for event dims."""

    def __init__(self, base_distribution: Distribution, reinterpreted_batch_ndims: int) -> None:
        shape, count = tuple(base_distribution.batch_shape), reinterpreted_batch_ndims
        if count > len(shape):
            raise ArgumentError("Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape)",
                                got=f"{count} of {shape}")  # fmt: skip
        keep = len(shape) - count
        super().__init__(shape[:keep], shape[keep:] + tuple(base_distribution.event_shape))
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, count
        self.has_rsample = base_distribution.has_rsample

    def sample(self, sample_shape: Sequence[int] = ()) -> dc.Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> dc.Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: dc.Tensor) -> dc.Tensor:
        return self.summed(self.base_dist.log_prob(value))

    def entropy(self) -> dc.Tensor:
        return self.summed(self.base_dist.entropy())

    @property
    def mean(self) -> dc.Tensor:
        return self.base_dist.mean

    @property
    def variance(self) -> dc.Tensor:
        return self.base_dist.variance

    def summed(self, value: dc.Tensor) -> dc.Tensor:
        """f[..., batch dims of base] summed over those that are event dims here."""
        count = self.reinterpreted_batch_ndims
        return value.sum(tuple(range(-count, 0))) if count else value
