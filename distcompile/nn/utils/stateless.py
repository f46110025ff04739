"""torch.nn.utils.stateless's name: functional_call, as in `distcompile.func`.

In: a module, tensors by name, arguments. Out: what forward returns.
"""

from __future__ import annotations

from distcompile.func import functional_call

__all__ = ["functional_call"]
