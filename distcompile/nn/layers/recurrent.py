"""Recurrent layers RNN, LSTM and GRU: layers, directions, dropout, packed sequences; parameters and results as torch's.

In: f[T, B, I] (batch_first: f[B, T, I]; without a batch: f[T, I]) or a PackedSequence, and first states f[L·D, B, H]
(zero unless given). Out: (h of the last layer at every step, in the input's form, last states). L layers, D directions.
The arithmetic is `functional/recurrent.py`'s; a layer and direction is one op, whatever the number of steps.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

from compiler_core.dtype import DType
from compiler_core.errors import ShapeError
from compiler_core.log import DistCompileWarning
from compiler_core.ops.recurrent.sizes import Runs, runs_of
from compiler_core.tensor.making.creation import DeviceLike
from compiler_core.tensor.tensor import Tensor
from distcompile import cat, empty, index_select, stack
from distcompile.errors import ArgumentError, RegistrationTypeError
from distcompile.nn import functional as F
from distcompile.nn import init
from distcompile.nn.functional.recurrent import State, Weights, run_layer
from distcompile.nn.module import Module
from distcompile.nn.parameter import Parameter
from distcompile.nn.registration import type_name
from distcompile.nn.utils.rnn import PackedSequence

GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "LSTM": 4, "GRU": 3}


class RNNBase(Module):
    """What RNN, LSTM and GRU share: layers, directions, and how they take sequences. It is not called itself.

    Args:
        mode: "RNN_TANH", "RNN_RELU", "LSTM" or "GRU"; the subclasses choose it and take the rest
        input_size: I, features of a step
        hidden_size: H, width of the state
        num_layers: layers, each reading the output of the one below
        bias: False leaves the biases out
        batch_first: input and output are f[B, T, ...]; the states stay f[L·D, B, H]
        dropout: probability, between layers, in training; not after the last
        bidirectional: a second set of layers reads from the end; D, the number of directions, is 2
        proj_size: h is projected to this width; LSTM only

    Parameters of layer k are `weight_ih_lk`, `weight_hh_lk`, `bias_ih_lk`, `bias_hh_lk`, with `_reverse` for the second
    direction; all are drawn from U(-1/√H, 1/√H).

    Example:
        >>> [name for name, _ in nn.RNNBase("GRU", 3, 4).named_parameters()]
        ['weight_ih_l0', 'weight_hh_l0', 'bias_ih_l0', 'bias_hh_l0']
    """

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: DeviceLike = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if mode not in GATES:
            raise ArgumentError("Unrecognized RNN mode: " + mode)
        _check_types(input_size=(input_size, int), hidden_size=(hidden_size, int))
        _check_types(bias=(bias, bool), batch_first=(batch_first, bool))
        _check_sizes(input_size, hidden_size, num_layers, proj_size)
        _check_dropout(dropout, num_layers)
        self.mode, self.input_size, self.hidden_size, self.num_layers = mode, input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional, self.proj_size = bidirectional, proj_size
        self._all_weights: list[list[str]] = []
        width, gates = proj_size or hidden_size, GATES[mode] * hidden_size
        for layer in range(num_layers):
            fan_in = input_size if layer == 0 else width * self._directions
            for suffix in ("", "_reverse")[: self._directions]:
                shapes = {"weight_ih": (gates, fan_in), "weight_hh": (gates, width)}
                shapes |= {"bias_ih": (gates,), "bias_hh": (gates,)} if bias else {}  # type: ignore[dict-item]
                shapes |= {"weight_hr": (proj_size, hidden_size)} if proj_size else {}
                for name, shape in shapes.items():
                    setattr(self, f"{name}_l{layer}{suffix}", Parameter(empty(*shape, device=device, dtype=dtype)))
                self._all_weights.append([f"{name}_l{layer}{suffix}" for name in shapes])
        self.reset_parameters()

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of every layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def flatten_parameters(self) -> None:
        """Nothing: it is for cuDNN."""

    def reset_parameters(self) -> None:
        """Draw every parameter from U(-1/√hidden_size, 1/√hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def extra_repr(self) -> str:
        defaults = {"proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0,
                    "bidirectional": False}  # fmt: skip
        shown = [f"{name}={getattr(self, name)}" for name, usual in defaults.items() if getattr(self, name) != usual]
        return ", ".join([str(self.input_size), str(self.hidden_size), *shown])

    # --- running ----------------------------------------------------------------------------------------------------

    def _run(self, input: Tensor | PackedSequence, states: State | None) -> tuple[Any, State]:
        """(output in the input's form, last states f[L·D, B, H] or f[L·D, H])."""
        if isinstance(input, PackedSequence):
            sizes = [int(size) for size in input.batch_sizes.tolist()]
            states = self._first(states, sizes[0], input.data)
            if input.sorted_indices is not None:
                states = tuple(index_select(part, 1, input.sorted_indices) for part in states)
            rows, last = self._run_layers(input.data, runs_of(sizes), states)
            if input.unsorted_indices is not None:
                last = tuple(index_select(part, 1, input.unsorted_indices) for part in last)
            return PackedSequence(rows, *input[1:]), last
        if input.dim() not in (2, 3):
            raise ArgumentError(f"{self._get_name()}: Expected input to be 2D or 3D, got {input.dim()}D tensor instead")
        is_batched = input.dim() == 3
        if is_batched:
            steps = input.transpose(0, 1) if self.batch_first else input
        else:
            steps = input.unsqueeze(1)
            states = None if states is None else tuple(part.unsqueeze(1) for part in states)
        count, batch = steps.shape[0], steps.shape[1]
        states = self._first(states, batch, steps)
        runs = ((batch, count),) if count else ()
        rows, last = self._run_layers(steps.reshape(count * batch, self.input_size), runs, states)
        output = rows.reshape(count, batch, rows.shape[-1])
        if not is_batched:
            return output[:, 0], tuple(part[:, 0] for part in last)
        return (output.transpose(0, 1) if self.batch_first else output), last

    def _first(self, states: State | None, batch: int, input: Tensor) -> State:
        """The first states, zero unless given. Raises ShapeError; ArgumentError for another dtype than the weights'."""
        dtype = self.all_weights[0][0].dtype
        if input.dtype is not dtype:
            raise ArgumentError(f"RNN input dtype ({input.dtype}) does not match weight dtype ({dtype})",
                                remedy=f"convert one of them: input.to({dtype})")  # fmt: skip
        if input.shape[-1] != self.input_size:
            raise ShapeError("input.size(-1) must be equal to input_size", expected=str(self.input_size),
                             got=str(input.shape[-1]))  # fmt: skip
        count = self.num_layers * self._directions
        widths = [self.proj_size or self.hidden_size, self.hidden_size][: 2 if self.mode == "LSTM" else 1]
        if states is None:
            return tuple(input.new_zeros((count, batch, width)) for width in widths)
        for part, width in zip(states, widths, strict=True):
            if tuple(part.shape) != (count, batch, width):
                raise ShapeError("hidden state of another size", expected=str((count, batch, width)),
                                 got=str(tuple(part.shape)))  # fmt: skip
        return states

    def _run_layers(self, rows: Tensor, runs: Runs, states: State) -> tuple[Tensor, State]:
        last: list[State] = []
        for layer in range(self.num_layers):
            outputs = []
            for direction in range(self._directions):
                place = layer * self._directions + direction
                first = tuple(part[place] for part in states)
                out, end = run_layer(self.mode, rows, runs, first, self._weights(place), reverse=direction == 1)
                outputs.append(out)
                last.append(end)
            rows = outputs[0] if len(outputs) == 1 else cat(outputs, -1)
            if layer < self.num_layers - 1:
                rows = F.dropout(rows, self.dropout, self.training)
        return rows, tuple(stack(parts, 0) for parts in zip(*last, strict=True))

    def _weights(self, place: int) -> Weights:
        weights = self.all_weights[place]
        projection = weights[-1] if self.proj_size else None
        if not self.bias:
            return Weights(weights[0], weights[1], projection=projection)
        return Weights(weights[0], weights[1], weights[2], weights[3], projection)


class RNN(RNNBase):
    """A simple recurrent network: h ← tanh(W x + b + W' h + b') at every step, or relu instead of tanh.

    Args: `RNNBase`'s without mode and proj_size; nonlinearity, "tanh" or "relu", comes after num_layers.

    Shape: input f[T, B, I] (f[B, T, I] with batch_first, f[T, I] without a batch, or a PackedSequence) and a first
    state f[L·D, B, H], zero unless given -> (h of the last layer at every step, f[T, B, D·H]; the last state of every
    layer, f[L·D, B, H]). Source: Elman 1990.

    Example:
        >>> output, last = nn.RNN(3, 4, num_layers=2)(torch.ones(5, 2, 3))
        >>> output.shape, last.shape
        ((5, 2, 4), (2, 2, 4))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse_projection(kwargs)
        if len(args) > 3:
            nonlinearity, args = args[3], (*args[:3], *args[4:])
        else:
            nonlinearity = kwargs.pop("nonlinearity", "tanh")
        if nonlinearity not in ("tanh", "relu"):
            raise ArgumentError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__(f"RNN_{nonlinearity.upper()}", *args, **kwargs)
        self.nonlinearity = nonlinearity

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        output, (last,) = self._run(input, None if hx is None else (hx,))
        return output, last


class GRU(RNNBase):
    """A gated recurrent unit. At every step, with gates r and z of x and h:

        r, z = σ(W x + b + W' h + b')
        n = tanh(Wₙ x + bₙ + r · (W'ₙ h + b'ₙ))
        h ← n + z · (h - n)

    Args: `RNNBase`'s without mode and proj_size. The weights hold the rows of r, z and n in this order.

    Shape: as `RNN`'s. Source: Cho et al. 2014.

    Example:
        >>> output, last = nn.GRU(3, 4, bidirectional=True)(torch.ones(5, 2, 3))
        >>> output.shape, last.shape
        ((5, 2, 8), (2, 2, 4))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse_projection(kwargs)
        super().__init__("GRU", *args, **kwargs)

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        output, (last,) = self._run(input, None if hx is None else (hx,))
        return output, last


class LSTM(RNNBase):
    """Long short-term memory: a state h and a cell c. At every step, with gates i, f, g, o = W x + b + W' h + b':

        c ← σ(f) · c + σ(i) · tanh(g)
        h ← σ(o) · tanh(c), projected by `weight_hr_lk` to proj_size if that is not 0

    Args: `RNNBase`'s without mode. The weights hold the rows of i, f, g and o in this order.

    Shape: input f[T, B, I] (f[B, T, I] with batch_first, f[T, I] without a batch, or a PackedSequence) and the first
    states (h f[L·D, B, H], c f[L·D, B, H]), zero unless given -> (h of the last layer at every step, f[T, B, D·H];
    (last h, last c)). With proj_size P the width of h is P, not H.
    Sources: Hochreiter, Schmidhuber 1997; Sak et al. 2014.

    Raises ShapeError if the input's last size is not input_size or a state is of another size.

    Example:
        >>> output, (h, c) = nn.LSTM(3, 4, num_layers=2, batch_first=True)(torch.ones(2, 5, 3))
        >>> output.shape, h.shape, c.shape
        ((2, 5, 4), (2, 2, 4), (2, 2, 4))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def forward(self, input: Any, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Any, tuple[Tensor, Tensor]]:
        output, (h, c) = self._run(input, hx)
        return output, (h, c)


def _refuse_projection(options: dict[str, Any]) -> None:
    if "proj_size" in options:
        raise ArgumentError("proj_size argument is only supported for LSTM, not RNN or GRU")


def _check_types(**arguments: tuple[object, type]) -> None:
    for name, (value, wanted) in arguments.items():
        if not isinstance(value, wanted):
            raise RegistrationTypeError(f"{name} should be of type {wanted.__name__}, got: {type_name(value)}")


def _check_sizes(input_size: int, hidden_size: int, num_layers: int, proj_size: int) -> None:
    for name, size in (("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers)):
        if size <= 0:
            raise ArgumentError(f"{name} must be greater than zero", got=str(size))
    if proj_size < 0:
        raise ArgumentError("proj_size should be a positive integer or zero to disable projections")
    if proj_size >= hidden_size:
        raise ArgumentError("proj_size has to be smaller than hidden_size")


def _check_dropout(dropout: float, num_layers: int) -> None:
    if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout <= 1:
        raise ArgumentError("dropout should be a number in range [0, 1], the probability of an element being zeroed")
    if dropout > 0 and num_layers == 1:
        warnings.warn(
            f"dropout acts between recurrent layers: dropout={dropout} with num_layers=1 does nothing",
            DistCompileWarning,
            stacklevel=4,
        )
