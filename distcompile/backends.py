"""torch.backends' switches, for scripts that set them: `backends.cuda.matmul.allow_tf32 = True`.

In: assignments. Out: nothing: float32 products are float32 here, and there is no GPU library to tune.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext


class Switches:
    """A backend's attributes: any may be set and read back."""

    def __init__(self, **attributes: object) -> None:
        vars(self).update(attributes)

    def is_available(self) -> bool:
        """Whether this backend can be used: not yet."""
        return False


def _no_effect(*args: object, **kwargs: object) -> AbstractContextManager[None]:
    """A region with other switches: it computes the same."""
    return nullcontext()


cuda = Switches(
    sdp_kernel=_no_effect,
    flash_sdp_enabled=lambda: False,
    mem_efficient_sdp_enabled=lambda: False,
    math_sdp_enabled=lambda: True,
    matmul=Switches(allow_tf32=False, allow_fp16_reduced_precision_reduction=False),
)
cudnn = Switches(flags=_no_effect, enabled=False, benchmark=False, deterministic=True, allow_tf32=False)
mps = Switches()
for _name, _switches in (("cuda", cuda), ("cudnn", cudnn), ("mps", mps)):
    # so that `import distcompile.backends.cudnn as cudnn` finds it
    sys.modules[f"{__name__}.{_name}"] = _switches  # type: ignore[assignment]


def get_float32_matmul_precision() -> str:
    """Always "highest": float32 products are computed in float32."""
    return "highest"


def set_float32_matmul_precision(precision: str) -> None:
    """Permission to be less precise than `get_float32_matmul_precision` is never used. Raises ArgumentError."""
    if precision not in ("highest", "high", "medium"):
        from distcompile.errors import ArgumentError

        raise ArgumentError(f"no such precision: {precision!r}", expected="'highest', 'high' or 'medium'")
