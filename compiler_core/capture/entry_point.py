"""`compile`: the public entry, with torch.compile's arguments.

In: a function or a module, or nothing (a decorator with arguments). Out: its compiled form.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from compiler_core import log
from compiler_core.backend import Backend, GraphCompiler, check_backend
from compiler_core.capture.compiled_function import CompiledFunction
from compiler_core.capture.compiled_module import CompiledModule
from compiler_core.capture.module_protocol import is_module, unwrapped
from compiler_core.errors import ConfigError

MODES = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def compile(
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Backend | GraphCompiler = "codegen",
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """Compile a function or a module; also a decorator, with or without arguments.

    fullgraph: raise GraphBreak where a call cannot be captured, instead of running it eager. dynamic: None or False
    (sizes are static: another shape compiles again). backend: "codegen" ("inductor" is taken for it), "aot_eager",
    "eager", or fn(graph, example_inputs) -> callable. mode: torch's;
    "reduce-overhead" of "codegen" is backend "cudagraphs", the others have no effect.
    options: {"skip_hook_guards": True}: hooks added, changed or removed after compilation are not noticed (they are, by
    default); torch's others have no effect.
    disable: give `model` back as it is.
    Raises ConfigError for dynamic=True or an unknown mode, BackendError for an unknown backend.
    """
    if model is None:
        return functools.partial(
            compile,
            fullgraph=fullgraph,
            dynamic=dynamic,
            backend=backend,
            mode=mode,
            options=options,
            disable=disable,
        )
    if dynamic:
        raise ConfigError("dynamic=True: graphs with symbolic sizes are not supported", expected="None or False")
    if mode not in MODES:
        raise ConfigError(f"compile() has no mode {mode!r}", expected=", ".join(map(repr, MODES)))
    chosen = dict(options or {})
    skip_hook_guards = bool(chosen.pop("skip_hook_guards", False))
    if mode == "reduce-overhead" and backend in ("codegen", "inductor"):
        backend, mode = "cudagraphs", None
    if chosen or mode not in MODES[:2]:
        log.warn_once("compile mode", "compile(): mode and options other than skip_hook_guards have no effect here")
    check_backend(backend)
    if disable:
        return model
    original = unwrapped(model)
    kind = CompiledModule if is_module(original) else CompiledFunction
    return kind(original, backend, fullgraph=fullgraph, skip_hook_guards=skip_hook_guards)
