"""Stand-ins for torch's other compilers: TorchScript, dynamo and inductor inside, export, symbolic shapes.

In: nothing. Out: `NAMES`. Capture is by running; nothing is scripted. Sizes that a program sees are ints.
"""

from __future__ import annotations

import operator

from compiler_core.symbolic.size import symbols_in
from distcompile.as_torch.stand_ins.kinds import StandIn, error, listed, nothing_is_one, true

_SIZES = "sizes that a program sees are ints"
_EXPORT = "exported programs are compiler_core graphs; torch.export.export makes them"
_INDUCTOR = "inductor is not here; DISTCOMPILE_DUMP shows what compile makes"
_SCRIPT = "there is no TorchScript; torch.export.export and torch.jit.trace give what can be saved"
_SHAPES = "torch.fx.experimental.symbolic_shapes"


def ignore_fuser(*args: object) -> None:
    """A setting of TorchScript's fusers, which are not here."""


def copy_to_script_wrapper(fn: object) -> object:
    """`fn`: nothing is copied into scripts."""
    return fn


NAMES: dict[str, StandIn] = {
    "torch._dynamo.utils.is_compile_supported": true(
        "compile is for the CPU", lambda device_type: device_type == "cpu"
    ),
    "torch._dynamo.exc.TensorifyScalarRestartAnalysis": nothing_is_one("numbers are guarded, or inputs"),
    "torch._inductor.cudagraph_mark_step_begin": true("no memory is kept from step to step", lambda: None),
    **listed("torch._inductor", "list_mode_options", error(_INDUCTOR)),
    "torch._inductor.cpu_vec_isa.pick_vec_isa": error(_INDUCTOR),
    "torch._inductor.runtime.cache_dir_utils.cache_dir": error(_INDUCTOR),
    "torch.compiler.load_compiled_function": error("compiled functions are kept by their cache"),
    # symbolic sizes
    **listed("torch", "SymInt SymFloat SymBool", nothing_is_one(_SIZES)),
    **listed(
        _SHAPES,
        "expect_true guard_bool guard_or_false guard_or_true statically_known_true",
        true("conditions are Python's", bool),
    ),
    f"{_SHAPES}.statically_known_false": true("conditions are Python's", operator.not_),
    f"{_SHAPES}.guard_int": true("a size that is asked for is a constant", operator.index),
    f"{_SHAPES}.sym_eq": true("sizes compare as Python's", operator.eq),
    f"{_SHAPES}.is_concrete_int": true("a size that no call decides", lambda a: not symbols_in(a)),
    f"{_SHAPES}.has_free_symbols": true("a size that the call decides", lambda val: bool(symbols_in(val))),
    **listed(_SHAPES, "free_symbols free_unbacked_symbols", true("of sizes that the call decides", symbols_in)),
    "torch.utils._sympy.numbers.IntInfinity": nothing_is_one(_SIZES),
    "torch.utils._sympy.value_ranges.ValueRanges": nothing_is_one(_SIZES),
    "torch._prims_common.is_contiguous_or_false": true(
        "is_contiguous", lambda a, memory_format=None: a.is_contiguous()
    ),
    "torch._subclasses.fake_tensor.is_fake": true("no tensor is without a value", lambda x: False),
    "torch.fx.experimental.proxy_tensor.get_proxy_mode": true("make_fx is never at work", lambda: None),
    "torch.utils._python_dispatch.is_traceable_wrapper_subclass": true(
        "no subclass is made of other tensors", lambda t: False
    ),
    # export
    "torch.export.decomp_utils.CustomDecompTable": nothing_is_one(_EXPORT),
    **listed("torch.fx._pytree", "register_pytree_flatten_spec tree_flatten_spec", error(_EXPORT)),
    # TorchScript
    "torch.TensorType": nothing_is_one("types of TorchScript"),
    **listed("torch._C", "Graph Value", nothing_is_one(_SCRIPT)),
    "torch._C._log_api_usage_once": true("usage is told to nobody", lambda name: None),
    "torch._C._get_tracing_state": true("jit.trace is never at work", lambda: None),
    **listed("torch._C", "_jit_can_fuse_on_cpu _jit_can_fuse_on_gpu", true("no script is fused", lambda: False)),
    **listed(
        "torch._C",
        "_jit_override_can_fuse_on_cpu _jit_override_can_fuse_on_gpu _jit_set_nvfuser_enabled "
        "_jit_set_nvfuser_guard_mode _jit_set_profiling_executor _jit_set_profiling_mode _jit_set_texpr_fuser_enabled",
        true("no script is fused", ignore_fuser),
    ),
    "torch._jit_internal._copy_to_script_wrapper": true("nothing is copied into scripts", copy_to_script_wrapper),
    "torch.jit._recursive.concrete_type_store.type_store": true("no types of scripts are kept", {}),
}
