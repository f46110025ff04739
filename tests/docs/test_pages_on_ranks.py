"""Pages that start jobs of ranks: what they show is tried, a part of them with --long only.

In: the pages. Which block is tried how: pages.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import PAGES, name, starts_ranks, try_page

from tests.sharing import some

FIRST = ("README.md", "docs/reference/launcher.md")
ON_RANKS = sorted(filter(starts_ranks, PAGES), key=lambda page: name(page) not in FIRST)


@pytest.mark.parametrize("page", some(ON_RANKS, len(FIRST)), ids=name)
def test_what_a_page_shows_on_ranks_is_so(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    try_page(page, tmp_path, update=request.config.getoption("--update-golden"))


def test_those_tried_first_are_there() -> None:
    assert {name(page) for page in ON_RANKS[: len(FIRST)]} == set(FIRST)
