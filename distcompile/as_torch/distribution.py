"""What `importlib.metadata` tells of "torch": libraries ask it whether torch is installed, and which.

In: nothing. Out: a distribution with a name, a version, and the import name it brings.
"""

from __future__ import annotations

import os
from importlib.metadata import Distribution
from typing import Any

from distcompile.surface.torch_version import __version__

_TEXTS = {
    "METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {__version__}\n"
    "Summary: distcompile under torch's name\n",
    "top_level.txt": "torch\n",
}


class TorchDistribution(Distribution):
    """The distribution "torch": texts, no files."""

    def read_text(self, filename: str) -> str | None:
        """One of its texts."""
        return _TEXTS.get(filename)

    def locate_file(self, path: str | os.PathLike[str]) -> Any:
        """Raises FileNotFoundError: it has no files."""
        raise FileNotFoundError(f"distcompile under torch's name has no file {path}")
