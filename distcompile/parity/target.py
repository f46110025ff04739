"""What `distcompile parity TARGET` checks: a factory in a module or a script.

In: "package.module:factory" or "path/to/script.py:factory". Out: a `ParityTarget`.
The factory takes no arguments and returns `module, inputs`, and if it likes `loss` and `optimizer` too; on every rank
the same module, and that rank's inputs (a Tensor, or a tuple). optimizer: parameters -> Optimizer.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compiler_core.backend import check_backend
from compiler_core.errors import BackendError
from distcompile.nn.module import Module
from distcompile.parity.errors import BackendNameError, ParityTargetError
from distcompile.showing.traces import fold, has_others

EXPECTED = "package.module:factory or path/to/script.py:factory"


@dataclass(frozen=True, slots=True)
class ParityTarget:
    """What is to be checked."""

    module: Module
    inputs: tuple[Any, ...]
    loss: Any
    optimizer: Any


def load_target(text: str) -> ParityTarget:
    """Import the target, call its factory, and check what it returns. Raises ParityTargetError."""
    place, separator, name = text.rpartition(":")
    if not separator or not place or not name:
        raise ParityTargetError(f"{text!r} names no factory", expected=EXPECTED)
    try:
        module = _import(place)
    except ParityTargetError:
        raise
    except (Exception, SystemExit) as error:
        raise _failed(f"{place} cannot be imported", error) from error
    factory = getattr(module, name, None)
    if not callable(factory):
        raise ParityTargetError(f"{place} has no function {name!r}", expected=EXPECTED)
    return check_made(factory, text)


def check_backend_name(name: str) -> None:
    """Raise BackendNameError if --backend names none. Asked once the target is loaded, which may register one."""
    try:
        check_backend(name)
    except BackendError as error:
        raise BackendNameError(error.what, expected=error.expected, remedy=error.remedy) from error


def check_made(factory: Callable[[], Any], text: str) -> ParityTarget:
    """Call `factory`; its result as a target."""
    try:
        made = factory()
    except Exception as error:
        raise _failed(f"{text} raised an error", error) from error
    if not (isinstance(made, tuple) and len(made) in (2, 3, 4) and isinstance(made[0], Module)):
        raise ParityTargetError(
            f"{text} did not return what to check",
            expected="a tuple (module, inputs), (module, inputs, loss) or (module, inputs, loss, optimizer)",
            got=type(made).__name__,
        )
    loss, optimizer = (*made[2:], None, None)[:2]
    for what, value in (("loss function in third", loss), ("optimizer factory in fourth", optimizer)):
        if value is not None and not callable(value):
            raise ParityTargetError(
                f"{text} returned something that is no {what} place",
                expected="(module, inputs) or (module, inputs, loss), where inputs is a tuple if there are several",
                got=type(value).__name__,
                remedy="return module, (x, y)",
            )
    inputs = made[1] if isinstance(made[1], tuple) else (made[1],)
    return ParityTarget(made[0], inputs, loss, optimizer)


def _failed(what: str, error: BaseException) -> ParityTargetError:
    """An error of the user's own, which is the cause of ours."""
    return ParityTargetError(what, got=f"{type(error).__name__}: {error}".splitlines()[0])


def users_traceback(error: ParityTargetError) -> str:
    """The user's own error as Python prints it, without our frames; empty if the target failed for another reason."""
    own = error.__cause__
    if own is None:
        return ""
    fold(own)
    return "".join(traceback.format_exception(type(own), own, own.__traceback__ if has_others(own) else None))


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
