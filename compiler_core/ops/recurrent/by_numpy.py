"""Recurrent layers in NumPy: the definition of `recurrent` and `recurrent_backward`, and what eager runs.

In and out: as ops/recurrent/op.py. One product with the state a step; what is computed for a step is written where the
packed result wants it. GRU's gates are r, z, n; LSTM's i, f, g, o.
"""

from __future__ import annotations

from typing import Any

from compiler_core.ops.quiet import quietly
from compiler_core.ops.recurrent.sizes import NOTHING, RecurrentSizes, TimeStep
from compiler_core.ops.registry import Array
from compiler_core.records import dataclass


def _blocks(out: Array, shapes: tuple[tuple[int, ...], ...]) -> list[Array]:
    """Views of the parts of a packed array."""
    parts, start = [], 0
    for rows, columns in shapes:
        parts.append(out[start : start + rows * columns].reshape(rows, columns))
        start += rows * columns
    return parts


def _sigmoid(xp: Any, z: Array) -> None:
    """In place. No `negative`: into a column of four f32, or of eight f64, NumPy 2.4 writes other numbers."""
    xp.multiply(z, -1, z)
    xp.exp(z, z)
    z += 1
    xp.reciprocal(z, z)


@dataclass(frozen=True, slots=True)
class _Forward:
    """What every step of a forward has. kept: the parts of the result after h. first: the first states."""

    xp: Any
    sizes: RecurrentSizes
    kept: list[Array]
    first: tuple[Array, ...]


@quietly
def forward(xp: Any, sizes: RecurrentSizes, x: Array, w: Array, b: Array, *first: Array) -> Array:
    """The packed result of `recurrent`."""
    out: Array = xp.empty(sum(rows * columns for rows, columns in sizes.result), x.dtype)
    h_all, *kept = _blocks(out, sizes.result)
    run, take = _Forward(xp, sizes, kept, first), _FORWARD[sizes.mode]
    transposed, before = w.T, NOTHING
    h = first[0]
    for step in sizes.steps():
        joined = first[0][before.size : step.size]
        h = xp.concatenate([h[: before.size], joined]) if before.size < step.size else h[: step.size]
        product = xp.matmul(h, transposed)
        product += b
        h = take(run, step, before, x[step.rows], product, h)
        h_all[step.rows] = h
        before = step
    return out


def _tanh(run: _Forward, step: TimeStep, before: TimeStep, x: Array, z: Array, h: Array) -> Array:
    z += x
    return run.xp.tanh(z, z)  # type: ignore[no-any-return]


def _relu(run: _Forward, step: TimeStep, before: TimeStep, x: Array, z: Array, h: Array) -> Array:
    z += x
    return run.xp.maximum(z, 0, out=z)  # type: ignore[no-any-return]


def _gru(run: _Forward, step: TimeStep, before: TimeStep, x: Array, z: Array, h: Array) -> Array:
    xp, n = run.xp, run.sizes.hidden
    saved = run.kept[0][step.rows]
    saved[:, 3 * n :] = z[:, 2 * n :]
    saved[:, : 2 * n] = z[:, : 2 * n] + x[:, : 2 * n]
    _sigmoid(xp, saved[:, : 2 * n])
    new = saved[:, 2 * n : 3 * n]
    xp.tanh(x[:, 2 * n :] + saved[:, :n] * saved[:, 3 * n :], new)
    return new + saved[:, n : 2 * n] * (h - new)  # type: ignore[no-any-return]


def _lstm(run: _Forward, step: TimeStep, before: TimeStep, x: Array, z: Array, h: Array) -> Array:
    xp, n, (cells, gates) = run.xp, run.sizes.hidden, run.kept
    saved = gates[step.rows]
    xp.add(z, x, saved)
    cell = xp.tanh(saved[:, 2 * n : 3 * n])
    _sigmoid(xp, saved)  # of all four at once: they lie densely
    saved[:, 2 * n : 3 * n] = cell
    c = saved[:, n : 2 * n] * _state_before(xp, cells, run.first[1], step, before)
    c += saved[:, :n] * cell
    cells[step.rows] = c
    return saved[:, 3 * n :] * xp.tanh(c)  # type: ignore[no-any-return]


def _quarters(gates: Array, n: int) -> tuple[Array, ...]:
    """Views of four parts of n columns."""
    return gates[:, :n], gates[:, n : 2 * n], gates[:, 2 * n : 3 * n], gates[:, 3 * n :]


_FORWARD = {"tanh": _tanh, "relu": _relu, "gru": _gru, "lstm": _lstm}


def _state_before(xp: Any, states: Array, first: Array, step: TimeStep, before: TimeStep) -> Array:
    """The state from which `step` was computed; `before` is the step that came before it in time."""
    kept = min(step.size, before.size)
    if kept == step.size:
        return states[before.row : before.row + kept]
    return xp.concatenate([states[before.row : before.row + kept], first[kept : step.size]])  # type: ignore[no-any-return]


# ---- backward


@dataclass(frozen=True, slots=True)
class _Backward:
    """What every step of a backward has. blocks: of the forward's result. to: those of this one's."""

    xp: Any
    sizes: RecurrentSizes
    blocks: list[Array]
    first: tuple[Array, ...]
    to: list[Array]


@quietly
def backward(xp: Any, sizes: RecurrentSizes, *operands: Array) -> Array:
    """The packed result of `recurrent_backward`."""
    count = len(sizes.result)
    grads, out, w, first = operands[:count], operands[count], operands[count + 1], operands[count + 2 :]
    packed: Array = xp.empty(sum(rows * columns for rows, columns in sizes.gradients), w.dtype)
    results = _blocks(packed, sizes.gradients)
    states = len(results) - (2 if sizes.has_cells else 1)
    carry = xp.zeros((sizes.batch, sizes.hidden), w.dtype)  # of c, or of h where it goes on without a product
    steps = [*sizes.steps(backward=True), NOTHING]
    run, take = _Backward(xp, sizes, _blocks(out, sizes.result), first, results), _BACKWARD[sizes.mode]
    back, done = xp.zeros((0, sizes.hidden), w.dtype), NOTHING
    for step, before in zip(steps, [*steps[1:], NOTHING]):
        gone = slice(step.size, done.size)
        if step.size < done.size:
            results[states][gone] = back[step.size :] + (carry[gone] if sizes.mode == "gru" else 0)
            if sizes.has_cells:
                results[states + 1][gone] = carry[gone]
        if not step.size:
            break
        g = [grad[step.rows] for grad in grads]
        dh = g[0].copy()
        kept = min(done.size, step.size)
        dh[:kept] += back[:kept]
        state = take(run, step, before, dh, g, carry[: step.size])
        back = xp.matmul(state, w)
        done = step
    return packed


def _tanh_backward(run: _Backward, step: TimeStep, before: TimeStep, dh: Array, g: Any, carry: Array) -> Array:
    h = run.blocks[0][step.rows]
    run.to[0][step.rows] = dh * (1 - h * h)
    return run.to[0][step.rows]


def _relu_backward(run: _Backward, step: TimeStep, before: TimeStep, dh: Array, g: Any, carry: Array) -> Array:
    run.to[0][step.rows] = run.xp.where(run.blocks[0][step.rows] <= 0, 0, dh)
    return run.to[0][step.rows]


def _gru_backward(run: _Backward, step: TimeStep, before: TimeStep, dh: Array, g: Any, carry: Array) -> Array:
    xp, n, blocks, to = run.xp, run.sizes.hidden, run.blocks, run.to
    dh += carry
    h = _state_before(xp, blocks[0], run.first[0], step, before)
    r, z, new, q = _quarters(blocks[1][step.rows], n)
    gr, gz, gn, gq = _quarters(g[1], n)
    dn = (dh * (1 - z) + gn) * (1 - new * new)
    dx, dq = to[0][step.rows], to[1][step.rows]
    dq[...] = dn * r + gq
    dx[:, :n] = (dn * q + gr) * (r * (1 - r))
    dx[:, n : 2 * n] = (dh * (h - new) + gz) * (z * (1 - z))
    dx[:, 2 * n :] = dn
    carry[...] = dh * z
    return xp.concatenate([dx[:, : 2 * n], dq], -1)  # type: ignore[no-any-return]


def _lstm_backward(run: _Backward, step: TimeStep, before: TimeStep, dh: Array, g: Any, carry: Array) -> Array:
    xp, n, blocks, to = run.xp, run.sizes.hidden, run.blocks, run.to
    gates = blocks[2][step.rows]
    i, f, cell, o = _quarters(gates, n)
    gi, gf, gg, go = _quarters(g[2], n)
    tanh_c = xp.tanh(blocks[1][step.rows])
    dc = carry + g[1] + dh * o * (1 - tanh_c * tanh_c)
    dz = to[0][step.rows]
    xp.subtract(1, gates, dz)
    dz *= gates
    dz[:, :n] *= dc * cell + gi
    dz[:, n : 2 * n] *= dc * _state_before(xp, blocks[1], run.first[0], step, before) + gf
    xp.multiply(dc * i + gg, 1 - cell * cell, dz[:, 2 * n : 3 * n])
    dz[:, 3 * n :] *= dh * tanh_c + go
    carry[...] = dc * f
    return dz


_BACKWARD = {"tanh": _tanh_backward, "relu": _relu_backward, "gru": _gru_backward, "lstm": _lstm_backward}
