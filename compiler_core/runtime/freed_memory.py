"""What the C library keeps of the memory that arrays give back, so that the next step does not fault it in again.

In: nothing; called once, when eager kernels are loaded. Out: whether anything was changed. glibc gives the end of its
heap back to the system as soon as a few hundred KB to some MB of it are free, and takes it again, page by page, for the
next array: of an eager training step on the CPU that is a tenth to a fifth. From here on up to KEPT bytes stay.
Arrays of over 32 MB are mapped and unmapped by themselves, as before. `malloc_trim` still gives all back.
A user's own setting (MALLOC_TRIM_THRESHOLD_, MALLOC_MMAP_THRESHOLD_, GLIBC_TUNABLES) stands. Source: mallopt(3).
"""

from __future__ import annotations

import ctypes
import os

KEPT = 256 << 20  # bytes
_MAPPED = 32 << 20  # bytes from which on an array is mapped by itself: the most that glibc takes
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # mallopt's names
_ASKED = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed() -> bool:
    """Whether the C library has been told: it is glibc, and nobody has said otherwise."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or any(name in os.environ for name in _ASKED):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _MAPPED) and mallopt(_TRIM_THRESHOLD, KEPT))
