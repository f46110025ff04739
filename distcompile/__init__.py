"""distcompile: data-parallel training, compiled. `import distcompile as torch` runs a model file written for torch.

In: a model of `distcompile.nn`, wrapped in `DistributedDataParallel`, given to `compile`. Out: training steps whose
gradient all-reduces run while the compiled backward computes.

This file is the public namespace and nothing else. Names are loaded at first use (`surface/names.py` says from where);
a check that the four import packages belong together runs first (`installation.py`). Errors that nobody catches are
printed without our own frames (`showing/traces.py`).

What the project exists for: `ddp/`, `tuning/`, `parity/`, `watchdog/`, `demo/`; and `commands/`, `showing/`, `cli.py`,
`check.py`, `debug.py`, `engine_build.py`, `errors.py`, `installation.py`, `run.py`. All else is torch's surface: the
other files here are over 25 because each is one of torch's import paths (`torch.linalg` is `linalg.py`), and so are the
other folders (`nn/`, `optim/`, `cuda/`, ...). What stands behind torch's top level is in `surface/`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from compiler_core import late
from compiler_core.config import check_environment
from distcompile.installation import check_installation
from distcompile.showing import traces
from distcompile.surface import moved
from distcompile.surface.torch_version import __version__ as __version__

if TYPE_CHECKING:
    from compiler_core.names.torch_rows import Row

late.LOADS |= {  # as in compiler_core/__init__.py
    "streams: of CUDA devices": "distcompile.cuda.streams",
    "backend: graph as a module": "distcompile.fx.of_compiler",
    "operators: run one of the program's": "distcompile.library.whole",
}
check_installation()
check_environment()
traces.install()
moved.install()


def is_tensor(obj: object) -> bool:
    """Whether `obj` is a Tensor."""
    from compiler_core.tensor.tensor import Tensor

    return isinstance(obj, Tensor)


def __getattr__(name: str) -> Any:
    from distcompile.surface.names import NAMES, SUBMODULES, TOP  # a thousand rows, read when the first is asked for

    if name in SUBMODULES:
        return importlib.import_module(f"distcompile.{name}")
    if name == "__all__":
        value: Any = [*sorted(SUBMODULES), *TOP, "__version__", "is_tensor"]
    elif name in NAMES:
        value = _found(NAMES[name], name)
    else:
        raise AttributeError(f"module 'distcompile' has no attribute {name!r}")
    globals()[name] = value
    return value


def _found(row: Row, name: str) -> Any:
    from distcompile.surface.found import found

    if "shared" in row.kinds:
        return getattr(importlib.import_module("distcompile.nn.functional"), name)
    return found(row, "", name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
