"""torch._dynamo.config and torch._inductor.config: torch's names and defaults, patches, what nothing reads."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

import distcompile as dc
from compiler_core.config import config as knobs
from compiler_core.log import DistCompileWarning
from distcompile.surface.settings import SettingsModule


def _names(settings: SettingsModule, path: str) -> Iterator[tuple[str, str]]:
    for name in (*settings._defaults, *settings._knobs):
        if isinstance(settings.__dict__.get(name), SettingsModule):
            yield from _names(settings.__dict__[name], f"{path}.{name}")
        else:
            yield path, name


NAMES = [pair for part in (dc._dynamo, dc._inductor) for pair in _names(part.config, part.config.__name__)]


def _found(path: str) -> Any:
    top, part, module, *groups = path.split(".")
    found = importlib.import_module(f"{top}.{part}.{module}")
    for group in groups:
        found = getattr(found, group)
    return found


@pytest.mark.torch
@pytest.mark.parametrize(("path", "name"), NAMES)
def test_a_name_and_its_default_are_torchs(path: str, name: str) -> None:
    pytest.importorskip("torch")
    ours, theirs = (getattr(_found(top), name) for top in (path, path.replace("distcompile", "torch")))
    assert ours == theirs


def test_the_limit_of_recompiles_is_ours() -> None:
    before = knobs.recompile_limit
    with dc._dynamo.config.patch(cache_size_limit=3):
        assert knobs.recompile_limit == dc._dynamo.config.recompile_limit == 3
    assert knobs.recompile_limit == before


@pytest.mark.parametrize("name", ["automatic_dynamic_shapes", "assume_static_by_default", "allow_ignore_mark_dynamic"])
def test_so_is_what_is_said_of_sizes(name: str) -> None:
    before = getattr(knobs, name)
    with dc._dynamo.config.patch(name, not before):
        assert getattr(knobs, name) is not before
    assert getattr(knobs, name) is before
    with knobs.patch(**{name: not before}):  # our own way to say it holds afterwards too
        assert getattr(dc._dynamo.config, name) is getattr(knobs, name) is not before


def test_so_is_where_compiled_draws_come_from() -> None:
    import distcompile._inductor.config as config
    from distcompile._inductor import config as again

    assert config is again is dc._inductor.config
    with config.patch("fallback_random", True):
        assert knobs.fallback_random is True
    assert config.fallback_random is knobs.fallback_random is False


def mine() -> SettingsModule:
    return SettingsModule("distcompile._dynamo.config", {"verbose": False, "seen": set(), "group": {"deep": 1}}, {})


def test_patches_are_taken_back() -> None:
    settings = mine()
    said = pytest.warns(DistCompileWarning, match="_dynamo.config.verbose = True: nothing here reads it")
    with said, settings.patch("verbose", True):
        seen = settings.verbose
    assert (seen, settings.verbose) == (True, False)

    @settings.patch({"group.deep": 1, "verbose": False})
    def asked() -> Any:
        return settings.verbose, settings.group.deep

    assert asked() == (False, 1)
    settings.seen.add(print)
    assert settings.seen == {print}
    assert mine().seen == set()


def test_a_name_that_is_none_is_refused() -> None:
    uses = (
        lambda c: c.nonsense, lambda c: setattr(c, "nonsense", 1), lambda c: c.patch(nonsense=1),
        lambda c: c.patch({"group.nonsense": 1}),
    )  # fmt: skip
    for use in uses:
        with pytest.raises(AttributeError, match=r"torch\._dynamo\.config\.(group\.)?nonsense does not exist"):
            use(mine())
