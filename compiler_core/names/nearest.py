"""The name that was probably meant. In: a word, and the names there are. Out: the nearest, by edit similarity; or "".

The launcher, which imports nothing of ours, makes the same call of difflib for its options.
"""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """The name most like `word`; empty if none is like it."""
    import difflib  # 2 ms, and only for those who err

    return next(iter(difflib.get_close_matches(word, list(known), n=1)), "")
