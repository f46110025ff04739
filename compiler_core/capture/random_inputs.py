"""The random inputs of a captured graph: the key of its draws, or, where eager code's are wanted, what those draw.

In: a trace's placeholders for them; at each call the graph's inputs. Out: their values. The key is of the default
generator of the graph's device. Where a graph is run op by op, or `fallback_random` says so, the draws of the CPU's are
eager code's: each is then an input of the graph, made before the graph runs, in the order of the program. A
counter-based generator, as a CUDA device's, needs no such inputs: by its key the graph draws what eager code draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from compiler_core.capture.guards.guards import Guards
from compiler_core.config import config
from compiler_core.device import Device, check_device
from compiler_core.graph.ir import Graph, Placeholder
from compiler_core.ops.random.composite import Draw
from compiler_core.ops.registry import Value
from compiler_core.records import dataclass
from compiler_core.tensor.making.random import States, default_generator, generator_for
from compiler_core.tensor.making.random_state import Counter, set_shard

if TYPE_CHECKING:
    from compiler_core.capture.trace import CaptureTrace


@dataclass(frozen=True, slots=True)
class RandomInputs:
    """draws: how many the key serves, as streams. shard: what it is for. outside: inputs and their draws."""

    device: Device
    key: int | None
    draws: int
    shard: int
    outside: tuple[tuple[int, Draw], ...]

    @staticmethod
    def of(graph: Graph, key: Placeholder | None, draws: int, shard: int, outside: Sequence[tuple[Placeholder, Draw]]) -> RandomInputs | None:  # fmt: skip  # noqa: E501
        """Those of a graph; None if it has none."""
        place = {node: i for i, node in enumerate(graph.inputs)}
        if key is None and not outside:
            return None
        found = tuple((place[node], draw) for node, draw in outside)
        return RandomInputs(check_device(graph.device), None if key is None else place[key], draws, shard, found)

    def put(self, inputs: list[Value]) -> States:
        """Draw them. Returns the states before that, for `give_back`."""
        before: States = []
        if self.key is not None:
            generator = generator_for(self.device)
            before.append((generator, generator._state().copy()))
            with set_shard(self.shard):
                inputs[self.key] = generator.take_keys(self.draws)
        if self.outside:
            before.append((default_generator, default_generator._state().copy()))
        for place, draw in self.outside:
            inputs[place] = default_generator._state().draw(draw)
        return before

    @staticmethod
    def give_back(before: States) -> None:
        """What `put` drew is yet to come: the graph failed."""
        for generator, state in reversed(before):
            generator._put(state)


def are_outside(asked: bool) -> bool:
    """Whether what is traced now is to draw eager code's numbers, which it cannot by a key. asked: by the function."""
    return (asked or config.fallback_random) and not isinstance(default_generator._state(), Counter)


def guard_outside(guards: Guards, trace: CaptureTrace) -> None:
    """If the CPU's generator draws: require that its numbers are to be of this kind."""
    if (is_outside := trace.found_outside) is None:
        return
    wanted = guards.bind(are_outside, "are_outside")
    whose = "eager code's" if is_outside else "of a key"
    guards.require(f"{wanted}({trace.draws_as_eager}) is {is_outside}", f"random numbers are {whose}")
