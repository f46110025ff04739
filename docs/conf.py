"""The site: `pip install ".[docs]" && python -m sphinx -W docs build/site`, as CI builds it.

In: the Markdown pages of this folder, and the code (docs/extensions/). Out: HTML; nothing of it needs a network.
Why Sphinx is said on the page Contributing.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version as version_of
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

os.environ.pop("XDG_CACHE_HOME", None)  # the knobs' defaults are a user's, not the builder's

project = "distcompile"
release = version = version_of("distcompile")
copyright = "the distcompile authors, Apache 2.0"

extensions = ["myst_parser", "from_code", "rooms"]
exclude_patterns = ["extensions", "pictures/*.py"]
source_suffix = {".md": "markdown"}
nitpicky = True  # a reference that leads nowhere is a warning, and warnings are errors
nitpick_ignore_regex = [("py:.*", ".*")]  # but for types in signatures
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = "distcompile"
html_static_path: list[str] = []
