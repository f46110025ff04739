"""Agreement: all ranks train the same model, by the same plan, before the first gradient moves.

In: this rank's parameters, graph and plan. Out: nothing, or an error that names what differs and on which ranks.
Two steps: a digest goes over the *bucket* channel, in order with the buckets, so a rank that wraps a module while
another one reduces is a named mismatch and no hang; only if digests differ are texts exchanged, over the control
channel. Graphs are compared exactly, literals, attributes and constants included, and only if all ranks have inputs of
the same sizes: x / 4 becomes x * 0.25 and x / 3 does not, a batch of one needs no broadcast. Their digests travel with
the gate of every synchronised backward (`reconcile.py`). Attributes of the user's modules are not compared: they may
name the rank.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from collectives import Communicator
from compiler_core.graph.ir import Call, Constant, Graph, Node, Placeholder
from compiler_core.graph.print import LITERAL_ELEMENTS, print_array, print_attr
from distcompile.ddp.errors import ModelMismatchError, RankDisagreementError


@dataclass(frozen=True, slots=True)
class Subject:
    """One thing that ranks must have alike, as lines of text. notes: for each line, what to say of it beside."""

    what: str
    lines: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def digest(self) -> bytes:
        return hashlib.sha256("\n".join(self.lines).encode()).digest()


def skeleton(graph: Graph) -> Subject:
    """The lines of a graph without its names, with the user's location beside each."""
    number = {node: f"%{place}" for place, node in enumerate(graph.nodes)}
    lines = [_skeleton_line(node, number) for node in graph.nodes]
    lines.append(f"return {', '.join(number[node] for node in graph.outputs)}")
    notes = [getattr(node, "location", "") or f"%{node.name}" for node in graph.nodes]
    return Subject(f"graph {graph.name}", tuple(lines), (*notes, "return"))


def sizes_of(graph: Graph, *, by_name: bool) -> str:
    """What the lines of a graph may depend on: the shapes of its inputs; by_name: and which parameters these are, where
    ranks may use other parameters than each other (two experts of one size)."""
    named = {node for node in graph.inputs if by_name and node.role == "parameter"}
    return "; ".join(f"{node.shape}{node.source if node in named else ''}" for node in graph.inputs)


def _skeleton_line(node: Node, number: dict[Node, str]) -> str:
    if isinstance(node, Call):
        attrs = "".join(f" {key}={print_attr(node.attrs[key])}" for key in sorted(node.attrs))
        return f"{number[node]}: {node.meta} = {node.op.name}({', '.join(number[a] for a in node.args)}){attrs}"
    if isinstance(node, Placeholder):
        return f"{number[node]}: {node.meta} {node.role} {node.source if node.role != 'saved' else ''}"
    assert isinstance(node, Constant)
    return f"{number[node]}: {node.meta} = constant {_content(node)}"


def _content(node: Constant) -> str:
    """A constant's value; of a long one, a hash."""
    if node.array.size <= LITERAL_ELEMENTS:
        return print_array(node.array)
    return hashlib.sha256(np.ascontiguousarray(node.array).tobytes()).hexdigest()


def agree(communicator: Communicator, subjects: Sequence[Subject], *, label: str) -> None:
    """Raise RankDisagreementError on every rank unless `subjects` are equal on all."""
    differing = _differing(communicator, subjects, label)
    if differing is not None:
        raise_disagreement(communicator, [subjects[differing]], label=label)


def raise_disagreement(communicator: Communicator, subjects: Sequence[Subject], *, label: str) -> NoReturn:
    """Collective. Exchange the texts of `subjects`, which are not equal on all ranks; raise RankDisagreementError."""
    everyones = communicator.all_gather_object([(subject.lines, subject.notes) for subject in subjects])
    pairs = [tuple(zip(*texts)) for texts in zip(*everyones, strict=False)]
    number = next((k for k, (lines, _) in enumerate(pairs) if len(set(lines)) > 1), 0)
    lines, notes = pairs[number] if pairs else ((), ())
    raise RankDisagreementError(
        f"ranks disagree about the {subjects[number].what if number < len(subjects) else 'compiled calls'}",
        where=f"rank {communicator.rank}, {label}",
        got=first_difference(lines, notes),
        remedy="look for rank-dependent Python at that place: if rank == 0, another dropout probability or eps, a "
        "set's order, other library versions; pass a number that is meant to differ as a tensor; where ranks are meant "
        "to go other ways, find_unused_parameters=True",
    )


def agree_on_model(communicator: Communicator, description: Subject) -> None:
    """Raise ModelMismatchError on every rank unless all ranks describe the same parameters and buffers."""
    if _differing(communicator, [description], "the model's parameters") is None:
        return
    all_lines = communicator.all_gather_object(description.lines)
    raise ModelMismatchError(
        f"ranks disagree about the {description.what}",
        where=f"rank {communicator.rank}",
        got=first_difference(all_lines, [()] * len(all_lines)),
        remedy="build the same module on every rank before wrapping it in DistributedDataParallel",
    )


def _differing(communicator: Communicator, subjects: Sequence[Subject], label: str) -> int | None:
    """The first subject whose digest is not the same on all ranks; the same answer on all ranks."""
    mine = np.frombuffer(b"".join(s.digest for s in subjects), np.uint8).copy()
    theirs = np.empty((communicator.world_size, mine.size), np.uint8)
    communicator.all_gather(theirs, mine, label=f"agreement on {label}")
    rows = theirs.reshape(communicator.world_size, len(subjects), -1)
    unequal = (rows != rows[0]).any(axis=(0, 2))
    return int(unequal.argmax()) if unequal.any() else None


def first_difference(texts: Sequence[Sequence[str]], notes: Sequence[Sequence[str]]) -> str:
    """The first line that is not the same everywhere, and the ranks on each side."""
    length = max(map(len, texts), default=0)
    for number in range(length):
        sides: dict[str, list[int]] = {}
        places: dict[str, str] = {}
        for rank, lines in enumerate(texts):
            line = lines[number] if number < len(lines) else "(nothing)"
            sides.setdefault(line, []).append(rank)
            if number < len(notes[rank]):
                places.setdefault(line, f" at {notes[rank][number]}")
        if len(sides) > 1:
            return f"line {number + 1}: " + "; ".join(
                f"rank(s) {ranks} have `{line}`{places.get(line, '')}" for line, ranks in sides.items()
            )
    return "no difference in the texts"
