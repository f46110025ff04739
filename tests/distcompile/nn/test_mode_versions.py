"""Training flags and tree versions: modes may return, anything else may not."""

from __future__ import annotations

import warnings
from typing import Any

import distcompile as torch
from distcompile import nn


def tree() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Dropout(0.5), nn.Linear(2, 2)))


def test_a_mode_that_returns_has_the_version_that_it_had() -> None:
    root = tree()
    training = root.__tree_version__()
    evaluating = root.eval().__tree_version__()
    assert evaluating != training
    assert root.train().__tree_version__() == training
    assert root.eval().__tree_version__() == evaluating


def test_mixed_modes_are_versions_of_their_own() -> None:
    root = tree()
    versions = set()
    for first in (True, False):
        for second in (True, False):
            root[0].train(first)
            root[1].train(second)
            versions.add(root.__tree_version__())
    assert len(versions) == 4


def test_after_another_change_old_versions_do_not_return() -> None:
    root = tree()
    seen = {root.train(mode).__tree_version__() for mode in (True, False)}
    root[0].extra = 1
    assert not seen & {root.train(mode).__tree_version__() for mode in (True, False)}


def test_toggling_modes_compiles_twice_and_not_more() -> None:
    root = tree()
    graphs = []

    def backend(module: Any, example_inputs: object) -> object:
        graphs.append(module)
        return module.forward

    compiled = torch.compile(root, backend=backend)
    x = torch.ones(3, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(10):
            root.eval()
            with torch.no_grad():
                compiled(x)
            root.train()
            with torch.no_grad():
                compiled(x)
    assert len(graphs) == 2
