"""torch.ops.aten: every operator that can be called, on torch's own samples for its tests, gives what torch's gives."""

import itertools
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from distcompile.library.aten_names import OVERLOADS
from tests import sharing

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

EACH = 12  # one operator of so many in a plain run
SAMPLES = 6  # of an operator and dtype
TYPES = (torch.float64, torch.int64, torch.bool)
# drawn at random; not filled; or one of several right answers (where values tie, or vectors have no sign)
FREE = """
alpha_dropout argsort bernoulli bernoulli_ binomial cauchy_ dropout empty_like exponential_ feature_alpha_dropout
geometric_ kthvalue linalg_eig linalg_eigh log_normal_ mode multinomial new_empty new_empty_strided normal
normal_ poisson rand_like randint randint_like randn_like rrelu rrelu_ scaled_dot_product_attention sort topk uniform_
"""
# a sample is taken by an overload that it is not for: a bool as `dim`, a float as an int
ELSEWHERE = {
    "embedding",
    "arange",
    "max",
    "min",
    "std",
    "std_mean",
    "sum_to_size",
    "var",
    "var_mean",
    "addbmm_",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "sampled" in metafunc.fixturenames:
        names = [name for name in OVERLOADS if name not in ELSEWHERE.union(FREE.split())]
        metafunc.parametrize("sampled", sharing.every(names, EACH, random.Random(0).randrange(EACH)))


@pytest.fixture(scope="module")
def samples() -> dict[str, list[Any]]:
    """Torch's descriptions of operators, by the names that they may go by in aten."""
    from tests.oracles import torch_samples  # whose import makes drawing samples quick

    found: dict[str, list[Any]] = {}
    for info in torch_samples.op_db:
        said = [info.aten_name, info.name, *(one.name for one in info.aliases)]
        for name in {one.replace("nn.functional.", "").replace(".", "_") for one in said}:
            found.setdefault(name, []).append(info)
            found.setdefault(f"{name}_", []).append(info)
    return found


def calls(infos: list[Any]) -> Iterator[tuple[Any, ...]]:
    for info in infos:
        for dtype in TYPES:
            if dtype in info.dtypes:
                for one in itertools.islice(info.sample_inputs("cpu", dtype), SAMPLES):
                    yield (one.input, *one.args), one.kwargs


def ours(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return dc.tensor(value.detach().numpy().copy())
    if isinstance(value, list | tuple):
        return [ours(one) for one in value]
    if isinstance(value, torch.dtype | torch.memory_format | torch.layout):
        return getattr(dc, str(value).removeprefix("torch."))
    return dc.device(str(value)) if isinstance(value, torch.device) else value


def copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return [copied(one) for one in value] if isinstance(value, list | tuple) else value


def plain(value: Any) -> Any:
    """Arrays, with what dtype has no array of its own, and Python's values."""
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if hasattr(value, "detach"):
        return value.detach().resolve_conj().numpy()
    return value if isinstance(value, int | float | complex | None) else str(value).rpartition(".")[2]


def same(theirs: Any, mine: Any, name: str = "") -> None:
    if isinstance(theirs, list):
        assert isinstance(mine, list)
        assert len(theirs) == len(mine)
        for one, other in zip(theirs, mine):
            same(one, other, name)
    elif isinstance(theirs, np.ndarray):
        assert (theirs.dtype, theirs.shape) == (mine.dtype, mine.shape)
        is_double = "bessel" not in name and theirs.dtype in (np.float64, np.complex128)
        np.testing.assert_allclose(mine, theirs, rtol=1e-7 if is_double else 3e-5, atol=1e-9 if is_double else 1e-5)
    else:
        assert mine == theirs or mine != mine or abs(mine - theirs) < 1e-9


def test_an_operator_gives_what_torchs_gives(sampled: str, samples: dict[str, list[Any]]) -> None:
    packet, compared = getattr(dc.ops.aten, sampled), 0
    for args, kwargs in calls(samples.get(sampled, [])):
        for overload in packet.overloads():
            try:
                expected = plain(getattr(getattr(torch.ops.aten, sampled), overload)(*copied(args), **kwargs))
            except Exception:  # noqa: BLE001 - the sample is for another overload
                continue
            given = {key: ours(one) for key, one in kwargs.items()}
            same(expected, plain(getattr(packet, overload)(*ours(args), **given)), sampled)
            compared += 1
    if not compared:
        pytest.skip("torch has no sample for it")


def test_overloads_are_torchs() -> None:
    for name in OVERLOADS:
        theirs, mine = (getattr(t.ops.aten, name) for t in (torch, dc))
        shared = [one for one in theirs.overloads() if one in mine.overloads()]
        assert mine.overloads() == shared != []
        assert [str(getattr(mine, one)) for one in shared] == [str(getattr(theirs, one)) for one in shared]


X = np.linspace(-2.0, 3.0, 24).reshape(2, 3, 4)
ROWS = np.array([[1, 0], [2, 1]])
CALLS: dict[str, tuple[Any, ...]] = {
    "slice.Tensor": (X, 1, 0, 3, 2),
    "index.Tensor": (X, [None, ROWS]),
    "_to_copy.default": (X,),
    "_softmax.default": (X, 1, False),
    "_log_softmax.default": (X, -1, False),
    "convolution.default": (X, X[:, :, :2].copy(), None, [2], [1], [1], False, [0], 1),
    "native_layer_norm.default": (X, [4], X[0, 0].copy(), X[0, 1].copy(), 1e-5),
    "alias.default": (X,),
    "_unsafe_view.default": (X, [6, 4]),
    "_local_scalar_dense.default": (X[0, 0, :1].copy(),),
    "sym_size.int": (X, 1),
    "sym_numel.default": (X,),
    "embedding.default": (X[0].copy(), ROWS, 1),
    "sigmoid_backward.default": (X, X),
    "tanh_backward.default": (X, X),
    "threshold_backward.default": (X, X, 0.0),
    "mse_loss.default": (X, X * 2, 2),
    "l1_loss.default": (X, X * 2, 0),
    "huber_loss.default": (X, X * 2, 1, 0.5),
    "smooth_l1_loss.default": (X, X * 2, 1, 0.5),
    "binary_cross_entropy.default": (np.abs(X) / 4, np.abs(X) / 5, X, 2),
    "nll_loss.default": (X[0].copy(), np.array([1, 3, 0]), None, 1, 3),
    "max_pool2d.default": (X, [2, 2], [1, 1], [1, 1]),
    "max_pool2d_with_indices.default": (X, [2, 2], [1, 1]),
    "einsum.default": ("abc,cb->a", [X, X[0].T.copy()]),
    "cdist.default": (X, X * 2, 1.0),
    "tensordot.default": (X, X, [1], [1]),
    "block_diag.default": ([X[0], X[1]],),
    "broadcast_tensors.default": ([X, X[0]],),
    "cartesian_prod.default": ([X[0, 0], X[0, 1]],),
    "nonzero.default": (ROWS,),
    "polygamma.default": (1, np.abs(X) + 1),
    "scatter_add.default": (X, 2, np.broadcast_to(ROWS, (2, 2, 2)).copy(), X),
    "slice_scatter.default": (X, X[:, :1].copy(), 1, 1, 2),
    "split_copy.Tensor": (X, 2, 1),
    "permute_copy.default": (X, [2, 0, 1]),
    "_foreach_add.Scalar": ([X, X[0]], 2.0),
    "_foreach_mul.List": ([X, X[0]], [X, X[1]]),
}


@pytest.mark.parametrize("name", CALLS)
def test_operators_of_their_own_kind(name: str) -> None:
    packet, _, overload = name.partition(".")
    found = []
    for t in (torch, dc):
        args = as_tensors(t, CALLS[name])
        found.append(plain(getattr(getattr(t.ops.aten, packet), overload)(*args)))
    same(*found)


def as_tensors(t: Any, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return t.tensor(value)
    return [as_tensors(t, one) for one in value] if isinstance(value, list | tuple) else value


def test_calls_by_packet_and_by_keyword_and_what_is_not_offered() -> None:
    def program(t: Any) -> Any:
        x, aten = t.tensor(X[0]), t.ops.aten
        return plain(
            [
                aten.add(x, x), aten.add.Tensor(self=x, other=x, alpha=2), aten.sum.dim_IntList(x, [0], keepdim=True),
                aten.add is t.ops.aten.add, aten.add.Tensor is aten.add.Tensor, str(aten.add.out),
                str(aten.convolution_backward.default), aten.add_(x.clone(), 1), hash(aten.mm.default) != 0,
            ]
        )  # fmt: skip

    same(program(torch), program(dc))
    for call in (dc.ops.aten.convolution_backward, dc.ops.aten.add.out):
        with pytest.raises(NotImplementedError, match="is not offered"):
            call(dc.ones(2))
