"""send and receive: messages between two ranks, as ops.

In: send: x, the other rank in the group (`root`), a tag. receive: x, whose shape and dtype the message has. Out: send:
u8[1], a token that says nothing; receive: the message, of x's shape and dtype.
A send never waits for its receiver: what is sent is copied. Messages of one tag between two ranks arrive in the order
in which they stand in the graph. They have no gradient (torch's have none), and no rule for batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler_core.dtype import uint8
from compiler_core.errors import GraphBreak
from compiler_core.location import user_location
from compiler_core.meta import TensorMeta
from compiler_core.ops.checks import EVERY
from compiler_core.ops.collectives.op import ENGINES, WHY
from compiler_core.ops.collectives.runner import Collective, runner
from compiler_core.ops.registry import Array, Attrs, NotDifferentiable, Op, Sample, Value, register
from compiler_core.ops.routine import call_back

TOKEN = TensorMeta((1,), uint8)


def _infer_send(x: TensorMeta, group: str, ranks: int, root: int, tag: int) -> TensorMeta:
    return TOKEN


def _eager_send(xp: Any, x: Array, group: str, ranks: int, root: int, tag: int) -> Array:
    if ranks > 1:
        runner().run(Collective("send", group, ranks, root=root, tag=tag), x, (1,))
    return xp.zeros(1, np.uint8)  # type: ignore[no-any-return]


def _infer_receive(x: TensorMeta, group: str, ranks: int, root: int, tag: int) -> TensorMeta:
    return x


def _eager_receive(xp: Any, x: Array, group: str, ranks: int, root: int, tag: int) -> Array:
    if ranks == 1:
        return xp.array(x)  # type: ignore[no-any-return]
    return runner().run(Collective("receive", group, ranks, root=root, tag=tag), x, x.shape)


def _refused(op: Op, size: int, are_batched: Sequence[bool], operands: Sequence[Value], attrs: Attrs) -> Value:
    raise GraphBreak(
        f"vmap: a {op.name} of each example", where=user_location(), remedy="send the batch, outside of vmap"
    )


_SAMPLES = (Sample(((2, 3),), {"group": "alone", "ranks": 1, "root": 0, "tag": 0}),)
SEND = register(
    Op(
        "send",
        _infer_send,
        _eager_send,
        NotDifferentiable("a token says nothing"),
        call_back("send", _eager_send, why=WHY),
        _SAMPLES,
        EVERY,
        vmap=_refused,
        effect=True,
        engines=ENGINES,
    )
)
RECEIVE = register(
    Op(
        "receive",
        _infer_receive,
        _eager_receive,
        NotDifferentiable("what another rank sends is no function of what lay there"),
        call_back("receive", _eager_receive, why=WHY),
        _SAMPLES,
        EVERY,
        vmap=_refused,
        effect=True,
        engines=ENGINES,
    )
)
