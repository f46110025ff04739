"""torch.fft's frequencies and shifts against torch, eager and compiled; the transforms are absent, by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distcompile as dc

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.mark.parametrize("n", [1, 4, 5])
@pytest.mark.parametrize("name", ["fftfreq", "rfftfreq"])
def test_frequencies(name: str, n: int) -> None:
    got, want = (getattr(t.fft, name)(n, 0.5, dtype=t.float64).numpy() for t in (dc, torch))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dim", [None, 1, (0, 2)])
@pytest.mark.parametrize("name", ["fftshift", "ifftshift"])
def test_shifts(name: str, dim: Any) -> None:
    x = np.arange(60.0).reshape(3, 4, 5)
    compiled = dc.compile(lambda x: getattr(dc.fft, name)(x, dim), fullgraph=True)
    want = getattr(torch.fft, name)(torch.tensor(x), dim).numpy()
    np.testing.assert_array_equal(getattr(dc.fft, name)(dc.tensor(x), dim).numpy(), want)
    np.testing.assert_array_equal(compiled(dc.tensor(x)).numpy(), want)


def signal(shape: tuple[int, ...], *, is_complex: bool) -> np.ndarray:
    rng = np.random.default_rng(3)
    values = rng.standard_normal(shape)
    return values + 1j * rng.standard_normal(shape) if is_complex else values


TRANSFORMS: list[tuple[str, bool, dict[str, object]]] = [
    *[(name, True, {"norm": norm}) for name in ("fft", "ifft", "irfft", "hfft") for norm in (None, "forward", "ortho")],
    *[(name, False, {"norm": norm}) for name in ("fft", "rfft", "ihfft") for norm in ("backward", "forward", "ortho")],
    ("fft", True, {"n": 7, "dim": 0}), ("ifft", True, {"n": 2, "dim": 1}), ("rfft", False, {"n": 5, "dim": 0}),
    ("irfft", True, {"n": 5}), ("irfft", True, {"n": 9, "dim": 0}), ("hfft", True, {"n": 4, "dim": 0}),
    ("fft2", True, {}), ("rfft2", False, {"s": (5, 4)}), ("irfft2", True, {"s": (4, -1)}), ("fftn", True, {}),
    ("rfftn", False, {"dim": (2, 0)}), ("irfftn", True, {"dim": (2, 0), "s": (3, 7)}), ("hfftn", True, {"dim": (0, 2)}),
    ("ihfftn", False, {"norm": "ortho"}), ("ifftn", True, {"s": (2, 2), "dim": (1, 2)}), ("hfft2", True, {}),
]  # fmt: skip


@pytest.mark.torch
@pytest.mark.parametrize(("name", "is_complex", "options"), TRANSFORMS)
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128], ids=["c64", "c128"])
def test_transforms_and_gradients_are_torchs(name: str, is_complex: bool, options: dict, dtype: type) -> None:
    torch = pytest.importorskip("torch")
    values = signal((3, 4, 6), is_complex=is_complex).astype(dtype if is_complex else np.zeros(0, dtype).real.dtype)
    mine, theirs = dc.tensor(values).requires_grad_(), torch.tensor(values, requires_grad=True)
    got, want = getattr(dc.fft, name)(mine, **options), getattr(torch.fft, name)(theirs, **options)
    close = {"rtol": 1e-5, "atol": 1e-4} if dtype is np.complex64 else {"rtol": 1e-11, "atol": 1e-11}
    assert str(got.dtype).split(".")[1] == str(want.dtype).split(".")[1]
    np.testing.assert_allclose(got.detach().resolve_conj().numpy(), want.detach().resolve_conj().numpy(), **close)
    weights = np.linspace(-1, 2, want.numel()).reshape(want.shape).astype(got.dtype.real.numpy)
    (got.abs() * dc.tensor(weights)).sum().backward()
    (want.abs() * torch.tensor(weights)).sum().backward()
    np.testing.assert_allclose(mine.grad.numpy(), theirs.grad.resolve_conj().numpy(), **close)


def test_transforms_compile_without_a_graph_break() -> None:
    def f(x):
        return dc.fft.irfft(dc.fft.rfft(x * 2.0) * 1j).square().sum()

    x = dc.tensor(signal((4, 8), is_complex=False)).requires_grad_()
    eager, compiled = f(x), dc.compile(f, fullgraph=True)
    (want,) = dc.autograd.grad(eager, x)
    result = compiled(x)
    result.backward()
    assert np.isclose(result.item(), eager.item())
    np.testing.assert_allclose(x.grad.numpy(), want.numpy(), rtol=1e-12, atol=1e-12)
    assert "pocketfft" in str(compiled.explain())


@pytest.mark.torch
@pytest.mark.parametrize("window", [False, True])
@pytest.mark.parametrize("center", [False, True])
def test_istft_undoes_stft_and_both_are_torchs(window: bool, center: bool) -> None:
    torch = pytest.importorskip("torch")
    x = signal((2, 40), is_complex=False)
    taper = np.hamming(8) if window else None
    mine = {"window": dc.tensor(taper) if window else None, "center": center}
    theirs = {"window": torch.tensor(taper) if window else None, "center": center}
    got = dc.stft(dc.tensor(x), 8, 2, return_complex=True, **mine)
    want = torch.stft(torch.tensor(x), 8, 2, return_complex=True, **theirs)
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-11, atol=1e-11)
    back = dc.istft(got, 8, 2, **mine)
    np.testing.assert_allclose(back.numpy(), torch.istft(want, 8, 2, **theirs).numpy(), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(back.numpy(), x[:, : back.shape[1]], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: dc.fft.rfft(dc.tensor([1j])), "real input"),
        (lambda: dc.fft.fft(dc.zeros(3), norm="other"), "norm"),
        (lambda: dc.fft.fft(dc.zeros(3), n=0), "data points"),
        (lambda: dc.fft.fftn(dc.zeros(3, 3), dim=(0, 0)), "twice"),
        (lambda: dc.fft.fft(dc.zeros(3, dtype=dc.float16)), "float16"),
        (lambda: dc.stft(dc.zeros(9), 4), "return_complex"),
        (lambda: dc.istft(dc.zeros(3, 3), 4), "complex-valued"),
        (lambda: dc.istft(dc.zeros(3, 3, dtype=dc.complex64), 4, 4, window=dc.zeros(4)), "window overlap add"),
    ],
)
def test_what_transforms_refuse(call, complaint: str) -> None:
    with pytest.raises(RuntimeError, match=complaint):
        call()
