"""Index arithmetic: `affine.py` builds and simplifies it, `functions.py` is its sympy form."""
