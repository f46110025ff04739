"""A whole module, saved and loaded with weights_only: the user allows its classes, our bookkeeping needs no leave."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import distcompile as dc
from distcompile.errors import WeightsOnlyError


def test_the_module_s_classes_are_what_must_be_allowed(tmp_path: Path) -> None:
    path = str(tmp_path / "model.pt")
    model = dc.nn.Sequential(dc.nn.Linear(3, 2), dc.nn.ReLU())
    dc.save(model, path)
    with pytest.raises(WeightsOnlyError, match="Sequential"):
        dc.load(path)
    with dc.serialization.safe_globals([dc.nn.Sequential, dc.nn.Linear, dc.nn.ReLU]):
        again = dc.load(path)
    x = dc.ones(1, 3)
    np.testing.assert_array_equal(again(x).detach().numpy(), model(x).detach().numpy())
    again.register_forward_hook(lambda module, inputs, output: output + 1)
    np.testing.assert_allclose(again(x).detach().numpy(), model(x).detach().numpy() + 1)
