"""Recurrent layers of one step: RNNCell, LSTMCell, GRUCell, with torch's parameters.

In: f[B, I] (or f[I]) and the state f[B, H] (or f[H]), zero unless given. Out: the state after the step.
"""

from __future__ import annotations

import math
from typing import ClassVar

from compiler_core.dtype import DType
from compiler_core.errors import ShapeError
from compiler_core.tensor.making.creation import DeviceLike
from compiler_core.tensor.tensor import Tensor
from distcompile import empty
from distcompile.errors import ArgumentError
from distcompile.nn import init
from distcompile.nn.functional.recurrent import STEPS, State, Weights, cell
from distcompile.nn.module import Module
from distcompile.nn.parameter import Parameter


class RNNCellBase(Module):
    """What the cells share. It is not called itself.

    Parameters: `weight_ih` f[G·H, I], `weight_hh` f[G·H, H] and, with bias, `bias_ih` and `bias_hh` f[G·H], drawn from
    U(-1/√H, 1/√H). num_chunks: G, the number of gates.

    Example:
        >>> nn.RNNCellBase(3, 4, bias=True, num_chunks=2).weight_ih.shape
        (8, 3)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: DeviceLike = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows = num_chunks * hidden_size
        self.weight_ih = Parameter(empty(rows, input_size, device=device, dtype=dtype))
        self.weight_hh = Parameter(empty(rows, hidden_size, device=device, dtype=dtype))
        self.register_parameter("bias_ih", Parameter(empty(rows, device=device, dtype=dtype)) if bias else None)
        self.register_parameter("bias_hh", Parameter(empty(rows, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw every parameter from U(-1/√hidden_size, 1/√hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        text += "" if self.bias else f", bias={self.bias}"
        nonlinearity = getattr(self, "nonlinearity", "tanh")
        return text if nonlinearity == "tanh" else f"{text}, nonlinearity={nonlinearity}"

    def _run(self, mode: str, input: Tensor, states: State | None) -> State:
        name = type(self).__name__
        if input.dim() not in (1, 2):
            raise ArgumentError(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        if input.shape[-1] != self.input_size:
            raise ShapeError(f"{name}: input of another size", expected=str(self.input_size), got=str(input.shape[-1]))
        rows = input if input.dim() == 2 else input.unsqueeze(0)
        shape = (rows.shape[0], self.hidden_size)
        if states is None:
            states = tuple(rows.new_zeros(shape) for _ in range(2 if mode == "LSTM" else 1))
        elif input.dim() == 1:
            states = tuple(part.unsqueeze(0) for part in states)
        for part in states:
            if tuple(part.shape) != shape:
                raise ShapeError(f"{name}: hidden state of another size", expected=str(shape), got=str(part.shape))
        weights = Weights(self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        new = cell(STEPS[mode], rows, states, weights)
        return new if input.dim() == 2 else tuple(part[0] for part in new)


class RNNCell(RNNCellBase):
    """One step of an `RNN`: h ← tanh(W x + b + W' h + b'), or relu with nonlinearity="relu".

    Shape: f[B, I] and h f[B, H], zero unless given -> f[B, H]; also without B.

    Example:
        >>> cell, h = nn.RNNCell(3, 4), None
        >>> for x in torch.ones(5, 2, 3):
        ...     h = cell(x, h)
        >>> h.shape
        (2, 4)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: DeviceLike = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=1, device=device, dtype=dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if self.nonlinearity not in ("tanh", "relu"):
            raise ArgumentError(f"Unknown nonlinearity: {self.nonlinearity}")
        (h,) = self._run(f"RNN_{self.nonlinearity.upper()}", input, None if hx is None else (hx,))
        return h


class _GatedCell(RNNCellBase):
    """Those of several gates."""

    _gates: ClassVar[int]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: DeviceLike = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, self._gates, device=device, dtype=dtype)


class LSTMCell(_GatedCell):
    """One step of an `LSTM`: (h, c) ← as there, without layers and projection.

    Shape: f[B, I] and (h, c), f[B, H] each and zero unless given -> (h, c); also without B.

    Example:
        >>> h, c = nn.LSTMCell(3, 4)(torch.ones(2, 3))
        >>> h.shape, c.shape
        ((2, 4), (2, 4))
    """

    _gates = 4

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        h, c = self._run("LSTM", input, hx)
        return h, c


class GRUCell(_GatedCell):
    """One step of a `GRU`: h ← as there.

    Shape: f[B, I] and h f[B, H], zero unless given -> f[B, H]; also without B.

    Example:
        >>> nn.GRUCell(3, 4)(torch.ones(2, 3)).shape
        (2, 4)
    """

    _gates = 3

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        (h,) = self._run("GRU", input, None if hx is None else (hx,))
        return h
