"""torch.xpu: devices of Intel's, of which there are none here.

In: questions. Out: "no", 0, nothing; NoGPUError from what needs one: see absent.py.
"""

from __future__ import annotations

from distcompile.surface.absent import COUNTS, absent

__all__, __getattr__ = absent(
    "xpu",
    {**COUNTS, "memory_reserved": 0, "max_memory_reserved": 0,
     "empty_cache": None, "get_arch_list": [], "get_gencode_flags": "", "get_rng_state_all": [],
     "is_tf32_supported": False, "memory_snapshot": [], "memory_stats": {}, "memory_stats_as_nested_dict": {},
     "reset_accumulated_memory_stats": None, "reset_peak_memory_stats": None, "is_current_stream_capturing": False},
    "Event Stream StreamContext can_device_access_peer current_device current_stream device device_of "
    "get_device_capability get_device_name get_device_properties get_rng_state get_stream_from_external init "
    "initial_seed mem_get_info set_device set_rng_state set_rng_state_all set_stream stream synchronize",
)  # fmt: skip
