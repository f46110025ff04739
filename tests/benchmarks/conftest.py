"""Fixtures: a CUDA driver that is not there; benchmarks, imported."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests.fake_cuda import fake_cuda as fake_cuda  # a fixture

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def imported(name: str) -> Callable[..., ModuleType]:
    """A fixture: the file of that name."""

    @pytest.fixture(name=name)
    def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
        monkeypatch.syspath_prepend(str(BENCHMARKS))
        return importlib.import_module(name)

    return module


eager, eager_rows, guards = (imported(name) for name in ("eager", "eager_rows", "guards"))
operations, zoo = (imported(name) for name in ("operations", "zoo"))
