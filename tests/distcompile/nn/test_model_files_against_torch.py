"""Model files written for torch, run with swapped imports: same keys, shapes, outputs and gradients as torch's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from model_sources import NANO_GPT, SOURCES, load

import distcompile as dc

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def pair(source: str) -> tuple[Any, Any, tuple[Any, ...], tuple[Any, ...]]:
    """(our model, torch's, our inputs, torch's) with equal parameters and inputs."""
    torch.manual_seed(0)
    theirs, inputs = load(source, "torch").make()
    ours, _ = load(source, "distcompile").make()
    assert repr(ours.load_state_dict(theirs.state_dict())) == "<All keys matched successfully>"
    return ours, theirs, tuple(dc.from_numpy(x.numpy().copy()) for x in inputs), inputs


def assert_close(ours: Any, theirs: Any, what: str) -> None:
    a, b = ours.detach().numpy(), theirs.detach().numpy()
    assert a.shape == b.shape, what
    scale = max(float(np.abs(b).max()), 1e-3)
    np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6 * scale, err_msg=what)


@pytest.mark.parametrize("backend", ["uncompiled", "eager", "aot_eager", "codegen"])
@pytest.mark.parametrize("name", SOURCES)
def test_output_and_every_gradient_equal_torchs(name: str, backend: str) -> None:
    ours, theirs, x, tx = pair(SOURCES[name])
    model = ours if backend == "uncompiled" else dc.compile(ours, backend=backend, fullgraph=True)
    loss, expected = model(*x), theirs(*tx)
    assert_close(loss, expected, "loss")
    loss.backward()
    expected.backward()
    grads = {name: p.grad for name, p in ours.named_parameters()}
    expected_grads = {name: p.grad for name, p in theirs.named_parameters()}
    assert list(grads) == list(expected_grads)
    for key, grad in grads.items():
        assert (grad is None) == (expected_grads[key] is None), key
        if grad is not None:
            assert_close(grad, expected_grads[key], key)


@pytest.mark.parametrize("name", SOURCES)
def test_state_dict_has_torchs_keys_shapes_and_dtypes_in_order(name: str) -> None:
    ours, theirs, _, _ = pair(SOURCES[name])
    mine = [(k, tuple(v.shape), str(v.dtype).partition(".")[2]) for k, v in ours.state_dict().items()]
    want = [(k, tuple(v.shape), str(v.dtype).partition(".")[2]) for k, v in theirs.state_dict().items()]
    assert mine == want


@pytest.mark.parametrize("name", SOURCES)
def test_models_print_as_in_torch(name: str) -> None:
    ours, theirs, _, _ = pair(SOURCES[name])
    theirs_text = repr(theirs).replace("NonDynamicallyQuantizableLinear", "Linear")  # a detail of torch's quantizer
    assert repr(ours).replace("distcompile.", "torch.") == theirs_text


@pytest.mark.parametrize("name", SOURCES)
def test_initial_parameters_have_torchs_distribution(name: str) -> None:
    """Every tensor that is not constant in torch has its spread here, and bounds where torch's is uniform."""
    dc.manual_seed(1)
    ours, _ = load(SOURCES[name], "distcompile").make()
    torch.manual_seed(1)
    theirs, _ = load(SOURCES[name], "torch").make()
    for (key, a), (_, b) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        mine, want = a.detach().numpy(), b.detach().numpy()
        if want.std() == 0:
            np.testing.assert_array_equal(mine, want, err_msg=key)
        elif want.size >= 100:
            assert abs(mine.std() / want.std() - 1) < 0.25, key
            assert abs(np.abs(mine).max() / np.abs(want).max() - 1) < 0.5, key


@pytest.mark.parametrize("compiled", [False, True])
def test_nano_gpt_trains_as_in_torch_with_its_parameter_groups(compiled: bool) -> None:
    ours, theirs, x, tx = pair(NANO_GPT)
    options = (0.1, 1e-3, (0.9, 0.95))
    mine = ours.model.configure_optimizers(*options, fused=compiled)
    if compiled:
        ours.compile(fullgraph=True)
    want = theirs.model.configure_optimizers(*options)
    for _ in range(10):
        for model, optimizer, inputs, nn in ((ours, mine, x, dc.nn), (theirs, want, tx, torch.nn)):
            loss = model(*inputs)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    assert_close(ours(*x), theirs(*tx), "loss after ten steps")
    for (key, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-3, atol=1e-5, err_msg=key)


def test_nano_gpt_generates_and_counts_its_tied_weight_once() -> None:
    names: SimpleNamespace = load(NANO_GPT, "distcompile")
    dc.manual_seed(0)
    model = names.GPT(names.GPTConfig(dropout=0.1)).eval()
    reference = load(NANO_GPT, "torch")
    assert model.get_num_params() == reference.GPT(reference.GPTConfig()).get_num_params()
    prompt = dc.zeros((2, 1), dtype=dc.long)
    out = model.generate(prompt, max_new_tokens=12, temperature=0.8, top_k=3)
    assert tuple(out.shape) == (2, 13)
    assert 0 <= int(out.min()) <= int(out.max()) < 13
