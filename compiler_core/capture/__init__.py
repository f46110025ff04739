"""Capture: user code -> Graph + guards. `compile` is the way in.

`points.py` first (where captured code starts), then `segment.py` (from a start to its end) and `captured.py` (what
becomes of it). A segment's parts: `trace.py` (the graph, and `outside_memory.py`: tensors), `outside_objects.py` and
`contents.py` (what was there before), `record.py` (what the code changed), `arrays.py`, `differentiating.py`
(gradients within the graph), `branching.py` (both branches of torch.cond), `looping.py` (a turn of torch.while_loop),
and those of rooms. Rooms: `tracing/` notes what the program reads and changes; `guards/`, `numbers/`, `recipes/` are
what is kept of that, `polyfills/` is Python in the place of C, `compiled/` is what a user holds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from compiler_core.alive import importing

if TYPE_CHECKING:
    from compiler_core.capture.compiled.entry_point import compile
    from compiler_core.capture.compiled.function import CompiledFunction
    from compiler_core.capture.compiled.module import CompiledModule

__all__ = ["CompiledFunction", "CompiledModule", "compile"]
_PLACES = {"compile": "entry_point", "CompiledFunction": "function", "CompiledModule": "module"}


def __getattr__(name: str) -> Any:  # a program that compiles nothing loads none of it
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with importing():  # two hundred modules, whose definitions stay
        return getattr(import_module(f"compiler_core.capture.compiled.{_PLACES[name]}"), name)
