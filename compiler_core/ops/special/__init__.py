"""Special functions: torch.special.

- `bessel.py`: Bessel functions of orders 0 and 1 and the Airy function Ai, by trapezoidal sums of integral
  representations.
- `elementary.py`: torch.special's elementary functions: logarithms of sums, entropies, the normal distribution,
  erf's kin.
- `gamma.py`: The gamma function's family: lgamma, digamma, polygamma, mvlgamma, zeta, by shifts and asymptotic
  series.
- `incomplete_gamma.py`: The regularised incomplete gamma functions, as primitives that NumPy computes by iteration
  to convergence.
"""
