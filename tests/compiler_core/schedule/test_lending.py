"""Temps in the memory of values that have been read: apart in bytes or in time, and the gradients are the same."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np
import pytest

import distcompile as dc
from compiler_core.aot import wrapper
from compiler_core.config import config
from compiler_core.dtype import DType, float32, int64
from compiler_core.errors import AutogradError
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph
from compiler_core.loop_ir.interpret import interpret_program
from compiler_core.loop_ir.parse import parse_program
from compiler_core.loop_ir.verify import verify_program
from compiler_core.lowering.target import GPU
from compiler_core.schedule.arena_plan import Life
from compiler_core.schedule.from_graphs import lower_and_schedule
from compiler_core.schedule.lending import ALIGNMENT, LEAST, STACK, STACKED, lend, place, stack
from distcompile import nn


@dataclass
class Case:
    temps: list[Life]
    spent: list[Life]
    dtypes: dict[str, DType]


def case(seed: int) -> Case:
    rng = random.Random(seed)
    steps = rng.randrange(2, 40)

    def life(name: str, *, is_spent: bool) -> Life:
        first = 0 if is_spent else rng.randrange(steps)
        nbytes = rng.choice([LEAST - 4, LEAST, LEAST + 36, 2 * LEAST, 7 * LEAST, 100 * LEAST])
        return Life(name, nbytes, first, rng.randrange(first, steps))

    temps = [life(f"t{k}", is_spent=False) for k in range(rng.randrange(60))]
    spent = [life(f"s{k}", is_spent=True) for k in range(rng.randrange(12))]
    return Case(temps, spent, {one.name: rng.choice([float32, float32, int64]) for one in (*temps, *spent)})


def check_apart(made: Case, lent: dict[str, tuple[str, int]], starts: dict[str, int] | None = None) -> None:
    sizes = {life.name: life for life in (*made.temps, *made.spent)}
    spans: list[tuple[str, int, int, Life]] = []
    if starts is not None:
        spans += [(STACK, starts[life.name], starts[life.name] + life.nbytes, life) for life in made.spent]
        end = max((end for _, _, end, _ in spans), default=0)
    for name, (home, begin) in lent.items():
        life = sizes[name]
        assert begin % ALIGNMENT == 0
        if starts is None:
            assert begin + life.nbytes <= sizes[home].nbytes
            assert life.first > sizes[home].last
            assert made.dtypes[name] is made.dtypes[home]
        else:
            assert begin + life.nbytes <= -(-end // STACKED) * STACKED
        for other_home, other_begin, other_end, other in spans:
            meets = other.first <= life.last and life.first <= other.last
            apart = home != other_home or begin + life.nbytes <= other_begin or other_end <= begin
            assert apart or not meets
        spans.append((home, begin, begin + life.nbytes, life))


@pytest.mark.parametrize("seed", range(60))
def test_lent_memory_is_apart_in_bytes_or_in_time(seed: int) -> None:
    made = case(seed)
    check_apart(made, lend(made.temps, made.spent, made.dtypes))
    lent, offsets, total = place(made.temps, made.spent, made.dtypes)
    check_apart(made, lent)
    assert lent.keys() | offsets.keys() >= {life.name for life in made.temps}
    kept = [life for life in made.temps if life.name not in lent]
    for k, a in enumerate(kept):
        assert offsets[a.name] + a.nbytes <= total
        for b in kept[:k]:
            if b.first <= a.last and a.first <= b.last:
                begin, other = offsets[a.name], offsets[b.name]
                assert begin + a.nbytes <= other or other + b.nbytes <= begin


@pytest.mark.parametrize("seed", range(60))
def test_lent_memory_of_a_stack_is_apart_too(seed: int) -> None:
    made = case(seed)
    made.spent = [life for life in made.spent if life.nbytes >= LEAST]
    starts = stack({life.name: life.nbytes for life in made.spent})
    check_apart(made, lend(made.temps, made.spent, made.dtypes, starts), starts)
    lent, _, _ = place(made.temps, made.spent, made.dtypes, starts)
    check_apart(made, lent, starts)


def test_many_small_values_make_room_for_a_large_one() -> None:
    spent = [Life(f"s{k}", LEAST + 4, 0, k) for k in range(9)]
    large, dtypes = Life("t", 8 * LEAST, 9, 10), {"t": int64, **{life.name: float32 for life in spent}}
    assert lend([large], spent, dtypes) == {}
    assert lend([large], spent, dtypes, stack({life.name: life.nbytes for life in spent})) == {"t": (STACK, 0)}


def test_what_cannot_lie_elsewhere_decides_the_arena() -> None:
    """Two temps at once before anything has died, two after: these go elsewhere only if they are larger."""
    size = 100 * LEAST
    spent, dtypes = [Life("s", 4 * size, 0, 1)], dict.fromkeys("abcds", float32)
    early = [Life("a", size, 0, 1), Life("b", size, 0, 1)]
    lent, _, total = place([*early, Life("c", size, 2, 3), Life("d", size, 2, 3)], spent, dtypes)
    assert (lent, total <= 2.1 * size) == ({}, True)
    lent, _, total = place([*early, Life("c", 2 * size, 2, 3), Life("d", 2 * size, 2, 3)], spent, dtypes)
    assert (len(lent) > 0, total <= 2.1 * size) == (True, True)


def model() -> nn.Module:
    dc.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64), nn.Softmax(-1)) for _ in range(4)]
    return nn.Sequential(*layers, nn.Linear(64, 3))


X = dc.randn(40, 64, generator=dc.Generator().manual_seed(1))


def backward_of(compiled: object) -> Graph:
    graphs = dict(compiled.explain().entries[0].graphs)  # type: ignore[attr-defined]
    return graphs["backward"]


def test_a_program_that_writes_over_saved_values_computes_the_same() -> None:
    compiled = dc.compile(model())
    compiled(X).sum().backward()
    graph = backward_of(compiled)
    (program,) = lower_and_schedule([graph], "lent")
    verify_program(program)
    assert sum(buffer.kind == "spent" for buffer in program.buffers) >= 1
    rng = np.random.default_rng(0)
    inputs = [rng.random(node.shape).astype(node.dtype.numpy) for node in graph.inputs]
    for mine, theirs in zip(interpret_program(program, inputs), interpret(graph, inputs), strict=True):
        np.testing.assert_allclose(mine.reshape(theirs.shape), theirs, rtol=0, atol=2e-5 * np.abs(theirs).max())


def test_so_does_one_whose_saved_values_lie_in_one_block() -> None:
    compiled = dc.compile(model())
    compiled(X).sum().backward()
    forward, backward = dict(compiled.explain().entries[0].graphs)["forward"], backward_of(compiled)
    stacked = frozenset(node.name for node in forward.outputs)
    program = lower_and_schedule([forward, backward], "stacked", replace(GPU, stacked=stacked))[1]
    verify_program(program)
    kinds = [buffer.kind for buffer in program.buffers]
    assert min(kinds.count("stacked"), kinds.count("lent")) >= 2
    assert program.stack_nbytes % STACKED == 0  # a temp may lie in what is left of the last unit
    assert str(parse_program(str(program))) == str(program)
    rng = np.random.default_rng(0)
    inputs = [rng.random(node.shape).astype(node.dtype.numpy) for node in backward.inputs]
    for mine, theirs in zip(interpret_program(program, inputs), interpret(backward, inputs), strict=True):
        np.testing.assert_allclose(mine.reshape(theirs.shape), theirs, rtol=0, atol=2e-5 * np.abs(theirs).max())


def gradients(net: nn.Module) -> list[np.ndarray]:
    return [p.grad.numpy().copy() for p in net.parameters()]


def test_a_backward_that_is_repeated_reads_what_was_saved() -> None:
    net, eager = model(), model()
    compiled = dc.compile(net)
    for run, other in ((compiled, net), (eager, eager)):
        loss = run(X).square().sum()
        for k in range(3):
            loss.backward(retain_graph=k < 2)
        other.found = gradients(other)
    for a, b in zip(net.found, eager.found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_what_hooks_hold_is_not_written_over() -> None:
    held: list[dc.Tensor] = []

    def keep(x: dc.Tensor) -> dc.Tensor:
        held.append(x)
        return x

    net = model()
    compiled = dc.compile(net)
    with dc.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        loss = compiled(X).sum()
    before = [x.clone() for x in held]
    loss.backward()
    assert held
    assert all(dc.equal(a, b) for a, b in zip(held, before, strict=True))


@pytest.mark.parametrize("boundary", ["notification", "cut"])
def test_outputs_that_are_differentiated_apart(boundary: str) -> None:
    dc.manual_seed(0)
    w = dc.randn(64, 64, requires_grad=True)

    def two(x: dc.Tensor) -> tuple[dc.Tensor, dc.Tensor]:
        h = (x @ w).softmax(-1).exp()
        return (h @ w).sin().sum(), (h @ w.t()).softmax(-1).square().sum()

    found = []
    for run in (two, dc.compile(two)):
        with config.patch(boundary=boundary):
            w.grad = None
            a, b = run(X)
            a.backward(retain_graph=True)
            b.backward()
            found.append(w.grad.clone())
    assert dc.allclose(*found, rtol=1e-4, atol=1e-5)


def test_scores_beside_a_loss_keep_nothing_for_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the loss is differentiated the scores cannot be, so their being held is no reason to copy what was saved."""
    copies: list[int] = []
    real = wrapper.copy_of
    monkeypatch.setattr(wrapper, "copy_of", lambda array: (copies.append(array.size), real(array))[1])
    net, eager = model(), model()

    def scored(run: object, x: dc.Tensor) -> tuple[dc.Tensor, dc.Tensor]:
        scores = run(x)  # type: ignore[operator]
        return scores, scores.square().mean()

    call = dc.compile(lambda x: scored(net, x))
    scores, loss = call(X)
    loss.backward()
    assert copies == []
    with pytest.raises(AutogradError, match=r"second time|freed"):
        scores.sum().backward()
    scored(eager, X)[1].backward()
    for a, b in zip(gradients(net), gradients(eager), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    scores, loss = call(X)
    loss.backward(retain_graph=True)
    assert copies
    scores.sum().backward()  # reads what was copied
    scores, loss = scored(eager, X)
    loss.backward(retain_graph=True)
    scores.sum().backward()
    for a, b in zip(gradients(net), gradients(eager), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
