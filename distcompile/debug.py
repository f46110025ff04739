"""Looking inside: what the compiler made, how long it took, and where a compiled step spends its time.

In: nothing. Out: `compile_times()`, `profiling()`, `config` (all knobs; `config.patch` overrides them in a block),
`knobs()`, `peak_memory()`, `timeline()`. What a compiled function did: `compiled.explain()`.
From outside: DISTCOMPILE_DEBUG=1..5, DISTCOMPILE_LOGS=guards,fusion,..., DISTCOMPILE_DUMP=directory.
"""

from compiler_core.config import Config, config
from compiler_core.runtime.profiler import profiling
from compiler_core.runtime.resident import peak_memory
from compiler_core.showing.timeline import Timeline
from compiler_core.steps import StepTime, compile_times
from compiler_core.timeline import marks

__all__ = ["StepTime", "Timeline", "compile_times", "config", "knobs", "peak_memory", "profiling", "timeline"]


def timeline() -> Timeline:
    """What this process compiled so far, and when: print it, or `save(path)` it for ui.perfetto.dev."""
    return Timeline(marks())


def knobs() -> str:
    """Every knob: environment variable, value here, what it does."""
    rows = [(knob.env, repr(getattr(config, name)), knob.__doc__ or "") for name, knob in Config.knobs().items()]
    width = max(len(env) for env, _, _ in rows)
    return "\n".join(f"{env:<{width}}  {doc} (now {value})" for env, value, doc in rows)
