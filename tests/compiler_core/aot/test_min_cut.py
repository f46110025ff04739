"""Dinic's cut against all cuts of small random networks, and against networkx on larger ones."""

from __future__ import annotations

import random

import pytest

from compiler_core.aot.min_cut import FlowNetwork

Edges = list[tuple[int, int, int]]


def random_edges(rng: random.Random, vertices: int, edges: int) -> Edges:
    return [(rng.randrange(vertices), rng.randrange(vertices), rng.randrange(12)) for _ in range(edges)]


def cut_value(edges: Edges, side: set[int]) -> int:
    return sum(capacity for tail, head, capacity in edges if tail in side and head not in side)


def find_cut(edges: Edges, vertices: int) -> set[int]:
    network = FlowNetwork(vertices)
    for edge in edges:
        network.edge(*edge)
    return network.source_side(0, vertices - 1)


@pytest.mark.parametrize("seed", range(40))
def test_cut_is_minimal_among_all_cuts(seed: int) -> None:
    rng = random.Random(seed)
    vertices = rng.randint(2, 9)
    edges = random_edges(rng, vertices, rng.randint(0, 24))
    sides = (
        {0} | {v for v in range(1, vertices - 1) if mask >> v & 1} for mask in range(0, 1 << max(vertices - 1, 1), 2)
    )
    side = find_cut(edges, vertices)
    assert 0 in side
    assert vertices - 1 not in side
    assert cut_value(edges, side) == min(cut_value(edges, other) for other in sides)


@pytest.mark.parametrize("seed", range(5))
def test_cut_equals_networkx(seed: int) -> None:
    networkx = pytest.importorskip("networkx")
    rng = random.Random(seed)
    edges = random_edges(rng, 60, 400)
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(60))
    for tail, head, capacity in edges:
        if tail != head:
            before = graph.get_edge_data(tail, head, {"capacity": 0})["capacity"]
            graph.add_edge(tail, head, capacity=before + capacity)
    value, _ = networkx.minimum_cut(graph, 0, 59)
    assert cut_value(edges, find_cut(edges, 60)) == value
