"""Programs about storages: bytes and elements, what lies in them, what is kept shared; memory of several processes.

As `memory_programs.py`, whose table they enter.
"""

from __future__ import annotations

import copy
import io
import os
import pickle
from typing import Any

from memory_programs import compiled, program, raised

# ---- storages


@program
def storages_of_bytes(t: Any) -> Any:
    x = t.arange(6.0).reshape(2, 3)
    s = x.untyped_storage()
    yield s is x.untyped_storage(), s is x[1].untyped_storage(), s._cdata == x.t().untyped_storage()._cdata
    yield s is t.arange(6.0).untyped_storage(), {s: 1}[x[1].untyped_storage()], s == x.untyped_storage()
    yield s.nbytes(), s.size(), len(s), s.element_size(), str(s.device), s.is_cuda, s.is_shared(), s.type()
    s[3] = 64
    yield x, s[3], s[2:5].tolist(), s.tolist()[:5], s.untyped() is s, s.cpu() is s, s.new().nbytes()
    yield s.clone().data_ptr() == s.data_ptr(), s.data_ptr() == x.data_ptr(), s[4:].data_ptr() - s.data_ptr()
    s.copy_(t.full((6,), 2.0).untyped_storage())
    yield x, raised(lambda: s.copy_(t.ones(1).untyped_storage())), x._version
    s.fill_(0)
    x[0, 1] = 1
    yield x, t.UntypedStorage([1, 2, 3]).tolist(), t.UntypedStorage(5).nbytes(), t.UntypedStorage().nbytes()
    yield t.asarray(s, dtype=t.uint8)[4:8], t.is_storage(s), t.is_storage(x)
    m = t.ones(2, device="meta")
    yield m.untyped_storage().nbytes(), str(m.untyped_storage().device), m.data_ptr(), t.ones(0).data_ptr()


@program
def storages_of_elements(t: Any) -> Any:
    x = t.arange(6.0).reshape(2, 3)
    st = x.storage()
    yield st.size(), st.nbytes(), len(st), st.element_size(), st.type(), str(st.device), st.data_ptr() == x.data_ptr()
    yield isinstance(st, t.FloatStorage), isinstance(st, t.DoubleStorage), isinstance(st, t.TypedStorage)
    yield isinstance(st, t.UntypedStorage), t.is_storage(st), st.dtype is t.float32, st._cdata == x[1].storage()._cdata
    st[1] = 5.0
    yield x, st[1], st.tolist(), list(st)[:2], raised(lambda: st[1:3]), st.untyped() is x.untyped_storage()
    st.fill_(2)
    yield x, st.double().dtype is t.float64, st.pickle_storage_type(), st == x.storage(), x._typed_storage().size()
    yield t.FloatStorage([1, 2, 3]).tolist(), t.FloatStorage(3).size(), t.ByteStorage(2).dtype is t.uint8
    yield t.DoubleStorage.dtype is t.float64, t.TypedStorage([1, 2], dtype=t.int32).tolist(), x.storage_type().__name__
    yield t.FloatStorage.from_buffer(b"\0\0\x80?", "native").tolist(), st.is_shared(), st.float() is st
    yield t.asarray(st), t.as_tensor(st), x.new(st).data_ptr() == x.data_ptr(), x.is_set_to(x.view(2, 3))


@program
def tensors_put_on_storages(t: Any) -> Any:
    x = t.arange(6.0).reshape(2, 3)
    y = t.tensor([])
    y.set_(x.storage(), 1, (2, 2), (2, 1))
    yield y, y.data_ptr() - x.data_ptr(), y.storage_offset(), y.untyped_storage() is x.untyped_storage()
    y[0, 0] = 77
    yield x, t.tensor([]).set_(x.untyped_storage()), t.tensor([], dtype=t.int32).set_(x.untyped_storage())
    yield (
        t.tensor([]).set_(x),
        t.tensor([]).set_(),
        t.tensor([]).set_(x.t()).stride(),
        t.tensor([]).set_(x, 1, (2,), (2,)),
    )
    yield raised(lambda: t.tensor([], dtype=t.float64).set_(x)), t.tensor([]).set_(x.untyped_storage(), 2, (2,), (1,))
    w = t.ones(2, requires_grad=True)
    yield raised(lambda: w.set_(x))
    with t.no_grad():
        w.set_(x)
    yield w, w.untyped_storage() is x.untyped_storage()
    grown = t.UntypedStorage(4)
    z = t.tensor([]).set_(grown, 0, (3,), (1,))
    z.fill_(1)
    yield z, grown.nbytes(), grown.resizable(), raised(lambda: x.untyped_storage().resize_("a"))
    b = t.ones(2, 3)
    yield b.resize_(4), b.resize_(2, 2), b.storage_offset()


@program
def shared_parameters_are_found(t: Any) -> Any:
    """As libraries look for them."""
    a, b = t.nn.Linear(3, 3, bias=False), t.nn.Linear(3, 3, bias=False)
    b.weight = a.weight
    c, d = t.nn.Linear(3, 3, bias=False), t.nn.Linear(3, 3, bias=False)
    d.weight.data = c.weight.data
    e = t.nn.Parameter(a.weight[1:])

    def place(p: Any) -> Any:
        return p.device, p.untyped_storage().data_ptr(), p.untyped_storage().nbytes()

    yield place(a.weight) == place(b.weight), place(c.weight) == place(d.weight), place(a.weight) == place(c.weight)
    yield place(a.weight) == place(e), e.data_ptr() - a.weight.data_ptr(), e.storage_offset(), a.weight.nbytes
    with t.no_grad():
        before = a.weight.data_ptr()
        a.weight.add_(1)
        yield a.weight.data_ptr() == before, bool((b.weight == a.weight).all()), bool((e == a.weight[1:]).all())


@program
def copies_of_what_is_shared(t: Any) -> Any:
    x = t.arange(6.0).reshape(2, 3)
    kept = copy.deepcopy([x, x[1], x.t(), x.untyped_storage()])
    kept[0][1, 2] = 9
    yield kept[:3], kept[3] is kept[0].untyped_storage(), x, kept[1].storage_offset()
    sent = pickle.loads(pickle.dumps([x, x[1]]))
    sent[0][1, 2] = 9
    yield sent
    model = t.nn.ModuleList([t.nn.Linear(2, 2), t.nn.Linear(2, 2)])
    model[1].weight = model[0].weight
    other = copy.deepcopy(model)
    yield other[0].weight is other[1].weight, other[0].weight.data_ptr() == model[0].weight.data_ptr()
    yield copy.copy(x).data_ptr() == x.data_ptr(), copy.copy(x.untyped_storage()) is x.untyped_storage()


@program
def files_keep_what_is_shared(t: Any) -> Any:
    x = t.arange(6.0).reshape(2, 3)
    file = io.BytesIO()
    t.save({"all": x, "row": x[1], "turned": x.t(), "twice": x, "other": x.clone()}, file)
    file.seek(0)
    found = t.load(file)
    found["row"][0] = 50
    yield found, found["row"].storage_offset(), found["all"].untyped_storage() is found["row"].untyped_storage()
    yield found["all"].data_ptr() == found["turned"].data_ptr(), found["twice"] is found["all"]


@program
def swapped(t: Any) -> Any:
    p, q = t.nn.Parameter(t.ones(2)), t.zeros(3)
    p.mark = 1
    t.utils.swap_tensors(p, q)
    yield p, q, q.mark, isinstance(q, t.nn.Parameter), isinstance(p, t.nn.Parameter)
    layer = t.nn.Linear(2, 2)
    run = compiled(t, layer)
    run(t.ones(1, 2))
    with t.no_grad():
        t.utils.swap_tensors(layer.weight, t.nn.Parameter(t.zeros(2, 2)))
        t.nn.init.ones_(layer.bias)
    yield run(t.ones(1, 2))


# ---- memory shared with other processes


@program
def children_share_memory(t: Any) -> Any:
    x, own = t.zeros(4), t.zeros(2)
    yield x.is_shared(), x.share_memory_() is x, x.is_shared(), x[1:].is_shared(), x.untyped_storage().is_shared()
    child = os.fork()
    if not child:
        x[1:].add_(2)
        own.add_(1)
        os._exit(0)
    os.waitpid(child, 0)
    yield x, own
    model = t.nn.Linear(2, 2).share_memory()
    yield model.weight.is_shared(), model.weight.requires_grad, model.bias.is_leaf
    child = os.fork()
    if not child:
        model.weight.grad, model.bias.grad = t.ones(2, 2), t.ones(2)
        with t.no_grad():
            model.weight.fill_(1)
            model.bias.fill_(1)
        t.optim.SGD(model.parameters(), lr=0.5).step()
        os._exit(0)
    os.waitpid(child, 0)
    yield model.weight, model.bias


@program
def tensors_sent_through_a_queue_are_shared(t: Any) -> Any:
    queue = t.multiprocessing.get_context("fork").SimpleQueue()
    x = t.zeros(2, 3)
    queue.put([x, x[1], x.t(), t.nn.Parameter(t.ones(2))])
    got = queue.get()
    got[1].add_(1)
    yield (
        got,
        x,
        got[1].data_ptr() - got[0].data_ptr(),
        x.is_shared(),
        got[2].untyped_storage() is got[0].untyped_storage(),
    )
    x[0, 0] = 7
    yield got[2]
    yield raised(lambda: queue.put(t.ones(2, requires_grad=True) * 2))
