"""Real English text that every CPython ships: the language reference's topics, from `pydoc_data`.

In: nothing. Out: `Corpus` (vocabulary, training and held-out tokens) and `Windows`, a Dataset of (input, target) pairs.
Every tenth block of 4096 characters is held out, so both parts are of the same kind; no window crosses a block's edge
into the other part. About half a million characters; the text differs a little between Python versions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from distcompile import Tensor, from_numpy
from distcompile.data import Dataset

Tokens = np.ndarray[Any, np.dtype[np.int64]]

BLOCK = 4096  # characters
HELD_OUT_EVERY = 10  # blocks


def english_text() -> str:
    """All topics, in alphabetical order."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics))


@dataclass(frozen=True, eq=False)
class Corpus:
    """Tokens are indices into `vocabulary`. training, held_out: i64[blocks, BLOCK]."""

    vocabulary: str
    training: Tokens
    held_out: Tokens

    def decode(self, tokens: Tokens) -> str:
        return "".join(self.vocabulary[token] for token in tokens)


def make_corpus(text: str) -> Corpus:
    """Cut `text` into blocks and hold out every tenth; what does not fill a block is left out."""
    vocabulary = "".join(sorted(set(text)))
    index = {character: i for i, character in enumerate(vocabulary)}
    tokens = np.array([index[character] for character in text], np.int64)
    blocks = tokens[: len(tokens) // BLOCK * BLOCK].reshape(-1, BLOCK)
    held_out = np.arange(len(blocks)) % HELD_OUT_EVERY == HELD_OUT_EVERY - 1
    return Corpus(vocabulary, blocks[~held_out], blocks[held_out])


class Windows(Dataset[tuple[Tensor, Tensor]]):
    """Pairs (x: i64[time], y: i64[time]), y one character ahead of x; windows do not overlap."""

    def __init__(self, blocks: Tokens, time: int) -> None:
        self.blocks, self.time = blocks, time
        self.per_block: int = (blocks.shape[1] - 1) // time

    def __len__(self) -> int:
        return int(self.blocks.shape[0]) * self.per_block

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        block, place = divmod(index, self.per_block)
        window = self.blocks[block, place * self.time : (place + 1) * self.time + 1]
        return from_numpy(window[:-1].copy()), from_numpy(window[1:].copy())
