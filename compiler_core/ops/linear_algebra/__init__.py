"""Products, factorisations and solvers: the primitives, BLAS and LAPACK behind them, torch.linalg over them.

- `blas_layout.py`: How BLAS is told where the elements of a matrix lie: a transposition and a leading dimension.
- `eigen.py`: eig: eigenvalues and right eigenvectors of square matrices that need not be symmetric.
- `eigenvalues.py`: torch.linalg's eigenvalues and eigenvectors: of symmetric (Hermitian) matrices, and of any
  square ones.
- `factor.py`: Matrix factorisations: cholesky, eigh, svd, svdvals, qr, lu.
- `factorisations.py`: torch.linalg's factorisations over any Value, and torch's older names for them: cholesky,
  svd, qr, lu.
- `gemm.py`: GEMM as a library routine: C = alpha * scale * A @ B + beta * C, batched, f32, f64, c64 or c128, by
  strides.
- `gemm_bf16.py`: Products of bf16 on a CPU that multiplies them (AVX512_BF16): C++ of our own, as OpenBLAS has none
  that rounds once.
- `gemm_cuda.py`: GEMM on a CUDA device: cuBLAS, by strides. f32, f64, f16, bf16, c64, c128; 16-bit floats are
  summed in f32.
- `gemm_product.py`: A product as cuBLASLt is asked for it: what its descriptors say, and what its algorithm is
  chosen for.
- `lapack.py`: How generated code calls LAPACK for cholesky, solve, solve_triangular and lu of f32 and f64 matrices.
- `lapack_cpp.py`: The C++ by which generated code calls LAPACK: one function template per routine, for one matrix.
- `least_squares.py`: torch.linalg.lstsq over any Value: the X of least norm that minimises |A X - B|.
- `matmul.py`: Batched matrix product: the one op that a library computes.
- `matrices.py`: What torch.linalg's functions share: the checks of a matrix argument, how one triangle is read,
  LAPACK's info.
- `norms.py`: torch.linalg's norms, products and the rest that needs no factorisation of its own.
- `packing.py`: Several results of one routine side by side in one array: T[*batch, total], each flattened after its
  batch dims.
- `products.py`: Products over any Value, with torch's names and arguments: matmul and its kin, linear, einsum.
- `solvers.py`: torch.linalg's solvers over any Value, and torch's older names for them; determinants, inverses, the
  exponential.
- `solving.py`: Linear systems and functions of matrices: solve, solve_triangular, det, slogdet, pinv, matrix_exp
  and their kin.
"""
