"""The user's program, run in this process as the interpreter would run it, with distcompile in torch's place.

In: `-m MODULE ARGS` or `SCRIPT ARGS`. Out: the program has run as `__main__`.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from distcompile.as_torch.errors import AsTorchError
from distcompile.as_torch.finder import OF_TORCHS_LIBRARY, install, is_installed

USAGE = "usage: python -m distcompile.as_torch (-m MODULE | SCRIPT) [arguments...]"


def run(words: list[str]) -> None:
    """Run the program. Raises AsTorchError if torch is loaded, or distcompile in its place already; SystemExit(2)."""
    if not words or words == ["-m"] or (words[0].startswith("-") and words[0] != "-m"):
        print(USAGE, file=sys.stderr)
        raise SystemExit(0 if words[:1] in (["-h"], ["--help"]) else 2)
    if is_installed():
        raise AsTorchError(
            "the program is started under torch's name twice", got=" ".join(words),
            remedy="once is enough: leave --as-torch, or -m distcompile.as_torch, away",
        )  # fmt: skip
    install()
    try:
        if words[0] == "-m":
            _run_module(words[1], words[2:])
        else:
            _run_script(words[0], words[1:])
    except ModuleNotFoundError as error:
        if error.name in OF_TORCHS_LIBRARY:
            error.add_note(f"{error.name} needs torch's C++ library, so it is as not installed under torch's name here")
        raise


def _run_script(path: str, arguments: list[str]) -> None:
    """`python path arguments...`."""
    if not os.path.isfile(path):
        raise SystemExit(f"python -m distcompile.as_torch: there is no file {path!r} in {os.getcwd()}")
    sys.argv[:] = [path, *arguments]
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    code = compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
    exec(code, vars(_new_main(path, None)))


def _run_module(name: str, arguments: list[str]) -> None:
    """`python -m name arguments...`."""
    sys.argv[:] = [name, *arguments]
    sys.path[0] = os.getcwd()
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    loader: Any = spec.loader if spec is not None else None
    if spec is None or loader is None:
        raise ModuleNotFoundError(f"no module {name!r} that can be run", name=name)
    sys.argv[0] = spec.origin or name
    main = _new_main(sys.argv[0], spec)
    main.__package__ = spec.parent
    exec(loader.get_code(spec.name), vars(main))


def _new_main(path: str, spec: Any) -> ModuleType:
    """A fresh `__main__`, in place."""
    main = ModuleType("__main__")
    vars(main).update(__file__=path, __builtins__=__builtins__, __spec__=spec)
    sys.modules["__main__"] = main
    return main
