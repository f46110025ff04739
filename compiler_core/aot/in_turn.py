"""A step's forward and what comes after it, two executables that run in turn as one.

In: the two, and where each value that the second reads is from. Out: an `Executable` of the step. What the first saves
for the second lives no longer than the call.
Only the second may write parameters and state in place: what the first had written would stay if the second failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from compiler_core.aot.joint import Joint
from compiler_core.aot.partition import Partition
from compiler_core.aot.within import Within
from compiler_core.backend import Executable, SharesMemory, Spends, WritesOver, stack_of
from compiler_core.events import Events
from compiler_core.ops.registry import Array
from compiler_core.records import dataclass

_FIRST, _SECOND = 0, 1
Place: TypeAlias = tuple[int, int]  # which list, and where in it
Places: TypeAlias = tuple[list[Array | None], ...]  # for the results of each, None for fresh memory


def comes_in_turn(within: Within, memory_budget: float) -> bool:
    """Whether a step is two executables, the second of which computes again what the partition says: where memory, and
    what is moved, is scarce, and where functions are checkpointed. On a CPU one program of it all takes less time."""
    return within.graph.on_gpu or memory_budget < 1 or any(call.region for call in within.graph.calls)


@dataclass(frozen=True, slots=True)
class Turns:
    """reads: of each input of the second, where it is: (0, input of the step) or (1, result of the first). outputs: of
    each output of the step, where that is: (0, result of the first) or (1, of the second). sizes: how many results
    each has."""

    reads: tuple[Place, ...]
    outputs: tuple[Place, ...]
    sizes: tuple[int, int]


def turns_of(joint: Joint, parts: Partition, places: Sequence[int], outputs: int) -> Turns:
    """places: of each output of the step, then of each tangent's value, the place among the joint's outputs."""
    given = [node.name for node in joint.graph.inputs if node.role != "tangent"]
    inputs = {name: (0, i) for i, name in enumerate(given)}
    saved = {parts.forward.outputs[i].name: (1, i) for i in parts.saved}
    tangents = [node.name for node in joint.graph.inputs if node.role == "tangent"]
    came = {name: (1, place) for name, place in zip(tangents, places[outputs:], strict=True)}
    found = inputs | saved | came
    return Turns(
        tuple(found[node.name] for node in parts.backward.inputs),
        tuple((_FIRST, p) if p < joint.outputs else (_SECOND, p - joint.outputs) for p in places[:outputs]),
        (len(parts.forward.outputs), len(parts.backward.outputs)),
    )


class InTurn:
    """See the head of this file."""

    def __init__(self, first: Executable, second: Executable, turns: Turns) -> None:
        self.first, self.second, self.turns = first, second, turns
        self._go_on = second.spend if isinstance(second, Spends) else second
        self._making = [run if isinstance(run, WritesOver) else None for run in (first, second)]
        self.over_inputs = frozenset(self._over_inputs())

    def __call__(
        self, inputs: Sequence[Array], outs: Sequence[Array | None] | None = None, events: Events | None = None
    ) -> list[Array]:
        return self._run(inputs, self._spread(outs or ()), lambda places: places)

    def run_then_ask(self, inputs: Sequence[Array], places: Callable[[], Sequence[Array | None]]) -> list[Array]:
        """The same; `places` is asked once the first has run, or on a GPU been launched. It has none for the first."""
        return self._run(inputs, self._spread(()), lambda _: self._spread(places()))

    def _spread(self, outs: Sequence[Array | None]) -> Places:
        """Places of the step's outputs, as those of each executable's results."""
        places: Places = tuple([None] * size for size in self.turns.sizes)
        for (which, place), out in zip(self.turns.outputs, outs):
            places[which][place] = out
        return places

    def _run(self, inputs: Sequence[Array], places: Places, then: Callable[[Places], Places]) -> list[Array]:
        turns = self.turns
        first = self.first(inputs, places[_FIRST])
        given, asked = (inputs, first), then(places)  # before anything more refers to an input
        second = self._go_on([given[which][place] for which, place in turns.reads], asked[_SECOND])
        made = (first, second)
        return [made[which][place] for which, place in turns.outputs]

    def hold_together(self, groups: Sequence[Sequence[int]], stacks: Sequence[Mapping[int, int]] = ()) -> None:
        """groups: outputs of which no one is to outlive the others by much. stacks: none, but between the two."""
        found = [[self.turns.outputs[i] for i in group] for group in groups]
        stack = {self.turns.reads[k][1]: start for k, start in stack_of(self.second)}
        saved = {(_FIRST, i) for i in range(self.turns.sizes[0])}.difference(self.turns.outputs)
        for which, executable in enumerate((self.first, self.second)):
            if isinstance(executable, SharesMemory):
                mine = [[place for w, place in group if w == which] for group in (*found, sorted(saved))]
                executable.hold_together(mine, [stack] if stack and which == _FIRST else ())

    def _over_inputs(self) -> list[tuple[int, int]]:
        if not isinstance(self.second, WritesOver):
            return []
        outputs = {place: i for i, (which, place) in enumerate(self.turns.outputs) if which == _SECOND}
        reads = {k: place for k, (which, place) in enumerate(self.turns.reads) if which == 0}
        pairs = self.second.over_inputs
        return [(outputs[out], reads[k]) for out, k in pairs if out in outputs and k in reads]

    def made(self, output: int, array: Array) -> bool:
        """Whether an array is memory for an output that is handed out again once nobody else refers to it."""
        which, place = self.turns.outputs[output]
        executable = self._making[which]
        return executable is not None and executable.made(place, array)
