"""The Tensor methods that compiler_core/torch_table.py lists, and their in-place forms, as a base class of Tensor.

In: the tables METHODS and IN_PLACE. Out: the class `LateMethods`. A function's file is loaded when a method is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compiler_core.tensor.methods.inplace import in_place
from compiler_core.tensor.torch_names import late_method, load
from compiler_core.torch_table import IN_PLACE, METHODS, Place


def _late_in_place(name: str, place: Place) -> Callable[..., Any]:
    def function(self: Any, *args: Any, **kwargs: Any) -> Any:
        return load(place)(self, *args, **kwargs)

    function.__name__ = name.removesuffix("_")
    return in_place(function)


class LateMethods:
    """Filled from the tables below."""

    __slots__ = ()


for _name, _place in METHODS.items():
    setattr(LateMethods, _name, late_method(_name, _place))
for _name, _place in IN_PLACE.items():
    setattr(LateMethods, _name, _late_in_place(_name, _place))
