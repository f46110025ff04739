"""Shapes of trees: `TreeSpec`, the table of containers, the keys of paths, and shapes as JSON.

In: containers as (type, context, children). Out: specs that compare by value, print as torch's, and build trees.
"""

from __future__ import annotations

import json
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from distcompile.errors import ArgumentError, NotSupportedError

PyTree: TypeAlias = Any
Context: TypeAlias = Any
DumpableContext: TypeAlias = Any
FlattenFn: TypeAlias = Callable[[Any], tuple[list[Any], Context]]
FlattenKeysFn: TypeAlias = Callable[[Any], tuple[list[tuple[Any, Any]], Context]]
UnflattenFn: TypeAlias = Callable[[Iterable[Any], Context], Any]
ToDumpableContextFn: TypeAlias = Callable[[Context], DumpableContext]
FromDumpableContextFn: TypeAlias = Callable[[DumpableContext], Context]
PROTOCOL = 1


@dataclass(frozen=True, slots=True)
class Node:
    """A container: how it is taken apart and built again, and its context's form in JSON. name: in JSON."""

    type: type
    flatten: FlattenFn
    unflatten: UnflattenFn
    flatten_with_keys: FlattenKeysFn | None
    name: str | None
    dump: ToDumpableContextFn | None = None
    load: FromDumpableContextFn | None = None


NODES: dict[type, Node] = {}
_DICTS = (dict, OrderedDict, defaultdict)


@dataclass(frozen=True, slots=True)
class SequenceKey:
    """Where in a sequence a child stands."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        return sequence[self.idx]


@dataclass(frozen=True, slots=True)
class MappingKey:
    """Where in a mapping a child stands."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        return mapping[self.key]


@dataclass(frozen=True, slots=True)
class GetAttrKey:
    """The attribute that a child is."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: Any) -> Any:
        return getattr(obj, self.name)


KeyEntry: TypeAlias = SequenceKey | MappingKey | GetAttrKey


# ---- named tuples


def is_namedtuple_class(cls: Any) -> bool:
    """Whether it is a class made by namedtuple."""
    return (
        isinstance(cls, type)
        and issubclass(cls, tuple)
        and isinstance(getattr(cls, "_fields", None), tuple)
        and hasattr(cls, "_make")
        and hasattr(cls, "_asdict")
    )


def is_namedtuple_instance(obj: Any) -> bool:
    """Whether it is a named tuple."""
    return is_namedtuple_class(type(obj))


def is_namedtuple(obj: Any) -> bool:
    """Whether it is a named tuple, or a class of them."""
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def is_structseq_class(cls: Any) -> bool:
    """Whether it is a class like time.struct_time."""
    return isinstance(cls, type) and cls.__base__ is tuple and isinstance(getattr(cls, "n_sequence_fields", None), int)


def is_structseq_instance(obj: Any) -> bool:
    """Whether it is an object like time.localtime()."""
    return is_structseq_class(type(obj))


def is_structseq(obj: Any) -> bool:
    """Whether it is such an object, or such a class."""
    return is_structseq_class(obj if isinstance(obj, type) else type(obj))


def node_type(tree: Any) -> Any:
    """The class under which it is a container: `namedtuple` for any of those; None for a leaf."""
    kind = type(tree)
    if kind in NODES:
        return kind
    return namedtuple if is_namedtuple_class(kind) else None


# ---- specs


class TreeSpec:
    """A container's shape. type: None for a leaf. context: its keys, or what else builds it again."""

    __slots__ = ("_children", "context", "num_leaves", "type")

    def __init__(self, type: Any, context: Context, children_specs: Iterable[TreeSpec]) -> None:
        self.type, self.context, self._children = type, context, tuple(children_specs)
        self.num_leaves: int = 1 if type is None else sum(child.num_leaves for child in self._children)

    @property
    def children_specs(self) -> list[TreeSpec]:
        return list(self._children)

    @property
    def num_children(self) -> int:
        return len(self._children)

    @property
    def num_nodes(self) -> int:
        return 1 + sum(child.num_nodes for child in self._children)

    def is_leaf(self) -> bool:
        return self.type is None

    def children(self) -> list[TreeSpec]:
        return list(self._children)

    def child(self, index: int) -> TreeSpec:
        return self._children[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TreeSpec):
            return NotImplemented
        mine, theirs = (self.type, self.context, self._children), (other.type, other.context, other._children)
        return mine == theirs

    def __hash__(self) -> int:
        context = self.context
        if self.type in _DICTS:
            context = tuple(context[1] if self.type is defaultdict else context)
        return hash((self.type, context if context.__hash__ else repr(context), self._children))

    def __repr__(self) -> str:
        return self._text(0)

    def _text(self, indent: int) -> str:
        if self.is_leaf():
            return "*"
        kind = getattr(self.type, "__name__", str(self.type))
        inner = indent + 2
        texts = [child._text(inner) for child in self._children]
        return f"TreeSpec({kind}, {self.context}, [{(',' + chr(10) + ' ' * inner).join(texts)}])"

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The tree with these leaves. Raises ArgumentError for another number of them."""
        given = list(leaves)
        if len(given) != self.num_leaves:
            raise ArgumentError(f"treespec.unflatten(leaves): `leaves` has length {len(given)} but the spec refers to "
                                f"a pytree that holds {self.num_leaves} items ({self}).")  # fmt: skip
        return self._built(iter(given))

    def _built(self, leaves: Iterator[Any]) -> Any:
        if self.is_leaf():
            return next(leaves)
        children = [child._built(leaves) for child in self._children]
        if self.type is namedtuple:
            return self.context(*children)
        return NODES[self.type].unflatten(children, self.context)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """What stands in `tree` at each leaf of this shape. Raises ArgumentError for a tree that has not this shape."""
        if self.is_leaf():
            return [tree]
        children = self._matching(tree)
        return [
            leaf for child, spec in zip(children, self._children, strict=True) for leaf in spec.flatten_up_to(child)
        ]

    def _matching(self, tree: Any) -> list[Any]:
        """The children of `tree`, which must be such a container, in this one's order."""
        kind = node_type(tree)
        if kind is None or (kind is not self.type and not (kind in _DICTS and self.type in _DICTS)):
            raise ArgumentError(f"Node type mismatch; expected {self.type!r}, but got {type(tree)!r}.")
        if kind in _DICTS:
            keys = self.context[1] if self.type is defaultdict else self.context
            missing, extra = set(keys) - set(tree), set(tree) - set(keys)
            if missing or extra:
                text = (f"; missing key(s): {missing}" if missing else "") + (
                    f"; extra key(s): {extra}" if extra else ""
                )
                raise ArgumentError(f"Node keys mismatch{text}.")
            return [tree[key] for key in keys]
        children, context = (list(tree), type(tree)) if kind is namedtuple else NODES[kind].flatten(tree)
        if len(children) != self.num_children:
            raise ArgumentError(f"Node arity mismatch; expected {self.num_children}, but got {len(children)}.")
        if context != self.context and kind is not deque:  # the length that a deque may have is no part of its shape
            raise ArgumentError(
                f"Node context mismatch for custom node type {kind!r}; expected {self.context!r}, got {context!r}."
            )
        return list(children)


_LEAF = TreeSpec(None, None, ())


class LeafSpec(TreeSpec):
    """The shape of a leaf."""

    __slots__ = ()

    def __new__(cls) -> LeafSpec:
        return object.__new__(cls)

    def __init__(self) -> None:
        super().__init__(None, None, ())


def treespec_leaf() -> TreeSpec:
    """The shape of a leaf."""
    return _LEAF


def treespec_tuple(iterable: Iterable[TreeSpec] = (), /) -> TreeSpec:
    """The shape of a tuple of such children."""
    return TreeSpec(tuple, None, iterable)


def treespec_list(iterable: Iterable[TreeSpec] = (), /) -> TreeSpec:
    """The shape of a list of such children."""
    return TreeSpec(list, None, iterable)


def treespec_dict(mapping: Any = (), /, **kwargs: TreeSpec) -> TreeSpec:
    """The shape of a dict of such children."""
    children = dict(mapping, **kwargs)
    return TreeSpec(dict, list(children), children.values())


def treespec_pprint(treespec: TreeSpec) -> str:
    """A tree of stars, as text."""
    from distcompile.utils._pytree import tree_unflatten

    class Star:
        def __repr__(self) -> str:
            return "*"

    return repr(tree_unflatten([Star() for _ in range(treespec.num_leaves)], treespec))


# ---- JSON


def treespec_dumps(treespec: TreeSpec, protocol: int | None = None) -> str:
    """A spec as JSON, torch's. Raises NotSupportedError for containers without a name in it."""
    if protocol not in (None, PROTOCOL):
        raise ArgumentError(f"Unknown protocol {protocol}. Available protocols: [{PROTOCOL}]")
    return json.dumps((PROTOCOL, _said(treespec)))


def _said(spec: TreeSpec) -> dict[str, Any]:
    children = [_said(child) for child in spec.children_specs]
    if spec.is_leaf():
        return {"type": None, "context": None, "children_spec": []}
    node = NODES.get(spec.type)
    if node is None or node.name is None:
        raise NotSupportedError(f"Can't serialize TreeSpec of {spec.type}: it has no serialized_type_name",
                                remedy="give one to register_pytree_node")  # fmt: skip
    context = node.dump(spec.context) if node.dump else json.dumps(spec.context)
    return {"type": node.name, "context": context, "children_spec": children}


def treespec_loads(serialized: str) -> TreeSpec:
    """The spec that `treespec_dumps` (or torch's) wrote. Raises ArgumentError for an unknown container."""
    protocol, said = json.loads(serialized)
    if protocol != PROTOCOL:
        raise ArgumentError(f"Unknown protocol {protocol}. Available protocols: [{PROTOCOL}]")
    return _heard(said)


def _heard(said: dict[str, Any]) -> TreeSpec:
    if said["type"] is None:
        return _LEAF
    node = next((node for node in NODES.values() if node.name == said["type"]), None)
    if node is None:
        raise ArgumentError(f"no container is called {said['type']} here", remedy="register_pytree_node first")
    context = node.load(said["context"]) if node.load else json.loads(said["context"])
    return TreeSpec(node.type, context, map(_heard, said["children_spec"]))
