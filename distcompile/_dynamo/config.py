"""torch._dynamo.config: the limit of recompiles and what is said of sizes are knobs of ours."""

from __future__ import annotations

from typing import Any

from distcompile.surface.settings import hold

_OFF = """
verbose capture_scalar_outputs capture_dynamic_output_shape_ops allow_unspec_int_on_nn_module
skip_fwd_side_effects_in_bwd_under_checkpoint specialize_int specialize_float error_on_recompile allow_rnn
fail_on_recompile_limit_hit compiled_autograd disable cprofile replay_record_enabled enable_compiler_collectives
verify_correctness prepare_freezing use_numpy_random_stream
"""
_ON = """
dynamic_shapes optimize_ddp guard_nn_modules inline_inbuilt_nn_modules skip_nnmodule_hook_guards trace_numpy
rewrite_assert_with_torch_assert report_guard_failures force_parameter_static_shapes
"""
_DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(_OFF.split(), False), **dict.fromkeys(_ON.split(), True),
    "accumulated_recompile_limit": 256, "accumulated_cache_size_limit": 256, "log_file_name": None,
    "reorderable_logging_functions": set(),
}  # fmt: skip


def __getattr__(name: str) -> Any:  # for readers of this file alone: `hold` puts settings in its place
    raise AttributeError(name)


_KNOBS = (
    "recompile_limit",
    "automatic_dynamic_shapes",
    "assume_static_by_default",
    "allow_ignore_mark_dynamic",
    "repro_after",
    "repro_level",
    "suppress_errors",
)
hold(__name__, _DEFAULTS, {"cache_size_limit": "recompile_limit"} | {name: name for name in _KNOBS})
