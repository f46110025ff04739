"""Torch's surface: each function of compiler_core once, with all its names and forms, in the row of its file.

In: nothing. Out: `ROWS`, and `TORCH`: public name -> row. What a word says: torch_rows.py. From these rows come the
namespace of `ops/functional.py`, Tensor's methods and their twins in place, torch's top level and namespaces, NumPy's
ufuncs, what overrides are told, the stubs and the reference. Functions of distcompile's own files are in
distcompile/surface/names.py.
"""

from __future__ import annotations

from compiler_core.names.torch_rows import Row, rows

# what ops/functional.py holds
FUNCTIONAL: dict[str, str] = {
    "ops.composites.activation": """
        no_out: relu_ selu
        float32: log_softmax. softmax.
        own: dropout elu gelu glu hardsigmoid hardswish hardtanh keep_mask leaky_relu log1p_exp logsigmoid mish relu6
        silu softsign
        float32,own: softmin softplus
    """,
    "ops.composites.arithmetic": """
        add_ addcdiv_ addcmul_ clamp__=clip__ div_=divide_ floor_divide_ fmod_ lerp_ mul_=multiply_ sub_=subtract_
        true_divide_
        no_out: rsub.
        float32: reciprocal__ square__
        tensors: maximum. minimum.
        numbers: float_power. remainder_
        float32,numbers: pow_
    """,
    "ops.attention.composite": "own: scaled_dot_product_attention",
    "ops.composites.creation": "own: arange eye full full_like linspace ones ones_like zeros zeros_like",
    "ops.indexing.composite": """
        diag. gather. index_add_ index_copy_ index_select. scatter_ scatter_add_ take_along_dim.
        no_out: embedding
        own: getitem index_put masked_select setitem wrap_negative
    """,
    "ops.composites.logic": """
        bitwise_not_=np.invert eq_=np.equal ge_=greater_equal_ gt_=greater_ le_=less_equal_ logical_not_ lt_=less_
        nan_to_num__ ne_=not_equal_
        no_out: isfinite. isinf. isnan. masked_fill_
        tensors: logical_and_ logical_or_ logical_xor_
        tensors,no_out: isclose.
        numbers: bitwise_and_ bitwise_or_ bitwise_xor_
        own: where
    """,
    "ops.composites.loss": """
        own: binary_cross_entropy binary_cross_entropy_with_logits cross_entropy huber_loss kl_div l1_loss mse_loss
        nll_loss smooth_l1_loss
    """,
    "ops.composites.movement": """
        cat=concat=concatenate stack tril_ triu_
        no_out: flatten. flip. ravel. .repeat repeat_interleave. roll. tile.
        functional,no_out: broadcast_tensors
        view: .expand .expand_as movedim.=moveaxis. narrow. permute. .reshape_as:view_as reshape squeeze_ t_
        transpose_=swapaxes_=swapdims_ unflatten.
        view,no_out: select.
        new_view,no_out: unsqueeze_
        strict_view: .view_as
        several,no_out: chunk. unbind.
        several,functional,no_out: split.
        own: below_diagonal contiguous diagonal_mask one_hot view
    """,
    "ops.composites.norm": """
        no_out: rms_norm
        float32,no_out: group_norm layer_norm
        own: batch_norm batch_statistics cosine_similarity normalize
    """,
    "ops.composites.padding": "own: pad",
    "ops.linear_algebra.products": """
        addmm_ baddbmm_ bmm. dot. matmul.=linalg.matmul mm. mv. outer.
        functional,no_out: einsum
        own: bilinear linear
    """,
    "ops.random.composite": "own: bernoulli rand randint randn",
    "ops.composites.reduction": """
        all. amax. amin. any. argmax. argmin. max. mean. min. std. var.
        no_out: count_nonzero. var_mean
        float32: cumsum_ logsumexp.=special.logsumexp prod. sum.
        float32,functional: norm.
        own: ValuesAndIndices sqrt_flat_at_zero
    """,
    "ops.composites.unary": """
        abs__=absolute_=np.fabs ceil__ cos__ erf__=special.erf erfc__=special.erfc exp2__=special.exp2 floor__
        frac__ neg__=negative__ round__=special.round sigmoid__=special.expit sign_ sin__ sqrt__ tanh__
        trunc__=fix__
        no_out: detach positive.
        float32: cosh__ exp__ expm1__=special.expm1 log__ log10__ log1p__=special.log1p log2__ rsqrt__ sinh__ tan__
    """,
}

# further files that are loaded with Tensor
WITH_TENSOR: dict[str, str] = {
    "ops.composites.shuffle": """
        .unfold
        shared,no_out: channel_shuffle=native_channel_shuffle pixel_shuffle pixel_unshuffle
    """,
    "ops.sorting.composite": "argsort. kthvalue. median. msort. nanmedian. sort. topk.",
    "tensor.methods.indexing": "index_put. masked_select.",
}

# files that are loaded when one of their functions is first used
LATE: dict[str, str] = {
    "ops.composites.stacking": """
        hstack vstack=row_stack dstack column_stack
        no_out: combinations tensor_split. hsplit. vsplit. dsplit. unsafe_split. unsafe_chunk. fliplr. flipud. rot90.
        diag_embed. diagflat.
        functional,no_out: atleast_1d atleast_2d atleast_3d block_diag meshgrid cartesian_prod
        functional,silent,no_out: broadcast_shapes:broadcast_shapes_of
        several,no_out: split_with_sizes.
    """,
    "ops.composites.trigonometry": """
        asin__=arcsin__ acos__=arccos__ atan__=arctan__ asinh__=arcsinh__ acosh__=arccosh__ atanh__=arctanh__
        atan2_=arctan2_ hypot_ deg2rad__ rad2deg__ sinc__=special.sinc copysign_ signbit. sgn_ heaviside_ isposinf.
        isneginf. fmax. fmin. frexp. ldexp__ nextafter_
    """,
    "ops.composites.complex": """
        complex polar conj_physical__ angle.
        no_out: real imag isreal. conj. resolve_conj.=resolve_neg. view_as_real view_as_complex
    """,
    "ops.indexing.placing": """
        take. slice_scatter. scatter_reduce_ index_reduce_ renorm_
        no_out: masked_scatter_ put_ index_fill_ select_scatter. diagonal_scatter. as_strided_scatter. fill
    """,
    "ops.composites.running": """
        cummax. cummin. logcumsumexp. cumprod_ diff.
        no_out: trapezoid=trapz cumulative_trapezoid gradient
    """,
    "ops.composites.products": """
        addmv__ addr_ addbmm_ kron. vdot. inner. cross. ger.
        no_out: dist.
        functional: tensordot chain_matmul
        functional,no_out: cdist
        shared: pdist
    """,
    "ops.special.elementary": """
        logaddexp. logaddexp2. logit__=special.logit erfinv_=special.erfinv
        numbers: xlogy__=special.xlogy special.xlog1py
        special: entr erfcx ndtr log_ndtr ndtri softmax log_softmax
    """,
    "ops.special.gamma": """
        lgamma_=special.gammaln digamma_=special.digamma=special.psi polygamma_=special.polygamma
        mvlgamma_=special.multigammaln igamma_=special.gammainc igammac_=special.gammaincc
        numbers: special.zeta
    """,
    "ops.special.bessel": """
        i0__=special.i0=special.modified_bessel_i0
        special: i0e i1=special.modified_bessel_i1 i1e modified_bessel_k0 modified_bessel_k1
        scaled_modified_bessel_k0 scaled_modified_bessel_k1 bessel_j0 bessel_j1 bessel_y0 bessel_y1
        spherical_bessel_j0 airy_ai
    """,
    "ops.composites.numbers": """
        gcd__ lcm__ nonzero_static. constant_pad_nd
        numbers: bitwise_left_shift_=np.left_shift bitwise_right_shift_=np.right_shift
        makes: logspace tril_indices triu_indices
        makes,modes: scalar_tensor
    """,
    "ops.composites.statistics": """
        bucketize histc. isin mode. nanquantile. quantile. searchsorted
        no_out: corrcoef. cov. std_mean
        functional,no_out: unravel_index
    """,
    "ops.composites.masked": """
        masked,no_out: amax amin argmax argmin cumprod cumsum log_softmax logaddexp logsumexp mean median norm normalize
        prod softmax softmin std sum var
    """,
    "ops.signal.window_functions": """
        makes: hann_window hamming_window blackman_window bartlett_window kaiser_window
        signal.windows,makes: bartlett blackman cosine exponential gaussian general_cosine general_hamming hamming hann
        kaiser nuttall
    """,
    "ops.signal.frequencies": "fft,makes: fftfreq rfftfreq fft: fftshift ifftshift",
    "ops.signal.transforms": """
        fft: fft ifft fft2 ifft2 fftn ifftn rfft irfft rfft2 irfft2 rfftn irfftn hfft ihfft hfft2 ihfft2 hfftn ihfftn
    """,
    "ops.signal.stft": "no_out: istft. functional,no_out: stft.",
    "ops.linear_algebra.eigenvalues": "linalg: eig eigvals eigh eigvalsh",
    "ops.linear_algebra.factorisations": """
        cholesky.:old_cholesky svd.:old_svd qr.:old_qr lu_unpack
        functional: lu:old_lu
        linalg: cholesky cholesky_ex svd svdvals qr lu lu_factor lu_factor_ex
    """,
    "ops.linear_algebra.solvers": """
        linalg.inv=inverse. linalg.det=det. linalg.slogdet=slogdet.
        lu_solve.:old_lu_solve triangular_solve. cholesky_solve. cholesky_inverse.
        no_out: linalg.matrix_exp=matrix_exp. logdet.
        linalg: solve solve_ex inv_ex solve_triangular lu_solve pinv
    """,
    "ops.linear_algebra.least_squares": "linalg: lstsq",
    "ops.linear_algebra.norms": """
        linalg.matrix_power=matrix_power. nuclear_norm orgqr.=linalg.householder_product:householder_product
        no_out: pinverse.
        linalg: vector_norm matrix_norm norm cond matrix_rank multi_dot vecdot cross vander tensorinv tensorsolve
    """,
    "ops.convolution.composite": """
        shared: conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
        nn.functional: fold unfold
    """,
    "ops.pooling.adaptive": """
        shared: adaptive_avg_pool1d
        nn.functional: adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d
        adaptive_max_pool3d
    """,
    "ops.pooling.composite": """
        max_pool1d=nn.functional.max_pool1d max_pool2d=nn.functional.max_pool2d max_pool3d=nn.functional.max_pool3d
        shared: avg_pool1d
        nn.functional,c: avg_pool2d avg_pool3d
        nn.functional: lp_pool1d lp_pool2d lp_pool3d
    """,
    "ops.composites.grid": "nn.functional: affine_grid grid_sample",
    "ops.composites.interpolate": "nn.functional: interpolate",
    "tensor.tensor": """
        exact: Tensor Size
        methods: allclose clone clamp_max clamp_max_ clamp_min clamp_min_ detach_ equal fill_ index_put_ is_complex
        is_conj is_floating_point is_nonzero is_signed narrow_copy numel zero_
    """,
    "tensor.selection": """
        argwhere.:nonzero bincount. where
        functional: unique.
        out: nonzero. multinomial.
    """,
    "tensor.methods.derived": """
        broadcast_to. diagonal. .sum_to_size
        out: aminmax. nanmean. nansum. trace. linalg.diagonal:matrix_diagonal
    """,
    "tensor.counting": "out: histogram. histogramdd out,functional: unique_consecutive.",
    "tensor.lowrank": "out,python: svd_lowrank pca_lowrank",
    "tensor.polynomials": """
        special,out,numbers: chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v
        chebyshev_polynomial_w shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u
        shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w hermite_polynomial_h hermite_polynomial_he
        laguerre_polynomial_l legendre_polynomial_p
    """,
    "tensor.making.creation": """
        empty_like full_like ones_like zeros_like
        modes: tensor
        makes: arange empty eye full linspace ones zeros
    """,
    "tensor.making.placement": "modes: as_tensor:as_placed",
    "tensor.making.random_creation": """
        normal rand_like randint_like randn_like
        makes: rand randint randn randperm
        out: bernoulli.
    """,
    "tensor.making.rejection_draws": """
        poisson binomial _standard_gamma:standard_gamma _standard_gamma_grad:standard_gamma_grad
        _sample_dirichlet:sample_dirichlet
    """,
    "tensor.making.random": """
        Generator default_generator
        silent: manual_seed seed initial_seed get_rng_state set_rng_state
    """,
    "tensor.making.legacy_types": """
        FloatTensor DoubleTensor HalfTensor BFloat16Tensor LongTensor IntTensor ShortTensor CharTensor ByteTensor
        BoolTensor
        silent: set_default_tensor_type
    """,
    "tensor.memory.borrowing": "from_file modes: asarray silent: from_numpy frombuffer",
    "tensor.memory.lending": "silent: from_dlpack to_dlpack",
    "tensor.memory.strided": "adjoint empty_strided get_device out: as_strided. .storage_offset",
    "tensor.memory.storage": "UntypedStorage",
    "tensor.memory.typed_storage": """
        BFloat16Storage BoolStorage ByteStorage CharStorage ComplexDoubleStorage ComplexFloatStorage DoubleStorage
        FloatStorage HalfStorage IntStorage LongStorage ShortStorage TypedStorage is_storage
    """,
    "tensor.autograd.inference": "is_inference",
    "tensor.autograd.anomaly": "silent: is_anomaly_enabled is_anomaly_check_nan_enabled",
    "tensor.autograd.grad_mode": """
        no_grad enable_grad set_grad_enabled inference_mode
        silent: is_grad_enabled is_inference_mode_enabled
    """,
    "tensor.printing": "silent: set_printoptions",
    "dtype": """
        float64=double float32=float float16=half bfloat16 int64=long int32=int int16=short int8 uint64 uint32 uint16
        uint8 bool:bool_ complex64=cfloat complex128=cdouble complex32=chalf uint1 uint2 uint3 uint4 uint5 uint6 uint7
        int1 int2 int3 int4 int5 int6 int7 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu
        float4_e2m1fn_x2 dtype:DType get_default_dtype set_default_dtype
    """,
    "memory_format": """
        memory_format layout contiguous_format legacy_contiguous_format preserve_format channels_last channels_last_3d
        strided sparse_coo sparse_csr sparse_csc sparse_bsr sparse_bsc jagged
    """,
    "device": "device:Device get_default_device set_default_device",
    "errors": "OutOfMemoryError:CudaMemoryError",
}

ROWS: tuple[Row, ...] = (
    *rows(FUNCTIONAL, "compiler_core", "compiler_core.ops.functional", at_once=True),
    *rows(WITH_TENSOR, "compiler_core", at_once=True),
    *rows(LATE, "compiler_core"),
)
TORCH: dict[str, Row] = {name: row for row in ROWS for name in row.names}
