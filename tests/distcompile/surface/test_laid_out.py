"""torch's import paths for what stands in other files here: every public name of torch's file is found."""

from __future__ import annotations

import importlib

import pytest

pytestmark = pytest.mark.torch
_FILES = """
distributions.beta distributions.kl distributions.normal distributions.utils distributions.constraints
distributions.transforms distributions.multivariate_normal distributions.relaxed_bernoulli distributions.studentT
distributions.exp_family distributions.transformed_distribution nn.modules.conv nn.modules.batchnorm
nn.modules.container utils.data.sampler utils.data.dataset
"""
_GONE = {"Container"}  # an error since torch 1.0


@pytest.mark.parametrize("file", _FILES.split())
def test_a_file_of_torchs_has_its_public_names(file: str) -> None:
    theirs = importlib.import_module(f"{pytest.importorskip('torch').__name__}.{file}")
    ours = importlib.import_module(f"distcompile.{file}")
    assert {name for name in theirs.__all__ if not hasattr(ours, name)} <= _GONE


def test_a_layer_is_the_same_by_every_path() -> None:
    import distcompile as dc

    assert dc.distributions.normal.Normal is dc.distributions.Normal
    assert dc.nn.modules.conv.Conv2d is dc.nn.Conv2d
    assert dc.nn.parallel.scatter_gather.scatter is dc.nn.parallel.scatter
    assert dc.nn.modules.module._IncompatibleKeys([], []) == dc.nn.Linear(1, 1).load_state_dict(
        dc.nn.Linear(1, 1).state_dict()
    )
    assert dc.utils.hooks.RemovableHandle is type(dc.nn.Linear(1, 1).register_forward_hook(print))
    assert dc.distributed.distributed_c10d.ProcessGroup is dc.distributed.ProcessGroup
