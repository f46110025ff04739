"""torch.mps: devices of Apple's, of which there are none here.

In: questions. Out: "no", 0, nothing; NoGPUError from what needs one: see absent.py.
"""

from __future__ import annotations

from distcompile.surface.absent import absent

__all__, __getattr__ = absent(
    "mps",
    {"is_available": False, "device_count": 0, "manual_seed": None},
    "Event compile_shader current_allocated_memory driver_allocated_memory empty_cache get_rng_state "
    "recommended_max_memory seed set_per_process_memory_fraction set_rng_state synchronize",
)
