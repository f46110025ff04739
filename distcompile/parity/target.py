"""What `distcompile parity TARGET` checks: a factory in a module or a script.

In: "package.module:factory" or "path/to/script.py:factory". Out: (module, inputs, loss or None).
The factory takes no arguments and returns `module, inputs` or `module, inputs, loss`; on every rank the same module,
and that rank's inputs (a Tensor, or a tuple).
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from distcompile.nn.module import Module
from distcompile.parity.errors import ParityTargetError

EXPECTED = "package.module:factory or path/to/script.py:factory"


def load_target(text: str) -> tuple[Module, tuple[Any, ...], Any]:
    """Import the target, call its factory, and check what it returns. Raises ParityTargetError."""
    place, separator, name = text.rpartition(":")
    if not separator or not place or not name:
        raise ParityTargetError(f"{text!r} names no factory", expected=EXPECTED)
    factory = getattr(_import(place), name, None)
    if not callable(factory):
        raise ParityTargetError(f"{place} has no function {name!r}", expected=EXPECTED)
    return check_made(factory, text)


def check_made(factory: Callable[[], Any], text: str) -> tuple[Module, tuple[Any, ...], Any]:
    """Call `factory`; its result as (module, inputs, loss)."""
    made = factory()
    if not (isinstance(made, tuple) and len(made) in (2, 3) and isinstance(made[0], Module)):
        raise ParityTargetError(
            f"{text} did not return what to check",
            expected="a tuple (module, inputs) or (module, inputs, loss)",
            got=type(made).__name__,
        )
    if len(made) == 3 and made[2] is not None and not callable(made[2]):
        raise ParityTargetError(
            f"{text} returned something that is no loss function in third place",
            expected="(module, inputs) or (module, inputs, loss), where inputs is a tuple if there are several",
            got=type(made[2]).__name__,
            remedy="return module, (x, y)",
        )
    inputs = made[1] if isinstance(made[1], tuple) else (made[1],)
    return made[0], inputs, made[2] if len(made) == 3 else None


def _import(place: str) -> Any:
    if not place.endswith(".py"):
        sys.path.insert(0, "")
        return importlib.import_module(place)
    path = Path(place)
    if not path.exists():
        raise ParityTargetError(f"there is no file {place}", expected=EXPECTED)
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
