"""torch.backends' switches, for scripts that set them: `backends.cuda.matmul.allow_tf32 = True`.

In: assignments. Out: `cuda.matmul.allow_tf32`, and `set_float32_matmul_precision`, permit tf32 in compiled graphs of
CUDA devices. Nothing else changes anything: the CPU's float32 products are float32, and there is no GPU library to
tune. Questions are answered as things are: neither cuDNN, MPS nor MKL is here, loops take no OpenMP, and `einsum` takes
operands in order. oneDNN, torch's "mkldnn", is where its wheel is installed: convolutions then go through it, `enabled`
or not.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any


class Switches:
    """A backend's attributes: any may be set and read back."""

    def __init__(self, **attributes: object) -> None:
        vars(self).update(attributes)

    def __getattr__(self, name: str) -> Any:
        """Raises AttributeError; here for the types alone."""
        raise AttributeError(f"this backend has no {name!r}")

    def is_available(self) -> bool:
        """Whether this backend can be used: not here."""
        return False

    def is_built(self) -> bool:
        """Whether there is code for this backend: no."""
        return False


class Products(Switches):
    """Those of float32 products on CUDA devices."""

    @property
    def allow_tf32(self) -> bool:
        """Whether operands may be rounded to tf32 (10 bits of mantissa)."""
        return get_float32_matmul_precision() != "highest"

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        set_float32_matmul_precision("high" if allowed else "highest")


def _no_effect(*args: object, **kwargs: object) -> AbstractContextManager[None]:
    """A region with other switches: it computes the same."""
    return nullcontext()


def _of_cpu() -> str:
    """The widest vectors that kernels are compiled for, in torch's words."""
    from compiler_core.runtime.toolchain import cpu_features

    flags = cpu_features()
    found = [name for flag, name in (("avx512f", "AVX512"), ("avx2", "AVX2")) if flag in flags]
    return found[0] if found else "DEFAULT"


def _has_onednn() -> bool:
    """Whether oneDNN's wheel is installed."""
    from compiler_core.runtime.onednn import find_onednn

    return bool(find_onednn())


def _nothing(*args: object, **kwargs: object) -> None:
    """Permission for a GPU's kernels, or none: there are none."""


cuda = Switches(
    sdp_kernel=_no_effect,
    flash_sdp_enabled=lambda: False,
    mem_efficient_sdp_enabled=lambda: False,
    cudnn_sdp_enabled=lambda: False,
    math_sdp_enabled=lambda: True,
    enable_flash_sdp=_nothing,
    enable_mem_efficient_sdp=_nothing,
    enable_cudnn_sdp=_nothing,
    enable_math_sdp=_nothing,
    matmul=Products(allow_fp16_reduced_precision_reduction=False, allow_bf16_reduced_precision_reduction=False),
)
cudnn = Switches(
    flags=_no_effect,
    enabled=False,
    benchmark=False,
    deterministic=True,
    allow_tf32=False,
    version=lambda: None,
    is_acceptable=lambda tensor: False,
)
mps, mkl, openmp = Switches(), Switches(), Switches()
cpu = Switches(get_cpu_capability=_of_cpu)
mkldnn = Switches(enabled=True, deterministic=False, flags=_no_effect, is_available=_has_onednn)
opt_einsum = Switches(enabled=False, strategy=None, get_opt_einsum=lambda: None)
_ALL = {
    "cuda": cuda,
    "cudnn": cudnn,
    "mps": mps,
    "mkl": mkl,
    "mkldnn": mkldnn,
    "openmp": openmp,
    "cpu": cpu,
    "opt_einsum": opt_einsum,
}
for _name, _switches in _ALL.items():
    # so that `import distcompile.backends.cudnn as cudnn` finds it
    sys.modules[f"{__name__}.{_name}"] = _switches  # type: ignore[assignment]


_precision = "highest"


def get_float32_matmul_precision() -> str:
    """What `set_float32_matmul_precision` said last; "highest" at first."""
    return _precision


def set_float32_matmul_precision(precision: str) -> None:
    """How float32 products are computed: "highest" in float32; "high" and "medium" let compiled graphs of CUDA devices
    round the operands to tf32 (10 bits of mantissa). The CPU always computes in float32. Raises ArgumentError.
    """
    global _precision
    if precision not in ("highest", "high", "medium"):
        from distcompile.errors import ArgumentError

        raise ArgumentError(f"no such precision: {precision!r}", expected="'highest', 'high' or 'medium'")
    from compiler_core.runtime.cuda.context import permit_tf32

    _precision = precision
    permit_tf32(precision != "highest")
