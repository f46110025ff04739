"""torch._dynamo.config: torch's names and defaults, patches that are taken back, what is said of what nothing reads."""

from __future__ import annotations

from typing import Any

import pytest

import distcompile as dc
from compiler_core.config import config as knobs
from compiler_core.log import DistCompileWarning
from distcompile.dynamo_config import _DEFAULTS, DynamoConfig


@pytest.mark.torch
@pytest.mark.parametrize("name", sorted({*_DEFAULTS, "cache_size_limit", "recompile_limit"}))
def test_a_name_and_its_default_are_torchs(name: str) -> None:
    torch: Any = pytest.importorskip("torch._dynamo.config")
    assert getattr(DynamoConfig(), name) == getattr(torch, name)


def test_the_limit_of_recompiles_is_ours() -> None:
    before = knobs.recompile_limit
    with dc._dynamo.config.patch(cache_size_limit=3):
        assert knobs.recompile_limit == dc._dynamo.config.recompile_limit == 3
    assert knobs.recompile_limit == before


def test_patches_are_taken_back() -> None:
    mine = DynamoConfig()
    with pytest.warns(DistCompileWarning, match="verbose = True: nothing here reads it"), mine.patch("verbose", True):
        assert mine.verbose is True
    assert mine.verbose is False

    @mine.patch({"verbose": False})
    def asked() -> Any:
        return mine.verbose

    assert asked() is False
    mine.reorderable_logging_functions.add(print)
    assert mine.reorderable_logging_functions == {print}
    assert DynamoConfig().reorderable_logging_functions == set()


def test_a_name_that_is_none_is_refused() -> None:
    for use in (lambda c: c.nonsense, lambda c: setattr(c, "nonsense", 1), lambda c: c.patch(nonsense=1)):
        with pytest.raises(AttributeError, match=r"torch\._dynamo\.config\.nonsense does not exist"):
            use(DynamoConfig())
