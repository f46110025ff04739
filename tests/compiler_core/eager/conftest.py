"""What tests of eager kernels share."""

from __future__ import annotations

from typing import Any

import pytest

from compiler_core.eager.device.kernels import DeviceKernels
from compiler_core.runtime.cuda import replay


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels on the stand-in device that were launched, those of proofs too. Each call is made in full."""
    monkeypatch.setattr(replay.Noting, "is_on", False)
    names: list[str] = []
    launch = DeviceKernels._function

    def noted(self: Any, name: str) -> Any:
        names.append(name)
        return launch(self, name)

    monkeypatch.setattr(DeviceKernels, "_function", noted)
    return names
