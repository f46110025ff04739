"""Primitives that compute on elements, shapes and lines of an array: each is one block, registered at import.

- `arithmetic.py`: Pointwise arithmetic and bit logic on two operands.
- `bits.py`: bitcast: the bytes of an array, read as another dtype. torch's `view(dtype)`.
- `compare.py`: Comparisons (to bool) and `where`.
- `complex_parts.py`: Complex numbers and their parts: complex, real, imag, conj, view_as_real, view_as_complex.
- `convert.py`: The two pointwise ops that change how a value is taken, not its numbers: cast (dtype) and detach (no
  gradient).
- `corners.py`: Functions whose derivative at corners and outside their domain is torch's, which no composition of
  theirs would give.
- `creation.py`: Arrays from nothing: full and iota.
- `custom_gradient.py`: custom_gradient: the identity on its first operand, whose gradient goes where a rule says.
- `decomposed.py`: What ops are in terms of the core set: functions over other ops, for engines that lack the op.
- `deviation.py`: std: the standard deviation over `dims`, which the result drops.
- `erf.py`: The error function and its complement on whole arrays, without SciPy.
- `integer_routines.py`: Primitives of whole numbers that NumPy does by iteration to convergence: gcd.
- `inverse.py`: Inverse trigonometric and hyperbolic primitives, and copysign.
- `joining.py`: Arrays put together: pad (with a constant), cat, slice_scatter (one array into a slice of another).
- `movement.py`: Movement of elements within one array: diagonal, reshape, permute, expand, slice, flip.
- `pointwise.py`: Pointwise primitives of one operand: negation, exponentials, roots, rounding, erf, sigmoid.
- `reduction.py`: Reductions: sum, prod, max, min, argmax, argmin over `dims`, which the result drops.
- `requiring.py`: require: a value passes unchanged, once it was seen that nothing about it fails.
- `scans.py`: Running values along one dim: cumsum, linear_scan, cummax_places, cummin_places.
- `strided.py`: strided: elements of a vector at places that strides count out, as a view; what torch's as_strided
  is made of.
- `tied.py`: The gradient of a function of straight lines, as torch records it: it depends on the operand, with
  slope zero.
"""
