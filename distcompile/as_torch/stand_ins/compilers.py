"""Stand-ins for torch's other compilers and tracers: TorchScript, fx, dynamo.

In: nothing. Out: `NAMES`. `distcompile.compile` captures by running; nothing is scripted or traced symbolically.
"""

from __future__ import annotations

from distcompile.as_torch.stand_ins.kinds import StandIn, listed, nothing_is_one, true

_FX = "there is no symbolic tracer; compile captures by running"

NAMES: dict[str, StandIn] = {
    "torch._dynamo.utils.is_compile_supported": true(
        "compile is for the CPU", lambda device_type: device_type == "cpu"
    ),
    "torch._C._log_api_usage_once": true("usage is told to nobody", lambda name: None),
    "torch._C._get_tracing_state": true("jit.trace is never at work", lambda: None),
    **listed("torch.fx", "GraphModule Graph Node Tracer Proxy Interpreter Transformer", nothing_is_one(_FX)),
}
