"""Engines and strangers' backends by name: listed without their packages, loaded when asked for."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import pytest

import distcompile as dc
from compiler_core import backend
from compiler_core.backend import ENGINES, backend_names, find_backend
from compiler_core.engines.engine import require_package
from compiler_core.errors import BackendError, MissingPackageError


def test_engines_are_listed() -> None:
    assert set(ENGINES) <= set(backend_names())
    assert set(ENGINES) <= set(dc.compiler.list_backends())


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingPackageError, match=r'pip install "distcompile\[onnxrt\]"') as caught:
        find_backend("onnxrt")
    assert isinstance(caught.value, ImportError)
    with pytest.raises(MissingPackageError, match="the package no_such_package"):
        require_package("no_such_package.part", "onnxrt")


def test_a_folder_of_a_packages_name_is_not_that_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tensorrtx").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MissingPackageError, match="cannot be imported"):
        require_package("tensorrtx", "tensorrt")


def _offer(monkeypatch: pytest.MonkeyPatch, **offered: object) -> None:
    module = SimpleNamespace(**offered)
    monkeypatch.setitem(sys.modules, "their_package", module)
    points = {name: EntryPoint(name, f"their_package:{name}", backend.ENTRY_POINTS) for name in (*offered, "broken")}
    monkeypatch.setattr(backend, "strangers", lambda: points)


def test_a_strangers_backend_is_listed_and_loaded_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = []

    def theirs(graph: object, examples: object) -> object:
        graphs.append(graph)
        return graph

    _offer(monkeypatch, theirs=theirs, a_class=lambda: None)
    assert {"theirs", "broken"} <= set(backend_names())
    x = dc.ones(3)
    assert dc.compile(lambda x: x.sin() + 1, backend="theirs")(x).tolist() == (x.sin() + 1).tolist()
    assert len(graphs) == 1
    with pytest.raises(BackendError, match="backend 'broken' of the installed package their_package cannot be loaded"):
        find_backend("broken")


def test_a_name_of_ours_stays_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = find_backend("codegen").name
    _offer(monkeypatch, codegen=lambda graph, examples: graph, eager=lambda graph, examples: graph)
    assert find_backend("codegen").name == ours
    assert find_backend("eager") is backend.INTERPRETERS["eager"]


def test_native_backends_are_found_without_looking_through_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    def looked() -> object:
        raise AssertionError("a warm start looks through all installed packages")

    monkeypatch.setattr(backend, "strangers", looked)
    for name in ("codegen", "inductor", "eager", "aot_eager"):
        assert find_backend(name).name
