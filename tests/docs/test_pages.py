"""Every page of the site, README and the changelog: what they show is tried, and what they name is there.

In: the pages. Which block is tried how: pages.py. Pages that start ranks are tried by test_pages_on_ranks.py.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import (
    PAGES,
    ROOT,
    agrees,
    blocks,
    has_something_to_try,
    is_run,
    lacks,
    name,
    of_no_kind,
    starts_ranks,
    try_page,
)

PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]*\.(?:py|cpp|h|md|toml))(?::[^`]*)?`")
FOLDER = re.compile(r"`((?:compiler_core|distcompile|collectives|launch|tests|benchmarks|examples|docs)/[\w./]*)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


ALONE = [page for page in PAGES if has_something_to_try(page) and not starts_ranks(page)]


@pytest.mark.parametrize("page", ALONE, ids=name)
def test_what_a_page_shows_is_so(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if missing := lacks(page):
        pytest.skip(f"not installed: {', '.join(missing)}")
    try_page(page, tmp_path, update=request.config.getoption("--update-golden"))


def test_every_block_says_what_it_is() -> None:
    assert [place for page in PAGES for place in of_no_kind(page)] == []


def test_python_that_does_not_run_is_python() -> None:
    for page in PAGES:
        for block in blocks(page):
            if block.language == "python" and not is_run(block) and not block.has("excerpt of"):
                compile(block.text, f"{name(page)}:{block.line}", "exec")


def test_blocks_that_are_code_of_the_repository_stand_there() -> None:
    for page in PAGES:
        for block in blocks(page):
            where = f"{name(page)}:{block.line}"
            if block.has("same as"):
                assert (ROOT / block.argument("same as")).read_text().endswith(block.text), where
            if block.has("excerpt of"):
                assert block.text in (ROOT / block.argument("excerpt of")).read_text(), where


def test_paths_that_a_page_names_exist() -> None:
    """A path of the repository from its root, or from the folder that the sentence is about."""
    found = {(page, path) for page in PAGES for kind in (PATH, FOLDER) for path in kind.findall(without_blocks(page))}
    there = {path: any(ROOT.glob(f"**/{path.rstrip('/')}")) for _, path in found}
    assert there
    assert [f"{name(page)}: {path}" for page, path in sorted(found) if not there[path]] == []


def without_blocks(page: Path) -> str:
    return re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.M | re.S)


def test_links_of_a_page_lead_somewhere() -> None:
    links = [(page, target) for page in PAGES for target in LINK.findall(page.read_text())]
    own = [(page, target) for page, target in links if not target.startswith(("http", "mailto:"))]
    assert own
    assert [f"{name(page)}: {target}" for page, target in own if not (page.parent / target).exists()] == []


def test_output_is_compared() -> None:
    """The comparison can fail."""
    assert agrees("loss 0.500 after 3\n", "loss 0.501 after 3\n")
    assert not agrees("loss 0.500\n", "loss 0.600\n")
    assert not agrees("3 graphs\n", "4 graphs\n")
    assert agrees("begun ... ended\n...\n", "begun at 7 s, ended\nmore\n")
    assert not agrees("begun ... ended\n", "begun\n")
