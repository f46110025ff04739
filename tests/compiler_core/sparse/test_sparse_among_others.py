"""Sparse tensors where other parts of the package meet them: autocast, forward mode, files, comparison, refusals."""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from sparse_expressions import operands

import distcompile
from compiler_core.errors import LayoutError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _without_torchs_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize(
    "text",
    [
        "q @ f", "t.sparse.mm(q, f)", "t.mm(q, f)", "t.spmm(q, f)", "q.mv(f[:, 0])", "t.addmm(o, q, f)",
        "t.sparse.addmm(o, q, f)", "f.t() @ q.t()", "t.nn.functional.linear(f.t(), q)", "t.sparse.mm(q, q.t())",
        "q * 2",
        "q + q", "t.sparse.mm(q, f.bfloat16())", "t.sparse.softmax(q, 0)", "t.smm(q, f)", "t.hspmm(q, f)", "a @ w",
    ],
)  # fmt: skip
def test_autocast_computes_in_the_dtype_that_torch_computes_in(text: str) -> None:
    found = []
    for library in (torch, distcompile):
        names = {"t": library, **operands(library)}
        names["f"], names["o"] = names["w"].float(), names["x"].t()[:, :3].float()
        with library.autocast("cpu", dtype=library.bfloat16):
            found.append(str(eval(text, names).dtype).rpartition(".")[2])
    assert found[1] == found[0]


@pytest.mark.parametrize("text", ["a @ w", "t.sparse.mm(r, w)", "d + a", "d * a", "d.to_sparse()", "d.sparse_mask(b)"])
def test_forward_mode_is_refused(text: str) -> None:
    names = {"t": distcompile, **operands(distcompile)}
    for name in ("w", "d"):
        if name in text:
            function = eval(f"lambda {name}: {text}", names)
            with pytest.raises(LayoutError, match="forward-mode"):
                distcompile.func.jvp(function, (names[name],), (distcompile.ones_like(names[name]),))


def everything(t: Any) -> Any:
    """What a checkpoint may hold of them."""
    model = t.nn.Module()
    model.register_buffer("adjacency", operands(t)["b"])
    found = {name: one for name, one in operands(t).items() if name in "abimhezvrcsg"}
    return {**found, "state": model.state_dict(), "parameter": operands(t)["b"].requires_grad_()}


def assert_the_same(got: Any, expected: Any) -> None:
    """Layouts, flags, places and elements."""
    assert str(got.layout).rpartition(".")[2] == str(expected.layout).rpartition(".")[2]
    assert str(got.dtype).rpartition(".")[2] == str(expected.dtype).rpartition(".")[2]
    assert tuple(got.shape) == tuple(expected.shape)
    if str(got.layout).endswith("coo"):
        assert got.is_coalesced() == expected.is_coalesced()
        assert got._indices().tolist() == expected._indices().tolist()
        assert got._values().tolist() == expected._values().tolist()
    else:
        assert got.values().tolist() == expected.values().tolist()
    assert got.to_dense().tolist() == expected.to_dense().tolist()


@pytest.mark.parametrize(("writer", "reader"), [(torch, distcompile), (distcompile, torch), (distcompile, distcompile)])
def test_files(writer: Any, reader: Any) -> None:
    file = io.BytesIO()
    writer.save(everything(writer), file)
    file.seek(0)
    loaded, expected = reader.load(file), everything(torch)
    assert list(loaded) == list(expected)
    assert_the_same(loaded["state"].pop("adjacency"), expected["state"].pop("adjacency"))
    del loaded["state"], expected["state"]
    for name, one in expected.items():
        assert_the_same(loaded[name].detach(), one.detach())


def test_pickles_and_copies() -> None:
    for name, one in operands(distcompile).items():
        if name in "abimhezvrcsg":
            assert_the_same(pickle.loads(pickle.dumps(one)), one)
    leaf = operands(distcompile)["b"].requires_grad_()
    assert pickle.loads(pickle.dumps(leaf)).requires_grad


def test_assert_close_compares_parts() -> None:
    for library in (torch, distcompile):
        close = library.testing.assert_close
        a, b, r, c = (operands(library)[name] for name in "abrc")
        close(a, a.clone())
        close(r, r.clone())
        close(r, c, check_layout=False)
        for other in (a * 2, b, a.double().to_dense(), a.float(), a.to_sparse_csr()):
            with pytest.raises(AssertionError):
                close(a, other)


@pytest.mark.parametrize(
    "text",
    [
        'a.to("meta")', "t.equal(a, a)", "t.linalg.inv(a)", "t.where(m, a, a)", "a.cumsum(0)", "a.sort()", "a[0:2]",
        "t.nn.functional.softmax(a, 0)", "t.einsum('ij,jk->ik', a, w)", "t.kron(a, a)", "a.max(0)",
        "t.sparse.solve(r, y)",
        "d.to_sparse_bsr((2, 1))", "t.sparse.spsolve(r, y)", "t.utils.data.default_collate([a, a])",
    ],
)  # fmt: skip
def test_what_is_not_there_is_refused_by_name(text: str) -> None:
    with pytest.raises(LayoutError) as caught:
        eval(text, {"t": distcompile, **operands(distcompile)})
    assert isinstance(caught.value, NotImplementedError)
    assert "sparse" in str(caught.value)
