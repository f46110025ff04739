"""The four import packages must come from one installation; another's package of the same name could shadow one.

In: where Python would import each package from. Out: nothing, or InstallationError naming which folder shadows which.
Nothing is imported for the check: only the import system's specs are looked at.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from distcompile.errors import InstallationError

PACKAGES = ("distcompile", "compiler_core", "collectives", "launch")


def check_installation(packages: tuple[str, ...] = PACKAGES) -> None:
    """Raises InstallationError if a package is missing or lies elsewhere than the first."""
    homes = {name: _home(name) for name in packages}
    expected = homes[packages[0]]
    for name, home in homes.items():
        if home is None:
            raise InstallationError(
                f"the import package {name!r} is missing beside {packages[0]!r}",
                expected=f"{expected}/{name}",
                remedy="reinstall: pip install --force-reinstall distcompile",
            )
        if home != expected:
            raise InstallationError(
                f"the import package {name!r} is shadowed: it comes from another place than {packages[0]!r}",
                expected=f"{expected}/{name}",
                got=f"{home}/{name}",
                remedy=f"remove or rename {home}/{name}, or take {home} off sys.path (PYTHONPATH, current directory)",
            )


def _home(name: str) -> Path | None:
    """The folder that holds package `name`, or None."""
    spec = find_spec(name)
    if spec is None:
        return None
    places = list(spec.submodule_search_locations or ())
    return Path(places[0] if places else spec.origin or "").resolve().parent
