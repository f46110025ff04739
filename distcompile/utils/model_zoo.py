"""torch.utils.model_zoo's name: `load_url`, which is hub's `load_state_dict_from_url`."""

from __future__ import annotations

from distcompile.hub import load_state_dict_from_url

__all__ = ["load_url"]

load_url = load_state_dict_from_url
