"""The reference leaves nothing out: every variable, every command, every catalogue of errors has its place on a page.

What the pages say of each is read from the code when the site is built (docs/extensions/from_code.py).
"""

from __future__ import annotations

import argparse
import importlib
import re

from pages import ROOT

from compiler_core.config import Config
from distcompile.cli import build_parser

REFERENCE = ROOT / "docs" / "reference"
PACKAGES = ("distcompile", "compiler_core", "collectives", "launch")


def test_every_variable_is_declared_or_on_the_page() -> None:
    texts = (path.read_text() for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    read = {name for text in texts for name in re.findall(r"DISTCOMPILE_[A-Z_]*[A-Z]", text)}
    declared = {knob.env for knob in Config.knobs().values()}
    on_the_page = set(re.findall(r"DISTCOMPILE_[A-Z_]*[A-Z]", (REFERENCE / "knobs.md").read_text()))
    assert len(declared) > 20
    assert read - declared - on_the_page == set()
    assert on_the_page <= read - declared


def test_every_command_is_on_the_page() -> None:
    commands = next(a.choices for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    shown = re.findall(r"{command} distcompile (\w+)", (REFERENCE / "commands.md").read_text())
    assert set(shown) == set(commands)


def test_every_page_of_the_api_is_listed_and_its_module_there() -> None:
    shown = {path.stem for path in (REFERENCE / "api").glob("*.md")} - {"index"}
    listed = set(re.findall(r"^(\w+)$", (REFERENCE / "api" / "index.md").read_text(), re.M)) & shown
    assert shown == listed
    for stem in sorted(shown):
        module = re.search(r"{api} ([\w.]+)", (REFERENCE / "api" / f"{stem}.md").read_text())
        assert module
        assert importlib.import_module(module[1])


def test_every_error_says_what_it_means() -> None:
    """The page shows those of files called errors.py, each with its docstring."""
    catalogues = [path for package in PACKAGES for path in (ROOT / package).rglob("errors.py")]
    assert len(catalogues) > 5
    for path in catalogues:
        module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        own = [v for v in vars(module).values() if isinstance(v, type) and v.__module__ == module.__name__]
        assert [c.__name__ for c in own if issubclass(c, BaseException) and not vars(c).get("__doc__")] == []
