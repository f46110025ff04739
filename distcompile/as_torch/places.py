"""Where torch's private files have what stands elsewhere here: full name -> our module and the name in it.

In: nothing. Out: `PLACES`, `MODULES` (what stands before the dots of their names), `found(place)`. These are the real
things, as table.py's stand-ins are not. Invariant: a test loads each, and finds it under torch's name in torch too.
"""

from __future__ import annotations

import importlib
from typing import Any

_PRIVATE = {
    "distributions.transforms": {"distcompile.distributions.transform": "_InverseTransform:_Inverse"},
    "optim.optimizer": {
        "distcompile.optim.kinds": "_default_to_fused_or_foreach:default_to_fused_or_foreach "
        "_get_capturable_supported_devices:capturable_supported_devices "
        "_use_grad_for_differentiable:use_grad_for_differentiable",
    },
    "distributed": {"distcompile.distributed.group": "_rank_not_in_group:not_in"},
    "distributed.distributed_c10d": {"distcompile.distributed.group": "_get_default_group:default_group"},
    "distributed.utils": {"distcompile.ddp.model_state": "_sync_module_states:sync_module_states"},
    "nn.functional": {"distcompile.surface.rare": "grouped_mm"},
    "_higher_order_ops": {"distcompile.surface.loops": "associative_scan cond map scan while_loop"},
    **{
        f"_higher_order_ops.{name}": {"distcompile.surface.loops": name}
        for name in ("associative_scan", "cond", "map", "scan", "while_loop")
    },
    "_C": {"distcompile.surface.rare": "_get_accelerator:accelerator _get_default_device:default_device_type"},
    "_ops": {
        "distcompile.library.operators": "OpOverload OpOverloadPacket",
        "distcompile.library.namespaces": "_OpNamespace:OpNamespace _Ops:Ops ops",
    },
    "_library.infer_schema": {"distcompile.library.inference": "infer_schema"},
    "_library.custom_ops": {"distcompile.library.custom_ops": "CustomOpDef custom_op"},
    "fx.experimental.symbolic_shapes": {
        "compiler_core.errors": "ConstraintViolationError GuardOnDataDependentSymNode:UnknownSizeError",
    },
    "compiler._cache": {"distcompile.surface.artefacts": "CacheInfo"},
    "_dynamo.backends.common": {"distcompile._dynamo.aot": "aot_autograd"},
    "_dynamo.backends.registry": {"distcompile.compiler": "list_backends lookup_backend register_backend"},
    "fx.experimental.proxy_tensor": {"distcompile.fx.tracing": "make_fx"},
    "_functorch.aot_autograd": {"distcompile._dynamo.aot": "aot_module_simplified make_boxed_func"},
    "_decomp": {"distcompile._dynamo.aot": "core_aten_decompositions get_decompositions"},
    "_dynamo.exc": {"compiler_core.errors": "Unsupported:GraphBreak"},
    "amp.autocast_mode": {"distcompile.amp.autocasting": "_cast autocast custom_bwd custom_fwd"},
    "_C._nn": {"distcompile.nn.module": "_parse_to:parse_to"},
    "autograd.profiler": {"distcompile.profiler.records": "EventList:Events FunctionEvent"},
    "profiler.profiler": {"distcompile.profiler": "_default_schedule_fn:_always profile schedule ProfilerAction"},
    "utils._pytree": {"compiler_core.trees": "_get_node_type:node_type"},
    "_tensor_str": {
        "compiler_core.tensor.printing": "PRINT_OPTS:OPTIONS _add_suffixes:with_suffixes _str_intern:format_tensor "
        "_tensor_str:format_contents printoptions set_printoptions",
    },
    "nn.init": {"distcompile.nn.init": "_no_grad_uniform_:uniform_ _no_grad_normal_:normal_"},
    "_utils": {
        "distcompile.surface.flat": "_flatten_dense_tensors:flatten_dense_tensors _take_tensors:take_tensors "
        "_unflatten_dense_tensors:unflatten_dense_tensors",
        "distcompile.surface.rare": "_element_size:element_size _get_device_index:device_index",
    },
}

PLACES: dict[str, str] = {
    f"torch.{module}.{name.partition(':')[0]}": f"{ours}:{name.partition(':')[2] or name}"
    for module, sources in _PRIVATE.items()
    for ours, names in sources.items()
    for name in names.split()
} | {
    "torch.torch": "distcompile:",
    "functorch.experimental.control_flow.cond": "distcompile.surface.loops:cond",
    "functorch.experimental.control_flow.map": "distcompile.surface.loops:map",
    **{
        f"functorch.{name}": f"distcompile.func:{name}"
        for name in ("grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "vjp", "vmap")
    },
    **{
        f"functorch.compile.{name}": f"distcompile._dynamo.aot:{name}"
        for name in (
            "aot_function",
            "default_partition",
            "make_boxed_compiler",
            "make_boxed_func",
            "min_cut_rematerialization_partition",
            "nop",
        )
    },
    "functorch.compile.aot_module": "distcompile._dynamo.aot:aot_function",
    "functorch.make_fx": "distcompile.fx.tracing:make_fx",
    "torch._dynamo.eval_frame.OptimizedModule": "compiler_core.capture:CompiledModule",
}

MODULES = frozenset(".".join(name.split(".")[:end]) for name in PLACES for end in range(1, name.count(".") + 1))


def found(place: str) -> Any:
    """What stands at "module:name", or the module."""
    module, _, names = place.partition(":")
    value: Any = importlib.import_module(module)
    for name in names.split(".") if names else ():
        value = getattr(value, name)
    return value
