"""Capture: user code -> Graph + guards. `compile` is the way in."""

from __future__ import annotations

from compiler_core.capture.compiled_function import CompiledFunction
from compiler_core.capture.compiled_module import CompiledModule
from compiler_core.capture.entry_point import compile

__all__ = ["CompiledFunction", "CompiledModule", "compile"]
