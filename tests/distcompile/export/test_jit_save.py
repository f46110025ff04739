"""What jit.trace was given runs as before, is the module to all who ask, and is saved as an exported program."""

from __future__ import annotations

from pathlib import Path

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
    with pytest.raises(NotSupportedError, match="what its arguments are is not known"):
        torch.jit.save(torch.jit.script(net), tmp_path / "n")
