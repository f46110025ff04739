"""The arguments and results of a package as trees, by what `treespec_dumps` wrote.

In: the specs' JSON. Out: the leaves of a call, which must have the form of the exported one; a result of its leaves.
Lists, tuples and dicts are taken apart here; other containers by `utils._pytree`, which is then imported.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from distcompile.errors import ArgumentError

_PLAIN: dict[str, Any] = {"builtins.tuple": tuple, "builtins.list": list, "builtins.dict": dict}


class Trees:
    """See the head of this file."""

    def __init__(self, in_spec: str, out_spec: str) -> None:
        self._in, self._out = json.loads(in_spec)[1], json.loads(out_spec)[1]
        self._in_text, self._out_text = in_spec, out_spec

    def leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The leaves of a call. Raises ArgumentError for one of another form."""
        if not _is_plain(self._in):
            from distcompile.utils._pytree import treespec_loads

            return treespec_loads(self._in_text).flatten_up_to((args, kwargs))
        return list(_leaves(self._in, (args, kwargs), "the arguments"))

    def result(self, leaves: Sequence[Any]) -> Any:
        """The result of these leaves."""
        if not _is_plain(self._out):
            from distcompile.utils._pytree import treespec_loads

            return treespec_loads(self._out_text).unflatten(leaves)
        return _built(self._out, iter(leaves))


def _is_plain(spec: dict[str, Any]) -> bool:
    return spec["type"] is None or (spec["type"] in _PLAIN and all(map(_is_plain, spec["children_spec"])))


def _leaves(spec: dict[str, Any], tree: Any, what: str) -> Iterator[Any]:
    if spec["type"] is None:
        yield tree
        return
    kind, children = _PLAIN[spec["type"]], spec["children_spec"]
    keys = json.loads(spec["context"]) if kind is dict else range(len(children))
    given = list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, kind) else None
    if given is None or not isinstance(tree, kind) or len(given) != len(keys) or set(given) != set(keys):
        raise ArgumentError(f"{what} have another form than those that the package was made of",
                            expected=f"a {kind.__name__} of {list(keys)}", got=repr(type(tree).__name__)
                            + ("" if given is None else f" of {list(given)}"))  # fmt: skip
    for key, child in zip(keys, children):
        yield from _leaves(child, tree[key], what)


def _built(spec: dict[str, Any], leaves: Iterator[Any]) -> Any:
    if spec["type"] is None:
        return next(leaves)
    children = [_built(child, leaves) for child in spec["children_spec"]]
    if spec["type"] == "builtins.dict":
        return dict(zip(json.loads(spec["context"]), children))
    return _PLAIN[spec["type"]](children)
