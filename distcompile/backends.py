"""torch.backends' switches, for scripts that set them: `backends.cuda.matmul.allow_tf32 = True`.

In: assignments. Out: nothing: float32 products are float32 here, and there is no GPU library to tune.
"""

from __future__ import annotations


class Switches:
    """A backend's attributes: any may be set and read back."""

    def __init__(self, **attributes: object) -> None:
        vars(self).update(attributes)

    def is_available(self) -> bool:
        """Whether this backend can be used: not yet."""
        return False


cuda = Switches(matmul=Switches(allow_tf32=False, allow_fp16_reduced_precision_reduction=False))
cudnn = Switches(enabled=False, benchmark=False, deterministic=True, allow_tf32=False)
mps = Switches()


def get_float32_matmul_precision() -> str:
    """Always "highest": float32 products are computed in float32."""
    return "highest"


def set_float32_matmul_precision(precision: str) -> None:
    """Permission to be less precise than `get_float32_matmul_precision` is never used. Raises ArgumentError."""
    if precision not in ("highest", "high", "medium"):
        from distcompile.errors import ArgumentError

        raise ArgumentError(f"no such precision: {precision!r}", expected="'highest', 'high' or 'medium'")
