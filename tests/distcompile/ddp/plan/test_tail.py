"""A large gradient at the backward's end leaves before some whose products can wait: which, when, and at what cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from test_splitter import check_equals_whole, meta, record

import distcompile as dc
import distcompile.nn.functional as F
from collectives import Communicator, run_ranks
from compiler_core import dtype as dtypes
from compiler_core.config import config
from compiler_core.graph.ir import Graph, Node
from compiler_core.ops import prims
from distcompile import nn
from distcompile.ddp.plan import tail
from distcompile.ddp.plan.bucket_plan import Caps
from distcompile.ddp.plan.splitter import gradient_ready_order, plan_backward
from distcompile.distributed import use_communicator
from distcompile.nn.parallel import DistributedDataParallel as DDP
from tests.sharing import some

TOKENS, WIDTH, LAYERS = 256, 32, 8


def embedded_backward(words: int, layers: int = LAYERS) -> tuple[Graph, dict[str, int]]:
    """Of linear layers over an embedding of that many words: the gradients of the weights, in registration order."""

    def backward(g: Node, ids: Node, base: Node, *rest: Node) -> list[Node]:
        made = []
        for x, w in zip(rest[:layers], rest[layers:], strict=True):
            made.append(prims.matmul(prims.permute(x, (1, 0)), g))
            g = prims.matmul(g, prims.permute(w, (1, 0)))
        return [prims.index_add(base, ids, g), *made[::-1]]

    inputs = {f"x{k}": meta(TOKENS, WIDTH) for k in range(layers)} | {
        f"w{k}": meta(WIDTH, WIDTH) for k in range(layers)
    }
    given = {"g": meta(TOKENS, WIDTH), "ids": meta(TOKENS, dtype=dtypes.int64), "base": meta(words, WIDTH)}
    graph = record(backward, **given, **inputs)
    return graph, {"words": 0} | {f"layer{k}": k + 1 for k in range(layers)}


def names(graph: Graph, outputs: Mapping[str, int]) -> list[str]:
    return [p.name for p in gradient_ready_order(graph, outputs)]


def reversed_layers(begin: int, end: int) -> list[str]:
    return [f"layer{k}" for k in reversed(range(begin, end))]


def test_the_last_products_hide_an_embeddings_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "MORE", 9.0)
    graph, outputs = embedded_backward(words=1 << 14)  # 2 MiB
    found = names(graph, outputs)
    moved = found[found.index("words") + 1 :]
    assert 1 <= len(moved) < LAYERS
    assert found == [*reversed_layers(len(moved), LAYERS), "words", *reversed_layers(0, len(moved))]
    late = {graph.outputs[outputs[name]] for name in moved}
    total = tail._work(set(graph.nodes))
    assert tail._work(late) >= tail.SHARE * total
    assert tail._work(late) - max(map(tail.work_of, late)) < tail.SHARE * total, "as few as will do"
    plan = plan_backward(graph, outputs, Caps(1, 1))
    assert [bucket.names for bucket in plan.buckets] == [(name,) for name in found]
    assert all(a.segment + 1 == b.segment for a, b in pairwise(plan.buckets))
    check_equals_whole(graph, outputs, plan)


def test_what_gains_nothing_stays_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "MORE", 1.0)
    straight = [*reversed_layers(0, LAYERS), "words"]
    graph, outputs = embedded_backward(words=1 << 12)
    assert names(graph, outputs) == straight, "512 KiB: not worth it"
    monkeypatch.setattr(tail, "LARGE_NBYTES", 1)
    assert names(graph, outputs) != straight
    graph, outputs = embedded_backward(words=64)
    assert names(graph, outputs) == straight, "8 KiB: the others are not small beside it"
    graph, outputs = embedded_backward(words=1 << 14, layers=0)
    assert names(graph, outputs) == ["words"]


def test_no_more_memory_is_held_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every product that waits keeps the gradient that it reads."""
    monkeypatch.setattr(tail, "SHARE", 0.5)
    graph, outputs = embedded_backward(words=1 << 14)
    given = sum(node.meta.nbytes for node in graph.inputs)
    gradient = meta(TOKENS, WIDTH).nbytes
    counts = []
    for kept in range(LAYERS):
        monkeypatch.setattr(tail, "MORE", (kept + 0.5) * gradient / given)
        counts.append(LAYERS - names(graph, outputs).index("words"))
    assert counts[:4] == [0, 1, 2, 3]
    assert counts == sorted(counts)


class Tied(nn.Module):
    """A head that has the embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        dc.manual_seed(0)
        self.words = nn.Embedding(400, 16)
        self.layers = nn.ModuleList([nn.Linear(16, 16) for _ in range(6)])
        self.head = nn.Linear(16, 400, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids: Any) -> Any:
        x = self.words(ids)
        for layer in self.layers:
            x = x + layer(x).tanh()
        return F.cross_entropy(self.head(x), ids)


def trained(c: Communicator, overlap: str, boundary: str) -> tuple[list[np.ndarray], list[str]]:
    """Parameters after three steps, and the names as their gradients leave."""
    with use_communicator(c), config.patch(boundary=boundary):
        model = DDP(Tied(), bucket_cap_mb=500 / 2**20, overlap=overlap)
        call, optimizer = dc.compile(model), dc.optim.SGD(model.parameters(), lr=0.3)
        for step in range(3):
            optimizer.zero_grad()
            call((dc.arange(1024) * (7 + c.rank + step)) % 400).backward()
            optimizer.step()
        return [p.detach().numpy().copy() for p in model.parameters()], list(model.bucket_plan.names)


@pytest.mark.parametrize("boundary", some(["notification", "cut"], 1))
@pytest.mark.parametrize("overlap", ["backward", "step"])
def test_training_has_the_same_bits(overlap: str, boundary: str, monkeypatch: pytest.MonkeyPatch) -> None:
    straight = run_ranks(2, lambda c: trained(c, overlap, boundary))
    monkeypatch.setattr(tail, "LARGE_NBYTES", 1)
    moved = run_ranks(2, lambda c: trained(c, overlap, boundary))
    assert straight[0][1][-1] == "words.weight"
    assert moved[0][1].index("words.weight") < len(moved[0][1]) - 1
    assert Counter(moved[0][1]) == Counter(straight[0][1])
    for expected, found in zip(straight, moved, strict=True):
        for a, b in zip(expected[0], found[0], strict=True):
            np.testing.assert_array_equal(a, b)
