"""Capture: user code -> Graph + guards. `compile` is the way in; it loads the compiler at the first call."""

from __future__ import annotations

from compiler_core.capture.compiled_function import CompiledFunction, compile

__all__ = ["CompiledFunction", "compile"]
