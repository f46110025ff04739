"""torch.utils.tensorboard's name: SummaryWriter is not offered. Without tensorboard the import fails as torch's does.

In: `from torch.utils.tensorboard import SummaryWriter`. Out: ModuleNotFoundError, or a NotSupportedError at its use.
"""

from __future__ import annotations

import importlib
from typing import Any, NoReturn

from distcompile.errors import NotSupportedError

__all__ = ["SummaryWriter"]

importlib.import_module("tensorboard")  # ModuleNotFoundError where it is not installed, as in torch


class SummaryWriter:
    """Raises NotSupportedError when one is made."""

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotSupportedError(
            "utils.tensorboard.SummaryWriter is not offered",
            remedy="tensorboardX's SummaryWriter takes numbers: loss.item()",
        )
