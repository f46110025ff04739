"""Blocks of the pages that are made by code here: every stage of the pipeline, and the map of folders.

`pytest tests/docs --update-golden` rewrites them; CI never does. Which other blocks there are: pages.py.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from page_stages import stages
from pages import ROOT, blocks

README = ROOT / "README.md"
STAGES = ROOT / "docs" / "howto" / "read_the_irs.md"
MAP = ROOT / "docs" / "explanation" / "architecture.md"
MOST_LINES = 250


def test_every_stage_is_what_the_compiler_prints(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    pytest.importorskip("triton")
    said = {block.argument("generated"): block.text for block in blocks(STAGES) if block.has("generated")}
    made = stages(tmp_path)
    assert said.keys() == made.keys()
    if request.config.getoption("--update-golden"):
        text = STAGES.read_text()
        for stage, old in said.items():
            text = text.replace(old, made[stage], 1)
        STAGES.write_text(text)
    else:
        assert said == made, "--update-golden, and read the diff"


def test_readme_is_short_and_has_the_two_commands() -> None:
    text = README.read_text()
    assert 'pip install ".[mpich]" && distcompile-run -n 2 -m distcompile.demo' in text
    assert 'pip install -e ".[test]" && pytest' in text
    assert len(text.splitlines()) <= MOST_LINES


def test_the_map_names_what_is_there() -> None:
    """Every path in the map exists, and every folder of the four packages is in it."""
    text = MAP.read_text()
    tree = text[text.index("<!-- begin map -->") : text.index("<!-- end map -->")]
    named = set(re.findall(r"`([\w./]+)`", tree))
    assert named, "the map names nothing"
    missing = [name for name in named if name.count("/") and not any(ROOT.glob(f"**/{name.rstrip(chr(47))}"))]
    assert not missing
    packages = ("compiler_core", "distcompile", "collectives", "launch")
    folders = [f for p in packages for f in (ROOT / p).iterdir() if f.is_dir() and (f / "__init__.py").exists()]
    assert not [f.name for f in folders if f"{f.parent.name}/{f.name}/" not in named]
