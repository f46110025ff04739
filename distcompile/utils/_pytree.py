"""torch.utils._pytree's names: nested containers as a flat list of leaves, and back; functions over all leaves.

In: trees of list, tuple, named tuple, dict, OrderedDict, defaultdict, deque and registered types; all else is a leaf,
None too. Out: leaves, from left to right (dicts in their order), and a `TreeSpec` that compares by value.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from distcompile.errors import ArgumentError

__all__ = [
    "MappingKey",
    "TreeSpec",
    "register_pytree_node",
    "tree_all",
    "tree_any",
    "tree_flatten",
    "tree_leaves",
    "tree_map",
    "tree_map_",
    "tree_map_only",
    "tree_structure",
    "tree_unflatten",
]

IsLeaf = Callable[[Any], bool]
Flatten = Callable[[Any], tuple[list[Any], Any]]
Unflatten = Callable[[Iterable[Any], Any], Any]


def _keyed(tree: Any) -> tuple[list[Any], Any]:
    return list(tree.values()), list(tree)


_NODES: dict[type, tuple[Flatten, Unflatten]] = {
    list: (lambda t: (list(t), None), lambda values, _: list(values)),
    tuple: (lambda t: (list(t), None), lambda values, _: tuple(values)),
    deque: (lambda t: (list(t), t.maxlen), lambda values, maxlen: deque(values, maxlen)),
    dict: (_keyed, lambda values, keys: dict(zip(keys, values, strict=True))),
    OrderedDict: (_keyed, lambda values, keys: OrderedDict(zip(keys, values, strict=True))),
    defaultdict: (
        lambda t: (list(t.values()), (t.default_factory, list(t))),
        lambda values, context: defaultdict(context[0], zip(context[1], values, strict=True)),
    ),
}


@dataclass(frozen=True)
class TreeSpec:
    """A container's shape. type: None for a leaf. context: its keys, or what else builds it again."""

    type: Any
    context: Any
    children_specs: tuple[TreeSpec, ...]

    @property
    def num_leaves(self) -> int:
        return 1 if self.type is None else sum(child.num_leaves for child in self.children_specs)

    def is_leaf(self) -> bool:
        return self.type is None


_LEAF = TreeSpec(None, None, ())


@dataclass(frozen=True)
class MappingKey:
    """Where in a mapping a child stands."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        """The child."""
        return mapping[self.key]


def _dict_flatten(d: Any) -> tuple[list[Any], list[Any]]:
    """(values, keys) of a mapping."""
    return _keyed(d)


def _dict_unflatten(values: Iterable[Any], context: list[Any]) -> dict[Any, Any]:
    """The dict of these values and keys."""
    return dict(zip(context, values, strict=True))


def _dict_flatten_with_keys(d: Any) -> tuple[list[tuple[MappingKey, Any]], list[Any]]:
    """([(key, value)], keys) of a mapping."""
    values, keys = _keyed(d)
    return [(MappingKey(key), value) for key, value in zip(keys, values, strict=True)], keys


def register_pytree_node(cls: type, flatten_fn: Flatten, unflatten_fn: Unflatten, **names: Any) -> None:
    """Make a class a container: flatten_fn gives (children, context), unflatten_fn(children, context) the object."""
    if cls in _NODES:
        raise ArgumentError(f"{cls} is already registered as pytree node.")
    _NODES[cls] = (flatten_fn, unflatten_fn)


def _node(tree: Any) -> tuple[Any, list[Any], Any] | None:
    """(type, children, context), or None for a leaf."""
    kind = type(tree)
    if isinstance(tree, tuple) and hasattr(kind, "_fields") and kind not in _NODES:
        return kind, list(tree), None
    if kind not in _NODES:
        return None
    children, context = _NODES[kind][0](tree)
    return kind, list(children), context


def tree_flatten(tree: Any, is_leaf: IsLeaf | None = None) -> tuple[list[Any], TreeSpec]:
    """(leaves, spec). is_leaf: stops at what it is true of."""
    found = None if is_leaf is not None and is_leaf(tree) else _node(tree)
    if found is None:
        return [tree], _LEAF
    kind, children, context = found
    pairs = [tree_flatten(child, is_leaf) for child in children]
    return [leaf for leaves, _ in pairs for leaf in leaves], TreeSpec(kind, context, tuple(spec for _, spec in pairs))


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """The tree of this spec with these leaves. Raises ArgumentError for another number of them."""
    given = list(leaves)
    if len(given) != treespec.num_leaves:
        raise ArgumentError("tree_unflatten: leaves do not fit the spec", expected=str(treespec.num_leaves),
                            got=str(len(given)))  # fmt: skip
    if treespec.is_leaf():
        return given[0]
    children, start = [], 0
    for child in treespec.children_specs:
        children.append(tree_unflatten(given[start : start + child.num_leaves], child))
        start += child.num_leaves
    if treespec.type in _NODES:
        return _NODES[treespec.type][1](children, treespec.context)
    return treespec.type(*children)  # a named tuple


def tree_leaves(tree: Any, is_leaf: IsLeaf | None = None) -> list[Any]:
    """The leaves alone."""
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree: Any, is_leaf: IsLeaf | None = None) -> TreeSpec:
    """The spec alone."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf | None = None) -> Any:
    """A tree of func(leaf, ...), the other leaves those at the same place of `rests`, which have tree's structure."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = []
    for rest in rests:
        more, shape = tree_flatten(rest, is_leaf)
        if shape != spec:
            raise ArgumentError("tree_map: trees differ", expected=str(spec), got=str(shape))
        others.append(more)
    return tree_unflatten([func(*row) for row in zip(leaves, *others, strict=True)], spec)


def tree_map_(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf | None = None) -> Any:
    """Call func at every leaf, for its effect; gives the tree back."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_map_only(type_or_types: Any, func: Callable[[Any], Any], tree: Any, is_leaf: IsLeaf | None = None) -> Any:
    """`tree_map` at the leaves of a type (a type, several, or a predicate); the others stay."""
    is_type = isinstance(type_or_types, (type, tuple))
    hit = (lambda leaf: isinstance(leaf, type_or_types)) if is_type else type_or_types
    return tree_map(lambda leaf: func(leaf) if hit(leaf) else leaf, tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf | None = None) -> bool:
    """Whether it holds of every leaf."""
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf | None = None) -> bool:
    """Whether it holds of some leaf."""
    return any(map(pred, tree_leaves(tree, is_leaf)))
