"""torch.backends' switches, for scripts that set them: `backends.cuda.matmul.allow_tf32 = True`.

In: assignments. Out: `cuda.matmul.allow_tf32`, and `set_float32_matmul_precision`, permit tf32 in products of
CUDA devices. `cudnn.enabled = False` has what is compiled from then on use our own convolution kernels.
`cudnn.benchmark = True` has eager 16-bit convolutions measure cuDNN's engines at their first call, as compiled code
always does, and eager code for those in groups. Nothing else changes anything: the CPU's float32 products are float32;
engines whose bits differ from run to run are never taken (`deterministic`), and float32 convolutions are float32
whatever `cudnn.allow_tf32` permits. Questions are answered as things are: cuDNN is there where a GPU and its library
are, MPS and MKL are not, loops take no OpenMP, and `einsum` takes operands in order. oneDNN, torch's "mkldnn", is
where its wheel is installed: convolutions then go through it, `enabled` or not. `mha.set_fastpath_enabled(False)` has
encoders leave padded rows as they are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
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


class CuDnn(Switches):
    """cuDNN: of convolutions of 16-bit floats in compiled graphs of CUDA devices."""

    @property
    def enabled(self) -> bool:
        """Whether what is compiled from now on may call it."""
        from compiler_core.runtime.cuda import cudnn

        return cudnn.is_enabled()

    @enabled.setter
    def enabled(self, enabled: bool) -> None:
        from compiler_core.runtime.cuda import cudnn

        cudnn.enable(enabled)

    @property
    def benchmark(self) -> bool:
        """Whether eager code measures the engines of all convolutions of 16-bit floats."""
        from compiler_core.runtime.cuda import cudnn

        return cudnn.measures_all()

    @benchmark.setter
    def benchmark(self, wanted: bool) -> None:
        from compiler_core.runtime.cuda import cudnn

        cudnn.measure_all(bool(wanted))

    def is_available(self) -> bool:
        """Whether there are a GPU and the library."""
        return self.version() is not None

    def version(self) -> int | None:
        """As cuDNN counts them (91900 is 9.19.0); None where there is no GPU, or no cuDNN."""
        from compiler_core import cuda
        from compiler_core.runtime.cuda import cudnn

        return None if cuda.why_not() or cudnn.why_not() else cudnn.version()

    def is_acceptable(self, tensor: Any) -> bool:
        """Whether it computes with `tensor`."""
        return self.is_available() and tensor.is_cuda and tensor.element_size() == 2 and tensor.is_floating_point()

    @contextmanager
    def flags(
        self, enabled: bool = False, benchmark: bool = False, deterministic: bool = False, allow_tf32: bool = True
    ) -> Iterator[None]:
        """A region with other switches, torch's defaults and all."""
        given = {"enabled": enabled, "benchmark": benchmark, "deterministic": deterministic, "allow_tf32": allow_tf32}
        before = {name: getattr(self, name) for name in given}
        try:
            for name, value in given.items():
                setattr(self, name, value)
            yield
        finally:
            for name, value in before.items():
                setattr(self, name, value)


class Packing(Switches):
    """torch.backends.mha: whether encoders leave out what is padded (nn/layers/padded_rows.py)."""

    fastpath = True

    def get_fastpath_enabled(self) -> bool:
        """Whether they may."""
        return self.fastpath

    def set_fastpath_enabled(self, value: bool) -> None:
        """Let them, or not."""
        self.fastpath = value


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


def _preferred(*known: str) -> Any:
    """A function that answers which library computes: the default one. known: what may be asked for."""

    def preferred(backend: str | None = None) -> str:
        if backend is not None and backend not in known:
            from distcompile.errors import ArgumentError

            raise ArgumentError(f"Unknown input value: {backend!r}", expected=", ".join(known))
        return "default"

    return preferred


class SDPAParams:
    """What attention would be called with, as torch's; for the questions below, which are answered with no."""

    def __init__(
        self,
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any,
        dropout: float,
        is_causal: bool,
        enable_gqa: bool = False,
    ) -> None:
        self.query, self.key, self.value, self.attn_mask = query, key, value, attn_mask
        self.dropout, self.is_causal, self.enable_gqa = dropout, is_causal, enable_gqa


def _no(params: object = None, debug: bool = False) -> bool:
    """Attention on a device is a kernel of this package: none of torch's."""
    return False


class _OfCuda(Switches):
    """torch.backends.cuda."""

    @property
    def cufft_plan_cache(self) -> Any:
        """cuFFT's plans: `size`, `max_size`, `clear()`, of the current device, or of that of a number."""
        from distcompile.cuda.fft_plans import PlanCache

        return PlanCache()

    def is_built(self) -> bool:
        """Whether CUDA's devices can be used."""
        from distcompile.cuda import is_available

        return is_available()


cuda = _OfCuda(
    SDPAParams=SDPAParams,
    preferred_linalg_library=_preferred("default", "cusolver"),
    preferred_blas_library=_preferred("default", "cublas", "cublaslt"),
    is_flash_attention_available=_no,
    can_use_flash_attention=_no,
    can_use_efficient_attention=_no,
    can_use_cudnn_attention=_no,
    fp16_bf16_reduction_math_sdp_allowed=_no,
    allow_fp16_bf16_reduction_math_sdp=_nothing,
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
cudnn = CuDnn(deterministic=False, allow_tf32=True)
mps = Switches(is_macos_or_newer=lambda major, minor: False, is_macos13_or_newer=lambda minor=0: False)
mkl, openmp = Switches(), Switches()
cpu = Switches(get_cpu_capability=_of_cpu)
mkldnn = Switches(enabled=True, deterministic=False, flags=_no_effect, is_available=_has_onednn)
mha = Packing()
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
    "mha": mha,
}
for _name, _switches in _ALL.items():
    # so that `import distcompile.backends.cudnn as cudnn` finds it
    sys.modules[f"{__name__}.{_name}"] = _switches  # type: ignore[assignment]


_precision = "highest"


def get_float32_matmul_precision() -> str:
    """What `set_float32_matmul_precision` said last; "highest" at first."""
    return _precision


def set_float32_matmul_precision(precision: str) -> None:
    """How float32 products are computed: "highest" in float32; "high" and "medium" let products on CUDA devices
    round the operands to tf32 (10 bits of mantissa). The CPU always computes in float32. Raises ArgumentError.
    """
    global _precision
    if precision not in ("highest", "high", "medium"):
        from distcompile.errors import ArgumentError

        raise ArgumentError(f"no such precision: {precision!r}", expected="'highest', 'high' or 'medium'")
    from compiler_core.runtime.cuda.context import permit_tf32

    _precision = precision
    permit_tf32(precision != "highest")
