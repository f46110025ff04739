"""What our own Python does in a compiled function is seen, as the user's is: what its objects hold, what it calls."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.capture import policy
from compiler_core.location import is_ours
from distcompile import distributions as dists
from distcompile.data import BatchSampler, DistributedSampler, Sampler
from distcompile.surface.flat import flatten_dense_tensors
from distcompile.utils import _pytree as pytree

ROOT = Path(__file__).resolve().parents[4]


class State:
    """A number that the programs below read, in one way or another."""

    number = 2.0


class Scaled(dists.Transform):
    domain = codomain = dists.constraints.real
    bijective = True

    def _call(self, x: Any) -> Any:
        return x * State.number


class Shifted(dists.Normal):
    @property
    def mean(self) -> Any:
        return self.loc + State.number


class Counted(Sampler[int]):
    def __init__(self) -> None:
        super().__init__()

    def __len__(self) -> int:
        return int(State.number)


def is_small(x: Any) -> bool:
    return bool(x.dim() < State.number)


SCALED, COUNTED = Scaled(), BatchSampler(Counted(), 1, drop_last=False)
SHIFTED = dists.Independent(Shifted(dc.zeros(2), dc.ones(2)), 1)
PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "tree_map": lambda x: pytree.tree_map(lambda leaf: leaf * State.number, [x, {"a": x}])[1]["a"],
    "tree_map_only": lambda x: pytree.tree_map_only(dc.Tensor, lambda leaf: leaf * State.number, (x, 1))[0],
    "tree_map_": lambda x: pytree.tree_map_(lambda leaf: leaf.mul_(State.number), [x * 1])[0],
    "tree_any": lambda x: x * 3 if pytree.tree_any(is_small, [x]) else x,
    "tree_all": lambda x: x * 3 if pytree.tree_all(is_small, [x]) else x,
    "tree_map_with_path": lambda x: pytree.tree_map_with_path(lambda path, leaf: leaf * State.number, [x])[0],
    "is_leaf": lambda x: x * len(pytree.tree_leaves([[1], [2]], is_leaf=lambda leaf: State.number > 2)),
    "cond": lambda x: dc.cond(State.number > 2, lambda y: y * State.number, lambda y: y + State.number, (x,)),
    "flat": lambda x: flatten_dense_tensors([x, x * State.number]),
    "transform": lambda x: SCALED(x),
    "property": lambda x: SHIFTED.mean + x,
    "length": lambda x: x + len(COUNTED),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_it_calls_of_the_programs_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = dc.compile(PROGRAMS[name], fullgraph=True)
    x = dc.tensor([1.0, 3.0])
    for number in (2.0, 3.0, 1.0, 2.0):
        monkeypatch.setattr(State, "number", number)
        assert compiled(x).tolist() == PROGRAMS[name](x).tolist()


SPECS = [pytree.tree_structure([1, 2]), pytree.tree_structure((1, 2))]
SAMPLERS = [DistributedSampler(range(size), 2, 0, shuffle=False) for size in (10, 20)]
OBJECTS: dict[str, tuple[Callable[[Any, Any], Any], list[Any]]] = {
    "transform": (lambda t, x: t(x), [dists.AffineTransform(0.0, scale) for scale in (2.0, 3.0)]),
    "distribution": (
        lambda d, x: d.log_prob(x),
        [dists.Independent(dists.Normal(dc.zeros(2), dc.ones(2)), dims) for dims in (1, 0)],
    ),
    "sampler": (lambda s, x: x + len(s), SAMPLERS),
    "spec": (lambda s, x: x + len(str(type(pytree.tree_unflatten([x, x], s)))), SPECS),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_what_they_hold_is_guarded(name: str) -> None:
    program, objects = OBJECTS[name]
    compiled = dc.compile(program, fullgraph=True)
    x = dc.tensor([1.0, 3.0])
    for thing in (*objects, *objects):
        assert compiled(thing, x).tolist() == program(thing, x).tolist()


def test_a_generators_seed_is_asked_for_at_every_call(counter_draws: None) -> None:
    generator = dc.Generator()
    compiled = dc.compile(lambda x: x + generator.initial_seed() + generator.get_offset())
    for seed in (3, 5, 3):
        generator.manual_seed(seed)
        dc.rand(seed, generator=generator)
        assert compiled(dc.zeros(1)).item() == seed + generator.get_offset()


def test_files_are_written_at_every_call(tmp_path: Path) -> None:
    path = tmp_path / "kept.pt"

    def save(x: Any) -> Any:
        dc.save({"epoch": 1}, path)
        return x + 1

    compiled = dc.compile(save)
    for _ in range(3):
        compiled(dc.ones(2))
        assert path.exists()
        path.unlink()


def test_memory_from_outside_that_is_written_past_the_trace_ends_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(x: Any, y: Any) -> Any:
        into(y)
        return x + y

    def into(y: Any) -> None:
        y._cell.write(np.full(2, State.number, np.float32))

    policy.say(into, policy.RUN)  # as if it were a function of ours that does not record itself
    try:
        compiled = dc.compile(write)
        for number in (1.0, 2.0, 3.0):
            monkeypatch.setattr(State, "number", number)
            assert compiled(dc.zeros(2), dc.zeros(2)).tolist() == [number, number]
    finally:
        policy.unsay(into)


def test_no_file_that_is_entered_assigns_to_its_globals() -> None:
    """Names in modules of ours are taken for constants (`load_global`)."""
    files = [p for p in ROOT.glob("*/**/*.py") if is_ours(str(p)) and policy.how_file(str(p)) is policy.ENTER]
    files.append(ROOT / "distcompile/distributed/group.py")  # of which functions are entered, by name
    assert len(files) > 100
    for path in files:
        found = [node.lineno for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Global)]
        assert not found, f"{path}: {found}"


def test_what_policy_lists_is_there() -> None:
    listed = (*policy.ENTERED, *policy.NATIVE, *policy.RECORDING, *policy.KEEPING, *policy.TALKING)
    assert [path for path in listed if not list(Path(path).parent.glob(f"{Path(path).name}*"))] == []
