"""Complex tensors are torch's: literals, printing, promotion, views that are written through, gradients, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.errors import AutogradError, DTypeError
from compiler_core.tensor.autograd.gradcheck import gradcheck, gradgradcheck
from distcompile.errors import CheckpointError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

Z = (np.array([[1.5 - 2j, 0.25j, -3.0], [2.0 + 1j, -0.5 - 0.5j, 4.0 - 1j]])).astype(np.complex64)
R = np.array([[0.5, -1.0, 2.0], [1.25, 3.0, -0.75]], np.float32)


def numbers(tensor: Any) -> np.ndarray:
    tensor = tensor.detach()
    return tensor.resolve_conj().numpy() if isinstance(tensor, torch.Tensor) else tensor.numpy()


def assert_torchs(function: Callable[[Any, Any, Any], Any]) -> None:
    """function(module, z, r): value, dtype and both gradients, eager and compiled."""
    theirs = [torch.tensor(Z, requires_grad=True), torch.tensor(R, requires_grad=True)]
    want = function(torch, *theirs)
    loss(torch, want).backward()
    for wrap in (lambda f: f, lambda f: dc.compile(f, fullgraph=True)):
        mine = [dc.tensor(Z).requires_grad_(), dc.tensor(R).requires_grad_()]
        got = wrap(lambda z, r: function(dc, z, r))(*mine)
        assert str(got.dtype).split(".")[1] == str(want.dtype).split(".")[1]
        np.testing.assert_allclose(numbers(got), numbers(want), rtol=2e-5, atol=2e-5)
        loss(dc, got).backward()
        for a, b in zip(mine, theirs, strict=True):
            if b.grad is not None:
                assert a.grad is not None
                assert str(a.grad.dtype).split(".")[1] == str(b.grad.dtype).split(".")[1]
                np.testing.assert_allclose(numbers(a.grad), numbers(b.grad), rtol=3e-5, atol=3e-5)


def loss(module: Any, y: Any) -> Any:
    weight = 0.3 - 0.7j if y.is_complex() else 0.3
    return (y * weight).sum().real


FUNCTIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "arithmetic": lambda m, z, r: (z * r + 2j) / (z - 0.5) - r**2,
    "real from complex": lambda m, z, r: (z * r).abs() + z.real * z.imag,
    "transcendental": lambda m, z, r: (z * r).sin() + (z / 4).tanh() + z.sqrt().log() + (0.1 * z).exp().cosh(),
    "powers": lambda m, z, r: z**3 + z ** (0.5 - 1j) + z**-1 + z.square(),
    "polar": lambda m, z, r: m.polar(r.abs(), r) + m.complex(r, r * 2) * z.conj(),
    "angle and sign": lambda m, z, r: m.angle(z * r) + z.sgn().real,
    "products": lambda m, z, r: z @ z.mH + m.einsum("ij,kj->ik", z, r.to(z.dtype)),
    "reductions": lambda m, z, r: z.sum(0) + z.mean(0) * z.prod(0) + z.cumsum(1)[0] + z.std(0),
    "views": lambda m, z, r: m.view_as_complex(m.view_as_real(z) * m.stack([r, -r], -1)),
    "choice": lambda m, z, r: m.where(z.real > 0, z, z.conj() * 2) + m.cat([z[:, 1:], z[:, :1]], 1),
    "norms": lambda m, z, r: m.linalg.vector_norm(z) + z.norm(1) + m.linalg.matrix_norm(z),
    "solve": lambda m, z, r: m.linalg.solve(z[:, :2], z[:, 2]) + m.linalg.det(z[:, 1:]),
    "written parts": lambda m, z, r: written(z, r),
}


def written(z: Any, r: Any) -> Any:
    w = z.clone()
    w.real.mul_(r)
    w.imag[0] = 3.0
    w.conj()[1, 0] = 1j
    return w * z


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients(name: str) -> None:
    assert_torchs(FUNCTIONS[name])


@pytest.mark.parametrize(
    "literal",
    [[1 + 2j, 3 - 4.5j], 1j, [[1.5 + 2j, 3e5 - 4j], [0, 1j]], [complex("nan"), complex(float("inf"), 0)], [1e-9j, 1]],
)
def test_literals_print_as_torchs(literal: Any) -> None:
    for dtype in ("complex64", "complex128"):
        mine = dc.tensor(literal, dtype=getattr(dc, dtype))
        assert repr(mine) == repr(torch.tensor(literal, dtype=getattr(torch, dtype))).replace("torch.", "distcompile.")
    assert dc.tensor(literal).dtype is dc.complex64


def test_python_sees_complex_numbers() -> None:
    assert dc.tensor([1 + 2j])[0].item() == 1 + 2j
    assert complex(dc.tensor(2j)) == 2j
    assert dc.tensor([[1j]]).tolist() == [[1j]]
    assert float(dc.tensor(2 + 0j)) == 2.0
    with pytest.raises(DTypeError, match="without loss"):
        float(dc.tensor(2j))


def test_views_share_memory() -> None:
    z = dc.tensor(Z)
    z.real = dc.tensor(R)
    z.imag.zero_()
    dc.view_as_real(z)[0, 0, 1] = 7.0
    np.testing.assert_array_equal(z.numpy(), R + np.array([[7j, 0, 0], [0, 0, 0]], np.complex64))
    parts = dc.zeros(3, 2)
    dc.view_as_complex(parts)[1] = 3 + 4j
    np.testing.assert_array_equal(parts.numpy(), [[0, 0], [3, 4], [0, 0]])
    assert z.conj().is_conj()
    assert not z.conj().conj().is_conj()
    assert z.real.stride() == (6, 2)
    assert z.imag.storage_offset() == 1


def test_a_view_of_parts_has_no_strided_storage() -> None:
    with pytest.raises(DTypeError, match="other ones"):
        dc.as_strided(dc.tensor(Z).conj(), (2,), (1,))


@pytest.mark.parametrize(
    ("call", "error", "complaint"),
    [
        (lambda: dc.tensor(Z) < 0, DTypeError, "lt"),
        (lambda: dc.tensor(Z).max(), DTypeError, "max"),
        (lambda: dc.tensor(Z).sign(), DTypeError, "sgn"),
        (lambda: dc.tensor(Z).floor(), DTypeError, "floor"),
        (lambda: dc.tensor(R).imag, DTypeError, "non-complex"),
        (lambda: dc.tensor(R).copy_(dc.tensor(Z)).is_complex() or dc.tensor(R).add_(1j), DTypeError, "higher kind"),
        (lambda: dc.tensor(Z).chalf(), DTypeError, "complex32"),
        (lambda: dc.zeros(2, dtype=dc.float16) * 1j, DTypeError, "complex32"),
        (lambda: dc.view_as_complex(dc.tensor(R)), RuntimeError, "two parts"),
        (lambda: dc.tensor(Z).requires_grad_().sum().backward(), AutogradError, "real outputs"),
    ],
)
def test_refusals(call: Callable[[], Any], error: type[Exception], complaint: str) -> None:
    with pytest.raises(error, match=complaint):
        call()


def test_random_numbers_have_both_parts() -> None:
    dc.manual_seed(0)
    drawn = dc.randn(20000, dtype=dc.complex64).numpy()
    assert np.allclose([drawn.real.std(), drawn.imag.std()], 0.5**0.5, atol=0.02)
    assert dc.rand(9, dtype=dc.complex64).imag.min().item() > 0
    assert (dc.zeros(9, dtype=dc.complex64).uniform_(-2, -1).imag < 0).all()


def test_files_hold_complex64(tmp_path: Any) -> None:
    dc.save({"z": dc.tensor(Z)}, tmp_path / "z.safetensors")
    np.testing.assert_array_equal(dc.load(tmp_path / "z.safetensors")["z"].numpy(), Z)
    with pytest.raises(CheckpointError, match="complex128"):
        dc.save({"z": dc.tensor(Z).cdouble()}, tmp_path / "z.safetensors")


def test_second_derivatives() -> None:
    z = dc.tensor(Z.astype(np.complex128)).requires_grad_()

    def function(x: Any) -> Any:
        return (x * x.conj()).abs().sqrt() + (x.exp() / (x + 9)).imag

    assert gradcheck(function, [z])
    assert gradgradcheck(function, [z])


def test_eigenvectors_answer_as_torchs() -> None:
    a = np.random.default_rng(0).standard_normal((4, 4))

    def f(m: Any, x: Any) -> Any:
        values, vectors = m.linalg.eig(x)
        return values.abs().sum() + (vectors.abs() * values.real.abs()).sum()

    mine, theirs = dc.tensor(a).requires_grad_(), torch.tensor(a, requires_grad=True)
    got, want = dc.compile(lambda x: f(dc, x))(mine), f(torch, theirs)
    got.backward()
    want.backward()
    np.testing.assert_allclose(got.item(), want.item(), rtol=1e-10)
    np.testing.assert_allclose(mine.grad.numpy(), theirs.grad.numpy(), rtol=1e-8, atol=1e-9)


def test_an_optimizer_steps_complex_parameters_as_torchs() -> None:
    with pytest.raises(NotImplementedError, match="complex"):
        dc.optim.LBFGS([dc.nn.Parameter(dc.tensor(Z))])
    for name, options in (("SGD", {"momentum": 0.9}), ("Adam", {}), ("AdamW", {}), ("RMSprop", {}), ("Adagrad", {})):
        results = []
        for module in (dc, torch):
            p = module.nn.Parameter(module.tensor(Z))
            optimizer = getattr(module.optim, name)([p], lr=0.1, **options)
            for _ in range(3):
                optimizer.zero_grad()
                ((p - (1 + 1j)).abs() ** 2).sum().backward()
                optimizer.step()
            results.append(numbers(p))
        np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-5, err_msg=name)


def test_constants_keep_the_signs_of_their_zeros() -> None:
    def turned(module: Any, z: Any, r: Any) -> Any:
        k = module.tensor([complex(1, 0.0), complex(1, -0.0)])
        return (-k.flip(0)).angle() + (z * r).abs()[:, :2]

    assert_torchs(turned)
