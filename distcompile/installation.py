"""The four import packages must come from one installation; another's package of the same name could shadow one.

In: where Python would import each package from. Out: nothing, or InstallationError naming what shadows which.
Nothing is imported for the check: only the import system's specs are looked at.
"""

from __future__ import annotations

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
                f"the import package {name!r} is shadowed: it comes from another place than {packages[0]!r}",
                expected=f"{expected}/{name}",
                got=str(place),
                remedy=f"remove or rename {place}, or take {place.parent} off sys.path (PYTHONPATH, current directory)",
            )


def _place(name: str) -> Path | None:
    """The folder of package `name`, or the file of a module of that name; None if there is neither."""
    spec = find_spec(name)
    if spec is None:
        return None
    folders = list(spec.submodule_search_locations or ())
    return Path(folders[0] if folders else spec.origin or "").resolve()
