"""What a program says of sizes: marks on tensors, which of them count, what they survive, and whom they refuse."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import distcompile as dc
from compiler_core.capture.marks import Asked, check_marked, dynamic_dims
from compiler_core.config import config
from compiler_core.errors import ArgumentTypeError, ConstraintViolationError, GraphBreak, IndexError_
from compiler_core.log import DistCompileWarning
from compiler_core.symbolic.size import Sizes
from distcompile import _dynamo as dynamo

STRICT, WEAK = Asked(marked=True), Asked()


def asked(mark: Callable[[Any], Any], shape: tuple[int, ...] = (4, 5), **said: Any) -> dict[int, Asked]:
    x = dc.ones(shape)
    mark(x)
    return dynamic_dims(x, "x", **said)


def test_a_mark_names_dims() -> None:
    assert asked(lambda x: dynamo.mark_dynamic(x, 0)) == {0: STRICT}
    assert asked(lambda x: dynamo.mark_dynamic(x, [0, -1])) == {0: STRICT, 1: STRICT}
    assert asked(lambda x: dynamo.mark_dynamic(x, 1, min=3, max=9)) == {1: Asked(3, 9, marked=True, bounded=True)}
    assert asked(lambda x: dynamo.mark_dynamic(x, 1, min=0)) == {1: Asked(2, math.inf, marked=True, bounded=True)}
    assert asked(lambda x: dynamo.maybe_mark_dynamic(x, (1,))) == {1: WEAK}


@pytest.mark.parametrize(("strict", "other", "what"), [(False, "maybe_", WEAK), (True, "", STRICT)])
def test_unbacked_is_told_to_be_another_mark_once(strict: bool, other: str, what: Asked) -> None:
    def mark(x: Any) -> None:
        dynamo.decorators.mark_unbacked(x, 0, strict=strict)

    told = rf"mark_unbacked does what {other}mark_dynamic does: .* 0 and 1"
    with pytest.warns(DistCompileWarning, match=told) as said:
        found = [asked(mark), asked(mark)]
    assert found == [{0: what}, {0: what}]
    assert [Path(warning.filename).name for warning in said] == ["test_marks.py"]


def test_who_counts_for_more() -> None:
    def both(x: Any) -> None:
        dynamo.mark_static(x)
        dynamo.mark_dynamic(x, 0)

    assert asked(both, every=True) == {0: STRICT}
    assert asked(lambda x: dynamo.mark_static(x, 1), every=True) == {0: WEAK}
    assert asked(lambda x: dynamo.mark_static(x, 1), seen={0, 1}) == {0: WEAK}
    assert asked(lambda x: None, every=True) == {0: WEAK, 1: WEAK}
    assert asked(lambda x: None, seen={1}) == {1: WEAK}
    assert asked(lambda x: None) == {}


def test_0_and_1_are_constants() -> None:
    assert asked(lambda x: dynamo.maybe_mark_dynamic(x, 0), shape=(1, 5), every=True) == {1: WEAK}
    assert asked(lambda x: dynamo.mark_dynamic(x, 0), shape=(1, 5)) == {}


def test_a_size_out_of_its_range_is_refused() -> None:
    with pytest.raises(ConstraintViolationError, match=r"(?s)^x.shape\[0\] is marked .* is 4 in .*expected: 2 to 3"):
        asked(lambda x: dynamo.mark_dynamic(x, 0, max=3))
    with pytest.raises(ConstraintViolationError, match=r"(?s)^x.shape\[0\] is marked .* is 1 in .*expected: 2 or more"):
        asked(lambda x: dynamo.mark_dynamic(x, 0, min=1), shape=(1, 5))
    with config.patch(allow_ignore_mark_dynamic=True):
        assert asked(lambda x: dynamo.mark_dynamic(x, 0, max=3)) == {}
        assert asked(lambda x: dynamo.mark_dynamic(x, 0)) == {0: WEAK}


def test_what_cannot_be_marked_is_refused() -> None:
    x = dc.ones(4, 5)
    for wrong in (2, -3):
        with pytest.raises(IndexError_, match=f"dim {wrong} is marked, of a tensor of 2 dims"):
            dynamo.mark_dynamic(x, wrong)
    with pytest.raises(ArgumentTypeError, match="takes a tensor or a class of Modules"):
        dynamo.mark_static(3)
    assert dynamo.mark_static(dc.nn.Linear) is dc.nn.Linear


SURVIVES: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "the handle itself": (lambda x: x.requires_grad_(), True),
    "what gives itself back": (lambda x: x.to("cpu").contiguous().float(), True),
    "in place": (lambda x: x.add_(1), True),
    "copy.copy": (copy.copy, True),
    "copy.deepcopy": (copy.deepcopy, True),
    "pickle": (lambda x: pickle.loads(pickle.dumps(x)), True),
    "clone": (lambda x: x.clone(), False),
    "detach": (lambda x: x.detach(), False),
    "data": (lambda x: x.data, False),
    "a view": (lambda x: x.view(-1), False),
    "all of it": (lambda x: x[:], False),
    "another dtype": (lambda x: x.to(x.dtype).double(), False),
}


@pytest.mark.parametrize("case", SURVIVES)
def test_what_a_mark_survives(case: str) -> None:
    x = dc.ones(4, 5)
    dynamo.mark_dynamic(x, 0)
    then, survives = SURVIVES[case]
    assert hasattr(then(x), "_dynamo_dynamic_indices") is survives


@pytest.mark.torch
@pytest.mark.parametrize("case", SURVIVES)
def test_it_survives_what_it_does_in_torch(case: str) -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones(4, 5)
    torch._dynamo.mark_dynamic(x, 0)
    then, survives = SURVIVES[case]
    assert hasattr(then(x), "_dynamo_dynamic_indices") is survives


def assumed(ask: Callable[[Any], Any], asked: Asked) -> None:
    sizes = Sizes()
    size = sizes.new(8, low=asked.low, high=asked.high, text="x.shape[0]")
    other = sizes.new(8, text="y.shape[0]")
    ask(size)
    check_marked(sizes, [(size, asked), (other, WEAK)])


def test_a_graph_that_fixes_what_is_marked_is_refused() -> None:
    assumed(lambda s: s == 9, STRICT)
    assumed(lambda s: s < 9, STRICT)
    assumed(lambda s: s % 2 == 0, STRICT)
    assumed(lambda s: int(s), WEAK)
    for fixes in (int, range, lambda s: s == 8, lambda s: 2 * s == 16, lambda s: s < 9 and s > 7):
        with pytest.raises(ConstraintViolationError, match=r"^x.shape\[0\] is marked as dynamic, and the graph would"):
            assumed(fixes, STRICT)
    with pytest.raises(ConstraintViolationError, match=rf"at: {__file__}"):
        assumed(int, STRICT)


def test_a_graph_that_narrows_a_range_is_refused() -> None:
    ranged = Asked(4, 16, marked=True, bounded=True)
    assumed(lambda s: s < 17, ranged)
    assumed(lambda s: s == 9, ranged)
    with pytest.raises(ConstraintViolationError, match=r"right only where x.shape\[0\] < 10"):
        assumed(lambda s: s < 10, ranged)


def test_what_equals_a_constant_is_one() -> None:
    sizes = Sizes()
    a, b = (sizes.new(8, text=f"{name}.shape[0]") for name in "xy")
    assert a == b
    assert int(b) == 8
    with pytest.raises(ConstraintViolationError, match=r"^x.shape\[0\] is marked"):
        check_marked(sizes, [(a, STRICT)])


def test_a_mark_that_asks_for_more_is_captured_anew() -> None:
    f = dc.compile(lambda x: x * 2, backend="eager")
    f(dc.ones(4, 5))
    marked = dc.ones(4, 5)
    dynamo.mark_dynamic(marked, 0)
    f(dc.ones(4, 5))
    assert len(f.explain().entries) == 1
    f(marked)
    assert len(f.explain().entries) == 2
    assert f.explain().recompiles == ("dim 0 of args[0] is not marked as dynamic",)
    f(marked)
    f(dc.ones(4, 5))
    assert len(f.explain().entries) == 2


def test_a_mark_in_captured_code_breaks_the_graph() -> None:
    def f(x: Any) -> Any:
        dynamo.mark_dynamic(x, 0)
        return x * 2

    compiled = dc.compile(f, backend="eager")
    x = dc.ones(4)
    assert compiled(x).tolist() == [2] * 4
    assert x._dynamo_dynamic_indices == {0}  # type: ignore[attr-defined]
    with pytest.raises(GraphBreak, match="a dim is marked"):
        dc.compile(f, backend="eager", fullgraph=True)(x)
