"""Layers made of families: docstrings filled in, ranks, what a class derived from one has, what a lazy one becomes."""

from __future__ import annotations

import inspect
import pickle
import re

import pytest

import distcompile as dc
from distcompile import nn
from distcompile.nn.layers import families
from distcompile.nn.module import Module

RANKED = sorted(name for name in nn.__all__ if re.search(r"[123]d$", name) and inspect.isclass(getattr(nn, name)))


def test_there_are_many() -> None:
    assert len(RANKED) > 60


@pytest.mark.parametrize("name", RANKED)
def test_a_docstring_is_filled_in_and_names_its_layer(name: str) -> None:
    text = vars(getattr(nn, name))["__doc__"]
    assert f"nn.{name}(" in text
    assert not {"{", "}"} & set(text)


def test_what_a_template_may_say() -> None:
    class _Family(Module):
        """{name}, of {kind}: {rank}; {n}, {k}, {o}; the last {dims}; {sides}; {each:8}; {rest:, 0}; {row:4}; {more}"""

    class Made2d(_Family): ...

    class Made1d(_Family): ...

    families.documented(Made2d, 2, more="beside")
    families.documented(Made1d, 1, more="")
    assert Made2d.__doc__ == (
        "Made2d, of images: 2; H, W, kH, kW, oH, oW; the last two dimensions; (left, right, top, bottom); 8, 8; , 0; "
        "(1, 4); beside"
    )
    assert Made1d.__doc__ == "Made1d, of sequences: 1; L, K, o; the last dimension; (left, right); 8; ; 4; "


def test_words_of_its_own_stay() -> None:
    class _Family(Module):
        """{name}"""

    class Told2d(_Family):
        """A {brace} and all."""

    assert families.of_rank(2)(Told2d) is Told2d
    assert Told2d.__doc__ == "A {brace} and all."


class Mine(nn.Conv2d):
    def __init__(self) -> None:
        super().__init__(3, 4, kernel_size=3)


def test_a_class_derived_from_a_layer_is_left_alone() -> None:
    assert (Mine.__doc__, "_rank" in vars(Mine)) == (None, False)
    again = pickle.loads(pickle.dumps(Mine()))
    assert isinstance(again, nn.Conv2d)
    assert repr(again) == "Mine(3, 4, kernel_size=(3, 3), stride=(1, 1))"
    assert again(dc.ones(1, 3, 5, 5)).shape == (1, 4, 3, 3)


@pytest.mark.parametrize("name", [name for name in RANKED if name.startswith("Lazy")])
def test_a_lazy_layer_becomes_that_of_its_name(name: str) -> None:
    known = getattr(nn, name.removeprefix("Lazy"))
    assert getattr(nn, name).cls_to_become is known
    assert issubclass(getattr(nn, name), known)
