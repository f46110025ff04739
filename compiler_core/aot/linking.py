"""Links what a backend compiled of one backward: which step reads and makes which places of one flat list of values.

In: a joint, its partition, a gradient plan, and executables of the pieces. Out: a `Cut` (`wrapper.py`).
Places: those of `layout.py` (the saved values, the inputs read, the tangents), what stops make, then what steps make.
Errors: GraphError if segments do not fit one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compiler_core.aot.cutting import Piece, Stages, pieces_of
from compiler_core.aot.halt import Halt, halts_of
from compiler_core.aot.joint import Joint
from compiler_core.aot.layout import arriving
from compiler_core.aot.partition import Partition
from compiler_core.aot.strategy import GradientPlan
from compiler_core.aot.wrapper import SCALE, BackwardStep, Cut
from compiler_core.backend import Executable, Spends, stack_of
from compiler_core.device import check_device
from compiler_core.dtype import float32
from compiler_core.errors import GraphError
from compiler_core.graph.ir import Graph, Placeholder
from compiler_core.meta import TensorMeta
from compiler_core.ops.registry import Array
from compiler_core.runtime.lasting_memory import OutputPool


def pieces_to_run(joint: Joint, parts: Partition, plan: GradientPlan) -> list[Piece]:
    """What runs in one native call each: the segments of `plan`, cut where the backward stops."""
    _, _, hooked = arriving(parts)
    made_by = {made[0]: h for h, stop in enumerate(joint.stops) for made in stop.made if made is not None}
    from_when = {node.name: made_by[number] + 1 for number, node in enumerate(hooked)}
    return pieces_of(plan.segments, Stages(joint.output_stages, len(joint.gradients), from_when))


def link_segments(
    joint: Joint,
    parts: Partition,
    plan: GradientPlan,
    pieces: Sequence[Piece],
    executables: Sequence[Executable],
    wanted: Sequence[int] | None = None,
) -> Cut:
    """Fix the places of all values that the pieces exchange. wanted: the gradients that they make; None: all.

    Raises GraphError if they do not fit.
    """
    count = len(joint.gradients)
    places = {parts.forward.outputs[i].name: place for place, i in enumerate(parts.saved)}
    read, tangents, hooked = arriving(parts)
    for node in (*read, *tangents, *hooked):
        places[node.name] = len(places)
    steps: list[BackwardStep] = []
    for piece, run in zip(pieces, executables, strict=True):
        outputs = piece.graph.outputs
        reads = tuple(_place(node, places, piece.graph) for node in piece.graph.inputs)
        makes = tuple(places.setdefault(node.name, len(places)) for node in outputs)
        gradients = tuple((k, index) for k, index in enumerate(piece.outputs) if index is not None and index < count)
        announced = _parts(piece)
        pools = {k: _pool(outputs[k].meta, piece.graph.device) for part in announced for k, _ in part}
        spends, stack = getattr(run, "spends", ()), stack_of(run)
        run = run.spend if isinstance(run, Spends) else run
        steps.append(
            BackwardStep(run, reads, makes, gradients, piece.numbers, announced, pools, spends=spends, stack=stack)
        )
    expected = range(count) if wanted is None else wanted
    _check_complete(parts.backward, list(expected), [index for step in steps for _, index in step.gradients])
    stages = [piece.stage for piece in pieces]
    halts = halts_of(joint, parts.backward, places, [places[node.name] for node in hooked], steps, stages)
    steps, last = _with_halts(steps, stages, halts)
    return Cut(plan, tuple(steps), len(places), last)


class FreshPlaces:
    """Places on a GPU, whose pool hands memory out again by itself."""

    def __init__(self, meta: TensorMeta, place: str) -> None:
        self.meta, self.device = meta, check_device(place)

    def take(self) -> Array:
        place: Array = self.device.empty(self.meta.shape, self.meta.dtype.numpy)
        return place


def _pool(meta: TensorMeta, place: str) -> OutputPool | FreshPlaces:
    """Where gradients of this meta go that have no place of their own."""
    return OutputPool(meta) if place == "cpu" else FreshPlaces(meta, place)


def _with_halts(
    steps: Sequence[BackwardStep], stages: Sequence[int], halts: Sequence[Halt]
) -> tuple[list[BackwardStep], tuple[Halt, ...]]:
    """The steps, each with the halts before it, and those after the last."""
    placed, done = [], 0
    for step, stage in zip(steps, stages):
        placed.append(replace(step, halts=tuple(halts[done:stage])) if stage > done else step)
        done = max(done, stage)
    return placed, tuple(halts[done:])


def _parts(piece: Piece) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Of each part that the piece announces: (its output, output index of the backward)."""
    outputs = piece.outputs
    return tuple(
        tuple((k, index) for k in signal if (index := outputs[k]) is not None) for signal in piece.graph.signals
    )


def _place(node: Placeholder, places: dict[str, int], graph: Graph) -> int:
    if node.role == "scale":
        return SCALE if node.dtype is float32 else SCALE - 1
    if node.name not in places:
        raise GraphError(f"segment {graph.name} reads %{node.name}, which nothing before it makes")
    return places[node.name]


def _check_complete(graph: Graph, expected: Sequence[int], made: Sequence[int]) -> None:
    if sorted(made) != expected:
        raise GraphError(
            f"the segments of {graph.name} do not make each gradient once",
            expected=str(expected),
            got=str(sorted(made)),
        )
