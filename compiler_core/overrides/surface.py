"""Tensor's methods, properties and operators as overridable functions.

In: the class. Out: each of its public functions as an object of its own, noted in `switch.py` with what torch hands to
`__torch_function__` in its place: `x + y` is `Tensor.add`, `x.shape` is `Tensor.shape.__get__`. So `Tensor.absolute` is
not `Tensor.abs`, as in torch, though one function computes both, and what the package calls in itself stays as it is.
"""

from __future__ import annotations

from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import FunctionType
from typing import Any

from compiler_core.overrides.calls import Entry
from compiler_core.overrides.state import NOT_CONVERTED, note_plain
from compiler_core.overrides.switch import copy_of, overridable

# operator:the method that is handed over
_METHODS = """
__add__:add __radd__:add __sub__:sub __mul__:mul __rmul__:mul __truediv__:div __mod__:remainder __pow__:pow
__matmul__:matmul __ne__:ne __lt__:lt __le__:le __gt__:gt __ge__:ge __neg__:neg __pos__:positive __abs__:abs
__rand__:bitwise_and __ror__:bitwise_or __rxor__:bitwise_xor __iadd__:add_ __isub__:sub_ __imul__:mul_
__itruediv__:div_ __ifloordiv__:floor_divide_ __imod__:remainder_ __ipow__:pow_ __rtruediv__:__rdiv__
"""
_OTHER_OPERATORS = """
__rsub__ __floordiv__ __rfloordiv__ __rmod__ __rpow__ __rmatmul__ __eq__ __and__ __or__ __xor__ __lshift__ __rlshift__
__rshift__ __rrshift__ __iand__ __ior__ __ixor__ __ilshift__ __irshift__
"""
_OTHER_DUNDERS = """
__invert__ __bool__ __float__ __int__ __complex__ __index__ __getitem__ __setitem__ __len__ __contains__ __array__
__array_wrap__ __deepcopy__ __reduce_ex__ __repr__ __format__ __reversed__ __setstate__ __dlpack__ __dlpack_device__
_base _version _grad
"""
# written in Python in torch: see `calls.py`
_PYTHONS = """
__rsub__ __rtruediv__ __floordiv__ __rfloordiv__ __rmod__ __rpow__ __pow__ __ipow__ __rmatmul__ __rlshift__
__rrshift__ __len__ __contains__ __array__ __array_wrap__ __deepcopy__ __reduce_ex__ __repr__ __format__ __reversed__
__setstate__ __dlpack__ __dlpack_device__ backward register_hook register_post_accumulate_grad_hook is_shared norm split
unique unique_consecutive stft istft lu unflatten share_memory_ storage pow pow_
"""
# they would be content with anything that has a shape or a dtype
_SHAPED_AS = frozenset(("view_as", "reshape_as", "expand_as", "type_as"))
_AS_METHODS = dict(entry.split(":") for entry in _METHODS.split())
_IN_PYTHON, _NOT = frozenset(_PYTHONS.split()), frozenset(("as_subclass",))
_OPERATORS = frozenset((*_AS_METHODS, *_OTHER_OPERATORS.split()))
_NAMES = frozenset((*_OPERATORS, *_OTHER_DUNDERS.split()))


def make_overridable(cls: Any, size: type) -> None:
    """Note all of the public surface of `cls`, Tensor. size: the class of its shapes."""
    note_plain(cls)
    note_plain(size)
    origins = _surface(cls)
    for name, value in origins.items():
        if isinstance(value, FunctionType):
            setattr(cls, name, copy_of(value, "__rdiv__" if name == "__rtruediv__" else name))
        elif isinstance(value, property):
            setattr(cls, name, _own(value))
    cls.__rdiv__ = cls.__rtruediv__
    for name, origin in origins.items():
        value = vars(cls)[name]
        if isinstance(value, property):
            _note_property(name, value, origin)
        else:
            func = getattr(cls, _AS_METHODS.get(name, name))
            entry = Entry(func, origin, f"torch.Tensor.{func.__name__}", name in _IN_PYTHON, name in _OPERATORS)
            entry.is_alone = _takes_nothing(value)
            overridable(value, entry, at_once=name in _SHAPED_AS)
    NOT_CONVERTED.update((cls._base.__get__, cls.grad.__get__, cls._grad.__get__))


def _surface(cls: type) -> dict[str, Any]:
    """The public functions and properties of `cls`, whichever of its bases has them, by name."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__[:-1]):
        for name, value in vars(base).items():
            is_public = not name.startswith("_") and name not in _NOT
            if isinstance(value, (FunctionType, property)) and (is_public or name in _NAMES):
                found[name] = value
    return found


def _takes_nothing(method: FunctionType) -> bool:
    code = method.__code__
    return code.co_argcount == 1 and not code.co_kwonlyargcount and not code.co_flags & (CO_VARARGS | CO_VARKEYWORDS)


def _own(value: property) -> property:
    """A property of its own, with functions of its own."""
    get, put, delete = (_own_part(part) for part in (value.fget, value.fset, value.fdel))
    return property(get, put, delete, value.__doc__)


def _own_part(part: Any) -> Any:
    return None if part is None else copy_of(part)


def _note_property(name: str, value: Any, origin: Any) -> None:
    for attribute, what in (("fget", "__get__"), ("fset", "__set__"), ("fdel", "__delete__")):
        part = getattr(value, attribute)
        if part is not None:
            entry = Entry(
                getattr(value, what), getattr(origin, attribute), f"torch.Tensor.{name}.{what}", is_alone=True
            )
            overridable(part, entry)
