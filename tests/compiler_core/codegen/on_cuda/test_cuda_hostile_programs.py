"""What hostile readers found of compiled functions on GPUs: the launcher on the stand-in, kernels interpreted."""

from __future__ import annotations

import numpy as np
import pytest

import distcompile as dc
import distcompile.nn.functional as F
from tests.fake_cuda import FakeCuda
from tests.fake_cuda.programs import spectral, spectral_step

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.triton,
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT"),
    pytest.mark.usefixtures("no_cache"),
]


def test_graphs_with_complex_kernels_run_op_by_op(fake_cuda: FakeCuda) -> None:
    """Triton has no complex numbers; that is no reason to refuse a model that has a few."""

    expecteds = spectral_step(spectral, "cpu")
    with pytest.warns(UserWarning, match="runs op by op: Triton has no complex numbers"):
        found = spectral_step(dc.compile(spectral, fullgraph=True), "cuda")
    for expected, got in zip(expecteds, found, strict=True):
        assert got.device.type == "cuda"
        np.testing.assert_allclose(got.detach().cpu().numpy(), expected.detach().numpy(), rtol=1e-4, atol=1e-5)
    assert not fake_cuda.named("cuLaunchKernel")


def embeddings(ids: dc.Tensor, words: dc.Tensor, kinds: dc.Tensor, places: dc.Tensor) -> dc.Tensor:
    """BERT's: of words, of a kind that is always 0, of places."""
    seen = F.embedding(ids, words) + F.embedding(dc.zeros_like(ids), kinds)
    return F.layer_norm(seen + F.embedding(dc.arange(ids.shape[1], device=ids.device)[None], places), (8,))


def test_checks_of_rows_beside_checks_of_one_number(fake_cuda: FakeCuda) -> None:
    ids = dc.tensor([[1, 3, 0], [2, 2, 1]])
    tables = [dc.linspace(-1, k, rows * 8).sin().reshape(rows, 8) for k, rows in ((3, 4), (5, 2), (7, 3))]
    expected = embeddings(ids, *tables)
    got = dc.compile(embeddings, fullgraph=True)(ids.cuda(), *(table.cuda() for table in tables))
    np.testing.assert_allclose(got.cpu().numpy(), expected.numpy(), rtol=1e-5, atol=1e-5)
    assert fake_cuda.named("cuLaunchKernel")
