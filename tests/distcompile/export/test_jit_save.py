"""What jit.trace was given runs as before, is the module to all who ask, and is saved as an exported program."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest

import distcompile as torch
from distcompile import nn
from distcompile.errors import NotSupportedError
from distcompile.testing import assert_close


def test_a_traced_module_is_saved_and_loaded(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()
    traced = torch.jit.trace(net, torch.randn(1, 3, 8, 8))
    assert isinstance(traced, nn.Sequential)
    assert list(traced.state_dict()) == list(net.state_dict())
    x = torch.randn(1, 3, 12, 8)  # sizes may change
    assert_close(traced(x), net(x))
    traced.save(tmp_path / "m.pt")
    loaded = torch.jit.load(tmp_path / "m.pt").eval()
    assert_close(loaded(x), net(x), atol=1e-6, rtol=1e-5)
    with pytest.warns(UserWarning, match="stays in evaluation mode"):
        loaded.train()
    torch.jit.save(loaded, tmp_path / "again.pt")
    assert_close(torch.jit.load(tmp_path / "again.pt")(x), net(x), atol=1e-6, rtol=1e-5)


def test_a_traced_function_is_saved_and_loaded(tmp_path: Path) -> None:
    def affine(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b + 1

    traced = torch.jit.trace(affine, (torch.randn(2, 3), torch.randn(3, 4)))
    assert traced.__name__ == "affine"
    torch.jit.save(traced, tmp_path / "m.pt")
    a, b = torch.randn(5, 3), torch.randn(3, 2)
    assert_close(torch.jit.load(tmp_path / "m.pt")(a, b), affine(a, b))


def test_what_has_no_example_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(NotSupportedError, match="not traced"):
        torch.jit.save(torch.jit.script(nn.Linear(2, 2)), tmp_path / "m.pt")
    (tmp_path / "other.pt").write_bytes(b"PK\x03\x04")
    with pytest.raises(NotSupportedError, match=r"jit\.load reads"):
        torch.jit.load(tmp_path / "other.pt")


def test_a_scripted_module_is_saved_with_an_example(tmp_path: Path) -> None:
    net, x = nn.Linear(3, 2), torch.randn(5, 3)
    scripted = torch.jit.script(net, example_inputs=[(torch.ones(2, 3),)])
    assert_close(scripted(x), net(x))
    torch.jit.save(scripted, tmp_path / "m")
    assert_close(torch.jit.load(tmp_path / "m")(x), net(x))


@pytest.mark.parametrize("make", [lambda net: torch.jit.trace(net, torch.ones(2, 3)), torch.jit.script])
def test_copies_are_saved_too(make: Any, tmp_path: Path) -> None:
    net, x = nn.Sequential(nn.Linear(3, 2), nn.ReLU()), torch.randn(5, 3)
    made = make(net)
    made(torch.ones(4, 3))
    for copied in (copy.deepcopy(made), pickle.loads(pickle.dumps(made)), copy.copy(made)):
        assert type(copied) is type(made)
        assert isinstance(copied, nn.Sequential)
        copied.save(tmp_path / "m")
        assert_close(torch.jit.load(tmp_path / "m")(x), net(x))


def test_a_scripted_module_is_saved_once_it_was_called(tmp_path: Path) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.jit.script(nn.Linear(3, 2))

        def forward(self, x: torch.Tensor, *, scale: float) -> dict[str, torch.Tensor]:
            return {"y": self.inner(x) * scale}

    net, x = Scaled(), torch.randn(5, 3)
    scripted = torch.jit.script(net)
    assert torch.jit.script(scripted) is scripted
    assert [*scripted.state_dict()] == ["inner.weight", "inner.bias"]
    with pytest.raises(NotSupportedError, match="nor called"):
        scripted.save(tmp_path / "m")
    scripted(torch.ones(4, 3), scale=2.0)
    scripted.save(tmp_path / "m")
    assert_close(torch.jit.load(tmp_path / "m")(x, scale=2.0), net(x, scale=2.0))
    assert_close(torch.compile(scripted)(x, scale=3.0), net(x, scale=3.0))
