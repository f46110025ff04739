"""Which file of compiler_core holds each of torch's less common functions, and which of them are Tensor methods.

In: nothing. Out: `FUNCTIONS` (public name -> file and name in it), `METHODS` and `IN_PLACE` (method -> the same).
One line a file, so that a function is declared once. Files are loaded at the first use of one of their functions.
A name: `f`; `alias:f` for another name of `f`; `f.` is a method too; `f_` a method with an in-place form; `.f` and
`.f_` are methods alone; `+f` makes a tensor and takes device=, layout=, requires_grad= and
pin_memory=. `special.f` and `linalg.f` are of torch.special and torch.linalg.
"""

from __future__ import annotations

from collections.abc import Iterator

Place = tuple[str, str]  # module, name in it

TABLE: dict[str, str] = {
    "ops.composites.stacking": (
        "atleast_1d atleast_2d atleast_3d hstack vstack row_stack dstack column_stack block_diag meshgrid "
        "cartesian_prod combinations tensor_split. hsplit. vsplit. dsplit. split_with_sizes. unsafe_split. "
        "unsafe_chunk. fliplr. flipud. rot90. diag_embed. diagflat. broadcast_shapes:broadcast_shapes_of"
    ),
    "ops.composites.trigonometry": (
        "asin_ acos_ atan_ asinh_ acosh_ atanh_ arcsin_:asin arccos_:acos arctan_:atan arcsinh_:asinh arccosh_:acosh "
        "arctanh_:atanh atan2_ arctan2_:atan2 hypot_ deg2rad_ rad2deg_ sinc_ special.sinc copysign_ signbit. sgn_ "
        "heaviside_ isposinf. isneginf. fmax. fmin. frexp. ldexp_ nextafter_"
    ),
    "ops.composites.complex": (
        "complex polar real imag isreal. conj_physical_ conj. resolve_conj. resolve_neg.:resolve_conj angle. "
        "view_as_real view_as_complex"
    ),
    "ops.indexing.placing": (
        "masked_scatter_ put_ take. index_fill_ slice_scatter. select_scatter. diagonal_scatter. scatter_reduce_ "
        "index_reduce_ as_strided_scatter. renorm_ fill"
    ),
    "tensor.memory.strided": "as_strided. .storage_offset",
    "tensor.lowrank": "svd_lowrank pca_lowrank",
    "ops.composites.running": (
        "cummax. cummin. logcumsumexp. cumprod_ trapezoid trapz cumulative_trapezoid gradient diff."
    ),
    "ops.composites.products": (
        "addmv_ addr_ addbmm_ kron. vdot. inner. tensordot cross. cdist pdist dist. ger. chain_matmul"
    ),
    "ops.special.elementary": (
        "logaddexp. logaddexp2. xlogy_ logit_ erfinv_ special.xlogy special.xlog1py special.entr special.logit "
        "special.erfcx special.erfinv special.ndtr special.log_ndtr special.ndtri special.softmax "
        "special.log_softmax"
    ),
    "ops.special.gamma": "lgamma_ digamma_ polygamma_ mvlgamma_ special.zeta igamma_ igammac_",
    "ops.special.bessel": (
        "i0_ special.i0e special.i1 special.i1e special.modified_bessel_i0:i0 special.modified_bessel_i1:i1 "
        "special.modified_bessel_k0 special.modified_bessel_k1 special.scaled_modified_bessel_k0 "
        "special.scaled_modified_bessel_k1 special.bessel_j0 special.bessel_j1 special.bessel_y0 special.bessel_y1 "
        "special.spherical_bessel_j0 special.airy_ai"
    ),
    "ops.composites.numbers": (
        "bitwise_left_shift_ bitwise_right_shift_ gcd_ lcm_ +logspace +scalar_tensor +tril_indices +triu_indices "
        "nonzero_static. constant_pad_nd"
    ),
    "ops.composites.statistics": (
        "searchsorted bucketize isin unravel_index histc. quantile. nanquantile. mode. std_mean cov. corrcoef."
    ),
    "tensor.counting": "unique_consecutive. histogram. histogramdd",
    "ops.signal.window_functions": (
        "+hann_window +hamming_window +blackman_window +bartlett_window +kaiser_window +signal.windows.bartlett "
        "+signal.windows.blackman +signal.windows.cosine +signal.windows.exponential +signal.windows.gaussian "
        "+signal.windows.general_cosine +signal.windows.general_hamming +signal.windows.hamming +signal.windows.hann "
        "+signal.windows.kaiser +signal.windows.nuttall"
    ),
    "ops.composites.masked": (
        "masked.amax masked.amin masked.argmax masked.argmin masked.cumprod masked.cumsum masked.log_softmax "
        "masked.logaddexp masked.logsumexp masked.mean masked.median masked.norm masked.normalize masked.prod "
        "masked.softmax masked.softmin masked.std masked.sum masked.var"
    ),
    "tensor.polynomials": (
        "special.chebyshev_polynomial_t special.chebyshev_polynomial_u special.chebyshev_polynomial_v "
        "special.chebyshev_polynomial_w special.shifted_chebyshev_polynomial_t "
        "special.shifted_chebyshev_polynomial_u special.shifted_chebyshev_polynomial_v "
        "special.shifted_chebyshev_polynomial_w special.hermite_polynomial_h special.hermite_polynomial_he "
        "special.laguerre_polynomial_l special.legendre_polynomial_p"
    ),
    "tensor.methods.derived": "linalg.diagonal:matrix_diagonal",
    "ops.signal.frequencies": "+fft.fftfreq +fft.rfftfreq fft.fftshift fft.ifftshift",
    "ops.signal.transforms": (
        "fft.fft fft.ifft fft.fft2 fft.ifft2 fft.fftn fft.ifftn fft.rfft fft.irfft fft.rfft2 fft.irfft2 fft.rfftn "
        "fft.irfftn fft.hfft fft.ihfft fft.hfft2 fft.ihfft2 fft.hfftn fft.ihfftn"
    ),
    "ops.signal.stft": "stft. istft.",
    "ops.linear_algebra.eigenvalues": "linalg.eig linalg.eigvals linalg.eigh linalg.eigvalsh",
    "ops.linear_algebra.factorisations": (
        "linalg.cholesky linalg.cholesky_ex linalg.svd linalg.svdvals linalg.qr linalg.lu linalg.lu_factor "
        "linalg.lu_factor_ex cholesky.:old_cholesky svd.:old_svd qr.:old_qr lu:old_lu lu_unpack"
    ),
    "ops.linear_algebra.solvers": (
        "linalg.solve linalg.solve_ex linalg.inv linalg.inv_ex linalg.solve_triangular linalg.lu_solve linalg.det "
        "linalg.slogdet linalg.matrix_exp linalg.pinv lu_solve.:old_lu_solve inverse.:inv triangular_solve. "
        "cholesky_solve. cholesky_inverse. det. slogdet. logdet. matrix_exp."
    ),
    "ops.linear_algebra.least_squares": "linalg.lstsq",
    "ops.linear_algebra.norms": (
        "linalg.vector_norm linalg.matrix_norm linalg.norm linalg.cond linalg.matrix_rank linalg.matrix_power "
        "linalg.multi_dot linalg.vecdot linalg.cross linalg.vander linalg.householder_product linalg.tensorinv "
        "linalg.tensorsolve matrix_power. pinverse. "
        "nuclear_norm orgqr.:householder_product"
    ),
}


def _entries() -> Iterator[tuple[str, Place, bool, bool, bool]]:
    """(public name, place, is a function, is a method, has an in-place form)."""
    for module, names in TABLE.items():
        for entry in names.split():
            public, _, inner = entry.removeprefix("+").partition(":")
            alone, changes = public.startswith("."), public.endswith("_")
            name = public.strip("._")
            is_method = alone or changes or public.endswith(".")
            place = (f"compiler_core.{module}", inner or name.rpartition(".")[2])
            yield name, place, not alone, is_method, changes


CREATIONS = frozenset(
    entry.removeprefix("+") for names in TABLE.values() for entry in names.split() if entry.startswith("+")
)
FUNCTIONS: dict[str, Place] = {name: place for name, place, function, _, _ in _entries() if function}
METHODS: dict[str, Place] = {name: place for name, place, _, method, _ in _entries() if method}
IN_PLACE: dict[str, Place] = {f"{name}_": place for name, place, _, _, changes in _entries() if changes}
