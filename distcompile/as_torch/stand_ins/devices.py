"""Stand-ins for GPUs, and for attention that is generated for them.

In: nothing. Out: `NAMES`. There is no GPU under this name (`torch.cuda.is_available()` is False).
"""

from __future__ import annotations

from distcompile.as_torch.stand_ins.kinds import StandIn, error, listed, nothing_is_one, true

_FLEX = "flex_attention is not here; scaled_dot_product_attention takes a mask"


NAMES: dict[str, StandIn] = {
    **listed("torch.nn.attention.flex_attention", "AuxRequest AuxOutput", nothing_is_one(_FLEX)),
    "torch.nn.attention.flex_attention.BlockMask": nothing_is_one(_FLEX, "from_kv_blocks"),
    **listed(
        "torch.nn.attention.flex_attention",
        "create_block_mask create_mask flex_attention and_masks or_masks",
        error(_FLEX),
    ),
    "torch.nn.attention.flex_attention._DEFAULT_SPARSE_BLOCK_SIZE": true("what create_block_mask would take", 128),
    "torch._dynamo._trace_wrapped_higher_order_op.TransformGetItemToIndex": nothing_is_one(
        "vmap here takes tensors as indices without it"
    ),
}
