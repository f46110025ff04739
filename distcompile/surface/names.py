"""Where each public name of `distcompile` comes from: loaded at first use, so that importing costs little.

In: nothing. Out: `SUBMODULES`, and `SOURCES`: public name -> (module, name in it). The public names are torch's.
"""

from __future__ import annotations

_SUBMODULES = """
_C __config__ _dynamo _inductor accelerator amp autograd backends compiler cpu cuda data ddp debug demo distributed
distributions errors fft func functional futures fx hub jit library linalg masked multiprocessing nn optim overrides
parity profiler random mps mtia return_types serialization signal sparse special storage testing utils version types
xpu
"""
SUBMODULES: frozenset[str] = frozenset(_SUBMODULES.split())

_FUNCTIONS = """
abs add addcdiv addcmul addmm all amax amin any argmax argmin baddbmm bitwise_and bitwise_not bitwise_or
bitwise_xor bmm broadcast_tensors cat ceil chunk clamp clip concat concatenate cos cosh count_nonzero
cumsum detach diag div dot einsum embedding erf erfc exp exp2 expm1 flatten flip float_power floor floor_divide fmod
frac gather group_norm index_add index_copy index_select isclose isfinite isinf isnan layer_norm lerp log
log10 log1p log2 log_softmax logical_and logical_not logical_or logical_xor logsumexp masked_fill matmul
max maximum mean min minimum mm moveaxis movedim mul mv nan_to_num narrow neg norm outer permute positive pow prod
ravel reciprocal relu remainder repeat_interleave reshape rms_norm roll round rsqrt rsub scatter scatter_add select
selu sigmoid sign sin sinh softmax split sqrt square squeeze stack std sub sum swapaxes swapdims t take_along_dim tan
tanh tile transpose tril triu true_divide trunc unbind unflatten unsqueeze var var_mean
eq ne lt le gt ge less:lt less_equal:le greater:gt greater_equal:ge not_equal:ne
absolute:abs subtract:sub multiply:mul divide:div negative:neg fix:trunc
"""

_CREATION = """
arange empty empty_like eye full full_like linspace ones ones_like tensor zeros
zeros_like
"""

_RANDOM_CREATION = "bernoulli normal rand rand_like randint randint_like randn randn_like randperm"

_METHODS = """
allclose clone narrow_copy equal is_floating_point numel clamp_min clamp_max is_complex is_conj is_nonzero is_signed
abs_ acos_ acosh_ addmv_ arccos_ arccosh_ arcsin_ arcsinh_ arctan_ arctanh_ asin_ asinh_ atan_ atanh_ ceil_ clamp_
clamp_max_ clamp_min_ clip_ conj_physical_ cos_ cosh_ deg2rad_ detach_ erf_ erfc_ exp2_ exp_ expm1_ fill_ fix_ floor_
frac_ gcd_ i0_ index_put_ lcm_ ldexp_ log10_ log1p_ log2_ log_ logit_ nan_to_num_ neg_ negative_ rad2deg_ reciprocal_
round_ rsqrt_ sigmoid_ sin_ sinc_ sinh_ sqrt_ square_ tan_ tanh_ trunc_ xlogy_ zero_
"""  # of Tensor, as functions

_FOREACH = """
abs acos add addcdiv addcmul asin atan ceil clamp_max clamp_min cos cosh div erf erfc exp expm1 floor frac lerp lgamma
log log10 log1p log2 maximum minimum mul neg pow reciprocal round rsqrt sigmoid sign sin sinh sqrt sub tan tanh trunc
"""  # each with its in-place form
_FOREACH_ALONE = "clone max mm norm powsum copy_ zero_"

_DTYPES = """
float64 double:float64 float32 float:float32 float16 half:float16 bfloat16 int64 long:int64 int32 int:int32 int16
short:int16 int8 uint64 uint32 uint16 uint8 bool:bool_ complex64 cfloat:complex64 complex128 cdouble:complex128
complex32 chalf:complex32 uint1 uint2 uint3 uint4 uint5 uint6 uint7 int1 int2 int3 int4 int5 int6 int7
float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2
dtype:DType get_default_dtype set_default_dtype
"""

_OTHERS = {
    "compiler_core.tensor.tensor": "Tensor Size",
    "compiler_core.tensor.autograd.anomaly": "is_anomaly_enabled is_anomaly_check_nan_enabled",
    "compiler_core.tensor.autograd.grad_mode": (
        "no_grad enable_grad set_grad_enabled inference_mode is_grad_enabled is_inference_mode_enabled"
    ),
    "compiler_core.tensor.making.random": (
        "Generator default_generator manual_seed seed initial_seed get_rng_state set_rng_state"
    ),
    "compiler_core.device": "device:Device get_default_device set_default_device",
    "compiler_core.tensor.making.placement": "as_tensor:as_placed",
    "compiler_core.tensor.memory.borrowing": "asarray from_file from_numpy frombuffer",
    "compiler_core.capture": "compile",
    "compiler_core.errors": "OutOfMemoryError:CudaMemoryError",
    "distcompile._dynamo": "explain",
    "distcompile.serialization": "save load save_file load_file",
    "compiler_core.ops.sorting.composite": "sort argsort msort topk kthvalue median nanmedian",
    "compiler_core.tensor.selection": "nonzero argwhere:nonzero where unique bincount multinomial",
    "compiler_core.tensor.making.rejection_draws": (
        "poisson binomial _standard_gamma:standard_gamma _standard_gamma_grad:standard_gamma_grad "
        "_sample_dirichlet:sample_dirichlet"
    ),
    "compiler_core.tensor.methods.indexing": "index_put masked_select",
    "compiler_core.tensor.printing": "set_printoptions",
    "compiler_core.tensor.methods.derived": "aminmax broadcast_to diagonal nanmean nansum trace",
    "compiler_core.ops.pooling.composite": "max_pool1d max_pool2d max_pool3d",
    "distcompile.nn.functional.pooling": "adaptive_max_pool1d:adaptive_max_pool1d_with_indices max_pool1d_with_indices",
    "compiler_core.tensor.making.legacy_types": (
        "FloatTensor DoubleTensor HalfTensor BFloat16Tensor LongTensor IntTensor ShortTensor CharTensor ByteTensor "
        "BoolTensor set_default_tensor_type"
    ),
    "distcompile.nn.functional": (
        "alpha_dropout celu dropout feature_alpha_dropout rrelu threshold "
        # one function under both names:
        "adaptive_avg_pool1d avg_pool1d bilinear celu_ channel_shuffle conv1d conv2d conv3d conv_tbc conv_transpose1d "
        "conv_transpose2d conv_transpose3d cosine_similarity hardshrink native_channel_shuffle pairwise_distance pdist "
        "pixel_shuffle pixel_unshuffle prelu relu_ rrelu_ selu_ threshold_"
    ),
    "distcompile.amp.autocasting": (
        "autocast is_autocast_enabled is_autocast_cpu_enabled get_autocast_dtype get_autocast_gpu_dtype "
        "get_autocast_cpu_dtype set_autocast_enabled set_autocast_dtype is_autocast_cache_enabled "
        "set_autocast_gpu_dtype set_autocast_cpu_dtype set_autocast_cpu_enabled "
        "set_autocast_cache_enabled clear_autocast_cache autocast_increment_nesting autocast_decrement_nesting"
    ),
    "compiler_core.memory_format": (
        "memory_format layout contiguous_format legacy_contiguous_format preserve_format channels_last "
        "channels_last_3d strided sparse_coo sparse_csr sparse_csc sparse_bsr sparse_bsc jagged"
    ),
    "distcompile.surface.determinism": (
        "use_deterministic_algorithms are_deterministic_algorithms_enabled "
        "is_deterministic_algorithms_warn_only_enabled get_deterministic_debug_mode set_deterministic_debug_mode"
    ),
    "compiler_core.tensor.autograd.inference": "is_inference",
    "compiler_core.tensor.memory.storage": "UntypedStorage",
    "compiler_core.tensor.memory.typed_storage": (
        "BFloat16Storage BoolStorage ByteStorage CharStorage ComplexDoubleStorage ComplexFloatStorage DoubleStorage "
        "FloatStorage HalfStorage IntStorage LongStorage ShortStorage TypedStorage is_storage"
    ),
    "distcompile.surface.limits": "finfo iinfo promote_types result_type can_cast",
    "distcompile.surface.streams": "Stream Event",
    "compiler_core.sparse.construct": (
        "sparse_coo_tensor sparse_csr_tensor sparse_csc_tensor sparse_compressed_tensor sparse_bsr_tensor "
        "sparse_bsc_tensor"
    ),
    "compiler_core.sparse.products": "spmm dsmm smm hspmm hsmm sspaddmm saddmm",
    "compiler_core.sparse.parts": "_coalesce:coalesce",
    "compiler_core.sparse.in_place": "resize_as_sparse_",
    "compiler_core.tensor.memory.lending": "from_dlpack to_dlpack",
    "compiler_core.tensor.memory.strided": "empty_strided get_device adjoint",
    "distcompile.surface.asking": (
        "_assert _check _check_with _check_value _check_index _check_type _check_not_implemented _check_tensor_all "
        "_check_tensor_all_with _assert_async typename"
    ),
    "distcompile.surface.rare": (
        "expand_copy _shape_as_tensor:shape_as_tensor selu_ _softmax_backward_data:softmax_backward_data "
        "segment_reduce _segment_reduce:segment_reduce _convert_indices_from_coo_to_csr:coo_to_csr "
        "_convert_indices_from_csr_to_coo:csr_to_coo _grouped_mm:grouped_mm get_device_module"
    ),
    "distcompile.library.namespaces": "ops",
    "distcompile.surface.loops": "cond while_loop",
    "distcompile.backends": "get_float32_matmul_precision set_float32_matmul_precision",
    "distcompile.surface.threads": (
        "get_num_threads set_num_threads get_num_interop_threads set_num_interop_threads set_flush_denormal"
    ),
    "distcompile.surface.mapping": "vmap",
    "distcompile.surface.symbols": "sym_float sym_int sym_ite sym_max sym_min sym_not sym_sqrt sym_sum",
    "distcompile.jit": "ScriptModule",
    "distcompile.futures": "Future",
    "math": "inf nan pi e",
    "numpy": "newaxis",
}


def _entries(module: str, names: str) -> dict[str, tuple[str, str]]:
    pairs = (name.partition(":") for name in names.split())
    return {public: (module, inner or public) for public, _, inner in pairs}


SOURCES: dict[str, tuple[str, str]] = (
    _entries("compiler_core.ops.functional", _FUNCTIONS)
    | _entries("compiler_core.tensor.making.creation", _CREATION)
    | _entries("compiler_core.tensor.making.random_creation", _RANDOM_CREATION)
    | _entries("compiler_core.tensor.tensor", " ".join(f"{name}:Tensor.{name}" for name in _METHODS.split()))
    | _entries("compiler_core.dtype", _DTYPES)
    | _entries(
        "distcompile.surface.foreach", " ".join(f"_foreach_{name} _foreach_{name}_" for name in _FOREACH.split())
    )
    | _entries("distcompile.surface.foreach", " ".join(f"_foreach_{name}" for name in _FOREACH_ALONE.split()))
    | {name: entry for module, names in _OTHERS.items() for name, entry in _entries(module, names).items()}
)
