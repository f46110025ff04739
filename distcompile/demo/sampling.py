"""Text from the trained model, character by character.

In: the model, the corpus. Out: a continuation of held-out text. Eager, one character a forward pass: a demonstration
of what was learned, not of speed.
"""

from __future__ import annotations

import numpy as np

import distcompile as torch
from distcompile.demo.model import GPT
from distcompile.demo.text import Corpus
from distcompile.showing.progress import Say, nothing


def sample(
    model: GPT, corpus: Corpus, length: int, seed: int, temperature: float = 0.7, say: Say = nothing
) -> tuple[str, str]:
    """(the prompt, `length` characters after it), from the held-out text's first window. say: how far it is."""
    window = model.sizes.time
    tokens = corpus.held_out[0, :window].copy()  # (T,)
    generator = np.random.default_rng(seed)
    model.eval()
    drawn = []
    with torch.no_grad():
        for place in range(length):
            say("writing a sample", place / length)
            logits = model(torch.from_numpy(tokens[None]))[0, -1].numpy().astype(np.float64)  # (V,)
            drawn.append(draw(logits / temperature, generator))
            tokens = np.append(tokens[1:], drawn[-1])
    model.train()
    prompt = corpus.decode(corpus.held_out[0, :window])
    return prompt, corpus.decode(np.array(drawn, np.int64))


def draw(logits: np.ndarray[tuple[int], np.dtype[np.float64]], generator: np.random.Generator) -> int:
    """An index with probability softmax(logits)."""
    weights = np.exp(logits - logits.max())
    return int(generator.choice(len(weights), p=weights / weights.sum()))
