"""`torch.__version__` compares as torch's own does."""

from __future__ import annotations

import operator
from typing import Any

import pytest

import distcompile as dc
from distcompile.surface.torch_version import TorchVersion

OTHERS: list[Any] = [
    "2.13.0", "2.13", "2.13.0+cpu", "2.13.0+z", "2.9", "2.13.1", "2.13.0a0", "2.13.0rc1", "2.13.0.dev3", "2.13.0.post1",
    "3", "1.10.2", (2, 0), (2, 13), (2, 13, 1), "not a version",
]  # fmt: skip
OURS = ["2.13.0+distcompile.0.1.0", "2.13.0", "2.14.0a0+git1", "2.13.0.post2", "2.13.0.dev20250101"]


@pytest.mark.torch
@pytest.mark.parametrize("name", ["lt", "le", "eq", "gt", "ge"])  # torch left `!=` to compare texts
def test_versions_are_ordered_as_torchs(name: str) -> None:
    torch_version = pytest.importorskip("torch.torch_version")
    compare = getattr(operator, name)
    for text in OURS:
        for other in OTHERS:
            assert compare(TorchVersion(text), other) == compare(torch_version.TorchVersion(text), other), (text, other)


def test_ours_is_a_text_and_newer_than_2() -> None:
    assert isinstance(dc.__version__, str)
    assert dc.__version__.split("+")[0] == "2.13.0"
    assert "2.0" < dc.__version__ != "2.13.0"
    assert dc.__version__ == str(dc.__version__)
    assert {dc.__version__: 1}[str(dc.__version__)] == 1
    assert dc.__version__ not in (None, 2)
