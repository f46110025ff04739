"""torch.nn.modules.utils' one name that training scripts use: taking a wrapper's prefix off a state dict's keys.

In: a state dict, changed in place. Out: nothing.
"""

from __future__ import annotations

from typing import Any


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Take `prefix` ("module." of DDP) off every key that begins with it; the order of the keys stays."""
    for key in list(state_dict):
        state_dict[key.removeprefix(prefix)] = state_dict.pop(key)
