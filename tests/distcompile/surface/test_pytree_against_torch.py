"""utils._pytree in full: the same calls on the same trees give what torch gives, or the same kind of error."""

from __future__ import annotations

import dataclasses
import re
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from typing import Any

import pytest

import distcompile.utils._pytree as ours

theirs = pytest.importorskip("torch.utils._pytree")

Point = namedtuple("Point", "x y")
TREES: list[Any] = [
    3,
    None,
    [],
    {},
    (),
    [1, (2, None), {"b": 4, "a": [5, 6]}],
    Point(1, OrderedDict(x=2, y=())),
    deque([1, [2]], maxlen=3),
    defaultdict(list, k=[1, 2]),
    {"a": (1, Point(2, [3]))},
]


class Pair:
    def __init__(self, a: Any, b: Any, name: str) -> None:
        self.a, self.b, self.name = a, b, name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pair) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Pair({self.a}, {self.b}, {self.name})"


@dataclasses.dataclass
class Data:
    x: Any
    y: Any = None
    z: int = 5


@dataclasses.dataclass(frozen=True)
class Fixed:
    n: int


for library in (ours, theirs):
    library.register_pytree_node(
        Pair,
        lambda p: ([p.a, p.b], p.name),
        lambda values, name: Pair(*values, name),
        serialized_type_name="tests.Pair",
        flatten_with_keys_fn=lambda p, t=library: ([(t.GetAttrKey("a"), p.a), (t.GetAttrKey("b"), p.b)], p.name),
    )
    library.register_dataclass(Data, field_names=["x", "y", "z"])
    library.register_constant(Fixed)
TREES += [Pair(1, [2], "p"), Data(1, [2]), Data(1), [Fixed(3), 4], [Pair(Data(1), Fixed(2), "q")]]


def shown(spec: Any) -> str:
    """A spec as text; torch wraps constants."""
    return re.sub(r"ConstantNode\(value=(Fixed\(n=\d\))\)", r"\1", repr(spec))


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_trees(tree: Any) -> None:
    found: list[list[Any]] = []
    for t in (ours, theirs):
        leaves, spec = t.tree_flatten(tree)
        pairs, again = t.tree_flatten_with_path(tree)
        assert spec == again == t.tree_structure(tree)
        assert hash(spec) == hash(again)
        assert t.tree_unflatten(leaves, spec) == tree
        assert [t.key_get(tree, path) for path, _ in pairs] == leaves
        try:
            text = t.treespec_dumps(spec)
            assert t.treespec_loads(text) == spec
        except NotImplementedError:
            text = "none"
        found.append(
            [
                leaves, list(t.tree_iter(tree)), t.tree_leaves(tree), shown(spec), text, t.tree_is_leaf(tree),
                spec.num_leaves, spec.num_nodes, spec.num_children, spec.is_leaf(),
                [(t.keystr(path), leaf) for path, leaf in pairs], t.tree_map(str, tree),
                t.tree_map_only(int, lambda x: x * 2, tree), t.tree_any_only(int, lambda x: x > 3, tree),
                t.tree_all_only(int, lambda x: x > 3, tree), t.tree_map(lambda a, b: (a, b), tree, tree),
                t.tree_map_with_path(lambda path, x, t=t: (t.keystr(path), x), tree),
                t.tree_map(lambda x: x, tree, is_leaf=lambda x: isinstance(x, list)),
                t._broadcast_to_and_flatten(7, spec), t.treespec_pprint(spec),
            ]
        )  # fmt: skip
    if found[1][4] == "none":
        found[0][4] = "none"  # named tuples: ours writes them
    assert found[0] == found[1]


CALLS: dict[str, Callable[[Any], Any]] = {
    "too few leaves": lambda t: t.tree_unflatten([1], t.tree_structure([1, 2])),
    "another container": lambda t: t.tree_map(max, [1], (1,)),
    "longer": lambda t: t.tree_map(max, [1], [1, 2]),
    "deeper": lambda t: t.tree_map(lambda a, b: (a, b), [1], [[2, 3]]),
    "dicts in another order": lambda t: t.tree_map(lambda a, b: (a, b), {"a": 1, "b": 2}, {"b": 3, "a": 4}),
    "dicts of another kind": lambda t: t.tree_map(lambda a, b: (a, b), {"a": 1}, OrderedDict(a=3)),
    "other keys": lambda t: t.tree_structure({"a": 1}).flatten_up_to({"b": 1}),
    "another context": lambda t: t.tree_map(max, Pair(1, 2, "p"), Pair(1, 2, "q")),
    "registered twice": lambda t: t.register_pytree_node(list, None, None),
    "no types": lambda t: t.tree_map_only(3, str, [1]),
    "a predicate": lambda t: t.tree_map_only(lambda x: x > 1, str, [1, 2]),
    "a union": lambda t: t.tree_map_only(int | str, str, [1, "a", 2.5]),
    "broadcast": lambda t: t._broadcast_to_and_flatten([1, 2], t.tree_structure([1, [2, 3]])),
    "broadcast that does not fit": lambda t: t._broadcast_to_and_flatten([1, 2, 3], t.tree_structure([1, [2, 3]])),
    "no data class": lambda t: t.register_dataclass(int),
    "no constant": lambda t: t.register_constant(type("Plain", (), {})),
    "built shapes": lambda t: (repr(t.treespec_tuple([t.treespec_leaf()])), t.treespec_leaf() == t.LeafSpec()),
    "named tuples": lambda t: [t.is_namedtuple(x) for x in (Point, Point(1, 2), (1,), tuple)],
    "in place": lambda t: (lambda seen: (t.tree_map_(seen.append, [1, (2,)]), seen))([]),
    "arguments": lambda t: t.arg_tree_leaves(1, [2], a=(3,)),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    try:
        expected = CALLS[name](theirs)
    except (ValueError, TypeError, NotImplementedError) as error:
        with pytest.raises(type(error)):
            CALLS[name](ours)
    else:
        assert CALLS[name](ours) == expected


def test_every_public_name_is_there() -> None:
    assert set(theirs.__all__) <= set(dir(ours))
