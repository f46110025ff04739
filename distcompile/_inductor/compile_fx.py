"""torch._inductor.compile_fx: the default backend as a function of a graph module, for backends that end with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from distcompile.compiler import lookup_backend

__all__ = ["compile_fx", "compile_fx_inner"]


def compile_fx(model_: Any, example_inputs_: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """The module as it is now, changed by the program or not, compiled. torch's other arguments have no effect."""
    compiled: Callable[..., Any] = lookup_backend("inductor")(model_, example_inputs_)
    return compiled


compile_fx_inner = compile_fx
