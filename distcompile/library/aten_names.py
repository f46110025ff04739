"""The operators of torch's own that can be called: `torch.ops.aten.name`, and the names of their overloads.

In: nothing. Out: `OVERLOADS`. Names alone stand for one overload, `default`. Of torch's overloads those of Python
numbers, of named dimensions, and those that write to `out` are left out.
"""

from __future__ import annotations

_NAMES = """
__and__:Scalar,Tensor __iand__:Tensor,Scalar __ilshift__:Tensor,Scalar __ior__:Tensor,Scalar __irshift__:Tensor,Scalar
__ixor__:Tensor,Scalar __lshift__:Tensor,Scalar __or__:Tensor,Scalar __rshift__:Tensor,Scalar __xor__:Tensor,Scalar
_foreach_abs _foreach_abs_ _foreach_acos _foreach_acos_ _foreach_add:Scalar,List,ScalarList,Tensor
_foreach_add_:Scalar,List,ScalarList,Tensor _foreach_addcdiv:Scalar,ScalarList,Tensor
_foreach_addcdiv_:Scalar,ScalarList,Tensor _foreach_addcmul:Scalar,ScalarList,Tensor
_foreach_addcmul_:Scalar,ScalarList,Tensor _foreach_asin _foreach_asin_ _foreach_atan _foreach_atan_ _foreach_ceil
_foreach_ceil_ _foreach_clamp_max:Scalar,List,ScalarList _foreach_clamp_max_:Scalar,List,ScalarList
_foreach_clamp_min:Scalar,List,ScalarList _foreach_clamp_min_:Scalar,List,ScalarList _foreach_clone _foreach_copy_
_foreach_cos _foreach_cos_ _foreach_cosh _foreach_cosh_ _foreach_div:Scalar,List,ScalarList,Tensor
_foreach_div_:Scalar,List,ScalarList,Tensor _foreach_erf _foreach_erf_ _foreach_erfc _foreach_erfc_ _foreach_exp
_foreach_exp_ _foreach_expm1 _foreach_expm1_ _foreach_floor _foreach_floor_ _foreach_frac _foreach_frac_
_foreach_lerp:List,Scalar,ScalarList _foreach_lerp_:List,Scalar,ScalarList _foreach_lgamma _foreach_lgamma_
_foreach_log _foreach_log10 _foreach_log10_ _foreach_log1p _foreach_log1p_ _foreach_log2 _foreach_log2_ _foreach_log_
_foreach_max _foreach_maximum:Scalar,List,ScalarList _foreach_maximum_:Scalar,List,ScalarList
_foreach_minimum:Scalar,List,ScalarList _foreach_minimum_:Scalar,List,ScalarList _foreach_mm
_foreach_mul:Scalar,List,ScalarList,Tensor _foreach_mul_:Scalar,List,ScalarList,Tensor _foreach_neg _foreach_neg_
_foreach_norm:Scalar _foreach_pow:List,Scalar,ScalarList,ScalarAndTensor _foreach_pow_:List,Scalar,ScalarList
_foreach_powsum:Scalar _foreach_reciprocal _foreach_reciprocal_ _foreach_round _foreach_round_ _foreach_rsqrt
_foreach_rsqrt_ _foreach_sigmoid _foreach_sigmoid_ _foreach_sign _foreach_sign_ _foreach_sin _foreach_sin_
_foreach_sinh _foreach_sinh_ _foreach_sqrt _foreach_sqrt_ _foreach_sub:Scalar,List,ScalarList
_foreach_sub_:Scalar,List,ScalarList _foreach_tan _foreach_tan_ _foreach_tanh _foreach_tanh_ _foreach_trunc
_foreach_trunc_ _foreach_zero_ _local_scalar_dense _log_softmax _softmax _softmax_backward_data _to_copy _unsafe_view
abs abs_ absolute absolute_ acos acos_ acosh acosh_ adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
add:Tensor add_:Tensor addbmm addbmm_ addcdiv addcdiv_ addcmul addcmul_ addmm addmm_ addmv addmv_ addr addr_ adjoint
alias alias_copy all:default,dim,dims allclose alpha_dropout amax amin aminmax angle any:default,dim,dims
arange:default,start,start_step arccos arccos_ arccosh arccosh_ arcsin arcsin_ arcsinh arcsinh_ arctan arctan2 arctan2_
arctan_ arctanh arctanh_ argmax argmin argsort:default,stable argwhere as_strided as_strided_ as_strided_copy
as_strided_scatter asin asin_ asinh asinh_ atan atan2 atan2_ atan_ atanh atanh_ atleast_1d:default,Sequence
atleast_2d:default,Sequence atleast_3d:default,Sequence avg_pool1d avg_pool2d avg_pool3d baddbmm baddbmm_
bartlett_window:default,periodic bernoulli bernoulli_:float bilinear binary_cross_entropy
binary_cross_entropy_with_logits bincount binomial bitwise_and:Tensor bitwise_and_:Tensor bitwise_left_shift:Tensor
bitwise_left_shift_:Tensor bitwise_not bitwise_not_ bitwise_or:Tensor bitwise_or_:Tensor bitwise_right_shift:Tensor
bitwise_right_shift_:Tensor bitwise_xor:Tensor bitwise_xor_:Tensor blackman_window:default,periodic block_diag bmm
broadcast_tensors broadcast_to bucketize:Tensor cartesian_prod cat cauchy_ cdist ceil ceil_ celu celu_ chain_matmul
channel_shuffle cholesky cholesky_inverse cholesky_solve chunk clamp:Tensor clamp_:Tensor clamp_max:Tensor
clamp_max_:Tensor clamp_min:Tensor clamp_min_:Tensor clip:default,Tensor clip_:default,Tensor clone column_stack
combinations complex concat concatenate conj conj_physical conj_physical_ constant_pad_nd contiguous
conv1d:default,padding conv2d:default,padding conv3d:default,padding conv_transpose1d conv_transpose2d:input
conv_transpose3d:input convolution copy_:default,Tensor,int,float copysign:Tensor,Scalar copysign_:Tensor,Scalar
corrcoef cos cos_ cosh cosh_ cosine_similarity count_nonzero:default,dim_IntList cov cross cummax cummin cumprod
cumprod_ cumsum cumsum_ cumulative_trapezoid:x,dx deg2rad deg2rad_ det detach detach_ detach_copy diag diag_embed
diagflat diagonal diagonal_copy diagonal_scatter diff digamma digamma_ dist div:Tensor,Tensor_mode
div_:Tensor,Tensor_mode divide:Tensor,Scalar,Tensor_mode,Scalar_mode divide_:Tensor,Tensor_mode,Scalar_mode,Scalar dot
dropout dsplit:int,array dstack einsum:default,sublist elu elu_ embedding empty:memory_format empty_like empty_strided
eq:Tensor eq_:Tensor equal erf erf_ erfc erfc_ erfinv erfinv_ exp exp2 exp2_ exp_ expand expand_as expand_copy expm1
expm1_ exponential_ eye:default,m feature_alpha_dropout fft_fft fft_fft2 fft_fftn fft_fftshift fft_hfft fft_hfft2
fft_hfftn fft_ifft fft_ifft2 fft_ifftn fft_ifftshift fft_ihfft fft_ihfft2 fft_ihfftn fft_irfft fft_irfft2 fft_irfftn
fft_rfft fft_rfft2 fft_rfftn fill:Scalar fill_:Scalar fill_diagonal_ fix fix_ flatten:using_ints flip fliplr flipud
float_power:Tensor_Tensor float_power_:Tensor,Scalar floor floor_ floor_divide floor_divide_:Tensor fmax fmin
fmod:Tensor fmod_:Tensor frac frac_ frexp:Tensor full full_like gather gcd gcd_ ge:Tensor ge_:Tensor gelu geometric_
ger glu gradient:scalarint,scalarrayint,scalarrayarray,tensorarray greater:Tensor,Scalar greater_:Scalar,Tensor
greater_equal:Tensor,Scalar greater_equal_:Scalar,Tensor group_norm gt:Tensor gt_:Tensor
hamming_window:default,periodic,periodic_alpha,periodic_alpha_beta hann_window:default,periodic hardshrink hardsigmoid
hardswish hardtanh hardtanh_ heaviside heaviside_ hinge_embedding_loss histc histogram:bins_tensor,bin_ct histogramdd
hsplit:int,array hstack huber_loss hypot hypot_ i0 i0_ igamma igamma_ igammac igammac_ imag index:Tensor index_add
index_add_ index_copy index_copy_ index_fill:int_Tensor,int_Scalar index_fill_:int_Tensor,int_Scalar
index_put:default,hacked_twin index_put_:default,hacked_twin index_reduce index_reduce_ index_select inner inverse
is_complex is_conj is_contiguous:default,memory_format is_floating_point is_inference is_nonzero is_signed isclose
isfinite isin:Tensor_Tensor isinf isnan isneginf isposinf isreal istft item kaiser_window:default,periodic,beta kron
kthvalue l1_loss layer_norm lcm lcm_ ldexp:Tensor ldexp_ le:Tensor le_:Tensor leaky_relu leaky_relu_ lerp:Scalar,Tensor
lerp_:Scalar,Tensor less:Tensor,Scalar less_:Scalar,Tensor less_equal:Tensor,Scalar less_equal_:Scalar,Tensor lgamma
lgamma_ lift_fresh lift_fresh_copy linalg_cholesky linalg_cholesky_ex linalg_cond linalg_cross linalg_det
linalg_diagonal linalg_eig linalg_eigh linalg_eigvals linalg_eigvalsh linalg_householder_product linalg_inv
linalg_inv_ex linalg_lstsq linalg_lu linalg_lu_factor linalg_lu_factor_ex linalg_lu_solve linalg_matmul
linalg_matrix_exp linalg_matrix_norm:default,str_ord linalg_matrix_power
linalg_matrix_rank:atol_rtol_tensor,atol_rtol_float linalg_multi_dot linalg_norm
 linalg_qr linalg_slogdet linalg_solve linalg_solve_ex
linalg_solve_triangular linalg_svd linalg_svdvals linalg_tensorinv linalg_tensorsolve linalg_vander linalg_vecdot
linalg_vector_norm linear linspace:Tensor_Tensor,Tensor_Scalar,Scalar_Tensor,default log log10 log10_ log1p log1p_ log2
log2_ log_ log_normal_ log_softmax:int logaddexp logaddexp2 logcumsumexp logdet logical_and logical_and_ logical_not
logical_not_ logical_or logical_or_ logical_xor logical_xor_ logit logit_
logspace:Tensor_Tensor,Tensor_Scalar,Scalar_Tensor,default logsumexp lt:Tensor lt_:Tensor lu_solve lu_unpack
masked_fill:Scalar,Tensor masked_fill_:Scalar,Tensor masked_scatter masked_scatter_ masked_select matmul matrix_exp
matrix_power max:other,default,dim max_pool1d max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d
max_pool3d_with_indices maximum mean:default,dim median:default,dim meshgrid:indexing min:other,default,dim minimum
mish mm mode moveaxis:intlist,int movedim:intlist mse_loss msort mul:Tensor mul_:Tensor multi_margin_loss
multilabel_margin_loss multinomial multiply:Tensor,Scalar multiply_:Tensor,Scalar mv mvlgamma mvlgamma_ nan_to_num
nan_to_num_ nanmean nanmedian:default,dim nanquantile:scalar nansum narrow:default,Tensor narrow_copy native_layer_norm
ne:Tensor ne_:Tensor neg neg_ negative negative_ new_empty new_empty_strided new_full new_ones new_zeros nextafter
nextafter_ nll_loss nonzero nonzero_static norm:Scalar,ScalarOpt_dim
normal:Tensor_float,float_Tensor,Tensor_Tensor,float_float normal_ not_equal:Tensor,Scalar not_equal_:Scalar,Tensor
numel one_hot ones ones_like orgqr outer pad pairwise_distance pdist permute permute_copy pinverse pixel_shuffle
pixel_unshuffle poisson polar polygamma polygamma_ positive pow:Tensor_Tensor pow_:Tensor prelu prod:default,dim_int
put put_ qr quantile:scalar rad2deg rad2deg_ rand:default,generator rand_like randint:default,low
randint_like:default,low_dtype randn:default,generator randn_like random:from,to,default random_:from,to,default
randperm:default,generator ravel real reciprocal reciprocal_ relu relu6 relu_ remainder:Tensor remainder_:Tensor renorm
renorm_ repeat repeat_interleave:self_Tensor,self_int reshape reshape_as resize_ resize_as_ resolve_conj resolve_neg
result_type:Tensor,Scalar,Scalar_Tensor rms_norm roll rot90 round:default,decimals round_:default,decimals row_stack
rrelu rrelu_ rsqrt rsqrt_ rsub:Tensor scalar_tensor scaled_dot_product_attention scatter:value,src,reduce,value_reduce
scatter_:src,value,reduce,value_reduce scatter_add scatter_add_ scatter_reduce:two scatter_reduce_:two
searchsorted:Tensor segment_reduce select:int select_copy:int select_scatter selu selu_ sgn sgn_ sigmoid sigmoid_
sigmoid_backward sign sign_ signbit silu sin sin_ sinc sinc_ sinh sinh_ size:int,default slice:Tensor slice_copy:Tensor
slice_scatter slogdet smooth_l1_loss soft_margin_loss softmax:int softplus softshrink sort:default,stable
special_airy_ai special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1 special_chebyshev_polynomial_t
special_chebyshev_polynomial_u special_chebyshev_polynomial_v special_chebyshev_polynomial_w special_digamma
special_entr special_erf special_erfc special_erfcx special_erfinv special_exp2 special_expit special_expm1
special_gammainc special_gammaincc special_gammaln special_hermite_polynomial_h special_hermite_polynomial_he
special_i0 special_i0e special_i1 special_i1e special_laguerre_polynomial_l special_legendre_polynomial_p special_log1p
special_log_ndtr special_log_softmax special_logit special_logsumexp special_modified_bessel_i0
special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1 special_multigammaln special_ndtr
special_ndtri special_polygamma special_psi special_round special_scaled_modified_bessel_k0
special_scaled_modified_bessel_k1 special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u
special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w special_sinc special_softmax
special_spherical_bessel_j0 special_xlog1py special_xlogy:default,other_scalar,self_scalar special_zeta
split:Tensor,sizes,default split_copy:Tensor split_with_sizes split_with_sizes_copy sqrt sqrt_ square square_
squeeze:default,dim,dims squeeze_:default,dim,dims squeeze_copy:default,dim stack std:default,dim,correction
std_mean:default,dim,correction stft:center storage_offset stride:int,default sub:Tensor sub_:Tensor
subtract:Tensor,Scalar subtract_:Tensor,Scalar sum:dim_IntList,default sum_to_size svd swapaxes swapaxes_ swapdims
swapdims_ sym_numel sym_size:int,default sym_stride:int,default t t_ t_copy take take_along_dim tan tan_ tanh tanh_
tanh_backward tensor_split:sections,indices,tensor_indices_or_sections tensordot threshold threshold_
threshold_backward tile to:device,dtype,other topk trace transpose:int transpose_ transpose_copy:int trapezoid:x,dx
trapz:x,dx triangular_solve tril tril_ tril_indices triplet_margin_loss triu triu_ triu_indices true_divide:Tensor
true_divide_:Tensor trunc trunc_ type_as unbind:int unbind_copy:int unflatten:int unfold unfold_copy uniform_
unsafe_chunk unsafe_split:Tensor unsqueeze unsqueeze_ unsqueeze_copy var:default,dim,correction
var_mean:default,dim,correction vdot view view_as view_as_complex view_as_real view_copy vsplit:int,array vstack
where:self xlogy:Tensor xlogy_:Tensor zero_ zeros zeros_like
"""

OVERLOADS: dict[str, tuple[str, ...]] = {
    name: tuple(overloads.split(",")) if overloads else ("default",)
    for name, _, overloads in (entry.partition(":") for entry in _NAMES.split())
}
