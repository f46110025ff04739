"""Selective checkpointing: which values of a checkpointed function are kept, by the operator that makes them.

In: a policy written in torch's operators (`torch.ops.aten.mm.default`), or a list of those whose results are kept. Out:
contexts for `checkpoint(..., context_fn=)`. In compiled code a value of which the policy says so is kept for the
backward, and is not computed again; the rest of the function is. What the graph records are our own operations, so the
policy is asked of each under the operators that torch would have called there: a product is mm and addmm, or bmm and
baddbmm; an operation without another name is torch's of its own name. Eager code computes all of it again, which is
right, and takes more time than the policy allows for: said once.
Limits: what torch calls one operator and is recorded as several (layer_norm, gelu) is asked of as these. Nothing is
offloaded: what is to be offloaded is kept where it is.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

from compiler_core import log
from compiler_core.graph.ir import Call
from compiler_core.ops.registry import current_trace
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError
from distcompile.library.aten_names import OVERLOADS
from distcompile.library.namespaces import ops
from distcompile.library.operators import OpOverload, OpOverloadPacket

_ATTENTION = tuple(
    f"_scaled_dot_product_{kind}"
    for kind in (
        *("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention"),
        "fused_attention_overrideable",
    )
)
# operations of ours -> torch's operators, where the name differs
_NAMES: dict[str, tuple[str, ...]] = {
    "matmul": ("mm", "addmm"),
    "attention": _ATTENTION,
    "convolution_last": ("convolution",),
    "convolution_inner": ("convolution",),
    "cast": ("_to_copy",),
}
_BATCHED = {"mm": "bmm", "addmm": "baddbmm"}


class CheckpointPolicy(enum.Enum):
    """What becomes of the result of an operator in a checkpointed function, until the backward."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


_AGAIN = (CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE)


class SelectiveCheckpointContext:
    """What a policy is told beside the operator and its arguments. is_recompute: False; a policy is asked once."""

    def __init__(self, *, is_recompute: bool, op_output: Any = None) -> None:
        self.is_recompute, self.op_output = is_recompute, op_output


Policy = Callable[..., CheckpointPolicy | bool]


class Selective:
    """One of the two contexts; the first one, in eager code, says what it does not do."""

    def __init__(self, policy: Policy, *, is_first: bool) -> None:
        self.policy, self.is_first = policy, is_first

    def __enter__(self) -> None:
        if self.is_first and current_trace() is None:
            log.warn_once(
                "selective checkpoint",
                "selective checkpointing: eager code computes all of a checkpointed function again; compiled code keeps"
                " what the policy says",
            )

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        return None

    def keeps(self, call: Call) -> bool:
        """Whether the policy wants the result of a recorded call kept."""
        args, out = [Tensor._wrap(arg) for arg in call.args], Tensor._wrap(call)
        context = SelectiveCheckpointContext(is_recompute=False, op_output=out)
        answers = [self.policy(context, op, *args) for op in operators_of(call)]
        return any(answer if isinstance(answer, bool) else answer not in _AGAIN for answer in answers)


def operators_of(call: Call) -> Iterator[OpOverload]:
    """The operators that torch may have called for it."""
    for name in _names_of(call):
        overload = OVERLOADS.get(name, ("default",))[0]
        yield getattr(getattr(ops.aten, name), overload)


def _names_of(call: Call) -> Sequence[str]:
    names = _NAMES.get(call.op.name, (call.op.name,))
    is_batched = min((len(arg.shape) for arg in call.args), default=0) > 2
    return [_BATCHED.get(name, name) for name in names] if is_batched else names


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Policy | list[Any], allow_cache_entry_mutation: bool = False
) -> tuple[Selective, Selective]:
    """Contexts for `checkpoint(..., use_reentrant=False, context_fn=partial(create_..., policy))`.

    policy_fn_or_list: policy(context, operator, *args, **kwargs) -> CheckpointPolicy; or the operators whose results
    are kept. allow_cache_entry_mutation: torch's; values here are never changed. Raises ArgumentError (a ValueError)
    for what is no overload of an operator in the list, TypeError for another argument.
    """
    if isinstance(policy_fn_or_list, list):
        wanted = policy_fn_or_list
        for op in wanted:
            if not isinstance(op, OpOverload):
                more = (
                    "Please update the OpOverloadPacket to a specific OpOverload. For example, if you have "
                    "`torch.ops.aten.mm`, change it to `torch.ops.aten.mm.default`."
                )
                raise ArgumentError(
                    f"Expected op in `op_list` to be an OpOverload but got: {op} of type {type(op)}. "
                    + (more if isinstance(op, OpOverloadPacket) else "")
                )

        def policy(context: SelectiveCheckpointContext, op: OpOverload, *args: Any, **kwargs: Any) -> CheckpointPolicy:
            return CheckpointPolicy.MUST_SAVE if op in wanted else CheckpointPolicy.PREFER_RECOMPUTE

        return Selective(policy, is_first=True), Selective(policy, is_first=False)
    if not callable(policy_fn_or_list):
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    return Selective(policy_fn_or_list, is_first=True), Selective(policy_fn_or_list, is_first=False)
