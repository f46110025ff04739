"""Programs of messages, interpreted for all ranks at once under random orders of events, equal the definition."""

from __future__ import annotations

import random

import numpy as np
import pytest

from collectives import programs
from collectives.call import BITWISE_OPS, DTYPES, REDUCE_OPS, CollectiveCall, Task
from collectives.interpret import ProgramError, interpret
from collectives.programs import SEND, STEP_WORDS, MessageProgram, Writer, chunks_of, program_of
from collectives.reduce import perform

KINDS = ("all_reduce", "reduce", "reduce_scatter", "broadcast", "all_gather", "gather", "scatter", "all_to_all")


def values(rng: random.Random, size: int, dtype: str) -> np.ndarray:
    return np.array([rng.randrange(3) for _ in range(size)]).astype(dtype)


def random_call(rng: random.Random, world: int) -> CollectiveCall:
    dtype = rng.choice(DTYPES)
    is_whole = np.dtype(dtype).kind in "iub"
    ops = [op for op in REDUCE_OPS if (is_whole if op in BITWISE_OPS else not (op == "avg" and is_whole))]
    kind, wire = rng.choice(KINDS), ""
    if kind == "all_reduce" and dtype in ("float32", "float64"):
        wire = rng.choice(["", "bfloat16", "float16"])
    count = rng.choice([0, 1, 2, 7, rng.randrange(400)])
    return CollectiveCall(kind, rng.choice(ops), dtype, count, rng.randrange(world), wire)  # type: ignore[arg-type]


def tasks_of(call: CollectiveCall, world: int, rng: random.Random) -> list[Task]:
    tasks = []
    for rank in range(world):
        is_root = rank == call.root
        whole = call.count * world
        source = {"reduce_scatter": whole, "all_to_all": whole, "scatter": whole * is_root}.get(call.kind, call.count)
        target = {"all_gather": whole, "all_to_all": whole, "gather": whole * is_root}.get(call.kind, call.count)
        data = values(rng, source, call.dtype)
        is_in_place = call.kind in ("all_reduce", "broadcast", "reduce")
        tasks.append(Task(call, data, data if is_in_place else values(rng, target, call.dtype)))
    return tasks


def copied(tasks: list[Task]) -> list[Task]:
    copies = []
    for task in tasks:
        source = task.source.copy()
        copies.append(Task(task.call, source, source if task.target is task.source else task.target.copy()))
    return copies


@pytest.mark.parametrize("seed", range(150))
def test_random_collectives_equal_their_definition(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    print(f"seed {seed}")
    rng = random.Random(seed)
    monkeypatch.setattr(programs, "PART_NBYTES", rng.choice([16, 100, 1 << 18]))
    monkeypatch.setattr(programs, "MESSAGE_NBYTES", rng.choice([24, 1 << 20]))
    monkeypatch.setattr(programs, "DEPTH", rng.choice([1, 2, 4]))
    programs._program.cache_clear()
    world = rng.randrange(1, 6)
    call = random_call(rng, world)
    tasks = tasks_of(call, world, rng)
    expected = copied(tasks)
    perform(expected)
    run = [program_of(call, rank, world, None) for rank in range(world)]
    interpret(call, run, [task.source for task in tasks], [task.target for task in tasks], seed)
    programs._program.cache_clear()
    for task, right in zip(tasks, expected):
        np.testing.assert_array_equal(task.target.view(np.uint8), right.target.view(np.uint8), str(call))


@pytest.mark.parametrize("seed", range(20))
def test_uneven_all_to_all(seed: int) -> None:
    rng = random.Random(seed)
    world = rng.randrange(1, 5)
    sent = [tuple(rng.randrange(4) for _ in range(world)) for _ in range(world)]
    splits = [(sent[r], tuple(sent[q][r] for q in range(world))) for r in range(world)]
    call = CollectiveCall("all_to_all_uneven", dtype="int32")
    tasks = [
        Task(call, values(rng, sum(mine), "int32"), np.zeros(sum(theirs), np.int32), splits=(mine, theirs))
        for mine, theirs in splits
    ]
    expected = [Task(call, task.source, task.target.copy(), splits=task.splits) for task in tasks]
    perform(expected)
    run = [program_of(call, rank, world, splits[rank]) for rank in range(world)]
    interpret(call, run, [task.source for task in tasks], [task.target for task in tasks], seed)
    for task, right in zip(tasks, expected):
        np.testing.assert_array_equal(task.target, right.target)


def test_chunks_cover_every_element_once() -> None:
    for count in (1, 5, 1000, 3_000_001):
        chunks = chunks_of(count, 4, 3)
        assert [chunk.bounds[0] for chunk in chunks[1:]] == [chunk.bounds[-1] for chunk in chunks[:-1]]
        assert (chunks[0].bounds[0], chunks[-1].bounds[-1]) == (0, count)
        assert max(chunk.part(r)[1] for chunk in chunks for r in range(3)) * 4 <= programs.PART_NBYTES + 4


def two(first: Writer, second: Writer) -> list[MessageProgram]:
    return [first.program(), second.program()]


def test_programs_that_do_not_fit_are_found_out() -> None:
    call, arrays = CollectiveCall("barrier"), [np.zeros(8, np.uint8), np.zeros(8, np.uint8)]
    lonely, short, silent = Writer(), Writer(), Writer()
    lonely.message(SEND, 1, 0, 0, 8)
    lonely.wait(0, 1)
    short.message(programs.RECEIVE, 0, 1, 0, 4)
    short.wait(0, 1)
    with pytest.raises(ProgramError, match=r"8 and 4 bytes|4 and 8 bytes"):
        interpret(call, two(lonely, short), arrays, arrays, 0)
    with pytest.raises(ProgramError, match="for ever"):
        interpret(call, two(lonely, silent), arrays, arrays, 0)
    open_ended = Writer()
    open_ended.message(SEND, 1, 0, 0, 8)
    with pytest.raises(ProgramError, match="not received"):
        interpret(call, two(open_ended, silent), arrays, arrays, 0)
    assert lonely.program().steps.shape == (2, STEP_WORDS)
