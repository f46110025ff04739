"""Torch's surface: each function of distcompile's own files once, and where each public name is found.

In: the core's rows (compiler_core/names/torch_table.py). Out: `SUBMODULES`; `ROWS`, theirs and ours; `NAMES`: public
name -> row, `linalg.inv`; `TOP`: those of torch itself. What a word says: compiler_core/names/torch_rows.py. Nothing is
loaded before it is used, so that importing costs little.
"""

from __future__ import annotations

from compiler_core.names import torch_table
from compiler_core.names.torch_rows import Row, rows

_SUBMODULES = """
_C __config__ _dynamo _inductor accelerator amp autograd backends compiler cpu cuda data ddp debug demo distributed
distributions errors export fft func functional futures fx hub jit library linalg masked multiprocessing nn onnx optim
overrides parity profiler random mps mtia return_types serialization signal sparse special storage testing utils version
types xpu
"""
SUBMODULES: frozenset[str] = frozenset(_SUBMODULES.split())

# torch._foreach_f: with a twin in place, without one, and that alone
_FOREACH = """
abs_ acos_ add_ addcdiv_ addcmul_ asin_ atan_ ceil_ clamp_max_ clamp_min_ cos_ cosh_ div_ erf_ erfc_ exp_ expm1_ floor_
frac_ lerp_ lgamma_ log_ log10_ log1p_ log2_ maximum_ minimum_ mul_ neg_ pow_ reciprocal_ round_ rsqrt_ sigmoid_ sign_
sin_ sinh_ sqrt_ sub_ tan_ tanh_ trunc_ clone max mm norm powsum .copy_ .zero_
"""
FOREACH_FORMS = [
    f"_foreach_{name}"
    for word in _FOREACH.split()
    for name in dict.fromkeys((word.rstrip("_"), word) if word[0] != "." else (word[1:],))
]

_OWN: dict[str, str] = {
    "nn.functional.activations": """
        celu=nn.functional.celu rrelu=nn.functional.rrelu threshold=nn.functional.threshold
        shared: celu_ hardshrink prelu relu_ rrelu_ selu_ threshold_
        nn.functional: elu glu gumbel_softmax hardsigmoid hardswish hardtanh leaky_relu log_softmax mish relu relu6 selu
        silu softmax softmin softsign tanhshrink
        nn.functional,c: elu_ gelu hardtanh_ leaky_relu_ logsigmoid softplus softshrink
        nn.functional,silent: sigmoid tanh
    """,
    "nn.functional.attention": "nn.functional,c: scaled_dot_product_attention",
    "nn.functional.ctc": "nn.functional: ctc_loss",
    "nn.functional.embeddings": "nn.functional: embedding embedding_bag",
    "nn.functional.layers": """
        alpha_dropout=nn.functional.alpha_dropout dropout=nn.functional.dropout
        feature_alpha_dropout=nn.functional.feature_alpha_dropout
        shared: bilinear conv_tbc
        nn.functional: batch_norm dropout1d dropout2d dropout3d group_norm instance_norm layer_norm local_response_norm
        normalize pad rms_norm
        nn.functional,c: linear one_hot
    """,
    "nn.functional.losses": """
        shared: cosine_similarity pairwise_distance
        nn.functional: binary_cross_entropy binary_cross_entropy_with_logits cross_entropy huber_loss kl_div l1_loss
        linear_cross_entropy mse_loss nll_loss smooth_l1_loss
    """,
    "nn.functional.margin_losses": """
        nn.functional: cosine_embedding_loss gaussian_nll_loss hinge_embedding_loss margin_ranking_loss
        multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss poisson_nll_loss soft_margin_loss
        triplet_margin_loss triplet_margin_with_distance_loss
    """,
    "nn.functional.multihead": "nn.functional: multi_head_attention_forward",
    "nn.functional.pooling": """
        adaptive_max_pool1d:adaptive_max_pool1d_with_indices
        max_pool1d_with_indices=nn.functional.max_pool1d_with_indices
        nn.functional: adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices
        adaptive_max_pool3d_with_indices max_pool2d_with_indices max_pool3d_with_indices max_unpool1d max_unpool2d
        max_unpool3d
    """,
    "nn.functional.sampling": """
        nn.functional: fractional_max_pool2d fractional_max_pool2d_with_indices fractional_max_pool3d
        fractional_max_pool3d_with_indices
        nn.functional,silent: upsample upsample_bilinear upsample_nearest
    """,
    "surface.foreach": f"asks,exact: {' '.join(FOREACH_FORMS)}",
    "surface.limits": "asks: finfo iinfo promote_types result_type can_cast",
    "surface.asking": """
        _assert _check _check_with _check_is_size _check_value _check_index _check_type _check_not_implemented
        _check_tensor_all _check_tensor_all_with _assert_async typename
    """,
    "surface.rare": """
        expand_copy _shape_as_tensor:shape_as_tensor _softmax_backward_data:softmax_backward_data
        segment_reduce=_segment_reduce _convert_indices_from_coo_to_csr:coo_to_csr
        _convert_indices_from_csr_to_coo:csr_to_coo _grouped_mm:grouped_mm get_device_module
    """,
    "surface.determinism": """
        use_deterministic_algorithms are_deterministic_algorithms_enabled is_deterministic_algorithms_warn_only_enabled
        get_deterministic_debug_mode set_deterministic_debug_mode
    """,
    "surface.streams": "Stream Event",
    "surface.loops": "cond while_loop",
    "surface.threads": """
        get_num_threads set_num_threads get_num_interop_threads set_num_interop_threads set_flush_denormal
    """,
    "surface.mapping": "vmap",
    "surface.symbols": "sym_float sym_int sym_ite sym_max sym_min sym_not sym_sqrt sym_sum",
    "amp.autocasting": """
        autocast is_autocast_enabled is_autocast_cpu_enabled get_autocast_dtype get_autocast_gpu_dtype
        get_autocast_cpu_dtype set_autocast_enabled set_autocast_dtype is_autocast_cache_enabled set_autocast_gpu_dtype
        set_autocast_cpu_dtype set_autocast_cpu_enabled set_autocast_cache_enabled clear_autocast_cache
        autocast_increment_nesting autocast_decrement_nesting
    """,
    "_dynamo": "explain",
    "serialization": "save load save_file load_file",
    "library.namespaces": "ops",
    "backends": "get_float32_matmul_precision set_float32_matmul_precision",
    "jit": "ScriptModule",
    "futures": "Future",
}
# of later stages of the core, whose names torch's top level has and Tensor does not
_CORE: dict[str, str] = {
    "capture": "compile",
    "sparse.construct": """
        asks: sparse_coo_tensor sparse_csr_tensor sparse_csc_tensor sparse_compressed_tensor sparse_bsr_tensor
        sparse_bsc_tensor
    """,
    "sparse.products": "asks: spmm dsmm smm hspmm hsmm sspaddmm saddmm",
    "sparse.parts": "asks: _coalesce:coalesce",
    "sparse.in_place": "asks,exact: resize_as_sparse_",
}
_OTHERS: dict[str, str] = {"math": "inf nan pi e", "numpy": "newaxis"}

ROWS: tuple[Row, ...] = (
    *torch_table.ROWS,
    *rows(_CORE, "compiler_core"),
    *rows(_OWN, "distcompile"),
    *rows(_OTHERS),
)
NAMES: dict[str, Row] = {name: row for row in ROWS for name in row.names}
TOP: list[str] = sorted(name for name in NAMES if "." not in name)


def names_in(space: str) -> list[str]:
    """The names of a namespace, `linalg`, in order."""
    return sorted(name.removeprefix(f"{space}.") for name in NAMES if name.startswith(f"{space}."))
