"""The four import packages must come from one installation; another's package of the same name could shadow one.

In: where Python would import each package from. Out: nothing, or InstallationError naming what shadows which.
Nothing is imported for the check: only the import system's specs are looked at.
Why a `launch.py` beside a program is an error, and ours is not loaded past it: a process has one module of a name. With
ours under it the program's `import launch` would be another module than the one that lies beside it.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

from distcompile.errors import InstallationError

PACKAGES = ("distcompile", "compiler_core", "collectives", "launch")


def check_installation(packages: tuple[str, ...] = PACKAGES) -> None:
    """Raises InstallationError if a package is missing or lies elsewhere than the first."""
    places = {name: _place(name) for name in packages}
    first = places[packages[0]]
    expected = first.parent if first else Path()
    for name, place in places.items():
        if place is None:
            raise InstallationError(
                f"the import package {name!r} is missing beside {packages[0]!r}",
                expected=f"{expected}/{name}",
                remedy="reinstall: pip install --force-reinstall distcompile",
            )
        if place.parent != expected:
            raise InstallationError(
                f"rename {place}: Python finds it in place of {name!r}, a package of {packages[0]!r}",
                expected=f"{expected}/{name}",
                got=str(place),
                remedy=f"give it another name, or take {place.parent} off sys.path (PYTHONPATH, the program's folder)",
            )


def _place(name: str) -> Path | None:
    """The folder of package `name`, or the file of a module of that name; None if there is neither.

    One that is loaded already, as the launcher's is in a rank, is looked for anew: another may stand before it.
    """
    spec = (PathFinder.find_spec(name) if name in sys.modules else None) or find_spec(name)
    if spec is None:
        return None
    folders = list(spec.submodule_search_locations or ())
    return Path(folders[0] if folders else spec.origin or "").resolve()
