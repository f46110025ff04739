"""torch.library: operators that the program defines, in Python.

In: functions, schemas. Out: operators, as callables and as `torch.ops.ns.name`. schema.py reads schemas, inference.py
writes them from annotations, operators.py keeps what is registered, calls.py runs it, with kernels.py (which function,
and what it gave) and whole.py (those that no graph can hold); custom_ops.py and registrations.py are the two ways to
register; checks.py is `opcheck`; aten.py has torch's own names.
"""

from __future__ import annotations

from distcompile.library import aten as aten
from distcompile.library.checks import opcheck
from distcompile.library.custom_ops import CustomOpDef, custom_op
from distcompile.library.inference import infer_schema
from distcompile.library.registrations import (
    Library,
    define,
    fallthrough_kernel,
    impl,
    register_autocast,
    register_autograd,
    register_fake,
    register_kernel,
    register_torch_dispatch,
    register_vmap,
)
from distcompile.library.registrations import _scoped_library as _scoped_library
from distcompile.library.registrations import register_fake as impl_abstract

__all__ = [
    "CustomOpDef",
    "Library",
    "custom_op",
    "define",
    "fallthrough_kernel",
    "impl",
    "impl_abstract",
    "infer_schema",
    "opcheck",
    "register_autocast",
    "register_autograd",
    "register_fake",
    "register_kernel",
    "register_torch_dispatch",
    "register_vmap",
]
