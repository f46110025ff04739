"""torch's functions over shapes of trees: what makes and prints one, and shapes as JSON.

In: `TreeSpec`s of compiler_core/trees.py. Out: the same, text, JSON.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections import defaultdict, namedtuple
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeAlias

from compiler_core.trees import LEAF, NODES, Context, TreeSpec, is_namedtuple_class
from distcompile.errors import ArgumentError, NotSupportedError

PyTree: TypeAlias = Any
DumpableContext: TypeAlias = Any
ToDumpableContextFn: TypeAlias = Callable[[Context], DumpableContext]
FromDumpableContextFn: TypeAlias = Callable[[DumpableContext], Context]
PROTOCOL = 1
NAMED_TUPLE = "collections.namedtuple"


# ---- named tuples


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


# ---- specs


class LeafSpec(TreeSpec):
    """The shape of a leaf."""

    __slots__ = ()

    def __new__(cls) -> LeafSpec:
        return object.__new__(cls)

    def __init__(self) -> None:
        super().__init__(None, None, ())


def treespec_leaf() -> TreeSpec:
    """The shape of a leaf."""
    return LEAF


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

    class Star:
        def __repr__(self) -> str:
            return "*"

    return repr(treespec.unflatten([Star() for _ in range(treespec.num_leaves)]))


# ---- JSON


def _defaultdict_dump(context: Context) -> Any:
    factory, keys = context
    return {
        "default_factory_module": factory.__module__ if factory else None,
        "default_factory_name": factory.__qualname__ if factory else None,
        "dict_context": keys,
    }


def _defaultdict_load(said: Any) -> Context:
    module, name = said["default_factory_module"], said["default_factory_name"]
    return [_class(f"{module}.{name}") if module else None, said["dict_context"]]


def _class(name: str) -> type:
    """A class of a module that is loaded: reading a file runs nothing. Raises ArgumentError."""
    module, _, own = name.rpartition(".")
    if module.split(".")[0] == "distcompile":  # ours: importing it does nothing else
        importlib.import_module(module)
    found = getattr(sys.modules.get(module), own, None)
    if not isinstance(found, type):
        raise ArgumentError(f"no class is called {name} here", remedy="import what defines it first")
    return found


NODES[defaultdict] = replace(NODES[defaultdict], dump=_defaultdict_dump, load=_defaultdict_load)


def treespec_dumps(treespec: TreeSpec, protocol: int | None = None) -> str:
    """A spec as JSON, torch's. Raises NotSupportedError for containers without a name in it."""
    if protocol not in (None, PROTOCOL):
        raise ArgumentError(f"Unknown protocol {protocol}. Available protocols: [{PROTOCOL}]")
    return json.dumps((PROTOCOL, _said(treespec)))


def _said(spec: TreeSpec) -> dict[str, Any]:
    children = [_said(child) for child in spec.children_specs]
    if spec.is_leaf():
        return {"type": None, "context": None, "children_spec": []}
    if spec.type is namedtuple:
        name = f"{spec.context.__module__}.{spec.context.__qualname__}"
        return {"type": NAMED_TUPLE, "context": name, "children_spec": children}
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
        return LEAF
    if said["type"] == NAMED_TUPLE:
        made = _class(said["context"])
        if not is_namedtuple_class(made):
            raise ArgumentError(f"{said['context']} is no named tuple here")
        return TreeSpec(namedtuple, made, map(_heard, said["children_spec"]))
    node = next((node for node in NODES.values() if node.name == said["type"]), None)
    if node is None:
        raise ArgumentError(f"no container is called {said['type']} here", remedy="register_pytree_node first")
    context = node.load(said["context"]) if node.load else json.loads(said["context"])
    return TreeSpec(node.type, context, map(_heard, said["children_spec"]))
