"""torch.special: special functions. Those that torch also has at its top level are the same functions.

In: Tensors. Out: Tensors. The functions are in compiler_core/ops/special: elementary.py, gamma.py, bessel.py.
"""

from __future__ import annotations

from distcompile.surface.late import namespace

_SAME = ("digamma", "erf", "erfc", "exp2", "expm1", "i0", "log1p", "logsumexp", "polygamma", "round")
_OTHERS = {name: name for name in _SAME}
_OTHERS |= {"expit": "sigmoid", "gammaln": "lgamma", "multigammaln": "mvlgamma", "psi": "digamma", "gammainc": "igamma"}
_OTHERS["gammaincc"] = "igammac"

__all__, __getattr__ = namespace("special", _OTHERS)
