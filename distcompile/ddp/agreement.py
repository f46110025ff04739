"""Agreement: all ranks train the same model, by the same plan, before the first gradient moves.

In: this rank's parameters, graph and plan. Out: nothing, or an error that names what differs and on which ranks.
Two steps: a digest goes over the *bucket* channel, in order with the buckets, so a rank that plans while another one
reduces is a named mismatch and no hang; only if digests differ are texts exchanged, over the control channel.
Graphs are compared by their skeleton (ops, operands, dtypes, ranks of shapes), and only if all ranks have inputs of the
same sizes: x / 4 becomes x * 0.25 and x / 3 does not, a batch of one needs no broadcast. Plans, which hold no batch
size, must be equal in any case.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from collectives import Communicator
from compiler_core.graph.ir import Call, Graph, Node, Placeholder
from distcompile.ddp.errors import ModelMismatchError, RankDisagreementError


@dataclass(frozen=True, slots=True)
class Subject:
    """One thing that ranks must have alike, as lines of text. notes: for each line, what to say of it beside.

    sizes: what the lines may depend on; they are compared if all ranks have the same.
    """

    what: str
    lines: tuple[str, ...]
    notes: tuple[str, ...] = ()
    sizes: str = ""

    @property
    def digest(self) -> bytes:
        parts = ("\n".join(self.lines), self.sizes)
        return b"".join(hashlib.sha256(part.encode()).digest() for part in parts)


def skeleton(graph: Graph) -> Subject:
    """The lines of a graph without its sizes, with the user's location beside each."""
    number = {node: f"%{place}" for place, node in enumerate(graph.nodes)}
    lines = [_skeleton_line(node, number) for node in graph.nodes]
    lines.append(f"return {', '.join(number[node] for node in graph.outputs)}")
    notes = [getattr(node, "location", "") or f"%{node.name}" for node in graph.nodes]
    sizes = "; ".join(str(node.shape) for node in graph.inputs)
    return Subject(f"graph {graph.name}", tuple(lines), (*notes, "return"), sizes)


def _skeleton_line(node: Node, number: dict[Node, str]) -> str:
    kind = f"{node.dtype.short}[{'?, ' * (len(node.shape) - 1) + '?' if node.shape else ''}]"
    if isinstance(node, Call):
        return f"{number[node]}: {kind} = {node.op.name}({', '.join(number[a] for a in node.args)})"
    if isinstance(node, Placeholder):
        return f"{number[node]}: {kind} {node.role} {node.source}"
    return f"{number[node]}: {kind} constant"


def agree(communicator: Communicator, subjects: Sequence[Subject], *, label: str) -> None:
    """Raise RankDisagreementError on every rank unless `subjects` are equal on all."""
    differing = _differing(communicator, subjects, label)
    if differing is None:
        return
    mine = subjects[differing]
    all_lines = communicator.all_gather_object((mine.lines, mine.notes))
    raise RankDisagreementError(
        f"ranks disagree about the {mine.what}",
        where=f"rank {communicator.rank}, {label}",
        got=first_difference([lines for lines, _ in all_lines], [notes for _, notes in all_lines]),
        remedy="look for rank-dependent Python at that place: if rank == 0, a set's order, other library versions",
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
    halves = theirs.reshape(communicator.world_size, len(subjects), 2, -1)  # of each subject: lines, sizes
    differs = (halves != halves[0]).any(axis=(0, 3))
    unequal = differs[:, 0] & ~differs[:, 1]
    return int(unequal.argmax()) if unequal.any() else None


def first_difference(texts: Sequence[Sequence[str]], notes: Sequence[Sequence[str]]) -> str:
    """The first line that is not the same everywhere, and the ranks on each side."""
    length = max(map(len, texts))
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
