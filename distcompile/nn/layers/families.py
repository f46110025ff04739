"""Layers that torch has for one, two and three spatial dims: a family is one class, and each of its layers a line.

In: a family, a private class with `_rank` whose docstring is a template, and its layers:

    @of_rank(2)
    class Conv2d(_Conv): ...

Out: the layer, with its `_rank` and the family's docstring filled in: {name}, {rank}, {n}, {k} and {o} (the sizes of
input, kernel and output, as in compiler_core/ops/ranks.py), {kind} ("images"), {dims} ("two dimensions"), {sides} (of
what is padded), and what stands once a dimension or once less: {each:8} is "8, 8", {rest:1, } is "1, ", and {row:8} is
"(1, 8)". A layer with words of its own keeps them.
Invariant: nothing is done to a class that is derived from a layer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from compiler_core.ops.ranks import SIZES
from distcompile.nn.module import Module

Layer = TypeVar("Layer", bound=type[Module])
_WORDS = {
    1: {"kind": "sequences", "dims": "dimension", "sides": "(left, right)"},
    2: {"kind": "images", "dims": "two dimensions", "sides": "(left, right, top, bottom)"},
    3: {"kind": "volumes", "dims": "three dimensions", "sides": "(left, right, top, bottom, front, back)"},
}


class _Written:
    """`{name:text}` is what `write` makes of the text."""

    def __init__(self, write: Callable[[str], str]) -> None:
        self.write = write

    def __format__(self, text: str) -> str:
        return self.write(text)


def of_rank(rank: int) -> Callable[[Layer], Layer]:
    """Makes a class the layer of its family, its first base, for so many spatial dims."""

    def make(layer: Layer) -> Layer:
        layer._rank = rank  # type: ignore[attr-defined]  # every family has it
        return documented(layer, rank)

    return make


def documented(layer: Layer, rank: int, **words: str) -> Layer:
    """The layer, with its family's docstring filled in if it has none. words: more that the template may name."""
    if layer.__doc__ is None:
        times = {
            "each": _Written(lambda text: ", ".join([text] * rank)),
            "rest": _Written(lambda text: text * (rank - 1)),
            "row": _Written(lambda text: text if rank == 1 else f"({'1, ' * (rank - 1)}{text})"),
        }
        known = {"name": layer.__name__, "rank": rank, **SIZES[rank], **_WORDS[rank], **words}
        layer.__doc__ = (layer.__bases__[0].__doc__ or "").format(**known, **times)
    return layer
