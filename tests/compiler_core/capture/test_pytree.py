"""Trees come back as they were, and their paths are Python."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest

from compiler_core.capture.recipes.pytree import flatten, paths, unflatten

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
    leaves, spec = flatten(tree)
    again = unflatten(spec, leaves)
    assert again == tree
    assert type(again) is type(tree)
    assert flatten(again)[1] == spec


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_paths_reach_their_leaves(tree: Any) -> None:
    leaves, spec = flatten(tree)
    assert [eval(path, {"tree": tree}) for path in paths(spec, "tree")] == leaves


def test_specs_tell_structure_apart() -> None:
    specs = [flatten(tree)[1] for tree in ((1, 2), [1, 2], (1, (2,)), {"a": 1, "b": 2}, {"b": 1, "a": 2}, Pair(1, 2))]
    assert len(set(specs)) == len(specs)


def test_dict_order_is_kept() -> None:
    leaves, spec = flatten({"b": 1, "a": 2})
    assert leaves == [1, 2]
    assert list(unflatten(spec, leaves)) == ["b", "a"]
