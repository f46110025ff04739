"""torch.nn.functional's functions, as far as they are offered: the same names, arguments and defaults.

In: tensors. Out: tensors. Which file has a function say the tables (distcompile/surface/names.py).
"""

from __future__ import annotations

from distcompile.surface.found import found
from distcompile.surface.names import NAMES, names_in

__all__ = names_in("nn.functional")
globals().update({name: found(NAMES[f"nn.functional.{name}"], "nn.functional", name) for name in __all__})
