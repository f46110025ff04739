"""torch.utils._pytree's names: nested containers as a flat list of leaves, and back; functions over all leaves.

In: trees of list, tuple, Size, named tuple, dict, OrderedDict, defaultdict, deque and registered types; all else is a
leaf, None too. Out: leaves, from left to right (dicts in their order), paths of keys, and a `TreeSpec` that compares
by value. What stands beside a tree (`tree_map` of several) must have its containers, dicts in any order, and may be
deeper. The trees and their shapes are compiler_core/trees.py, shapes as JSON `_pytree_specs.py`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator
from types import UnionType
from typing import Any

from compiler_core.trees import (
    NODES,
    Context,
    FlattenFn,
    FlattenKeysFn,
    GetAttrKey,
    IsLeaf,
    KeyEntry,
    MappingKey,
    SequenceKey,
    TreeNode,
    TreeSpec,
    UnflattenFn,
    dict_flatten,
    dict_flatten_with_keys,
    dict_unflatten,
    flatten,
    is_namedtuple_class,
    leaves_of,
    list_flatten,
    list_flatten_with_keys,
    node_type,
    parts_of,
)
from distcompile.errors import ArgumentError
from distcompile.utils._pytree_specs import (
    DumpableContext,
    FromDumpableContextFn,
    LeafSpec,
    PyTree,
    ToDumpableContextFn,
    is_namedtuple,
    is_namedtuple_instance,
    is_structseq,
    is_structseq_class,
    is_structseq_instance,
    treespec_dict,
    treespec_dumps,
    treespec_leaf,
    treespec_list,
    treespec_loads,
    treespec_pprint,
    treespec_tuple,
)

PyTreeSpec = TreeSpec
KeyPath = tuple[Any, ...]
__all__ = [
    "Context", "DumpableContext", "FlattenFn", "FromDumpableContextFn", "GetAttrKey", "KeyEntry", "KeyPath",
    "LeafSpec", "MappingKey", "PyTree", "PyTreeSpec", "SequenceKey", "ToDumpableContextFn", "TreeSpec", "UnflattenFn",
    "is_namedtuple", "is_namedtuple_class", "is_namedtuple_instance", "is_structseq", "is_structseq_class",
    "is_structseq_instance", "key_get", "keystr", "register_constant", "register_dataclass", "register_pytree_node",
    "tree_all", "tree_all_only", "tree_any", "tree_any_only", "tree_flatten", "tree_flatten_with_path", "tree_is_leaf",
    "tree_iter", "tree_leaves", "tree_leaves_with_path", "tree_map", "tree_map_", "tree_map_only", "tree_map_only_",
    "tree_map_with_path", "tree_structure", "tree_unflatten", "treespec_dict", "treespec_dumps", "treespec_leaf",
    "treespec_list", "treespec_loads", "treespec_pprint", "treespec_tuple",
]  # fmt: skip
SUPPORTED_NODES = NODES
_list_flatten, _list_flatten_with_keys = list_flatten, list_flatten_with_keys
_dict_flatten, _dict_flatten_with_keys, _dict_unflatten = dict_flatten, dict_flatten_with_keys, dict_unflatten


def register_pytree_node(
    cls: type,
    flatten_fn: FlattenFn,
    unflatten_fn: UnflattenFn,
    *,
    serialized_type_name: str | None = None,
    to_dumpable_context: ToDumpableContextFn | None = None,
    from_dumpable_context: FromDumpableContextFn | None = None,
    flatten_with_keys_fn: FlattenKeysFn | None = None,
) -> None:
    """Make a class a container: flatten_fn gives (children, context), unflatten_fn(children, context) the object.

    Raises: ArgumentError for a class that is one.
    """
    if cls in NODES:
        raise ArgumentError(f"{cls} is already registered as pytree node.")
    if (to_dumpable_context is None) ^ (from_dumpable_context is None):
        raise ArgumentError(f"Both to_dumpable_context and from_dumpable_context for {cls} must be None or registered.")
    NODES[cls] = TreeNode(
        cls,
        flatten_fn,
        unflatten_fn,
        flatten_with_keys_fn,
        serialized_type_name,
        to_dumpable_context,
        from_dumpable_context,
    )


_register_pytree_node = _private_register_pytree_node = register_pytree_node


def _deregister_pytree_node(cls: type) -> None:
    """Make a class a leaf again."""
    del NODES[cls]


def register_dataclass(
    cls: type,
    *,
    field_names: list[str] | None = None,
    drop_field_names: list[str] | None = None,
    serialized_type_name: str | None = None,
) -> None:
    """Make a data class a container of its fields. Raises ArgumentError for what is none, or lacks such a field."""
    if not dataclasses.is_dataclass(cls):
        raise ArgumentError(f"register_dataclass() can only be used with dataclasses, got {cls}")
    own = [f.name for f in dataclasses.fields(cls) if f.init]
    names = own if field_names is None else list(field_names)
    kept = [name for name in names if name not in (drop_field_names or [])]
    if not set(kept) <= set(own):
        raise ArgumentError(f"{cls} has no fields {sorted(set(kept) - set(own))}")

    def flatten_with_keys(obj: Any) -> tuple[list[tuple[KeyEntry, Any]], Context]:
        present = [name for name in kept if getattr(obj, name) is not None]
        rest = [name for name in kept if name not in present]  # None: not a leaf
        return [(GetAttrKey(name), getattr(obj, name)) for name in present], [present, rest]

    def flatten(obj: Any) -> tuple[list[Any], Context]:
        pairs, context = flatten_with_keys(obj)
        return [value for _, value in pairs], context

    def unflatten(values: Iterable[Any], context: Context) -> Any:
        return cls(**dict(zip(context[0], values, strict=True)), **dict.fromkeys(context[1]))

    register_pytree_node(
        cls, flatten, unflatten, serialized_type_name=serialized_type_name, flatten_with_keys_fn=flatten_with_keys
    )


def register_constant(cls: type) -> None:
    """Make a class a container without leaves: an object of it is part of the tree's shape. It must compare by value.

    Raises: TypeError for one that compares by identity.
    """
    if getattr(cls, "__eq__") is object.__eq__:  # noqa: B009
        raise TypeError(f"register_constant(cls) expects `cls` to have a non-default `__eq__` implementation: {cls}")
    register_pytree_node(cls, lambda x: ([], x), lambda _, context: context, flatten_with_keys_fn=lambda x: ([], x))


# ---- to leaves and back


def tree_is_leaf(tree: Any, is_leaf: IsLeaf | None = None) -> bool:
    """Whether it is a leaf."""
    return node_type(tree) is None or (is_leaf is not None and is_leaf(tree))


def _is_leaf(tree: Any, is_leaf: IsLeaf | None = None) -> bool:
    return tree_is_leaf(tree, is_leaf)


def tree_flatten(tree: Any, is_leaf: IsLeaf | None = None) -> tuple[list[Any], TreeSpec]:
    """(leaves, spec). is_leaf: stops at what it is true of."""
    return flatten(tree, is_leaf)


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """The tree of this spec with these leaves. Raises ArgumentError for another number of them."""
    return treespec.unflatten(leaves)


def tree_iter(tree: Any, is_leaf: IsLeaf | None = None) -> Iterator[Any]:
    """The leaves, one by one."""
    return leaves_of(tree, is_leaf)


def tree_leaves(tree: Any, is_leaf: IsLeaf | None = None) -> list[Any]:
    """The leaves alone."""
    return list(tree_iter(tree, is_leaf))


def arg_tree_leaves(*args: Any, **kwargs: Any) -> list[Any]:
    """The leaves of a call's arguments."""
    return [leaf for value in (*args, *kwargs.values()) for leaf in tree_iter(value)]


def tree_structure(tree: Any, is_leaf: IsLeaf | None = None) -> TreeSpec:
    """The spec alone."""
    return tree_flatten(tree, is_leaf)[1]


# ---- with paths


def tree_flatten_with_path(tree: Any, is_leaf: IsLeaf | None = None) -> tuple[list[tuple[KeyPath, Any]], TreeSpec]:
    """((path, leaf) of each, spec). Raises ArgumentError for a registered class without flatten_with_keys_fn."""
    return list(_with_paths((), tree, is_leaf)), tree_structure(tree, is_leaf)


def _with_paths(path: KeyPath, tree: Any, is_leaf: IsLeaf | None) -> Iterator[tuple[KeyPath, Any]]:
    found = parts_of(tree, is_leaf)
    if found is None:
        yield path, tree
        return
    kind, children, _ = found
    if kind is namedtuple:
        keys: list[Any] = [GetAttrKey(name) for name in type(tree)._fields]
    else:
        with_keys = NODES[kind].flatten_with_keys
        if with_keys is None:
            raise ArgumentError(f"Did not find a flatten_with_keys_fn for type: {kind}. Please pass a "
                                "flatten_with_keys_fn argument to register_pytree_node.")  # fmt: skip
        keys = [key for key, _ in with_keys(tree)[0]]
    for key, child in zip(keys, children, strict=True):
        yield from _with_paths((*path, key), child, is_leaf)


def tree_leaves_with_path(tree: Any, is_leaf: IsLeaf | None = None) -> list[tuple[KeyPath, Any]]:
    """(path, leaf) of each."""
    return list(_with_paths((), tree, is_leaf))


def tree_map_with_path(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf | None = None) -> Any:
    """`tree_map` of func(path, leaf, ...)."""
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    columns = [spec.flatten_up_to(rest) for rest in rests]
    return spec.unflatten([func(path, leaf, *more) for (path, leaf), *more in zip(pairs, *columns, strict=True)])


def keystr(kp: KeyPath) -> str:
    """A path as text: "['a'][0].x"."""
    return "".join(map(str, kp))


def key_get(obj: Any, kp: KeyPath) -> Any:
    """What stands at a path."""
    return functools.reduce(lambda at, key: key.get(at), kp, obj)


# ---- functions over the leaves


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf | None = None) -> Any:
    """A tree of func(leaf, ...), the others what stands at the same place of `rests`. Raises ArgumentError."""
    leaves, spec = tree_flatten(tree, is_leaf)
    return spec.unflatten(list(map(func, leaves, *[spec.flatten_up_to(rest) for rest in rests])))


def tree_map_(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf | None = None) -> Any:
    """Call func at every leaf, for its effect; gives the tree back."""
    leaves, spec = tree_flatten(tree, is_leaf)
    for _ in map(func, leaves, *[spec.flatten_up_to(rest) for rest in rests]):
        pass
    return tree


def map_only(type_or_types_or_pred: Any, /) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """A decorator: the function at values of a type (a type, several, or a predicate), others stay."""
    hit = _predicate(type_or_types_or_pred)
    return lambda func: lambda x: func(x) if hit(x) else x


def _predicate(types: Any) -> Callable[[Any], bool]:
    if isinstance(types, (type, tuple, UnionType)):
        return lambda x: isinstance(x, types)
    if not callable(types):
        raise TypeError("Argument must be a type, a tuple of types, or a callable.")
    found: Callable[[Any], bool] = types
    return found


def tree_map_only(
    type_or_types_or_pred: Any, /, func: Callable[[Any], Any], tree: Any, is_leaf: IsLeaf | None = None
) -> Any:
    """`tree_map` at the leaves of a type (a type, several, or a predicate); the others stay."""
    return tree_map(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_map_only_(
    type_or_types_or_pred: Any, /, func: Callable[[Any], Any], tree: Any, is_leaf: IsLeaf | None = None
) -> Any:
    """`tree_map_` at the leaves of a type."""
    return tree_map_(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf | None = None) -> bool:
    """Whether it holds of every leaf."""
    return all(map(pred, tree_iter(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf | None = None) -> bool:
    """Whether it holds of some leaf."""
    return any(map(pred, tree_iter(tree, is_leaf)))


def tree_all_only(types: Any, /, pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf | None = None) -> bool:
    """Whether it holds of every leaf of these types."""
    return all(pred(leaf) for leaf in tree_iter(tree, is_leaf) if isinstance(leaf, types))


def tree_any_only(types: Any, /, pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf | None = None) -> bool:
    """Whether it holds of some leaf of these types."""
    return any(pred(leaf) for leaf in tree_iter(tree, is_leaf) if isinstance(leaf, types))


def _broadcast_to_and_flatten(tree: Any, treespec: TreeSpec, is_leaf: IsLeaf | None = None) -> list[Any] | None:
    """The leaves of `tree` for each leaf of a deeper spec, repeated where `tree` ends; None if they do not fit."""
    found = parts_of(tree, is_leaf)
    if found is None:
        return [tree] * treespec.num_leaves
    if treespec.is_leaf():
        return None
    kind, children, context = found
    if (kind, context, len(children)) != (treespec.type, treespec.context, treespec.num_children):
        return None
    parts = [_broadcast_to_and_flatten(c, s, is_leaf) for c, s in zip(children, treespec.children_specs, strict=True)]
    return None if any(part is None for part in parts) else [leaf for part in parts for leaf in part or ()]
