"""What torch refuses although a result could be computed is refused, by an error that a handler of torch's catches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distcompile as dc

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

CASES = [
    "lib.mean(i)", "lib.mean(b)", "lib.mean(f, dtype=lib.int64)", "i.var()", "i.std(0)", "lib.norm(i)", "f - b",
    "b - b", "f - True", "1 - b", "-b", "lib.add(i, i, alpha=0.5)", "lib.add(f, f, alpha=True)", "lib.addcdiv(i, i, i)",
    "lib.lerp(f, d, 0.5)", "lib.lerp(f, f, d)", "m @ m.double()", "lib.matmul(i, f)", "lib.dot(f, d)", "lib.mv(f, m)",
    "lib.mv(m, d)", "lib.nn.functional.linear(m, m.double())", "lib.nn.functional.linear(m, m, d)",
    "lib.addmm(d, m, m)", "lib.bmm(m[None], m[None].double())", "lib.einsum('ij,jk->ik', m, m.double())",
    "lib.outer(m, f)", "lib.inner(f, d)", "lib.vdot(m, m)", "lib.addr(m, f, m)", "lib.tensordot(m, m.double(), 1)",
    "lib.gather(m, 0, m)", "lib.gather(m, 0, m.to(lib.uint8))", "lib.index_select(m, 0, f)", "m.scatter(0, m, 1.0)",
    "m.scatter(0, m.long(), m.double())", "m.index_add(0, f, m)", "m.index_add(0, i, m.double())",
    "m.index_copy(0, i, m.double())", "m.masked_fill(m, 1)", "lib.masked_select(m, m)", "lib.where(m, m, m)",
    "lib.index_select(m, 0, -i)", "lib.index_select(f[0], 0, -i[:1])", "m.index_add(0, -i, m)",
    "m.index_copy(0, -i, m)", "lib.gather(m, 0, i)", "lib.gather(m, 1, i[0] - 1)",
    "lib.gather(f[0], 0, lib.zeros(1, 1, dtype=lib.int64))",
    "lib.nn.functional.layer_norm(m, (2, 2), f)", "lib.nn.functional.layer_norm(m, (2, 2), m, f)",
    "lib.nn.functional.rms_norm(m, (2, 2), f)",
    "lib.diag(m[None])", "lib.isclose(f, d)", "lib.nanmean(i)", "lib.cosine_similarity(i, i, 0)",
]  # fmt: skip
TAKEN = [
    "lib.mean(i, dtype=lib.float32)", "lib.add(i, f, alpha=0.5)", "lib.add(b, b, alpha=2)", "-i.to(lib.uint8)",
    "lib.addcmul(i, i, i, value=0.5)", "lib.addcmul(i, i, i, value=2.0)", "lib.addcmul(f, i, i, value=0.5)",
    "lib.lerp(f, f, lib.tensor(0.5, dtype=lib.float64))", "lib.sum(f, dtype=lib.bool)", "lib.prod(f, dtype=lib.bool)",
    "lib.all(i.to(lib.uint8))", "lib.any(i.to(lib.uint8), 0)", "lib.logsumexp(lib.empty(2, 0), 1)",
    "lib.where(m.to(lib.uint8), m, m)", "lib.where(m.bool(), m, m.double())", "lib.outer(f, d)", "lib.kron(f, d)",
    "lib.gather(m, 0, m.int())", "lib.gather(f, 0, lib.empty(0))", "m.scatter(0, m.int(), 1.0)",
    "m[True]", "m[False]", "m[None, True]", "m[lib.tensor(True)]", "m[True, [0, 1]]", "m[:, True]", "m[True, None]",
    "lib.chunk(lib.empty(0), 3)[2]", "lib.linalg.matrix_power(m.long(), 3)", "lib.median(lib.empty(0).long())",
    "lib.special.zeta(f + 1.5, f - 1)", "lib.nanmean(f, dtype=lib.float64)",
    "lib.cosine_similarity(f.bfloat16(), i, 0)",
    "lib.square(b)", "b ** 3", "lib.pow(b, 2)",
    "lib.add(f.half(), i.to(lib.uint8), alpha=0.5)", "lib.ldexp(i, f.bfloat16())", "lib.inner(f, d[0])",
    "lib.nn.functional.softmax(m)", "lib.nn.functional.softmin(m[None])", "lib.add(i, f[0], alpha=0.5)",
    "lib.nn.functional.rms_norm(f.bfloat16() / 9, (2,))", "lib.nn.functional.rms_norm(f.half() / 99, (2,), f.half())",
    "lib.clamp(i.int(), f[0].double(), f.bfloat16())", "lib.clamp(b, False, 2)", "lib.clamp(i, 0.5, 2)",
    "lib.nn.functional.threshold(f.bfloat16() / 10, 0.1, -7.0)",
    "lib.celu(lib.tensor([1.0, -1.0, -300.0, 200.0]), 0.5)", "lib.nn.functional.soft_margin_loss(f, d)",
]  # fmt: skip


def run(case: str, lib: Any) -> Any:
    f, i, b = lib.ones(2), lib.ones(2, dtype=lib.int64), lib.ones(2, dtype=lib.bool)
    return eval(case, {"lib": lib, "f": f, "i": i, "b": b, "d": f.double(), "m": lib.ones(2, 2)})


@pytest.mark.parametrize("case", CASES)
def test_it_is_refused_as_torch_refuses(case: str) -> None:
    with pytest.raises(Exception) as theirs:  # noqa: PT011  torch's own class is what is asked for
        run(case, torch)
    kind = RuntimeError if isinstance(theirs.value, NotImplementedError) else type(theirs.value)
    with pytest.raises(kind):
        run(case, dc)


@pytest.mark.parametrize("case", TAKEN)
def test_it_is_taken_as_torch_takes_it(case: str) -> None:
    got, want = run(case, dc), run(case, torch)
    assert tuple(got.shape) == tuple(want.shape)
    np.testing.assert_allclose(got.tolist(), want.tolist(), rtol=1e-6)
    assert str(got.dtype).split(".")[-1] == str(want.dtype).split(".")[-1]


def test_writing_by_a_bare_bool_is_torchs() -> None:
    for lib in (dc, torch):
        x = lib.zeros(2, 3)
        x[True] = 7
        x[False] = 9
        x[lib.tensor(True), 0] = 3
        x[lib.tensor(0, dtype=lib.uint8)] = 9
        assert x.tolist() == [[3, 3, 3], [7, 7, 7]]
