"""Lists and dicts of a node's arguments: who changes one must give the node new arguments.

In: lists, dicts. Out: the same, that refuse to be changed. Raises TypeError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

__all__ = ["immutable_dict", "immutable_list"]


def _refusing(name: str) -> Callable[..., NoReturn]:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(f"{type(self).__name__!r} object does not support mutation. If you are attempting to modify "
                        "the kwargs or args of a torch.fx.Node object, instead create a new copy of it and assign the "
                        f"copy to the node ({name})")  # fmt: skip

    return refuse


class immutable_list(list[Any]):
    """A list that nobody changes."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return immutable_list, (tuple(iter(self)),)


class immutable_dict(dict[str, Any]):
    """A dict that nobody changes."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return immutable_dict, (tuple(self.items()),)


_ANY = "clear pop __setitem__ __delitem__"
_LISTS, _DICTS = "append extend insert remove reverse sort __iadd__ __imul__", "popitem setdefault update __ior__"
for _kind, _names in ((immutable_list, f"{_ANY} {_LISTS}"), (immutable_dict, f"{_ANY} {_DICTS}")):
    for _name in _names.split():
        setattr(_kind, _name, _refusing(_name))
