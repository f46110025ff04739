"""By what name printed values call the library: `distcompile.float32`, or `torch.float32` under `--as-torch`.

In: `call_library`, once, by who answers `import torch`. Out: `spelled("float32")`, and the text of a named result.
Scripts take such texts apart (`str(dtype)[6:]`, `eval(repr(dtype))`), print shapes and compare with what they printed
under torch.
"""

from __future__ import annotations

from typing import Any

OWN = "distcompile"
_library = OWN
RETURN_TYPES = f"{OWN}.return_types"  # the module of named results


def call_library(name: str) -> None:
    """From now on printed values call the library `name`."""
    global _library
    _library = name


def spelled(name: str) -> str:
    """`name` with the library before it."""
    return f"{_library}.{name}"


def result_text(name: str, result: Any) -> str:
    """What a named tuple prints that torch calls return_types.`name`."""
    members = ",\n".join(f"{field}={value!r}" for field, value in zip(result._fields, result, strict=True))
    return f"{spelled(f'return_types.{name}')}(\n{members})"


def is_own() -> bool:
    """Whether the library goes by its own name."""
    return _library == OWN
