"""The one flattener of trees: nested containers as a flat list of leaves, and back.

In: trees of list, tuple, Size, named tuple, dict, OrderedDict, defaultdict, deque and of what is in `NODES`; all else
is a leaf, None too. Out: leaves from left to right (dicts in their order), and a `TreeSpec` that compares by value.
`fields=True`: data classes that hold nothing but what their constructor takes are containers as well.
Who uses it: torch.utils._pytree (distcompile/utils/_pytree.py, which adds paths and JSON), wrap_numpy, checkpoints.
Why not optree: it has no class by which a shape is built and read (torch's TreeSpec), sorts dicts unless told
otherwise, and is C code, which capture cannot look into.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from compiler_core.device import Device
from compiler_core.dtype import DType
from compiler_core.errors import ArgumentError
from compiler_core.records import dataclass
from compiler_core.tensor.size import Size

Context: TypeAlias = Any
FlattenFn: TypeAlias = Callable[[Any], tuple[list[Any], Context]]
FlattenKeysFn: TypeAlias = Callable[[Any], tuple[list[tuple[Any, Any]], Context]]
UnflattenFn: TypeAlias = Callable[[Iterable[Any], Context], Any]
IsLeaf: TypeAlias = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A container: how it is taken apart and built again, and its context's form in JSON. name: in JSON."""

    type: type
    flatten: FlattenFn
    unflatten: UnflattenFn
    flatten_with_keys: FlattenKeysFn | None
    name: str | None
    dump: Callable[[Context], Any] | None = None
    load: Callable[[Any], Context] | None = None


NODES: dict[type, TreeNode] = {}
_DICTS = (dict, OrderedDict, defaultdict)
FIELDS = "fields"  # the type of a data class in a spec, as namedtuple is that of named tuples


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


# ---- which is a container


def is_namedtuple_class(cls: Any) -> bool:
    """Whether it is a class made by namedtuple."""
    return (
        isinstance(cls, type)
        and issubclass(cls, tuple)
        and isinstance(getattr(cls, "_fields", None), tuple)
        and hasattr(cls, "_make")
        and hasattr(cls, "_asdict")
    )


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
        if self.type is namedtuple or self.type is FIELDS:
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


LEAF = TreeSpec(None, None, ())


# ---- to leaves and back


def parts_of(tree: Any, is_leaf: IsLeaf | None, fields: bool = False) -> tuple[Any, list[Any], Context] | None:
    """(type, children, context), or None for a leaf."""
    if is_leaf is not None and is_leaf(tree):
        return None
    kind = node_type(tree)
    if kind is None:
        return _fields(tree) if fields else None
    if kind is namedtuple:
        return kind, list(tree), type(tree)
    parts, context = NODES[kind].flatten(tree)
    return kind, list(parts), context


def _fields(tree: Any) -> tuple[Any, list[Any], Context] | None:
    """The same of a data class that is all fields; dtypes and devices are plain values."""
    if not dataclasses.is_dataclass(tree) or isinstance(tree, (type, DType, Device)):
        return None
    own = dataclasses.fields(tree)
    names = [f.name for f in own]
    if not all(f.init for f in own) or not set(names) >= getattr(tree, "__dict__", {}).keys():
        return None
    return FIELDS, [getattr(tree, name) for name in names], FieldsOf(type(tree), tuple(names))


@dataclass(frozen=True, slots=True)
class FieldsOf:
    """What builds a data class again from the values of its fields."""

    cls: type
    names: tuple[str, ...]

    def __call__(self, *values: Any) -> Any:
        return self.cls(**dict(zip(self.names, values, strict=True)))


def flatten(tree: Any, is_leaf: IsLeaf | None = None, *, fields: bool = False) -> tuple[list[Any], TreeSpec]:
    """(leaves, spec). is_leaf: stops at what it is true of."""
    leaves: list[Any] = []
    return leaves, _flatten_into(tree, leaves, is_leaf, fields)


def _flatten_into(tree: Any, leaves: list[Any], is_leaf: IsLeaf | None, fields: bool) -> TreeSpec:
    found = parts_of(tree, is_leaf, fields)
    if found is None:
        leaves.append(tree)
        return LEAF
    kind, parts, context = found
    return TreeSpec(kind, context, [_flatten_into(part, leaves, is_leaf, fields) for part in parts])


def leaves_of(tree: Any, is_leaf: IsLeaf | None = None, *, fields: bool = False) -> Iterator[Any]:
    """The leaves, one by one."""
    found = parts_of(tree, is_leaf, fields)
    if found is None:
        yield tree
        return
    for part in found[1]:
        yield from leaves_of(part, is_leaf, fields=fields)


def mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    """The tree with `function` of each leaf."""
    leaves, spec = flatten(tree)
    return spec.unflatten(list(map(function, leaves)))


# ---- the containers


def list_flatten(d: Any) -> tuple[list[Any], Context]:
    return list(d), None


def list_flatten_with_keys(d: Any) -> tuple[list[tuple[KeyEntry, Any]], Context]:
    return [(SequenceKey(i), v) for i, v in enumerate(d)], None


def dict_flatten(d: Any) -> tuple[list[Any], Context]:
    return list(d.values()), list(d)


def dict_flatten_with_keys(d: Any) -> tuple[list[tuple[KeyEntry, Any]], Context]:
    return [(MappingKey(k), v) for k, v in d.items()], list(d)


def dict_unflatten(values: Iterable[Any], context: Context) -> dict[Any, Any]:
    return dict(zip(context, values, strict=True))


def _add(cls: type, flatten: FlattenFn, unflatten: UnflattenFn, with_keys: FlattenKeysFn | None, **rest: Any) -> None:
    name = rest.pop("name", f"{cls.__module__}.{cls.__qualname__}")
    NODES[cls] = TreeNode(cls, flatten, unflatten, with_keys, name, **rest)


_add(list, list_flatten, lambda values, _: list(values), list_flatten_with_keys)
_add(tuple, list_flatten, lambda values, _: tuple(values), list_flatten_with_keys)
_add(Size, list_flatten, lambda values, _: Size(values), list_flatten_with_keys, name="torch.Size")
_add(dict, dict_flatten, dict_unflatten, dict_flatten_with_keys)
_add(OrderedDict, dict_flatten, lambda v, c: OrderedDict(zip(c, v, strict=True)), dict_flatten_with_keys)
_add(
    defaultdict,
    lambda d: (list(d.values()), [d.default_factory, list(d)]),
    lambda values, context: defaultdict(context[0], zip(context[1], values, strict=True)),
    lambda d: (dict_flatten_with_keys(d)[0], [d.default_factory, list(d)]),
)
_add(
    deque,
    lambda d: (list(d), d.maxlen),
    lambda values, maxlen: deque(values, maxlen),
    lambda d: (list_flatten_with_keys(d)[0], d.maxlen),
)
