"""Modules that hold parameters: ParameterList, ParameterDict.

In: tensors (made Parameters) or any other values. Out: parameters named "0", "1", ... (or by key).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, KeysView, Mapping
from typing import Any, Self

from compiler_core.tensor.tensor import Tensor
from distcompile.errors import NotSupportedError, RegistrationTypeError
from distcompile.nn.layers.containers import check_pair, position
from distcompile.nn.module import Module
from distcompile.nn.parameter import Parameter
from distcompile.nn.registration import type_name


def _as_parameter(value: Any) -> Any:
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _describe(key: object, value: Any, by_type: bool = False) -> str:
    """One entry, as torch prints it: in a list by its dtype, in a dict by its type."""
    if not isinstance(value, Tensor):
        return f"  ({key}): Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    name = value.type() if by_type else value.dtype
    return f"  ({key}): {kind} containing: [{name} of size {'x'.join(map(str, value.shape))}]"


class ParameterList(Module):
    """A list of parameters, registered under "0", "1", ... Tensors become Parameters; other values stay as they are.

    Example:
        >>> scales = nn.ParameterList([torch.ones(2), torch.zeros(3)])
        >>> [(name, tuple(p.shape)) for name, p in scales.named_parameters()]
        [('0', (2,)), ('1', (3,))]
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)(self[i] for i in range(*index.indices(len(self))))
        return getattr(self, str(position(index, len(self))))

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, str(position(index, len(self))), _as_parameter(value))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter([self[i] for i in range(len(self))])

    def append(self, value: Any) -> Self:
        """Add a value at the end."""
        self._size += 1
        self[-1] = value
        return self

    def extend(self, values: Iterable[Any]) -> Self:
        """Add values at the end."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise RegistrationTypeError(
                f"ParameterList.extend should be called with an iterable, but got {type_name(values)}"
            )
        for value in list(values):
            self.append(value)
        return self

    def __iadd__(self, values: Iterable[Any]) -> Self:
        return self.extend(values)

    def extra_repr(self) -> str:
        return "\n".join(_describe(i, value) for i, value in enumerate(self))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotSupportedError("ParameterList should not be called.")


class ParameterDict(Module):
    """A dict of parameters, registered under their keys. Tensors become Parameters; other values stay as they are.

    Args: a dict (a plain one is taken in sorted order), or pairs of (key, value).

    Example:
        >>> scales = nn.ParameterDict({"left": torch.ones(2), "right": torch.zeros(3)})
        >>> list(scales.state_dict())
        ['left', 'right']
    """

    def __init__(self, parameters: Mapping[str, Any] | Iterable[tuple[str, Any]] | None = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        return getattr(self, key)  # AttributeError for a missing key, as in torch

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):
            raise RegistrationTypeError(f"ParameterDict keys are strings, got one of type {type_name(key)}")
        self._keys[key] = None
        setattr(self, key, _as_parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def keys(self) -> KeysView[str]:
        return self._keys.keys()

    def items(self) -> Iterator[tuple[str, Any]]:
        return iter([(key, self[key]) for key in self._keys])

    def values(self) -> Iterator[Any]:
        return iter([self[key] for key in self._keys])

    def get(self, key: str, default: Any = None) -> Any:
        return getattr(self, key) if key in self._keys else default

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def pop(self, key: str) -> Any:
        """Remove and return the value at `key`."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Remove and return the last (key, value)."""
        key = next(reversed(self._keys))
        return key, self.pop(key)

    def clear(self) -> None:
        """Remove every value."""
        for key in list(self._keys):
            del self[key]

    def copy(self) -> ParameterDict:
        """A dict of the same parameters."""
        return ParameterDict(OrderedDict(self.items()))

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A dict of these keys, each with `default`."""
        return ParameterDict((key, default) for key in keys)

    def update(self, parameters: ParameterDict | Mapping[str, Any] | Iterable[tuple[str, Any]]) -> None:
        """Add or replace values: a plain mapping's in sorted order, as torch does, any other's in its own."""
        if not isinstance(parameters, Iterable):
            raise RegistrationTypeError(
                f"ParameterDict.update should be called with key/value pairs, but got {type_name(parameters)}"
            )
        if isinstance(parameters, (OrderedDict, ParameterDict)):
            pairs = list(parameters.items())
        elif isinstance(parameters, Mapping):
            pairs = sorted(parameters.items())
        else:
            pairs = list(parameters)
        for place, pair in enumerate(pairs):
            key, value = check_pair(pair, place, "ParameterDict")
            self[key] = value

    def extra_repr(self) -> str:
        return "\n".join(_describe(key, value, by_type=True) for key, value in self.items())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotSupportedError("ParameterDict should not be called.")

    def __or__(self, other: ParameterDict) -> ParameterDict:
        merged = self.copy()
        merged.update(other)
        return merged

    def __ior__(self, other: ParameterDict) -> Self:
        self.update(other)
        return self
