"""What C functions find in containers counts, however deep: expressions, what they read, and changes of that.

Compiled is plain, before and after each change.
"""

from __future__ import annotations

import functools
import itertools
import json
import operator
import warnings
from typing import Any

import pytest

import distcompile as torch

NAMES = {"functools": functools, "itertools": itertools, "json": json, "operator": operator, "torch": torch}
DEEP = "[[[[[[[[[[[1]]]]]]]]]]]"
DEEPEST = "deep" + "[0]" * 11
EXPRESSIONS = [
    ("sum(itertools.starmap(operator.mul, l))", "l = [(1, 2), (3, 4)]", ["l[0] = (9, 9)"]),
    ("sum(map(sum, l))", "l = [[1, 2], [3]]", ["l[0][0] = 10", "l.append([7])"]),
    ("sum(map(sum, zip(l, k)))", "l, k = [1, 2], [3, 0]", ["l[1] = 9", "k[0] = 7"]),
    ("sum(map(operator.itemgetter(0), l))", "l = [[1, 2], [3]]", ["l[0][0] = 10"]),
    ("len(list(filter(None, l)))", "l = [[1], []]", ["l[1].append(1)"]),
    ("len(list(itertools.takewhile(bool, l)))", "l = [[1], [3]]", ["l[0].clear()"]),
    ("len(''.join(map(str, l)))", "l = [[1], 2]", ["l[0][0] = 1000"]),
    ("sorted(l, key=len)[0][0]", "l = [[1, 2], [3]]", ["l[1].extend([1, 1])"]),
    ("functools.reduce(operator.add, l)[0]", "l = [[1], [3]]", ["l[0][0] = 5"]),
    ("dict(l)['a']", "l = [['a', 1]]", ["l[0][1] = 5"]),
    ("len(json.dumps(deep))", f"deep = {DEEP}", [f"{DEEPEST} = 5000"]),
    ("(2 if deep == other else 3)", f"deep = {DEEP}; other = {DEEP}", [f"{DEEPEST} = 5000"]),
    ("len(str(ring))", "ring = [[1]]; ring.append(ring)", ["ring[0][0] = 500"]),
]


@pytest.mark.parametrize(("expression", "before", "changes"), EXPRESSIONS)
def test_noticed(expression: str, before: str, changes: list[str]) -> None:
    names: dict[str, Any] = dict(NAMES)
    exec(f"{before}\ndef function(x): return x * {expression}", names)
    function = names["function"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(function, backend="eager")
        for change in ["pass", *changes]:
            exec(change, names)
            for _ in range(2):
                assert compiled(torch.ones(2)).tolist() == function(torch.ones(2)).tolist()
