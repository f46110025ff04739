"""torch.mtia: devices of Meta's, of which there are none here.

In: questions. Out: "no", 0, nothing; NoGPUError from what needs one: see absent.py.
"""

from __future__ import annotations

from distcompile.surface.absent import COUNTS, absent

__all__, __getattr__ = absent(
    "mtia",
    {**COUNTS, "get_rng_state_all": [], "memory_stats": {}, "reset_peak_memory_stats": None},
    "current_device current_stream default_stream device empty_cache get_device_capability get_device_properties "
    "get_rng_state init initial_seed set_device set_rng_state set_rng_state_all set_stream snapshot stream synchronize",
)
