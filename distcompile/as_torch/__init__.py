"""torch under its own name: scripts and libraries that say `import torch` get distcompile, each module loaded once.

    python -m distcompile.as_torch script.py arguments...      python -m distcompile.as_torch -m module arguments...
    distcompile-run --as-torch -n 4 script.py arguments...

In: a script as its author wrote it. Out: the script runs; `torch.nn` is `distcompile.nn`, the same object. What torch
has and distcompile has not is a named error with the user's line, or stands in `table.py`, which says of each name what
it does. `install()` does the same inside a process (a notebook, a test).
"""

from __future__ import annotations

from distcompile.as_torch.errors import AsTorchError, MissingModuleError, MissingNameError, NameImportError
from distcompile.as_torch.finder import install, is_installed

__all__ = [
    "AsTorchError",
    "MissingModuleError",
    "MissingNameError",
    "NameImportError",
    "install",
    "is_installed",
]
