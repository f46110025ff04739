"""The backward of a recurrent layer, written with other ops, step by step: what its own derivative is made from.

In: the operands of `recurrent_backward` as values of any kind. Out: its packed result. Slow, and long in a trace: only
second derivatives of recurrent layers use it (`differentiate.vjp_of`).
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler_core.dtype import of
from compiler_core.ops import prims
from compiler_core.ops.linear_algebra.packing import unpack
from compiler_core.ops.recurrent.sizes import NOTHING, RecurrentSizes, TimeStep
from compiler_core.ops.registry import Value

add, sub, mul = prims.add, prims.sub, prims.mul


def rows_of(x: Value, start: int, stop: int) -> Value:
    """Rows start..stop of a matrix."""
    return prims.slice(x, (start, 0), (stop, x.shape[1]), (1, 1))


def columns_of(x: Value, start: int, stop: int) -> Value:
    """Columns start..stop of a matrix."""
    return prims.slice(x, (0, start), (x.shape[0], stop), (1, 1))


def _at(x: Value, step: TimeStep) -> Value:
    return rows_of(x, step.row, step.row + step.size)


def _split(x: Value, step: TimeStep, width: int) -> list[Value]:
    """The blocks of `width` columns of a step's rows."""
    part = _at(x, step)
    return [columns_of(part, k, k + width) for k in range(0, part.shape[1], width)]


def _one_minus(x: Value) -> Value:
    return sub(prims.full_like(x, 1), x)


def _slope(x: Value) -> Value:
    """The slope of the sigmoid that gave x."""
    return mul(x, _one_minus(x))


def _padded(x: Value, rows: int) -> Value:
    """x with zero rows up to `rows`."""
    return prims.pad(x, (0, 0), (rows - x.shape[0], 0)) if rows > x.shape[0] else x


def backward(sizes: RecurrentSizes, *operands: Value) -> Value:
    """The packed result of `recurrent_backward`."""
    count, n = len(sizes.result), sizes.hidden
    grads, w, first = operands[:count], operands[count + 1], operands[count + 2 :]
    if not sizes.batch:
        return prims.reshape(grads[0], (0,))
    blocks = unpack(operands[count], sizes.result)
    steps = [*sizes.steps(backward=True), NOTHING]
    back = carry = prims.full((0, n), 0, of(w.dtype))
    done, found, left = NOTHING, {}, []
    for step, before in zip(steps, [*steps[1:], NOTHING]):
        if step.size < done.size:
            gone, carried = rows_of(back, step.size, done.size), rows_of(carry, step.size, done.size)
            left.append((gone, carried) if sizes.has_cells else (add(gone, carried),))
            back, carry = rows_of(back, 0, step.size), rows_of(carry, 0, step.size)
        if not step.size:
            break
        dh = add(_at(grads[0], step), _padded(back, step.size))
        carry = _padded(carry, step.size)
        parts, carry = _STEPS[sizes.mode](sizes, step, before, dh, grads, blocks, first, carry)
        found[step] = parts
        back, done = prims.matmul(parts[-1], w), step
    return _packed(sizes, found, left)


def _packed(sizes: RecurrentSizes, found: dict[TimeStep, list[Value]], left: Sequence[tuple[Value, ...]]) -> Value:
    in_rows = [found[step] for step in sorted(found, key=lambda step: step.row)]
    number = 2 if sizes.mode == "gru" else 1
    pieces = [part for k in range(number) for part in [parts[k] for parts in in_rows]]
    for state in zip(*left):
        pieces += reversed(state)
    return prims.cat([prims.reshape(piece, (piece.shape[0] * piece.shape[1],)) for piece in pieces], 0)


def _state_before(states: Value, first: Value, step: TimeStep, before: TimeStep) -> Value:
    kept = min(step.size, before.size)
    have = rows_of(states, before.row, before.row + kept)
    return have if kept == step.size else prims.cat([have, rows_of(first, kept, step.size)], 0)


def _tanh(sizes: RecurrentSizes, step: TimeStep, before: TimeStep, dh: Value, grads: object, blocks: tuple[Value, ...],
          first: object, carry: Value) -> tuple[list[Value], Value]:  # fmt: skip
    h = _at(blocks[0], step)
    return [mul(dh, _one_minus(mul(h, h)))], carry


def _relu(sizes: RecurrentSizes, step: TimeStep, before: TimeStep, dh: Value, grads: object, blocks: tuple[Value, ...],
          first: object, carry: Value) -> tuple[list[Value], Value]:  # fmt: skip
    zeros = prims.full_like(dh, 0)
    return [prims.where(prims.le(_at(blocks[0], step), zeros), zeros, dh)], carry


def _gru(sizes: RecurrentSizes, step: TimeStep, before: TimeStep, dh: Value, grads: tuple[Value, ...],
         blocks: tuple[Value, ...], first: tuple[Value, ...], carry: Value) -> tuple[list[Value], Value]:  # fmt: skip
    dh = add(dh, carry)
    h = _state_before(blocks[0], first[0], step, before)
    r, z, new, q = _split(blocks[1], step, sizes.hidden)
    gr, gz, gn, gq = _split(grads[1], step, sizes.hidden)
    dn = mul(add(mul(dh, _one_minus(z)), gn), _one_minus(mul(new, new)))
    dr = mul(add(mul(dn, q), gr), _slope(r))
    dz = mul(add(mul(dh, sub(h, new)), gz), _slope(z))
    dq = add(mul(dn, r), gq)
    return [prims.cat([dr, dz, dn], 1), dq, prims.cat([dr, dz, dq], 1)], mul(dh, z)


def _lstm(sizes: RecurrentSizes, step: TimeStep, before: TimeStep, dh: Value, grads: tuple[Value, ...],
          blocks: tuple[Value, ...], first: tuple[Value, ...], carry: Value) -> tuple[list[Value], Value]:  # fmt: skip
    i, f, g, o = _split(blocks[2], step, sizes.hidden)
    gi, gf, gg, go = _split(grads[2], step, sizes.hidden)
    c = prims.tanh(_at(blocks[1], step))
    dc = add(add(carry, _at(grads[1], step)), mul(mul(dh, o), _one_minus(mul(c, c))))
    df = mul(dc, _state_before(blocks[1], first[0], step, before))
    parts = [
        mul(add(mul(dc, g), gi), _slope(i)),
        mul(add(df, gf), _slope(f)),
        mul(add(mul(dc, i), gg), _one_minus(mul(g, g))),
        mul(add(mul(dh, c), go), _slope(o)),
    ]
    return [prims.cat(parts, 1)], mul(dc, f)


_STEPS = {"tanh": _tanh, "relu": _relu, "gru": _gru, "lstm": _lstm}
