"""Trees come back as they were; data classes are containers where that is asked."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field
from typing import Any

import pytest

from compiler_core.dtype import float32
from compiler_core.errors import ArgumentError
from compiler_core.trees import flatten, leaves_of, mapped

Pair = namedtuple("Pair", "left right")


@dataclass
class Output:
    logits: Any
    loss: Any = None


TREES = [
    1,
    None,
    (),
    [],
    {},
    (1, [2, {"a": 3, "b": (4,)}]),
    Pair(1, [2]),
    Output(1, {"x": Output(2)}),
    OrderedDict([("z", 1), ("a", 2)]),
]


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_round_trip(tree: Any) -> None:
    leaves, spec = flatten(tree, fields=True)
    again = spec.unflatten(leaves)
    assert again == tree
    assert type(again) is type(tree)
    assert flatten(again, fields=True)[1] == spec


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_leaves_and_maps_are_of_the_same_tree(tree: Any) -> None:
    assert list(leaves_of(tree, fields=True)) == flatten(tree, fields=True)[0]
    assert flatten(mapped(str, tree)) == ([str(leaf) for leaf in flatten(tree)[0]], flatten(tree)[1])


@dataclass
class Counted:
    x: int
    seen: int = field(default=0, init=False)


def test_what_is_no_container() -> None:
    """A data class with more than its constructor takes, a class, a dtype; any data class where nobody asked."""
    for leaf in (Counted(1), Output, float32):
        assert flatten(leaf, fields=True)[0] == [leaf]
    assert flatten(Output(1))[0] == [Output(1)]
    assert flatten([[1], [2]], lambda tree: tree == [1])[0] == [[1], 2]


def test_a_wrong_number_of_leaves_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="has length 1"):
        flatten(Pair(1, 2))[1].unflatten([1])


def test_specs_tell_structure_apart() -> None:
    specs = [flatten(tree)[1] for tree in ((1, 2), [1, 2], (1, (2,)), {"a": 1, "b": 2}, {"b": 1, "a": 2}, Pair(1, 2))]
    assert len(set(specs)) == len(specs)


def test_dict_order_is_kept() -> None:
    leaves, spec = flatten({"b": 1, "a": 2})
    assert leaves == [1, 2]
    assert list(spec.unflatten(leaves)) == ["b", "a"]
