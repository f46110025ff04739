"""skip_init: a module made without drawing its parameters.

In: a module class and its arguments. Out: the module, its parameters' values meaningless until they are set.
"""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

from distcompile.errors import ArgumentError
from distcompile.nn.module import Module

M = TypeVar("M", bound=Module)

__all__ = ["skip_init"]


def skip_init(module_cls: type[M], *args: Any, **kwargs: Any) -> M:
    """module_cls(*args, **kwargs), whose values are to be set (`load_state_dict`); here they are drawn all the same.

    Raises ArgumentError for a class that is no Module or takes no `device`, as torch does.
    """
    if not issubclass(module_cls, Module):
        raise ArgumentError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise ArgumentError("Module must support a 'device' arg to skip initialization")
    return module_cls(*args, **kwargs)
