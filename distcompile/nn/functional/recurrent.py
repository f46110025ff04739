"""The arithmetic of recurrent layers: one step of each kind, and its run over a sequence.

In: for a run, rows of all steps one after the other, f[sum of sizes, I], and how many sequences reach each step (for a
padded batch: B at every step). Out: rows alike, f[sum of sizes, H], and the last states.
Method: the input's product for all steps is one GEMM; the steps are one op (`run_layer`; core: ops/recurrent/op.py).
Where that does not do (a projection, 16-bit floats), and as its oracle in tests, they are written out (`run`), one GEMM
a step; then the rows are split by halves, so that the gradient of the split costs rows · log(steps), not rows · steps.
Sources: Elman 1990; Hochreiter, Schmidhuber 1997 (LSTM); Sak et al. 2014 (its projection); Cho et al. 2014 (GRU).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from compiler_core.dtype import of
from compiler_core.ops import functional as C
from compiler_core.ops.casting import acting, casting, lowered
from compiler_core.ops.recurrent.layer import recurrent_layer
from compiler_core.ops.recurrent.op import RECURRENT, states
from compiler_core.ops.recurrent.sizes import Runs, steps_of
from compiler_core.records import dataclass
from compiler_core.tensor.tensor import Tensor

State = tuple[Tensor, ...]  # (h,), or (h, c) for LSTM: f[B, H] each


@dataclass(frozen=True, slots=True)
class Weights:
    """of_input: f[G, I]; of_state: f[G, H]; biases: f[G] or None; projection: f[P, H] or None. G gates of H rows."""

    of_input: Tensor
    of_state: Tensor
    input_bias: Tensor | None = None
    state_bias: Tensor | None = None
    projection: Tensor | None = None


Step = Callable[[Tensor, State, Weights], State]  # (the input's part of the gates, state before) -> state after


def tanh_step(gates: Tensor, state: State, w: Weights) -> State:
    """h ← tanh(x-part + W h + b)."""
    return (C.tanh(gates + C.linear(state[0], w.of_state, w.state_bias)),)


def relu_step(gates: Tensor, state: State, w: Weights) -> State:
    """h ← relu(x-part + W h + b)."""
    return (C.relu(gates + C.linear(state[0], w.of_state, w.state_bias)),)


def lstm_step(gates: Tensor, state: State, w: Weights) -> State:
    """c ← σ(f)·c + σ(i)·tanh(g);  h ← σ(o)·tanh(c), projected if there is a projection. Gates: i, f, g, o."""
    h, c = state
    i, f, g, o = C.chunk(gates + C.linear(h, w.of_state, w.state_bias), 4, -1)
    c = C.sigmoid(f) * c + C.sigmoid(i) * C.tanh(g)
    h = C.sigmoid(o) * C.tanh(c)
    return (h if w.projection is None else C.linear(h, w.projection), c)


def gru_step(gates: Tensor, state: State, w: Weights) -> State:
    """n = tanh(x-part + σ(r)·(W h + b));  h ← n + σ(z)·(h - n). Gates: r, z, n."""
    (h,) = state
    reset, update, new = C.chunk(gates, 3, -1)
    h_reset, h_update, h_new = C.chunk(C.linear(h, w.of_state, w.state_bias), 3, -1)
    new = C.tanh(new + C.sigmoid(reset + h_reset) * h_new)
    return (new + C.sigmoid(update + h_update) * (h - new),)


STEPS: dict[str, Step] = {"RNN_TANH": tanh_step, "RNN_RELU": relu_step, "LSTM": lstm_step, "GRU": gru_step}
_MODES = {"RNN_TANH": "tanh", "RNN_RELU": "relu", "LSTM": "lstm", "GRU": "gru"}


def cell(step: Step, input: Tensor, state: State, weights: Weights) -> State:
    """One step from its input f[B, I]."""
    return step(C.linear(input, weights.of_input, weights.input_bias), state, weights)


def run_layer(
    mode: str, rows: Tensor, runs: Runs, first: State, weights: Weights, *, reverse: bool = False
) -> tuple[Tensor, State]:
    """(rows of h, the last state of every sequence). runs: ((sequences, steps), ...), longest sequences first.

    reverse: from the last step to the first; a sequence joins, with its own first state, at its last step.
    """
    if casting.acting is not None:
        return _run_cast(mode, rows, runs, first, weights, reverse=reverse)
    operands = (rows, *first, weights.of_input, weights.of_state)
    if weights.projection is not None or any(of(x.dtype) is not of(rows.dtype) for x in operands):
        return run(STEPS[mode], rows, steps_of(runs), first, weights, reverse=reverse)
    if of(rows.dtype) not in RECURRENT.dtypes:
        return run(STEPS[mode], rows, steps_of(runs), first, weights, reverse=reverse)
    gates, hidden = weights.of_state.shape
    x = C.linear(rows, weights.of_input, weights.input_bias)
    bias = C.zeros((gates,), dtype=of(rows.dtype)) if weights.state_bias is None else weights.state_bias
    packed = recurrent_layer(x, weights.of_state, bias, *first, mode=_MODES[mode], runs=runs, reverse=reverse)
    found = states(packed, _MODES[mode], hidden, runs, reverse)
    return found[0], tuple(last_rows(part, runs, reverse=reverse) for part in found)


def _run_cast(
    mode: str, rows: Tensor, runs: Runs, first: State, weights: Weights, *, reverse: bool
) -> tuple[Tensor, State]:
    """As `run_layer`, under autocast: an LSTM is one function, of the others each product is. (As torch on the CPU.)"""
    sizes = steps_of(runs)
    if mode != "LSTM" or weights.projection is not None:
        return run(STEPS[mode], rows, sizes, first, weights, reverse=reverse)
    small: list[Any] = lowered(rows, *first, weights.of_input, weights.of_state, weights.input_bias, weights.state_bias)
    with acting(None):
        return run(STEPS[mode], small[0], sizes, (small[1], small[2]), Weights(*small[3:]), reverse=reverse)


def last_rows(states: Tensor, runs: Runs, *, reverse: bool) -> Tensor:
    """The state of each sequence after its last step, f[B, H], from those after every step."""
    if reverse:
        return states[: runs[0][0]]
    pieces, end = [], 0
    for (size, steps), (following, _) in zip(runs, [*runs[1:], (0, 0)]):
        end += size * steps
        pieces.append(states[end - size + following : end])
    return pieces[0] if len(pieces) == 1 else C.cat(pieces[::-1], 0)


def run(
    step: Step, rows: Tensor, sizes: Sequence[int], first: State, weights: Weights, *, reverse: bool = False
) -> tuple[Tensor, State]:
    """As `run_layer`, from the arithmetic of one step."""
    gates = split_rows(C.linear(rows, weights.of_input, weights.input_bias), sizes)
    order = range(len(sizes) - 1, -1, -1) if reverse else range(len(sizes))
    outputs: list[Tensor] = list(gates)
    state = tuple(part[: sizes[order[0]]] for part in first) if sizes[order[0]] < first[0].shape[0] else first
    ended: list[State] = []
    for t in order:
        state, gone = _resized(state, sizes[t], first)
        ended += [gone] if gone is not None else []
        state = step(gates[t], state, weights)
        outputs[t] = state[0]
    if ended:
        state = tuple(C.cat(parts, 0) for parts in zip(state, *reversed(ended), strict=True))
    return C.cat(outputs, 0), state


def _resized(state: State, size: int, first: State) -> tuple[State, State | None]:
    """The state for `size` sequences, and that of those that have ended."""
    have = state[0].shape[0]
    if size == have:
        return state, None
    if size < have:
        return tuple(part[:size] for part in state), tuple(part[size:] for part in state)
    return tuple(C.cat([part, start[have:size]], 0) for part, start in zip(state, first, strict=True)), None


def split_rows(rows: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Consecutive pieces of `sizes` rows."""
    if len(sizes) == 1:
        return [rows]
    half = len(sizes) // 2
    place = sum(sizes[:half])
    return [*split_rows(rows[:place], sizes[:half]), *split_rows(rows[place:], sizes[half:])]
