"""What a TransformerEncoder makes of padded positions is torch's: zeros in evaluation, where torch packs sequences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import distcompile as dc

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

AT_THE_END = [[False, False, False, True], [False, False, True, True]]
IN_BETWEEN = [[False, True, False, False], [False, False, True, True]]
LAYER = {"d_model": 8, "nhead": 2, "dim_feedforward": 16, "batch_first": True}


@pytest.fixture(autouse=True)
def fastpath() -> Iterator[None]:
    yield
    for m in (torch, dc):
        m.backends.mha.set_fastpath_enabled(True)


def pair(norm: bool = False, options: dict[str, Any] | None = None, **layer: Any) -> list[Any]:
    """torch's encoder and ours, with the same parameters."""
    made = []
    for m in (torch, dc):
        inner = m.nn.TransformerEncoderLayer(**{**LAYER, **layer})
        made.append(m.nn.TransformerEncoder(inner, 2, m.nn.LayerNorm(8) if norm else None, **(options or {})).eval())
    theirs, ours = made
    ours.load_state_dict({name: dc.tensor(value.detach().numpy()) for name, value in theirs.state_dict().items()})
    return made


def results(encoders: list[Any], padding: Any, no_grad: bool = True, **more: Any) -> list[np.ndarray[Any, Any]]:
    """What both give for the same input."""
    data, found = np.random.default_rng(0).standard_normal((2, 4, 8)).astype(np.float32), []
    for m, encoder in zip((torch, dc), encoders):
        keywords = {name: m.tensor(value) for name, value in more.items()}
        with m.set_grad_enabled(not no_grad):
            made = encoder(m.tensor(data), src_key_padding_mask=m.tensor(padding), **keywords)
        found.append(made.detach().numpy())
    return found


def zeros(padding: Any) -> np.ndarray[Any, Any]:
    return np.asarray(padding) != 0


@pytest.mark.parametrize("padding", [AT_THE_END, np.where(AT_THE_END, -np.inf, 0.0).astype(np.float32).tolist()])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_padded_rows_become_zeros(padding: Any, activation: str) -> None:
    theirs, ours = results(pair(activation=activation), padding)
    assert not ours[zeros(padding)].any()
    assert not theirs[zeros(padding)].any()
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_a_last_norm_makes_its_bias_of_them() -> None:
    theirs, ours = results(pair(norm=True), AT_THE_END)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "how",
    [
        {"options": {"enable_nested_tensor": False}},
        {"norm_first": True},
        {"nhead": 1},
        {"bias": False},
        {"activation": "silu"},
    ],
    ids=str,
)
def test_encoders_that_do_not_pack_keep_them(how: dict[str, Any]) -> None:
    if "activation" in how:
        inner = [m.nn.TransformerEncoderLayer(**LAYER, activation=m.nn.functional.silu) for m in (torch, dc)]
        both = [m.nn.TransformerEncoder(one, 2).eval() for m, one in zip((torch, dc), inner)]
        both[1].load_state_dict({k: dc.tensor(v.detach().numpy()) for k, v in both[0].state_dict().items()})
    else:
        both = pair(**how)
    theirs, ours = results(both, AT_THE_END)
    assert ours[zeros(AT_THE_END)].all()
    assert theirs[zeros(AT_THE_END)].all()
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_calls_that_do_not_pack_keep_them() -> None:
    both = pair()
    attend_all = np.zeros((4, 4), bool).tolist()
    for found in (results(both, IN_BETWEEN), results(both, AT_THE_END, no_grad=False),
                  results(both, AT_THE_END, mask=attend_all)):  # fmt: skip
        assert all(one.all() for one in found)
        np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-5)
    for m in (torch, dc):
        m.backends.mha.set_fastpath_enabled(False)
    assert all(one.all() for one in results(both, AT_THE_END))


def test_compiled_code_packs_where_it_need_not_look() -> None:
    for check in (True, False):
        ours = pair(options={"mask_check": check})[1]
        with dc.no_grad():
            x, padding = dc.ones(2, 4, 8), dc.tensor(AT_THE_END)
            made = dc.compile(lambda x, p: ours(x, src_key_padding_mask=p))(x, padding)  # noqa: B023 - called at once
        assert bool(made.numpy()[zeros(AT_THE_END)].any()) is check
