"""The passes over definitions, in their order: valid definitions in, valid ones that mean the same out.

    inline     elements read once, in another order, written into their reader                inline.py
    round      reductions rounded where they are summed                       on a GPU        round.py
    epilogue   biases added by the product that they are added to             on a GPU        epilogue.py
    place      products written where, and scaled as, their only reader wants them            place.py
    triangle   and computed only where a causal mask lets something through                   triangle.py

In: `Defined`, and the target that it is for. Out: `Defined`. A pass's name is its step's in log, dump and timer.
"""

from __future__ import annotations

from collections.abc import Callable

from compiler_core.lowering.definition import Defined
from compiler_core.lowering.epilogue import add_biases
from compiler_core.lowering.inline import inline_reordered
from compiler_core.lowering.place import place_products
from compiler_core.lowering.round import round_results
from compiler_core.lowering.target import Target
from compiler_core.lowering.triangle import skip_masked_blocks
from compiler_core.records import dataclass


@dataclass(frozen=True, slots=True)
class DefinitionPass:
    """apply: what it does. on_gpu: whether it is for a GPU only."""

    name: str
    apply: Callable[[Defined, Target], Defined]
    on_gpu: bool = False

    def is_for(self, target: Target) -> bool:
        return target.is_gpu or not self.on_gpu


PASSES: tuple[DefinitionPass, ...] = (
    DefinitionPass("inline", lambda defined, target: inline_reordered(defined, target)),
    DefinitionPass("round", lambda defined, _: round_results(defined), on_gpu=True),
    DefinitionPass("epilogue", lambda defined, _: add_biases(defined), on_gpu=True),
    DefinitionPass("place", lambda defined, target: place_products(defined, widens=target.is_gpu)),
    DefinitionPass("triangle", lambda defined, _: skip_masked_blocks(defined)),
)
