"""In which pass over a row each member of a group is computed, and how its value reaches later passes.

In: a group's members with levels, and which of them are stored to memory. Out: `StagePlan`. A reduction over the
columns ends a stage: what reads it runs in a later pass over the same row. A value needed in several passes is computed
again if that is cheap, else read back from the memory it is stored to anyway, else kept in row-local scratch.
Invariant: stage k reads only row values of stage <= k. A value is computed as late as its first reader allows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field

from compiler_core.loop_ir import expr as x
from compiler_core.lowering import definition as d
from compiler_core.lowering.target import CPU, Target
from compiler_core.records import dataclass
from compiler_core.schedule.legality import Info, Level, LoopShape, is_row_reduction, level_of

# Costs in units of one vector operation. Reading back what lies in the L1 cache costs a load; scratch a store as well.
_LOAD = 2
_COSTLY = 100
_RELOAD = 2
_SCRATCH = 6


@dataclass
class StagePlan:
    """levels: of each member. computed: the stages (passes over the columns) in which a full member is evaluated.

    ready: the stage before whose column loop a row value is complete. home: the stage in which a full member is stored.
    kept: full members whose later readers take them from scratch ("scratch") or from memory ("memory").
    """

    levels: dict[str, Level] = field(default_factory=dict)
    computed: dict[str, set[int]] = field(default_factory=dict)
    ready: dict[str, int] = field(default_factory=dict)
    home: dict[str, int] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)
    stages: int = 0


def plan_stages(
    infos: Mapping[str, Info], shape: LoopShape, stored: Collection[str], target: Target = CPU
) -> StagePlan:
    """infos: the members, in order. stored: the members whose value is needed outside.

    On a GPU values are computed again: a row that fits registers is loaded once, and equal expressions are one there;
    of a longer one the operands come from the L2 cache.
    """
    plan = StagePlan()
    for name, info in infos.items():
        level = level_of(info, shape)
        assert level is not None, f"{name} does not fit {shape}"
        plan.levels[name] = level
        earliest = _earliest(info, infos, plan)
        plan.home[name] = earliest
        if is_row_reduction(info, shape):
            plan.ready[name] = earliest + 1
        elif level == "row":
            plan.ready[name] = earliest
    _sink(infos, plan, stored, always_again=target.is_gpu)
    plan.stages = 1 + max((max(plan.computed[n]) for n in infos if plan.computed.get(n)), default=0)
    last_row = max((plan.ready[n] for n in plan.ready), default=0)
    plan.stages = max(plan.stages, last_row + 1)
    return plan


def _earliest(info: Info, infos: Mapping[str, Info], plan: StagePlan) -> int:
    stage = 0
    for read in info.reads:
        if read.source in infos:
            source = read.source
            stage = max(stage, plan.ready[source] if source in plan.ready else plan.home[source])
    return stage


def _sink(infos: Mapping[str, Info], plan: StagePlan, stored: Collection[str], *, always_again: bool) -> None:
    """Decide, from the last member to the first, where each full member is evaluated."""
    costs = _recompute_costs(infos, plan, stored)
    readers: dict[str, list[str]] = {name: [] for name in infos}
    for name, info in infos.items():
        for source in dict.fromkeys(read.source for read in info.reads if read.source in infos):
            readers[source].append(name)
    for name in reversed([*infos]):
        if plan.levels[name] != "full":
            continue
        if isinstance(infos[name].definition, d.Reduce):
            plan.computed[name] = {plan.home[name]}
            continue
        needed = {stage for reader in readers[name] for stage in plan.computed.get(reader, ())}
        if not needed:
            needed = {plan.home[name]}
        plan.home[name] = min(needed)
        plan.computed[name] = needed
        if len(needed) > 1 and not always_again and costs[name] > (_RELOAD if name in stored else _SCRATCH):
            plan.computed[name] = {plan.home[name]}
            plan.kept[name] = "memory" if name in stored else "scratch"


def _recompute_costs(infos: Mapping[str, Info], plan: StagePlan, stored: Collection[str]) -> dict[str, int]:
    """What computing each full member again would cost, its full operands included."""
    costs: dict[str, int] = {}
    for name, info in infos.items():
        definition = info.definition
        assert isinstance(definition, d.Element | d.Reduce), "only elements and reductions are staged"
        total = 0
        for part in d.walk_all(definition.value):
            if isinstance(part, x.ScalarCall):
                total += _COSTLY if x.SCALARS[part.scalar].costly else 1
            elif isinstance(part, x.Cast | x.Where):
                total += 1
            elif isinstance(part, x.Load):
                total += _load_cost(part.buffer, infos, plan, stored, costs)
        costs[name] = total
    return costs


def _load_cost(
    source: str, infos: Mapping[str, Info], plan: StagePlan, stored: Collection[str], costs: Mapping[str, int]
) -> int:
    if source not in infos:
        return _LOAD
    if plan.levels[source] == "row" or isinstance(infos[source].definition, d.Reduce):
        return 0  # a scalar of the row
    return min(costs[source], _RELOAD) if source in stored else costs[source]
