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
from typing import Any

from compiler_core import late
from compiler_core.config import check_environment
from compiler_core.torch_table import FUNCTIONS
from distcompile.installation import check_installation
from distcompile.showing import traces
from distcompile.surface.names import SOURCES, SUBMODULES
from distcompile.surface.torch_version import __version__

_LATE = {name for name in FUNCTIONS if "." not in name}  # `special.i0` is in special.py
__all__ = [*sorted(SUBMODULES), *sorted({*SOURCES, *_LATE}), "__version__", "is_tensor"]

late.LOADS["streams: of CUDA devices"] = "distcompile.cuda.streams"  # as in compiler_core/__init__.py
check_installation()
check_environment()
traces.install()


def is_tensor(obj: object) -> bool:
    """Whether `obj` is a Tensor."""
    from compiler_core.tensor.tensor import Tensor

    return isinstance(obj, Tensor)


def __getattr__(name: str) -> Any:
    if name in SUBMODULES:
        return importlib.import_module(f"distcompile.{name}")
    if name in SOURCES:
        value = _found(name, *SOURCES[name])
    elif name in _LATE:
        from compiler_core.tensor.torch_names import named

        value = _public(name, named(name))
    else:
        raise AttributeError(f"module 'distcompile' has no attribute {name!r}")
    globals()[name] = value
    return value


_OVERRIDABLE = (
    *(
        "compiler_core.ops.",
        "compiler_core.tensor.",
        "compiler_core.sparse.",
        "distcompile.surface.foreach",
        "distcompile.surface.limits",
    ),
    "distcompile.nn.functional",
)


def _found(name: str, module: str, inner: str) -> Any:
    value: Any = importlib.import_module(module)
    for part in inner.split("."):
        value = getattr(value, part)
    if module.startswith("compiler_core.ops."):
        value = _as_torchs(name, value)
    elif module.startswith("compiler_core.tensor."):
        value = importlib.import_module("compiler_core.tensor.torch_names").with_out(name, value)
    return _public(name, value) if module.startswith(_OVERRIDABLE) else value


def _public(name: str, function: Any) -> Any:
    from compiler_core.overrides.functions import SHARED, public_function

    return function if name in SHARED else public_function(function, "", name)


def _as_torchs(name: str, function: Any) -> Any:
    """A function over values under its public name: Tensors come out, views are handles of their own."""
    from compiler_core.ops.numpy_names import numpy_names
    from compiler_core.tensor.memory.own_views import SEVERAL, VIEWS, of_several, own_view
    from compiler_core.tensor.torch_names import public

    function = of_several(numpy_names(function)) if name in SEVERAL else numpy_names(function)
    return own_view(function) if name in VIEWS else public(function)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
