"""Batch normalisation, with running statistics kept as buffers: BatchNorm1d, BatchNorm2d, BatchNorm3d.

In: f[N, C], f[N, C, L] (1d), f[N, C, H, W] (2d) or f[N, C, D, H, W] (3d). Out: the same shape, normalised per channel;
in training the buffers `running_mean`, `running_var` and `num_batches_tracked` change in place (compiled: extra outputs
of the graph). `momentum=None` is the cumulative average: each batch weighs one over the batches seen.
Source: Ioffe, Szegedy 2015.
"""

from __future__ import annotations

from typing import Any, ClassVar

from compiler_core.dtype import DType, int64
from compiler_core.errors import ShapeError
from compiler_core.tensor.making.creation import DeviceLike
from compiler_core.tensor.methods.inplace import counted
from compiler_core.tensor.tensor import Tensor
from distcompile import ones, zeros
from distcompile.nn import functional as F
from distcompile.nn.layers.families import of_rank
from distcompile.nn.layers.normalization import _Affine


class _NormBase(_Affine):
    """What norms with running statistics share: weight and bias f[C], the buffers, and their printed form."""

    _version = 2  # since which num_batches_tracked is saved
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: DeviceLike = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum, self.affine = num_features, eps, momentum, affine
        self.track_running_stats = track_running_stats
        self._make_affine((num_features,), affine, bias, device, dtype)
        tracked = track_running_stats
        self.register_buffer("running_mean", zeros(num_features, device=device, dtype=dtype) if tracked else None)
        self.register_buffer("running_var", ones(num_features, device=device, dtype=dtype) if tracked else None)
        self.register_buffer("num_batches_tracked", zeros((), device=device, dtype=int64) if tracked else None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Mean zero, variance one, no batches."""
        for buffer, value in ((self.running_mean, 0), (self.running_var, 1), (self.num_batches_tracked, 0)):
            if buffer is not None:
                buffer.fill_(value)

    def _share(self) -> float | Tensor:
        """The weight of this batch in the running statistics, f64[] with momentum=None; counts the batch."""
        tracked = self.num_batches_tracked if self.training else None
        if tracked is not None:
            if not counted(tracked):
                tracked.add_(1)
            if self.momentum is None:
                return 1.0 / tracked.double()
        return 0.0 if self.momentum is None else self.momentum

    def reset_parameters(self) -> None:
        """Weight one, bias zero, statistics reset."""
        self.reset_running_stats()
        super().reset_parameters()

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], *rest: Any
    ) -> None:
        """Old state dicts, and those without metadata, need not hold num_batches_tracked: it stays as it is."""
        if (local_metadata.get("version") or 1) < 2 and self.num_batches_tracked is not None:
            state_dict.setdefault(f"{prefix}num_batches_tracked", self.num_batches_tracked)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_NormBase):
    """Normalises each channel over batch and positions: y = (x - mean) / √(var + eps) · weight + bias.

    In training mean and variance are the batch's (variance divided by the count), and the running statistics follow:
    running ← (1 - momentum)·running + momentum·batch, where the batch's variance is divided by the count less one.
    In evaluation they are the running statistics. Weight starts at one, bias at zero. Source: Ioffe, Szegedy 2015.

    Args:
        num_features: C, the number of channels
        eps: added to the variance
        momentum: share of a batch in the running statistics; None: the mean over all batches so far
        affine: False leaves weight and bias out
        track_running_stats: False keeps no running statistics; evaluation uses the batch's as well
        bias: False leaves the bias alone out

    Shape: f[N, C, {n}] -> the same; BatchNorm1d also takes f[N, C].

    Raises ShapeError for an input of another rank.

    Example:
        >>> norm = nn.{name}(2)
        >>> norm(torch.tensor([[1.0, 10.0], [3.0, 30.0]]).reshape(2, 2, {each:1})).detach().flatten()
        tensor([-1.0000, -1.0000,  1.0000,  1.0000])
        >>> norm.running_mean
        tensor([0.2000, 2.0000])
    """

    _rank: ClassVar[int] = 0

    def forward(self, input: Tensor) -> Tensor:
        dims = {1: (2, 3), 2: (4,), 3: (5,)}.get(self._rank, ())
        if input.dim() not in dims:
            expected = " or ".join(f"{d}D" for d in dims)
            raise ShapeError(f"expected {expected} input (got {input.dim()}D input)")
        mean = self.running_mean
        use_batch = self.training or mean is None
        return F.batch_norm(input, mean, self.running_var, self.weight, self.bias, use_batch, self._share(), self.eps)


@of_rank(1)
class BatchNorm1d(_BatchNorm): ...


@of_rank(2)
class BatchNorm2d(_BatchNorm): ...


@of_rank(3)
class BatchNorm3d(_BatchNorm): ...
