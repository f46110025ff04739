"""The user's program, run in this process as the interpreter would run it.

In: what follows the launcher's options: `-m MODULE ARGS`, `SCRIPT ARGS`, or a command line for --no-python. Out: the
program has run as `__main__`. The launcher's own modules are forgotten before: a user's `launch.py` wins.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import types
from pathlib import Path


def run(program: list[str], *, python: bool = True) -> None:
    """`python -m MODULE`, `python SCRIPT`, or, not `python`, the program itself. Raises what the program raises."""
    forget_launcher()
    if not python:
        os.execvp(program[0], program)
    elif program[0] == "-m":
        run_module(program[1], program[2:])
    else:
        run_script(program[0], program[1:])


def run_script(path: str, arguments: list[str]) -> None:
    """`python path arguments...`."""
    sys.argv[:] = [path, *arguments]
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    source = Path(path).read_bytes()
    main = new_main(path, None)
    exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)


def run_module(name: str, arguments: list[str]) -> None:
    """`python -m name arguments...`."""
    sys.argv[:] = [name, *arguments]
    sys.path[0] = os.getcwd()
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"no module {name!r} that can be run", name=name)
    code = spec.loader.get_code(spec.name)  # type: ignore[attr-defined]
    sys.argv[0] = spec.origin or name
    main = new_main(sys.argv[0], spec)
    main.__package__ = spec.parent
    exec(code, main.__dict__)


def new_main(path: str, loader_spec: object) -> types.ModuleType:
    """A fresh `__main__`, in place."""
    main = types.ModuleType("__main__")
    main.__file__ = path
    main.__builtins__ = __builtins__  # type: ignore[attr-defined]
    main.__spec__ = loader_spec  # type: ignore[assignment]
    sys.modules["__main__"] = main
    return main


def forget_launcher() -> None:
    """Leave no trace of this package to the user's imports."""
    for name in [name for name in sys.modules if name == "launch" or name.startswith("launch.")]:
        del sys.modules[name]
