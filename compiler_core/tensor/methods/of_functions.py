"""Tensor methods that are functions, and their twins in place: made of compiler_core/names/torch_table.py.

In: the rows that have methods. Out: the class `FunctionMethods`, a base of Tensor. A function whose file is loaded
with Tensor is the method, as it is; another's file is loaded when its method is first called. Methods unlike the
function of their name are in about_handles.py, twins that have no function in inplace.py. What type checkers see is
of_functions.pyi, which tests/test_stubs.py writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compiler_core.names.torch_rows import Row
from compiler_core.names.torch_table import ROWS
from compiler_core.tensor.methods.inplace import handle_in_place, in_place
from compiler_core.tensor.torch_arguments import with_tensors
from compiler_core.tensor.torch_names import function_of, late_method, load


class FunctionMethods:
    """Filled from the table."""

    __slots__ = ()


def _method(row: Row, name: str) -> Callable[..., Any]:
    if not row.at_once:
        return late_method(name, row)
    return with_tensors(function_of(row)) if "tensors" in row.kinds else function_of(row)


def _twin(row: Row) -> Callable[..., Any]:
    """The method in place: of a view it moves the handle, else it computes a new value."""
    of_value = load(row.place) if row.at_once else _late(row)
    return handle_in_place(of_value) if row.kinds & {"view", "new_view"} else in_place(of_value)


def _late(row: Row) -> Callable[..., Any]:
    def function(self: Any, *args: Any, **kwargs: Any) -> Any:
        return load(row.place)(self, *args, **kwargs)

    function.__name__ = row.bare[0]
    return function


for _row in ROWS:
    for _name in _row.methods:
        setattr(FunctionMethods, _name, _method(_row, _name))
    if _row.twins:
        _made = _twin(_row)
        for _name in _row.twins:
            setattr(FunctionMethods, _name, _made)
