"""Expressions with sparse operands, by what they are about; each is evaluated by torch and by distcompile.

In: a library, under torch's names. Out: `operands(t)`, what expressions speak of; `EXPRESSIONS`, texts. An expression
may raise: then it is to raise errors of the same kinds with both.
a, b: COO f64[4, 5], b coalesced; i: COO i64[4, 5]; h: COO f64[4, 3, 2] with one dense dim, e: without elements;
m: COO bool; z: COO c128[3, 4]; v: COO f64[6]; q: COO f32[4, 5]; k: COO f64[2, 3, 4];
r: CSR f64[4, 5]; c: CSC f64[4, 5]; s: CSR f64[5, 4]; g: CSR f32[4, 5]
d f64[4, 5], w f64[5, 3], y f64[5], x f64[3, 4], p f64[2, 4, 3], n f64[4, 3, 2]: dense; index i64[4].
"""

from __future__ import annotations

from typing import Any


def operands(t: Any) -> dict[str, Any]:
    """Fresh operands."""

    def dense(*shape: int, seed: int = 0) -> Any:
        count = 1
        for size in shape:
            count *= size
        return (((t.arange(count, dtype=t.float64) * 37 + 11 * seed + 5) % 23) / 8 - 1.3).reshape(shape)

    coo, tensor = t.sparse_coo_tensor, t.tensor
    a = coo(tensor([[0, 3, 1, 3, 0, 3], [2, 1, 0, 1, 4, 0]]), dense(6), (4, 5))
    b = coo(tensor([[0, 1, 3, 3], [2, 3, 0, 1]]), dense(4, seed=1), (4, 5)).coalesce()
    r, s = b.to_dense().add(dense(4, 5).relu()).to_sparse_csr(), dense(5, 4, seed=4).relu().to_sparse_csr()
    return {
        "a": a,
        "b": b,
        "i": coo(tensor([[0, 3, 3], [2, 1, 1]]), tensor([3, -2, 7]), (4, 5)),
        "h": coo(tensor([[2, 0, 2], [1, 2, 1]]), dense(3, 2, seed=2), (4, 3, 2)),
        "e": coo(tensor([[], []], dtype=t.int64), tensor([], dtype=t.float64), (4, 5)),
        "m": coo(tensor([[0, 3, 3], [2, 1, 1]]), tensor([True, False, True]), (4, 5)),
        "z": coo(tensor([[0, 2, 2], [3, 1, 1]]), t.complex(dense(3), dense(3, seed=1)), (3, 4)),
        "v": coo(tensor([[4, 0, 4, 2]]), dense(4, seed=3), (6,)),
        "q": coo(tensor([[1, 0, 1], [2, 2, 2]]), dense(3).float(), (4, 5)),
        "k": coo(tensor([[0, 1, 1, 0], [2, 0, 0, 1], [3, 2, 2, 0]]), dense(4), (2, 3, 4)),
        "r": r,
        "c": r.to_dense().to_sparse_csc(),
        "s": s,
        "g": r.to(t.float32),
        "d": dense(4, 5, seed=5),
        "w": dense(5, 3, seed=6),
        "y": dense(5, seed=7),
        "x": dense(3, 4, seed=8),
        "p": dense(2, 4, 3, seed=9),
        "n": dense(4, 3, 2, seed=9),
        "index": tensor([3, 0, 3, 1]),
    }


CONSTRUCTION = """
t.sparse_coo_tensor([[0, 1], [1, 0]], [1.5, 2.0])
t.sparse_coo_tensor([[0, 1], [1, 0]], [1, 2], (3, 3))
t.sparse_coo_tensor(t.tensor([[0, 1]]), t.ones(2, 3), (4, 3), dtype=t.float64)
t.sparse_coo_tensor((2, 3))
t.sparse_coo_tensor(size=(2, 3))
t.sparse_coo_tensor(t.zeros(0, 1, dtype=t.int64), 7.0, ())
t.sparse_coo_tensor(t.zeros(2, 0, dtype=t.int64), t.zeros(0))
t.sparse_coo_tensor(t.tensor([[0, 1]]), t.tensor([1.0, 2.0]), is_coalesced=True)
t.sparse_coo_tensor(t.tensor([0, 1]), t.tensor([1.0, 2.0]))
t.sparse_coo_tensor(t.tensor([[0, 1]]), t.tensor([1.0, 2.0, 3.0]))
t.sparse_coo_tensor(t.tensor([[0, 1]]), t.tensor([1.0, 2.0]), (2, 2))
t.sparse_coo_tensor(t.tensor([[0, 1]]), t.ones(2, 3), (4, 2))
t.sparse_coo_tensor(t.tensor([[0, 5]]), t.tensor([1.0, 2.0]), (2,), check_invariants=True)
t.sparse_coo_tensor(t.tensor([[0, -1]]), t.tensor([1.0, 2.0]), (2,), check_invariants=True)
t.sparse_csr_tensor([0, 1, 2], [1, 0], [1.5, 2.0])
t.sparse_csr_tensor([0, 1, 2], [1, 0], [1.5, 2.0], (2, 4), dtype=t.float64)
t.sparse_csr_tensor(t.tensor([0, 1], dtype=t.int32), t.tensor([1], dtype=t.int32), t.tensor([1.0]))
t.sparse_csr_tensor([0, 1, 2], [1, 0], [1.5, 2.0], (3, 4), check_invariants=True)
t.sparse_csr_tensor([0, 1, 3], [1, 0], [1.5, 2.0], (2, 4), check_invariants=True)
t.sparse_csr_tensor([1, 1, 2], [1, 0], [1.5, 2.0], (2, 4), check_invariants=True)
t.sparse_csr_tensor([0, 2, 1, 2], [1, 0], [1.5, 2.0], (3, 4), check_invariants=True)
t.sparse_csr_tensor([0, 1, 2], [1, 9], [1.5, 2.0], (2, 4), check_invariants=True)
t.sparse_csr_tensor([0, 2, 2], [1, 1], [1.5, 2.0], (2, 4), check_invariants=True)
t.sparse_csr_tensor([0, 2, 2], [3, 1], [1.5, 2.0], (2, 4))
t.sparse_csc_tensor([0, 1, 2], [1, 0], [1.5, 2.0])
t.sparse_compressed_tensor([0, 1, 2], [1, 0], [1.5, 2.0], layout=t.sparse_csr)
t.sparse_compressed_tensor([0, 1, 2], [1, 0], [1.5, 2.0])
t.zeros(2, 3, layout=t.sparse_coo)
t.empty(2, 3, layout=t.sparse_coo)
t.zeros((2, 3), layout=t.sparse_csc, dtype=t.int32)
t.ones(2, 3, layout=t.sparse_coo)
t.zeros_like(a), t.zeros_like(r), t.zeros_like(h), t.zeros_like(d, layout=t.sparse_coo)
t.zeros_like(a, layout=t.strided), t.empty_like(a), t.zeros_like(a, dtype=t.float32)
a.new_zeros(2, 2), a.new_empty((3,)), r.new_zeros(2, 2)
t.ones_like(a)
t.sparse.FloatTensor(t.tensor([[0, 1], [1, 0]]), t.tensor([1.0, 2.0]), (2, 3))
t.sparse.DoubleTensor(2, 3)
isinstance(q, t.sparse.FloatTensor), isinstance(a, t.sparse.FloatTensor), isinstance(a, t.DoubleTensor)
t.sparse.spdiags(t.arange(9.0).reshape(3, 3), t.tensor([0, -1, 2]), (3, 3))
t.sparse.spdiags(t.arange(9.0).reshape(3, 3), t.tensor([0, -1, 2]), (4, 5), layout=t.sparse_csr)
t.sparse.spdiags(t.arange(9.0).reshape(3, 3), t.tensor([0, 0, 2]), (3, 3))
t.sparse.spdiags(t.arange(9.0).reshape(3, 3), t.tensor([0, 1]), (3, 3))
"""

PARTS = """
a.layout, r.layout, d.layout, a.is_sparse, r.is_sparse, d.is_sparse, a.is_sparse_csr, r.is_sparse_csr, c.is_sparse_csr
a.sparse_dim(), a.dense_dim(), h.sparse_dim(), h.dense_dim()
r.sparse_dim(), r.dense_dim(), d.sparse_dim(), d.dense_dim()
a._nnz(), b._nnz(), e._nnz(), r._nnz(), a.is_coalesced(), b.is_coalesced(), e.is_coalesced()
a.coalesce(), h.coalesce(), i.coalesce(), m.coalesce(), z.coalesce(), e.coalesce(), v.coalesce(), k.coalesce()
b.coalesce() is b
b.indices(), b.values(), a._indices(), a._values(), h.coalesce().values()
a.indices()
a.values()
d.values()
d.coalesce()
r.coalesce()
d._nnz()
d.is_coalesced()
r.crow_indices(), r.col_indices(), r.values(), c.ccol_indices(), c.row_indices(), c.values()
r.indices()
a.crow_indices()
c.crow_indices()
r.ccol_indices()
a.numel(), a.dim(), tuple(a.size()), a.size(1), tuple(a.shape), a.dtype
a.element_size(), len(a), a.is_floating_point(), z.is_complex()
a.stride()
a.storage()
a.untyped_storage()
a.data_ptr()
a.numpy()
a.tolist()
a.nbytes
a.is_contiguous()
a.contiguous()
a.view(20)
a.reshape(20)
a.flatten()
a.expand(2, 4, 5)
bool(t.sparse_coo_tensor([[0]], [2.0])), float(t.sparse_coo_tensor([[0]], [2.0]))
t.sparse_coo_tensor([[0]], [2.0]).item()
a.item()
iter(v) is not None
a.is_same_size(b), a.is_same_size(h)
a.type(), a.type(t.float32), a.float(), a.to(t.int64), a.to(q), a.half(), a.double() is a, r.float()
a.to("cpu"), a.cpu(), a.to(t.float32, copy=True), a.to(device="cpu", dtype=t.float16)
"""

CONVERSION = """
a.to_dense(), h.to_dense(), i.to_dense(), m.to_dense(), z.to_dense(), e.to_dense(), r.to_dense(), c.to_dense()
v.to_dense(), k.to_dense(), q.to_dense(), d.to_dense(), d.to_dense(t.float32)
d.to_sparse(), d.to_sparse(1), d.to_sparse(2), n.to_sparse(2), d.to_sparse(layout=t.sparse_csr), d.to_sparse_coo()
d.relu().to_sparse_csr(), d.relu().to_sparse_csc(), d.relu().to_sparse(), d.relu().gt(0).to_sparse()
d.to_sparse(0)
d.to_sparse(3)
y.to_sparse(), y.to_sparse().to_dense(), t.tensor(3.0).to_sparse(), t.tensor(3.0).to_sparse().to_dense()
n.to_sparse_csr(dense_dim=1)
a.to_sparse(), a.to_sparse(2), a.to_sparse_csr(), a.to_sparse_csc(), r.to_sparse(), c.to_sparse(), r.to_sparse_csc()
c.to_sparse_csr(), r.to_sparse_csr() is r, s.to_sparse_csc().to_dense(), h.to_sparse().to_dense()
a.to_sparse(1)
k.to_sparse_csr()
d.sparse_mask(b), d.sparse_mask(a), d.sparse_mask(r), a.sparse_mask(b), n.sparse_mask(h), b.sparse_mask(a)
d.sparse_mask(k)
d.sparse_mask(d)
t.Tensor.to_dense(a), t.clone(a), a.clone(), r.clone(), a.detach(), a.data
copy.copy(a), copy.deepcopy(a), copy.deepcopy(h)
t.tensor([1.0]).to_sparse().is_coalesced(), r.to_sparse().is_coalesced(), c.to_sparse().is_coalesced()
"""

ARITHMETIC = """
a + b, b + b, a + a, a - b, h + h, i + i, i + a, q + b, q - a, e + a, a + e, r + r, k + k, z + z
t.add(a, b, alpha=2), t.sub(a, b, alpha=0.5), a.add(b, alpha=-1), i.add(i, alpha=3), r.add(r, alpha=2)
i.add(i, alpha=0.5)
d + a, d + b, d - a, n + h, d.add(a, alpha=3), t.add(d, r), d.float() + q, d + q, d.float() + a
a + d
a + 1
1 + a
a - 1
a + h
a + k
a + r
r + d
d + h
a * b, b * a, a * a, b * b, h * h, i * i, a * i, q * a, m * m, e * a, a * e, z * z, r * r, v * v, k * k
a * 2, 2 * a, a * 2.5, i * 2.5, a * t.tensor(2.0)
t.tensor(2.0, dtype=t.float64) * q, r * 3, 3 * c, m * 2, a * True, z * 2j
a * d, d * a, h * n, a * y, a * d[:1], i * d, a * d.float(), r * d
a * k
a * n
a / 2, a / t.tensor(2.0), i / 2, a.div(3, rounding_mode="floor"), a // 2, i // 2, a.true_divide(4)
a / b
a / d
2 / a
a / 0
-a, +a, a.neg(), -r, -h, t.neg(i), abs(a), a.abs(), i.abs(), abs(r)
a ** 2, a.pow(3), t.pow(a, 2.0), i ** 2, a.square(), h.square()
a ** 0
a ** d
2 ** a
a.sin(), a.tanh(), a.sqrt(), a.relu(), a.sign(), a.floor()
a.ceil(), a.round(), a.trunc(), a.expm1(), a.log1p(), a.erf()
a.asin(), a.asinh(), a.atan(), a.sinh(), a.tan(), a.atanh(), a.deg2rad(), a.rad2deg(), a.frac(), a.isnan(), a.isinf()
r.sin(), r.relu(), r.tanh(), c.abs(), h.sin(), v.tanh(), i.sign()
q.sqrt(), i.sin(), a.nan_to_num(), a.signbit(), a.erfinv()
a.exp()
a.cos()
a.log()
a.sigmoid()
a.clamp(min=0)
a == b
a > 0
a.conj(), z.conj()
t.nn.functional.relu(a), t.relu(a), t.sqrt(a), t.sin(h)
"""

PRODUCTS = """
a @ w, b @ w, e @ w, a.mm(w), t.mm(a, w), r @ w, c @ w
i @ t.ones(5, 2, dtype=t.int64), q @ w.float(), z @ z.to_dense().t()
t.sparse.mm(a, w), t.sparse.mm(b, w), t.sparse.mm(r, w), t.sparse.mm(e, w), t.sparse.mm(q, w.float())
a @ y, r @ y, a.mv(y), t.mv(b, y)
x @ a, t.mm(x, b), x @ r, x @ c
a @ s.to_sparse(), t.sparse.mm(a, b.t()), t.sparse.mm(b, b.t()), b @ b.t(), r @ s, e @ e.t(), z @ z.t()
t.sparse.mm(r, s), t.sparse.mm(a, s.to_sparse()), t.mm(b, b.t())
t.spmm(a, w), t.dsmm(a, w), t.smm(a, w).to_dense(), t.hspmm(a, w), t.hspmm(b, w), t.hsmm(a, w)
t.addmm(x.t(), a, w), t.addmm(x.t(), r, w, beta=2, alpha=3), t.sparse.addmm(x.t(), a, w), t.addmm(x[0, :3], a, w)
t.addmm(x.t(), a, w, beta=0), x.t().addmm(b, w, alpha=0.5), t.sparse.addmm(x.t(), b, w, beta=0.5, alpha=2)
t.sspaddmm(a @ s.to_sparse(), a, s.to_dense()).to_dense()
t.bmm(k, p), k.coalesce().bmm(p)
t.sparse.sampled_addmm(r, x.t(), w.t()), t.sparse.sampled_addmm(r, x.t(), w.t(), beta=2, alpha=3)
t.sparse.mm(r, w, reduce="sum"), t.sparse.mm(r, w, reduce="mean"), t.sparse.mm(r, w, reduce="amax")
t.sparse.mm(r, w, reduce="amin"), t.sparse.mm(g, w.float(), "amax")
t.nn.functional.linear(x.t()[:, :3], w.to_sparse()), t.nn.functional.linear(y, a)
a @ w.float()
a @ x
a @ d
y @ a
t.sparse.mm(a, x)
t.sparse.mm(d, w)
h @ w
t.mv(a, w)
a @ w @ t.ones(3, 2, dtype=t.float64)
a.t() @ x.t(), a.t() @ a, r.t() @ x.t()
"""

REDUCTIONS = """
a.sum(), h.sum(), i.sum(), m.sum(), e.sum(), r.sum(), t.sum(a), z.sum(), k.sum(), a.sum(dtype=t.float32)
t.sparse.sum(a), t.sparse.sum(a, 0), t.sparse.sum(a, dim=1), t.sparse.sum(a, [0, 1]), t.sparse.sum(h, 2)
t.sparse.sum(h, 0), t.sparse.sum(h, [0, 2]), t.sparse.sum(h, [0, 1]), t.sparse.sum(k, [0, 1]), t.sparse.sum(k, -1)
t.sparse.sum(a, 0, dtype=t.float32), t.sparse.sum(i, 0), t.sparse.sum(q, 1), t.sparse.sum(b, 1).to_dense()
t.sparse.sum(a, 2)
t.sparse.sum(d, 0)
a.sum(0).to_dense(), a.sum(1).to_dense(), a.sum([0, 1]), h.sum(0).to_dense(), h.sum(2).to_dense(), k.sum(0).to_dense()
r.sum(0, keepdim=True).to_dense(), r.sum(1, keepdim=True).to_dense()
a.norm(), h.norm(), t.norm(a), a.norm(1), a.norm(float("inf")), e.norm()
a.norm(dim=0)
a.mean()
a.max()
a.argmax()
a.any(), m.any(), e.any()
a.prod()
t.sparse.softmax(a, 0), t.sparse.softmax(a, 1), t.sparse.softmax(b, 1), t.sparse.softmax(h, 0), t.sparse.softmax(h, 1)
t.sparse.softmax(h, 2), t.sparse.softmax(v, 0), t.sparse.softmax(k, -1), t.sparse.softmax(q, 1, dtype=t.float64)
t.sparse.log_softmax(a, 0), t.sparse.log_softmax(b, 1), t.sparse.log_softmax(h, 2), t.sparse.log_softmax(k, 1)
t.sparse.softmax(a, 2)
t.sparse.softmax(i, 0)
t.sparse.softmax(d, 0)
"""

MOVEMENT = """
a.t(), b.t(), v.t(), r.t(), c.t(), a.T, a.mT, k.mT, a.transpose(0, 1)
h.transpose(0, 1), k.transpose(0, 2), r.transpose(0, 1)
k.t()
h.transpose(0, 2)
a.transpose(0, 2)
k.permute(2, 0, 1), h.permute(1, 0, 2), k.permute(0, 1, 2), a.permute(1, 0), t.permute(k, (1, 2, 0))
h.permute(2, 1, 0)
a.permute(0, 0)
k.movedim(0, 2), k.swapaxes(0, 1)
a.unsqueeze(0), a.unsqueeze(1), a.unsqueeze(-1), h.unsqueeze(3), h.unsqueeze(2), v.unsqueeze(0)
a.unsqueeze(4)
a.index_select(0, index), a.index_select(1, index), h.index_select(2, t.tensor([1, 1, 0])), h.index_select(0, index)
b.index_select(0, index), e.index_select(0, index), k.index_select(-1, index)
a.index_select(0, t.tensor([4]))
a.index_select(2, index)
a.select(0, 3), a.select(1, 0), a[3], a[-1], a[:, 1], a[..., 2]
h[2], h[2, 1], h[:, :, 1], v[4], k[1], k[1, 0], k[..., 2]
a[3, 1], a[0, 0], r[3], r[3, 1]
a[None], a[:, None]
a[4]
a[3, 1, 0]
a[0:2]
a[::2]
a[index]
a[d > 0]
a.narrow_copy(0, 1, 3), a.narrow_copy(1, 0, 2), h.narrow_copy(2, 1, 1), b.narrow_copy(1, 2, 3)
a.narrow_copy(0, 2, 4)
a.unbind(), a.unbind(1), v.unbind(), h.unbind(2)
[row for row in a], [number for number in v]
t.cat([a, b]), t.cat([a, b], 1), t.cat([a, a, e], -1)
t.cat([h, h], 2), t.cat([h, h]), t.cat([q, a]), t.cat((i, i), dim=1)
t.cat([a, h])
t.cat([a, a.t()])
t.cat([a, d])
t.stack([a, b]), t.stack([a, b], 1), t.stack([a, b], -1), t.vstack([a, b]), t.hstack([a, b])
t.stack([a, a.t()])
a.repeat(2, 1)
a.squeeze(0)
a.flip(0)
a.roll(1, 0)
"""

IN_PLACE = """
a.add_(b), a
a.sub_(b, alpha=2), a
a.mul_(b), a
a.mul_(3), a
i.mul_(3), i
i.mul_(0.5)
a.div_(2), a
a.neg_(), a
r.mul_(2), r
r.neg_(), r
b.sin_(), b
b.relu_(), b
b.sqrt_(), b
a.sin_()
a.zero_(), a
r.zero_().to_dense()
a.copy_(b), a
a.copy_(q), a
a.copy_(h)
a.copy_(d)
d.copy_(a)
r.copy_(r * 2), r
d.add_(a), d
d.sub_(a, alpha=2), d
d.add_(q), d
n.add_(h), n
d.mul_(a)
d.add_(h)
a.add_(d)
a.add_(1)
a.t_(), a
a.transpose_(0, 1), a
a.pow_(2)
a.fill_(1)
a.uniform_()
a[0, 0] = 1.0
a._values().mul_(2), a
b.values().mul_(2), b
b.detach().mul_(2), b
a.sparse_resize_((6, 7), 2, 0), a
a.sparse_resize_((2, 2), 2, 0)
a.sparse_resize_((4, 5, 2), 2, 1)
e.sparse_resize_((4, 5, 2), 2, 1), e
a.sparse_resize_and_clear_((3, 3, 2), 2, 1), a
a.resize_as_sparse_(t.zeros(9, 9, layout=t.sparse_coo)), a
x.t().addmm_(a, w)
a._coalesced_(False), b._coalesced_(False), b.coalesce()
a._coalesced_(True).indices(), a.values(), a.is_coalesced(), a.coalesce() is a, a._coalesced_(False).coalesce()
(a._coalesced_(True) * 2).to_dense(), (a + b).to_dense(), (a @ w), a.clone().indices()
a.requires_grad_().add_(1 * b)
a.add_(b)._version, r.mul_(2)._version
t.add(a, b, out=a), a
t.mm(a, w, out=t.empty(4, 3, dtype=t.float64))
t.mul(b, b, out=b), b
"""

TEXT = """
str(a), str(b), str(h), str(i), str(m), str(z), str(e), str(v), str(q), str(k), str(r), str(c), str(g), f"{a}"
str(a * 1e6), str(t.zeros(3, 3, layout=t.sparse_coo)), str(t.zeros(2, 2, layout=t.sparse_csr, dtype=t.int64))
str(b.requires_grad_()), str(b.requires_grad_() * 2)
str(b.requires_grad_() + b), str(b.t()), str(r.requires_grad_() * 2)
str(d.relu().repeat(30, 30).to_sparse())
str(d.relu().repeat(30, 30).to_sparse_csr()), str(n.repeat(20, 1, 1).to_sparse(2))
str(t.sparse.mm(b.requires_grad_(), w)), str(d.requires_grad_().to_sparse(2)), str(b.requires_grad_().to_dense())
f"{a:>10}"
"""

EXPRESSIONS = [
    text
    for table in (CONSTRUCTION, PARTS, CONVERSION, ARITHMETIC, PRODUCTS, REDUCTIONS, MOVEMENT, IN_PLACE, TEXT)
    for text in table.strip().splitlines()
]

# differentiable: of each operand, the gradient of the sum of weighted squares, by layout and elements
GRADIENTS = """
a.to_dense()
b.to_dense()
h.to_dense()
r.to_dense()
a.to_dense(masked_grad=False)
d.to_sparse()
d.to_sparse(1)
d.to_sparse_csr()
d.sparse_mask(b)
a.sparse_mask(b)
a.coalesce()
a.coalesce().values()
b.to_sparse_csr()
r.to_sparse()
a + b
a - 2 * b
d + a
d - b
n + h
a * b
b * b
a * 3
a * d
a / 4
-a
a.coalesce() * a.coalesce()
a ** 2
a.relu()
a.abs()
a @ w
b @ w
r @ w
a.mv(y)
x @ b
t.sparse.mm(a, w)
t.sparse.mm(b, w)
t.sparse.mm(r, w)
t.sparse.mm(b, b.t())
t.sparse.mm(a, s.to_sparse())
t.sparse.mm(t.sparse.mm(b, b.t()), x.t())
t.addmm(x.t(), a, w)
t.sparse.addmm(x.t(), b, w, beta=2, alpha=3)
t.bmm(k, p)
t.sparse.sampled_addmm(r, x.t(), w.t())
t.sparse.mm(g, w.float(), "sum")
t.sparse.mm(g, w.float(), "mean")
t.sparse.mm(g, w.float(), "amax")
t.sparse.mm(g, w.float(), "amin")
a.sum()
h.sum()
r.sum()
t.sparse.sum(a)
t.sparse.sum(a, 0)
t.sparse.sum(h, [0, 2])
t.sparse.sum(h, 2)
t.sparse.softmax(a, 0)
t.sparse.softmax(b, 1)
t.sparse.log_softmax(a, 1)
t.sparse.softmax(h, 2)
a.t()
a.transpose(0, 1)
k.permute(2, 0, 1)
h.permute(1, 0, 2)
r.t()
t.stack([a, b])
a.float()
a.clone()
t.sparse_coo_tensor(t.tensor([[0, 1, 0, 2, 2], [1, 0, 1, 2, 2]]), y, (3, 3))
t.sparse_coo_tensor(t.tensor([[0, 1, 0, 2, 2], [1, 0, 1, 2, 2]]), y, (3, 3)).to_dense()
t.sparse_csr_tensor(t.tensor([0, 2, 3, 5]), t.tensor([0, 1, 2, 0, 1]), y, (3, 3)).to_dense()
t.sparse.mm(t.sparse_coo_tensor(t.tensor([[0, 1, 0, 2, 2], [1, 0, 1, 2, 2]]), y, (3, 5)), w)
""".strip().splitlines()

# gradients whose layout is ours alone: torch's is dense
GRADIENTS_DENSE_IN_TORCH = ["h[2, 1]", "a[3, 1]"]

# differentiable here, and not in torch
GRADIENTS_BEYOND = """
a * y
a.sin()
a.tanh()
h.sin()
r.sin()
a.norm()
a.index_select(0, index)
a.select(0, 3)
a[3]
a.narrow_copy(0, 1, 3)
t.cat([a, b])
t.cat([h, h], 2)
a.unsqueeze(0)
c.to_dense()
a / 4 + b
(c * 2).to_dense()
""".strip().splitlines()
