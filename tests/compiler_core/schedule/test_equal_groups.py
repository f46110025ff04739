"""Groups found equal before they are built get the kernels, and the arguments, that building them would have given."""

from __future__ import annotations

import random

import pytest
from gpt_graphs import gpt
from schedule_graphs import random_graph

from compiler_core.graph.ir import Graph
from compiler_core.loop_ir.print import print_program
from compiler_core.lowering.define import define
from compiler_core.schedule import kernel
from compiler_core.schedule.equal import Fingerprint
from compiler_core.schedule.from_graphs import lower_and_schedule
from compiler_core.schedule.fuse import Grouping
from compiler_core.schedule.legality import Legal, describe


def texts(graphs: list[Graph]) -> list[str]:
    return [print_program(program, notes=True) for program in lower_and_schedule(graphs)]


class Never(Fingerprint):
    """A fingerprint that no other group has."""

    count = 0

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        Never.count += 1
        self.text += f"\n{Never.count}"


def built_one_by_one(graphs: list[Graph], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    with monkeypatch.context() as patch:
        patch.setattr(kernel, "Fingerprint", Never)
        return texts(graphs)


@pytest.mark.parametrize("dropout", [0.0, 0.25])
def test_equal_layers_give_what_building_each_would(dropout: float, monkeypatch: pytest.MonkeyPatch) -> None:
    model = gpt(layers=4, dropout=dropout)
    graphs = [model.forward, model.backward]
    assert texts(graphs) == built_one_by_one(graphs, monkeypatch)


@pytest.mark.parametrize("seed", range(30))
def test_random_graphs_twice_and_beside_others(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = [random_graph(k)[0] for k in (seed, seed + 100, seed)]
    assert texts(graphs) == built_one_by_one(graphs, monkeypatch)


def reaches(partition: Grouping, a: int, b: int) -> bool:
    """By search."""
    todo, seen = [*partition.readers[a]], set[int]()
    while todo:
        k = todo.pop()
        if k == b:
            return True
        if k not in seen:
            seen.add(k)
            todo += partition.readers[k]
    return False


@pytest.mark.parametrize("seed", range(8))
def test_paths_between_groups_stay_known_while_they_merge(seed: int) -> None:
    defined = define(gpt(layers=2).backward)
    sizes = {name: meta.numel for name, meta in defined.metas.items()}
    partition = Grouping({name: describe(each, sizes) for name, each in defined.definitions.items()})
    rng, merges = random.Random(seed), 0
    for _ in range(4000):
        a, b = rng.sample([*partition.groups], 2)
        if partition.has_path(b, a, indirect=False):
            a, b = b, a
        merges += isinstance(partition.try_merge(a, b), Legal)
    assert merges > 10
    for a in partition.groups:
        for b in partition.groups:
            if a != b:
                assert partition.has_path(a, b, indirect=False) == reaches(partition, a, b)
