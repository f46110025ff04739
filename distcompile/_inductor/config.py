"""torch._inductor.config: `fallback_random` is our knob of that name."""

from __future__ import annotations

from typing import Any

from distcompile.surface.settings import hold

_OFF = """
max_autotune max_autotune_gemm max_autotune_pointwise freezing coordinate_descent_tuning debug conv_1x1_as_mm
benchmark_kernel dce cpp_wrapper force_fuse_int_mm_with_mul permute_fusion verbose_progress force_disable_caches
aggressive_fusion group_fusion b2b_gemm_pass emulate_precision_casts search_autotune_cache autotune_in_subproc
coordinate_descent_check_all_directions profile_bandwidth comment_origin nan_asserts deterministic is_predispatch
"""
_ON = """
epilogue_fusion fx_graph_cache shape_padding use_mixed_mm layout_optimization size_asserts pattern_matcher
reorder_for_locality joint_graph_constant_folding keep_output_stride implicit_fallbacks online_softmax split_reductions
assert_indirect_indexing static_weight_shapes
"""
_DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(_OFF.split(), False), **dict.fromkeys(_ON.split(), True),
    "max_autotune_gemm_backends": "ATEN,TRITON,CPP", "post_grad_custom_pre_pass": None,
    "worker_start_method": "subprocess", "unroll_reductions_threshold": 8,
    "triton": {"cudagraphs": False, "cudagraph_trees": True, "unique_kernel_names": True, "store_cubin": False},
    "cpp": {"threads": -1, "simdlen": None, "enable_kernel_profile": False, "weight_prepack": True},
    "trace": {"enabled": False, "graph_diagram": False},
}  # fmt: skip


def __getattr__(name: str) -> Any:  # for readers of this file alone: `hold` puts settings in its place
    raise AttributeError(name)


hold(__name__, _DEFAULTS, {"fallback_random": "fallback_random"})
