"""Public functions as overridable ones: `torch.add`, `torch.linalg.norm`, `nn.functional.relu`.

In: a function, the namespace that it is public in, its name there. Out: an object of its own that does the same, and
asks from the start, for the first argument that overrides may be of a class that is no Tensor (a proxy, a lazy matrix).
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from compiler_core.names.spelling import spelled
from compiler_core.names.torch_rows import Row
from compiler_core.overrides.calls import Entry
from compiler_core.overrides.switch import ENTRIES, copy_of, overridable

_PREFIXED = ("linalg", "fft", "special")  # torch.linalg.norm calls itself linalg_norm
_public: list[FunctionType] = []


def public_function(function: Any, space: str, name: str, row: Row | None = None) -> Any:
    """`function` as it is public under `name` in torch's namespace `space` ("" for torch, "linalg", "nn.init").

    row: what the tables say of it; None: it is in none, and torch has it in Python.
    """
    if not isinstance(function, FunctionType):
        return function
    if id(function) in ENTRIES:
        function = ENTRIES[id(function)].origin
    own = copy_of(function, f"{space}_{name}" if space in _PREFIXED else name)
    own.__qualname__, own.__module__ = name, spelled(space) if space else spelled("")[:-1]
    is_torchs = not space or (row is not None and "shared" in row.kinds)
    entry = Entry(own, function, f"torch.{name}" if is_torchs else f"torch.{space}.{name}")
    entry.in_python = _is_in_python("" if is_torchs else space, row)
    entry.all_by_name = space == "nn.init"
    entry.is_for_modes = row is not None and "modes" in row.kinds
    overridable(own, entry, at_once=True)
    _public.append(own)
    return own


def call_modules() -> None:
    """The library goes by another name from now on (`spelling.py`): so do the modules of its public functions."""
    for function in _public:
        _, _, space = function.__module__.partition(".")
        function.__module__ = spelled(space) if space else spelled("")[:-1]


def _is_in_python(space: str, row: Row | None) -> bool:
    """Whether torch has it in Python: see `calls.py`."""
    if row is None:
        return space in ("nn.init", "autograd")
    return "c" not in row.kinds if space == "nn.functional" else row.is_python and not space


def make_functions_overridable(namespace: dict[str, Any], names: list[str], space: str) -> None:
    """Put overridable functions in the place of those in `namespace`."""
    for name in names:
        namespace[name] = public_function(namespace[name], space, name)
