"""`compile`: the public entry, with torch.compile's arguments.

In: a function or a module, or nothing (a decorator with arguments). Out: its compiled form.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from compiler_core import log
from compiler_core.backend import Backend, GraphCompiler, check_backend, takes_words, with_words
from compiler_core.capture.compiled.function import CompiledFunction
from compiler_core.capture.compiled.module import CompiledModule
from compiler_core.capture.guards.module_protocol import is_module, unwrapped
from compiler_core.errors import ArgumentError, ConfigError, NotCallableError

MODES = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
_OWN = ("skip_hook_guards", "fallback_random")  # options that change what is captured
_BACKENDS = {  # that modes of "codegen" are
    "reduce-overhead": "cudagraphs", "max-autotune": "tuned-cudagraphs", "max-autotune-no-cudagraphs": "tuned",
}  # fmt: skip


def compile(
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Backend | GraphCompiler = "codegen",
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    disable: bool = False,
    memory_budget: float | None = None,
    offload: float | None = None,
) -> Any:
    """Compile a function or a module; also a decorator, with or without arguments.

    It is captured at its first call, and again for a call that does not fit what was captured.

    Args:
        fullgraph: raise GraphBreak where a call cannot be captured, instead of running it eager. Graphs may end where
            they do by design: at the backward() of a DistributedDataParallel.
        dynamic: True: one capture serves all sizes from 2 on of the tensors that come with every call, as far as the
            function asks nothing of them; further sizes are lowered anew, and share code on the CPU. False: sizes are
            constants, but those that are marked (_dynamo.mark_dynamic): another shape is captured and compiled,
            up to DISTCOMPILE_RECOMPILE_LIMIT times. None: constants until they change, then symbols: a second
            capture serves the sizes from then on. DISTCOMPILE_SIZE_INSTANCES sets of them are compiled when they
            first come, others when they come often (fullgraph: all when they come).
        backend: "codegen" ("inductor" is taken for it), "aot_eager", "eager", or
            fn(graph_module, example_inputs) -> callable.
        mode: torch's. "reduce-overhead" of "codegen" is backend "cudagraphs", "max-autotune" "tuned-cudagraphs",
            "max-autotune-no-cudagraphs" "tuned": all of them change only what runs on CUDA devices.
        options: {"skip_hook_guards": True}: hooks added, changed or removed after compilation are not noticed (they
            are, by default). {"fallback_random": True}: random numbers are those that eager code draws. Torch's others
            have no effect.
        disable: give `model` back as it is.
        memory_budget: 0 to 1: which part of the memory a backward may take; what is not saved for it is computed again,
            matrix products too. A budget that cannot be kept is said, and the least is taken. None:
            DISTCOMPILE_MEMORY_BUDGET, by default 1.
        offload: 0 to 1: which part of the bytes that are saved for a backward waits for it in the host's pinned memory,
            if they are on a CUDA device: large values, spread over the forward. They travel while the device
            computes; results are the same to the bit. Elsewhere it has no effect, which is said once. None:
            DISTCOMPILE_OFFLOAD, by default 0.

    Raises: ConfigError for an unknown mode, budget or part, ArgumentError for a mode beside options, NotCallableError
    for a model that cannot be called, BackendError for an unknown backend.

    Example:
        >>> @torch.compile
        ... def one(x):
        ...     return x.sin() ** 2 + x.cos() ** 2
        >>> one(torch.zeros(3))
        tensor([1., 1., 1.])
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
            memory_budget=memory_budget,
            offload=offload,
        )
    if takes_words(backend):
        backend, mode, options = _with_words(backend, mode, options), None, _own(options)
    _check(model, mode, options, memory_budget=memory_budget, offload=offload)
    chosen = dict(options or {})
    skip_hook_guards, falls_back = (bool(chosen.pop(name, False)) for name in _OWN)
    if mode in _BACKENDS and backend in ("codegen", "inductor"):
        backend, mode = _BACKENDS[mode], None
    _say_what_has_no_effect(mode, chosen)
    check_backend(backend)
    if disable:
        return model
    original = unwrapped(model)
    kind = CompiledModule if is_module(original) else CompiledFunction
    options = {"fullgraph": fullgraph, "skip_hook_guards": skip_hook_guards, "fallback_random": falls_back}
    return kind(original, backend, **options, dynamic=dynamic, memory_budget=memory_budget, offload=offload)


def _say_what_has_no_effect(mode: str | None, options: Mapping[str, Any]) -> None:
    if options or mode not in MODES[:2]:
        log.warn_once(
            "compile mode", f"compile(): mode and options other than {' and '.join(_OWN)} have no effect here"
        )


def _own(options: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (options or {}).items() if name in _OWN}


def _with_words(backend: Any, mode: str | None, options: Mapping[str, Any] | None) -> Any:
    """A function that is a backend, given the mode= and options= of the program, if any, as torch gives them."""
    words: dict[str, Any] = {"mode": mode} if mode not in (None, "default") else {}
    if others := {name: value for name, value in (options or {}).items() if name not in _OWN}:
        words["options"] = others
    return with_words(backend, words) if words else backend


def _check(model: Any, mode: str | None, options: Mapping[str, Any] | None, **parts: float | None) -> None:
    if mode not in MODES:
        raise ConfigError(f"compile() has no mode {mode!r}", expected=", ".join(map(repr, MODES)))
    for name, part in parts.items():
        if part is not None and not 0 <= part <= 1:
            raise ConfigError(f"compile() has no {name}={part!r}", expected="a number from 0 to 1")
    if not callable(model):
        raise NotCallableError("compile() takes what can be called: a function or a module", got=repr(model))
    if mode is not None and options is not None:
        raise ArgumentError("compile() takes mode= or options=, not both", got=f"mode={mode!r}, options={options!r}")
