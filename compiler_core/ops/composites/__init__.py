"""Functions composed of primitives over any Value, with torch's names, arguments and derivatives.

- `activation.py`: Activations, softmax and dropout over any Value, with torch's names, arguments and derivatives at
  corners.
- `arithmetic.py`: Arithmetic over any Value, with torch's names and arguments: sums, products, quotients, powers,
  bounds, lerp.
- `complex.py`: Complex numbers and their parts, with torch's names: complex, polar, real, imag, conj, angle,
  view_as_real and kin.
- `creation.py`: New values: constants and ramps.
- `grid.py`: Sampling at given places over any Value, with torch's names and arguments: grid_sample, affine_grid.
- `interpolate.py`: Interpolation over any Value, with torch's names and arguments: interpolate in all its modes.
- `logic.py`: Comparison, logic and choice over any Value, with torch's names and arguments.
- `loss.py`: Losses over any Value, with torch's names, arguments and defaults.
- `masked.py`: torch.masked: reductions and normalisations over the elements where a mask holds.
- `movement.py`: Shape functions over any Value, with torch's names and arguments: views, joining, splitting,
  triangles.
- `norm.py`: Normalisations over any Value, with torch's names and arguments: layer, RMS, group and batch norm.
- `numbers.py`: Whole-number functions, ranges and places: shifts, gcd, lcm, logspace, tril_indices, nonzero_static,
  constant_pad_nd.
- `padding.py`: Padding over any Value, with torch's names and arguments: constant, reflect, replicate, circular.
- `products.py`: Products of vectors and matrices, and distances: addmv, addr, kron, tensordot, cross, cdist, pdist.
- `reduction.py`: Reductions over any Value, with torch's names and arguments.
- `running.py`: Running reductions and sums along a dim: cummax, logcumsumexp, cumulative_trapezoid, trapezoid,
  gradient, diff.
- `shuffle.py`: Rearrangements of channels and windows: pixel_shuffle, pixel_unshuffle, channel_shuffle,
  Tensor.unfold (any Value).
- `stacking.py`: Joining and splitting by torch's older names: hstack, atleast_1d, meshgrid, block_diag,
  cartesian_prod, hsplit.
- `statistics.py`: Counting, ordering statistics and covariance: histc, bucketize, searchsorted, isin, quantile,
  mode, cov, corrcoef.
- `trigonometry.py`: Inverse trigonometric and hyperbolic functions, signs and floating-point parts, with torch's
  names.
- `unary.py`: Functions of one operand over any Value, with torch's names: signs, exponentials, trigonometry, roots,
  rounding.
"""
