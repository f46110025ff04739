"""Programs as trees of statements: text of them, and smaller ones that still fail.

In: `Node`s. Out: `render` gives lines; `minimise` the smallest tree it finds for which `fails` stays true, by deleting
statements, parts of compound ones, and by putting a block in the place of the statement that holds it.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


@dataclass
class Node:
    """A simple statement: one part without a block. A compound one: (header, block) for each of its clauses."""

    parts: list[tuple[str, list[Node] | None]] = field(default_factory=list)


def line(text: str) -> Node:
    return Node([(text, None)])


def pieces(text: str) -> list[Node]:
    """The statements of a text, one node each."""
    return list(map(line, statements(text)))


@functools.cache
def statements(text: str) -> list[str]:
    """The source of each statement of a text."""
    lines = text.split("\n")
    starts = [min([s.lineno, *(d.lineno for d in getattr(s, "decorator_list", ()))]) - 1 for s in ast.parse(text).body]
    return ["\n".join(lines[a:b]) for a, b in zip(starts, [*starts[1:], len(lines)])]


def render(block: list[Node], indent: int = 0) -> list[str]:
    lines = []
    for node in block:
        for head, inner in node.parts:
            lines += [" " * indent + text for text in head.split("\n")]
            if inner is not None:
                lines += render(inner, indent + 4) or [" " * (indent + 4) + "pass"]
    return lines


def smaller(block: list[Node]) -> Iterator[list[Node]]:
    """The block with one thing less, largest things first."""
    for k in range(len(block)):
        yield [*block[:k], *block[k + 1 :]]
    for k, node in enumerate(block):
        for inner in (part[1] for part in node.parts if part[1] is not None):
            if not node.parts[0][0].startswith(("def ", "class ", "@")):
                yield [*block[:k], *inner, *block[k + 1 :]]
        for p in range(1, len(node.parts)):
            yield [*block[:k], Node([*node.parts[:p], *node.parts[p + 1 :]]), *block[k + 1 :]]
        for p, (head, inner) in enumerate(node.parts):
            for less in smaller(inner) if inner else ():
                yield [*block[:k], Node([*node.parts[:p], (head, less), *node.parts[p + 1 :]]), *block[k + 1 :]]


def minimise(block: list[Node], fails: Callable[[list[Node]], bool], tries: int = 600) -> list[Node]:
    """`block`, with all that can go while `fails` stays true. Candidates that are not Python do not fail."""
    changed = True
    while changed:
        changed = False
        for candidate in smaller(block):
            tries -= 1
            if tries < 0:
                return block
            if fails(candidate):
                block, changed = candidate, True
                break
    return block
