"""Short-time Fourier transforms: stft, istft.

In: signals f[L] or f[B, L] (or complex), a window of up to n_fft samples. Out: stft: c[(B,) N, T], N frequencies (half
of them where onesided) of T frames, hop_length apart; with return_complex=False, f[(B,) N, T, 2]. istft: the signal.
istft adds the windowed frames up and divides by the sum of squared windows (Griffin and Lim, 1984), which must not
vanish: eager, that is an error; compiled, the result is not finite there.
"""

from __future__ import annotations

from compiler_core.dtype import float32, float64
from compiler_core.errors import DTypeError, NoKernelError, ShapeError
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import as_value, dtype_of
from compiler_core.ops.casting import in_float32_on_cpu
from compiler_core.ops.refusals import need_kind
from compiler_core.ops.registry import Value, current_trace
from compiler_core.ops.signal import transforms

_TINY = 1e-11  # a sum of squared windows below this counts as zero, as in torch


def _filled_window(name: str, window: Value | None, like: Value, n_fft: int, win_length: int) -> Value:
    """The window in the middle of n_fft samples, zeros around it."""
    if not 0 < win_length <= n_fft:
        raise ShapeError(f"{name}: bad win_length", expected=f"0 < win_length <= {n_fft}", got=str(win_length))
    if window is not None and tuple(window.shape) != (win_length,):
        raise ShapeError(f"{name}: bad window", expected=f"({win_length},)", got=str(tuple(window.shape)))
    if window is None:
        window = prims.full((win_length,), 1.0, dtype_of(like).real)
    left = (n_fft - win_length) // 2
    return F.pad(window, (left, n_fft - win_length - left)) if win_length < n_fft else window


def _hop(name: str, hop_length: int | None, n_fft: int) -> int:
    hop = n_fft // 4 if hop_length is None else hop_length
    if hop <= 0:
        raise ShapeError(f"{name}: hop_length must be positive", got=str(hop))
    return hop


@in_float32_on_cpu
def stft(
    input: Value,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Value | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Value:
    """The transforms of windowed frames. center: frame t is centred at t * hop_length, the signal padded for that.

    normalized: divide by sqrt(n_fft). onesided: half of the frequencies (the default for real signals).
    """
    need_kind("stft", "iufc", input)
    x = as_value(input)
    if align_to_window is not None:
        raise ShapeError("stft: align_to_window is not supported", remedy="leave it out")
    is_complex = dtype_of(x).is_complex or (window is not None and dtype_of(window).is_complex)
    if return_complex is None and not is_complex:
        raise ShapeError("stft requires the return_complex parameter be given for real inputs")
    if not dtype_of(x).is_complex and dtype_of(x) not in (float32, float64):
        raise NoKernelError("stft takes floating or complex signals", got=dtype_of(x).name)
    if len(x.shape) not in (1, 2):
        raise ShapeError("stft takes a signal or a batch of them", expected="1 or 2 dims", got=str(tuple(x.shape)))
    hop = _hop("stft", hop_length, n_fft)
    full_window = _filled_window("stft", window, x, n_fft, n_fft if win_length is None else win_length)
    batched = x if len(x.shape) == 2 else F.unsqueeze(x, 0)
    if center:
        batched = F.squeeze(F.pad(F.unsqueeze(batched, 1), (n_fft // 2, n_fft // 2), pad_mode), 1)
    if not 0 < n_fft <= batched.shape[-1]:
        raise ShapeError("stft: bad n_fft", expected=f"0 < n_fft <= {batched.shape[-1]}", got=str(n_fft))
    frames = F.mul(prims.windows(batched, (n_fft,), (hop,), (1,)), full_window)  # (B, T, n_fft)
    half = (not is_complex) if onesided is None else onesided
    if half and dtype_of(frames).is_complex:
        raise ShapeError("stft: a onesided result needs a real signal and window", remedy="pass onesided=False")
    transform = transforms.rfft if half else transforms.fft
    result = F.transpose(transform(frames, norm="ortho" if normalized else None), 1, 2)  # (B, N, T)
    result = result if len(x.shape) == 2 else F.squeeze(result, 0)
    return result if return_complex or (return_complex is None and is_complex) else prims.view_as_real(result)


def istft(
    input: Value,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Value | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Value:
    """The signal whose `stft` (same arguments) is nearest to input, cut or filled up to `length` samples."""
    x = as_value(input)
    if not dtype_of(x).is_complex:
        raise DTypeError("istft requires a complex-valued input tensor", got=dtype_of(x).name)
    if len(x.shape) not in (2, 3):
        raise ShapeError("istft takes (N, T) or (B, N, T)", got=str(tuple(x.shape)))
    half = (x.shape[-2] != n_fft) if onesided is None else onesided
    expected = n_fft // 2 + 1 if half else n_fft
    if x.shape[-2] != expected or 0 in x.shape:
        raise ShapeError("istft: the frequencies do not fit n_fft", expected=str(expected), got=str(tuple(x.shape)))
    if half and return_complex:
        raise ShapeError("istft: a complex result needs all frequencies", remedy="pass onesided=False")
    hop = _hop("istft", hop_length, n_fft)
    full_window = _filled_window("istft", window, x, n_fft, n_fft if win_length is None else win_length)
    batched = F.transpose(x if len(x.shape) == 3 else F.unsqueeze(x, 0), 1, 2)  # (B, T, N)
    norm = "ortho" if normalized else None
    if return_complex:
        frames = transforms.ifft(batched, norm=norm)
    else:  # the second half of the frequencies, if it is there, is not read
        frames = transforms.irfft(F.narrow(batched, -1, 0, n_fft // 2 + 1), n_fft, norm=norm)
    signal = _overlap_added(F.mul(frames, full_window), full_window, n_fft, hop, center, length)
    return signal if len(x.shape) == 3 else F.squeeze(signal, 0)


def _overlap_added(frames: Value, window: Value, n_fft: int, hop: int, center: bool, length: int | None) -> Value:
    """Frames c[B, T, n_fft], windowed twice, as one signal, divided by the sum of squared windows."""
    count = frames.shape[1]
    total = n_fft + hop * (count - 1)
    start = n_fft // 2 if center else 0
    stop = start + length if length is not None else total - (n_fft // 2 if center else 0)
    squares = F.expand(F.mul(window, window), (count, n_fft))
    signal = prims.windows_add(frames, (total,), (n_fft,), (hop,), (1,))
    envelope = prims.windows_add(squares, (total,), (n_fft,), (hop,), (1,))
    kept = max(min(stop, total) - start, 0)
    signal, envelope = F.narrow(signal, 1, start, kept), F.narrow(envelope, 0, start, kept)
    if current_trace() is None and bool(F.any(F.lt(F.abs(envelope), _TINY))):
        raise ShapeError("istft: the window overlap add is zero somewhere", remedy="use another window or hop_length")
    signal = F.div(signal, envelope)
    return F.pad(signal, (0, stop - total)) if stop > total else signal
