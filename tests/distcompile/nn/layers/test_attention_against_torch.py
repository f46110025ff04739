"""Multi-head attention, as a module and as a function, with every option of its projections, held to torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.errors import ShapeError
from distcompile.errors import ArgumentError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

OPTIONS: list[dict[str, Any]] = [
    {},
    {"kdim": 6, "vdim": 5},
    {"add_bias_kv": True},
    {"add_zero_attn": True},
    {"bias": False},
    {"add_bias_kv": True, "add_zero_attn": True, "kdim": 6, "vdim": 5},
]


def by_function(lib: Any, module: Any, inputs: list[Any], **options: Any) -> Any:
    return lib.nn.functional.multi_head_attention_forward(
        *inputs,
        8,
        2,
        module.in_proj_weight,
        module.in_proj_bias,
        module.bias_k,
        module.bias_v,
        module.add_zero_attn,
        0.0,
        module.out_proj.weight,
        module.out_proj.bias,
        use_separate_proj_weight=not module._qkv_same_embed_dim,
        q_proj_weight=module.q_proj_weight,
        k_proj_weight=module.k_proj_weight,
        v_proj_weight=module.v_proj_weight,
        **options,
    )


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize(
    ("options", "alike"),
    [(o, alike) for o in OPTIONS for alike in (True, False) if not (alike and "kdim" in o)],
    ids=str,
)
def test_attention_is_torchs(options: dict[str, Any], alike: bool, need_weights: bool, average: bool) -> None:
    rng = np.random.default_rng(0)
    query = rng.standard_normal((3, 4, 8)).astype("f4")
    others = [rng.standard_normal((5, 4, options.get(d, 8))).astype("f4") for d in ("kdim", "vdim")]
    theirs, mine = torch.nn.MultiheadAttention(8, 2, **options), dc.nn.MultiheadAttention(8, 2, **options)
    mine.load_state_dict(theirs.state_dict())
    asked = {"need_weights": need_weights, "average_attn_weights": average}
    results = []
    for lib, module in ((dc, mine), (torch, theirs)):
        first = lib.tensor(query, requires_grad=True)
        inputs = [first] * 3 if alike else [first, *(lib.tensor(x) for x in others)]
        for call in (module, lambda *a, lib=lib, module=module, **k: by_function(lib, module, list(a), **k)):
            out, weights = call(*inputs, **asked)
            (out * out).sum().backward()
            results.append((out, first.grad, weights))
            first.grad = None
    for got, want in ((results[0], results[2]), (results[1], results[3])):
        for g, w in zip(got, want, strict=True):
            assert (g is None) == (w is None)
            if w is not None:
                np.testing.assert_allclose(g.detach().numpy(), w.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", ["eager", "codegen"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
@pytest.mark.parametrize("enable_gqa", [False, True])
def test_a_float32_mask_beside_another_dtype_is_torchs(enable_gqa: bool, dtype: str, backend: str) -> None:
    """Large numbers of the mask are not rounded: in bfloat16 they would be by up to 4."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((1, heads, 6, 8)).astype("f4") for heads in (2, 2 - enable_gqa, 2 - enable_gqa)]
    mask, found = (rng.standard_normal((6, 6)) - 1000).astype("f4"), []
    for lib in (torch, dc):
        kind = getattr(lib, dtype)
        leaves = [lib.tensor(x).to(kind).requires_grad_() for x in arrays] + [lib.tensor(mask).requires_grad_()]

        def attend(*given: Any, lib: Any = lib) -> Any:
            return lib.nn.functional.scaled_dot_product_attention(*given, enable_gqa=enable_gqa)

        out = (attend if lib is torch else dc.compile(attend, backend=backend))(*leaves)
        out.sum().backward()
        assert [x.dtype for x in (out, *(leaf.grad for leaf in leaves))] == [kind] * 4 + [lib.float32]
        found.append([x.detach().double().numpy() for x in (out, *(leaf.grad for leaf in leaves))])
    for theirs, mine in zip(*found):
        np.testing.assert_allclose(mine, theirs, atol=1e-2 if dtype == "bfloat16" else 2e-3)


def test_static_keys_and_masks_are_torchs() -> None:
    rng = np.random.default_rng(1)
    query, static = rng.standard_normal((3, 2, 8)).astype("f4"), rng.standard_normal((4, 3, 4)).astype("f4")
    padding, mask = np.array([[0, 0, 1], [1, 0, 0]], bool), rng.standard_normal((3, 3)).astype("f4")
    theirs = torch.nn.MultiheadAttention(8, 2)
    mine = dc.nn.MultiheadAttention(8, 2)
    mine.load_state_dict(theirs.state_dict())
    outs = []
    for lib, module in ((dc, mine), (torch, theirs)):
        masks = {"key_padding_mask": lib.tensor(padding), "attn_mask": lib.tensor(mask)}
        keys = {"static_k": lib.tensor(static), "static_v": lib.tensor(static + 1)}
        outs.append(by_function(lib, module, [lib.tensor(query)] * 3, **masks, **keys)[0].detach().numpy())
    np.testing.assert_allclose(*outs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"is_causal": True}, "Need attn_mask"),
        ({"use_separate_proj_weight": True, "q_proj_weight": None}, "weight is None"),
    ],
)
def test_misuse_is_a_named_error(change: dict[str, Any], text: str) -> None:
    module, x = dc.nn.MultiheadAttention(8, 2), dc.ones(3, 1, 8)
    given = {"q_proj_weight": x, "k_proj_weight": x, "v_proj_weight": x} | change
    weights = (module.in_proj_weight, module.in_proj_bias, None, None, False, 0.0, x, None)
    with pytest.raises(ArgumentError, match=text):
        dc.nn.functional.multi_head_attention_forward(x, x, x, 8, 2, *weights, **given)
    with pytest.raises(ShapeError, match="attn_mask does not fit"):
        module(x, x, x, attn_mask=dc.ones(3, 4))
    with pytest.raises(ArgumentError, match="sizes do not fit"):
        dc.nn.functional.multi_head_attention_forward(x, x, x, 6, 2, *weights)
