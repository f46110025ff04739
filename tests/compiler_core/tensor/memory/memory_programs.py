"""Programs about memory: versions, `.data`, sharing with NumPy; each is run with torch and with distcompile.

In: a library, under torch's names. Out: what a program saw: numbers, lists, tensors, arrays; an error by its kind.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

Program = Callable[[Any], Any]
PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    """Enter `function` in the table."""
    PROGRAMS[function.__name__] = function
    return function


KINDS = (RuntimeError, ValueError, TypeError, AttributeError, BufferError)


class Raised(frozenset[str]):
    """The kinds of an error, by which programs catch it: alike if one has all that the other has; none: no error."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Raised) and bool(self) is bool(other) and (self <= other or self >= other)

    __hash__ = frozenset.__hash__


def raised(call: Callable[[], Any]) -> Raised:
    """What a call raises."""
    try:
        call()
    except KINDS as error:
        return Raised(kind.__name__ for kind in KINDS if isinstance(error, kind))
    return Raised()


def seen(value: Any) -> Any:
    """What is compared: of tensors and arrays dtype, shape, strides and numbers."""
    if isinstance(value, (list, tuple)):
        return [seen(v) for v in value]
    if isinstance(value, dict):
        return {key: seen(v) for key, v in value.items()}
    if hasattr(value, "stride") and hasattr(value, "requires_grad"):
        dtype = str(value.dtype).split(".")[-1]
        return dtype, tuple(value.shape), tuple(value.stride()), value.requires_grad, value.detach().tolist()
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.strides, value.tolist()
    return value


def compiled(t: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, compiled op by op where `t` is distcompile: torch runs it as it is."""
    return t.compile(function, backend="aot_eager") if "distcompile" in t.__name__ else function  # type: ignore[no-any-return]


# ---- versions and .data


@program
def data_counts_for_itself(t: Any) -> Any:
    y = t.ones(3)
    d = y.data
    d.add_(1)
    yield d._version, y._version, y, d
    y.detach().mul_(2)
    yield d._version, y._version, y.data._version, d
    yield d[1:]._version, y[1:]._version


@program
def views_see_what_data_wrote(t: Any) -> Any:
    y = t.ones(3)
    v, w = y[1:], y.view(3, 1)
    y.data.zero_()
    yield v, w, v._version
    v.data.fill_(7)
    yield y, w, y._version, v.data[0]._version


@program
def a_write_through_data_goes_unnoticed(t: Any) -> Any:
    x, y = t.ones(3, requires_grad=True), t.ones(3)
    z = (x * y).sum()
    y.data.mul_(10)
    z.backward()
    yield x.grad
    w = t.ones(2, requires_grad=True)
    q = w.sqrt()
    q.data.add_(1)
    q.sum().backward()
    yield w.grad


@program
def a_write_through_detach_is_noticed(t: Any) -> Any:
    x, y = t.ones(3, requires_grad=True), t.ones(3)
    z = (x * y).sum()
    y.detach().mul_(10)
    yield raised(z.backward)
    z = (x * y).sum()
    y.data[1:].detach().mul_(10)
    yield raised(z.backward), x.grad


@program
def steps_through_data(t: Any) -> Any:
    p = t.nn.Parameter(t.ones(2))
    for _ in range(3):
        loss = (p * p).sum()
        p.data.add_(p.data, alpha=-0.25)
        loss.backward()
    yield p, p._version, p.grad


@program
def data_of_another(t: Any) -> Any:
    a, b = t.zeros(2), t.ones(2)
    a.data = b.data
    b.add_(1)
    yield a, b, a.data_ptr() == b.data_ptr()
    a.data = a.data
    a.data.mul_(3)
    yield a, b


# ---- in compiled code


@program
def data_in_a_compiled_function(t: Any) -> Any:
    def step(p: Any, g: Any) -> Any:
        p.data.add_(g)
        return p * 2

    run = compiled(t, step)
    p, g = t.nn.Parameter(t.ones(2)), t.ones(2)
    for _ in range(3):
        yield run(p, g), p, p._version


@program
def data_over_a_graph_break(t: Any) -> Any:
    def step(p: Any, g: Any) -> Any:
        d = p.data
        print("the graph breaks here")
        d.add_(g)
        return d

    run = compiled(t, step)
    p, g = t.nn.Parameter(t.ones(2)), t.ones(2)
    for _ in range(2):
        d = run(p, g)
        d.add_(1)
        yield d, p, p._version


# ---- memory shared with NumPy


@program
def arrays_and_tensors_see_each_other(t: Any) -> Any:
    a = np.arange(6.0)
    x = t.from_numpy(a)
    v, w = x[1:3], x.view(2, 3)
    a[1] = 50
    yield x, v, w
    x.add_(1)
    yield a, x._version, v._version
    v.zero_()
    w[1, 2] = 9
    yield a, x, t.from_numpy(a)._version, t.as_tensor(a)[0]
    x.data_ptr()
    yield a.ctypes.data == x.data_ptr(), v.data_ptr() - x.data_ptr()


@program
def strides_of_borrowed_arrays(t: Any) -> Any:
    a = np.arange(24.0).reshape(4, 6)
    for part in (a.T, a[::2], a[1:, 1:], a[:, ::3], a[2], a.reshape(2, 2, 6).transpose(1, 0, 2), a[:1].T):
        x = t.from_numpy(part)
        x.mul_(2)
        x[0] = 1
        yield x, x.storage_offset(), x.is_contiguous(), a, x.untyped_storage().nbytes()
    yield t.from_numpy(np.broadcast_to(a[0], (3, 6))).stride(), t.from_numpy(np.array(5.0)), t.from_numpy(a[:0]).shape


@program
def what_numpy_cannot_share(t: Any) -> Any:
    a = np.arange(6.0)
    yield (
        raised(lambda: t.from_numpy(a[::-1])),
        raised(lambda: t.from_numpy([1.0])),
        raised(lambda: t.from_numpy(a.astype(">f8"))),
    )
    yield raised(lambda: t.from_numpy(np.array(["a"]))), raised(lambda: t.ones(2, requires_grad=True).numpy())
    yield raised(lambda: t.ones(2, dtype=t.complex64).conj().numpy()), raised(lambda: memoryview(t.ones(2)))
    yield raised(lambda: t.from_numpy(np.zeros(3, dtype=[("a", "f4"), ("b", "i1")])["a"]))


@program
def a_tensor_lends_its_memory(t: Any) -> Any:
    z = t.ones(3)
    before = z[1:]
    n, kept, copied = z.numpy(), z.clone(), t.zeros(3).copy_(z)
    z.add_(1)
    n[0] = 5
    before.mul_(3)
    yield z, n, before, kept, copied
    np.asarray(z)[2] = 8
    np.array(z)[1] = 7
    yield z, z.numpy() is z.numpy(), np.shares_memory(z.numpy(), n)
    e = t.ones(3).expand(2, 3).numpy()
    yield e.flags.writeable, e.strides, t.ones(2, 3).t().numpy(), t.zeros(2, dtype=t.complex64).imag.numpy()
    i = t.zeros(2, dtype=t.complex64)
    i.imag.numpy()[:] = 2
    i.real.add_(1)
    yield i
    c = i.conj()
    i.numpy()[0] = 3 + 4j
    yield c
    c[1] = 1 + 1j
    yield i


@program
def results_are_apart(t: Any) -> Any:
    a = np.arange(6.0)
    x = t.from_numpy(a)
    results = [x.flip(0), x.clone(), x.to(t.float64, copy=True), x.t().contiguous(), x + 0, t.stack([x])[0], x[[0, 1]]]
    results += [t.zeros(6, dtype=t.float64).copy_(x), t.cat([x]), x.repeat(1), t.tensor(x), x.roll(1), t.tensor(a)]
    shared = [x.detach(), x.view(-1), x.reshape(6), x.to(t.float64), x.contiguous(), x.unsqueeze(0), x.flatten()]
    a[:] = -1
    yield results, shared


@program
def gradients_over_shared_memory(t: Any) -> Any:
    a = np.arange(3.0)
    q, p = t.from_numpy(a), t.ones(3, dtype=t.float64, requires_grad=True)
    out = (p * q).sum()
    q.add_(1)
    yield raised(out.backward), p.grad
    out = (p * q).sum()
    a[:] = 7  # no version tells
    out.backward()
    yield p.grad
    y = p.sqrt()
    y.detach().numpy()[:] = 2
    p.grad = None
    y.sum().backward()
    yield p.grad
    g = p.grad.numpy()
    (p * 3).sum().backward()
    yield g
    p.grad.zero_()
    yield g
    w = t.from_numpy(np.ones(2)).requires_grad_()
    z = w.detach().numpy()
    (w * w).sum().backward()
    with t.no_grad():
        w.sub_(w.grad, alpha=0.25)
    yield z, w, w.is_leaf, raised(lambda: w.mul_(2))


@program
def in_place_methods_keep_what_they_save(t: Any) -> Any:
    w = t.ones(3, requires_grad=True)
    x = t.from_numpy(np.array([1.0, 2.0, 3.0], np.float32))
    x.mul_(w)
    x.mul_(w * 2)
    x.sum().backward()
    yield w.grad, x


@program
def parameters_that_were_lent(t: Any) -> Any:
    for make in (t.optim.SGD, t.optim.Adam):
        p = t.nn.Parameter(t.ones(4))
        n = p.detach().numpy()
        optimizer = make([p], lr=0.5)
        for _ in range(2):
            p.grad = t.ones(4)
            optimizer.step()
        yield np.round(n, 5), bool(np.array_equal(n, p.detach().numpy())), p.data_ptr() == n.ctypes.data
    layer, other = t.nn.Linear(2, 2), t.nn.Linear(2, 2)
    n = layer.weight.detach().numpy()
    layer.load_state_dict(other.state_dict())
    yield bool(np.array_equal(n, other.weight.detach().numpy())), layer.weight.data_ptr() == other.weight.data_ptr()
    n[:] = 2
    t.nn.init.zeros_(layer.bias)
    yield layer(t.ones(1, 2))


@program
def batch_norm_counts_in_lent_memory(t: Any) -> Any:
    layer = t.nn.BatchNorm1d(2)
    n = layer.running_mean.numpy()
    for _ in range(2):
        layer(t.tensor([[1.0, 2.0], [3.0, 4.0]]))
    yield np.round(n, 5), layer.num_batches_tracked


@program
def buffers_and_protocols(t: Any) -> Any:
    buffer = bytearray(np.arange(4, dtype=np.float32).tobytes())
    x = t.frombuffer(buffer, dtype=t.float32)
    x[0] = 5
    y = t.frombuffer(buffer, dtype=t.int32, count=2, offset=8)
    yield np.frombuffer(buffer, np.float32).copy(), y
    buffer[12:16] = bytes(4)
    yield x, y, t.asarray(buffer)[1:], t.asarray(memoryview(buffer), dtype=t.uint8).shape
    a = np.arange(3.0)
    shares = t.asarray(a)
    copies = [t.asarray(a, copy=True), t.asarray(a, dtype=t.float32), t.tensor(a), t.as_tensor(a, dtype=t.int64)]
    shares[0] = 9
    yield a, copies, raised(lambda: t.asarray([1], copy=False)), raised(lambda: t.asarray(a, dtype=t.int64, copy=False))
    d, e = t.from_dlpack(a), np.from_dlpack(shares)
    d[1], e[2] = 8, 7
    yield a, shares, t.asarray(shares) is shares, t.asarray(d, requires_grad=True).requires_grad
    s = t.ones(2, requires_grad=True) * 2
    yield t.asarray(s).requires_grad, t.asarray(s, requires_grad=False).grad_fn, t.asarray(s, requires_grad=True) is s
    z = t.Tensor(x)
    z[1] = 4
    yield x, t.as_tensor(memoryview(b"ab")), t.as_tensor(bytearray(b"ab"))


@program
def memory_maps(t: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/numbers"
        np.arange(6, dtype=np.float32).tofile(path)
        mapped = np.memmap(path, np.float32, mode="r+", shape=(2, 3))
        x = t.from_numpy(mapped)
        x[0].fill_(2)
        x.t()[2, 1] = 9
        mapped.flush()
        yield np.fromfile(path, np.float32)
        y = t.from_file(path, shared=True, size=8)
        y[7] = 1
        y[0] = 7
        yield np.fromfile(path, np.float32), x[0, 0].item()
        z = t.from_file(path, shared=False, size=3, dtype=t.int32)
        z[0] = 0
        yield z, np.fromfile(path, np.float32)[0], raised(lambda: t.from_file(path, shared=False, size=90))
        private = t.from_numpy(np.memmap(path, np.float32, mode="c", shape=(2, 3)))
        private.zero_()
        yield np.fromfile(path, np.float32), private


class Rows:
    """A data set of rows of a memory map."""

    def __init__(self, t: Any, path: str) -> None:
        self.t, self.data = t, np.memmap(path, np.float32, mode="r+", shape=(6, 3))

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, row: int) -> Any:
        return self.t.from_numpy(self.data[row]), row


@program
def a_loader_of_a_memory_map(t: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/rows"
        np.arange(18, dtype=np.float32).tofile(path)
        for workers in (0, 1):
            rows = Rows(t, path)
            for x, y in t.utils.data.DataLoader(rows, batch_size=3, num_workers=workers):
                x.add_(100)  # a batch is a copy
                yield x, y
            single = t.utils.data.DataLoader(rows, batch_size=None)
            next(iter(single))[0].mul_(-1)  # a sample is not
            yield np.fromfile(path, np.float32)[:4]


@program
def compiled_code_on_lent_memory(t: Any) -> Any:
    def step(x: Any) -> Any:
        y, z, w = x.clone(), x.view(2, 2).t(), x.flip(0)
        x.mul_(2)
        return y, z, w

    a = np.arange(4.0)
    x, run = t.from_numpy(a), compiled(t, step)
    for _ in range(2):
        results = run(x)
        yield results, a, x._version
    a[:] = -1
    yield results
    w = t.ones(4, dtype=t.float64, requires_grad=True)
    product = compiled(t, lambda x, w: (x * w).sum())
    loss = product(x, w)
    x.add_(1)
    yield raised(loss.backward)
    loss = product(x, w)
    a[:] = 3
    loss.backward()
    yield w.grad


@program
def compiled_code_on_arrays_that_overlap(t: Any) -> Any:
    def two(x: Any, y: Any) -> Any:
        x.add_(1)
        return y * 1

    a, run = np.arange(4.0), compiled(t, two)
    x = t.from_numpy(a)
    for other in (t.zeros(3), t.from_numpy(a), t.from_numpy(a[1:]), t.zeros(3), x[1:]):
        yield run(x, other), a, x._version


@program
def numpy_inside_compiled_code(t: Any) -> Any:
    def step(x: Any) -> Any:
        x.numpy()[0] += 100
        return x + 0, x.numpy()

    x, run = t.ones(3), compiled(t, step)
    for _ in range(2):
        y, n = run(x)
        n[1] = 7
        yield x, y, n
