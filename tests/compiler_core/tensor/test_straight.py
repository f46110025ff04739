"""Views made at once are what the ops give, and what torch gives: shapes, strides, memory, histories, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile
from compiler_core.tensor import straight
from compiler_core.tensor.observed import observed
from tests.fake_cupy import on_fake_device

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

View = Callable[[Any], Any]
VIEWS: dict[str, View] = {
    "all": lambda x: x[:],
    "rows": lambda x: x[1:3],
    "no rows": lambda x: x[3:1],
    "beyond": lambda x: x[2:100],
    "from the end": lambda x: x[-2:],
    "steps": lambda x: x[::2],
    "steps of the last": lambda x: x[..., 1::2],
    "an int": lambda x: x[1],
    "the last": lambda x: x[-1],
    "ints": lambda x: x[1, 2, 3],
    "an int inside": lambda x: x[:, 1],
    "ints and slices": lambda x: x[1, :, 2:],
    "None": lambda x: x[None],
    "Nones": lambda x: x[None, 1, None, ..., None],
    "dots": lambda x: x[...],
    "dots between": lambda x: x[0, ..., 0],
    "nothing": lambda x: x[()],
    "view": lambda x: x.view(6, 4),
    "view of what is left": lambda x: x.view(-1),
    "view by a list": lambda x: x.view([2, -1]),
    "view by a size": lambda x: x.view(x.shape),
    "reshape": lambda x: x.reshape(4, 1, 6),
    "transpose": lambda x: x.transpose(0, -1),
    "the same dims": lambda x: x.transpose(1, 1),
    "permute": lambda x: x.permute(2, 0, 1),
    "permute by a list": lambda x: x.permute([-1, 0, 1]),
    "no permutation": lambda x: x.permute(0, 1, 2),
    "unsqueeze": lambda x: x.unsqueeze(0),
    "unsqueeze behind": lambda x: x.unsqueeze(-1),
    "t": lambda x: x[0].t(),
    "select": lambda x: x.select(1, 2),
    "select from the end": lambda x: x.select(-1, -2),
    "select of one": lambda x: x[:1].select(0, 0),
    "narrow": lambda x: x.narrow(1, 1, 2),
    "narrow from the end": lambda x: x.narrow(-1, -2, 1),
    "narrow to nothing": lambda x: x.narrow(0, 1, 0),
    "narrow to all": lambda x: x.narrow(0, 0, 2),
    "squeeze": lambda x: x[:, :1].squeeze(),
    "squeeze of one dim": lambda x: x[:, :1].squeeze(-2),
    "nothing to squeeze": lambda x: x.squeeze(0),
    "twice": lambda x: x[1:][0],
    "a slice of a transpose": lambda x: x.transpose(0, 2)[1:, 0],
    "a view of a slice": lambda x: x[1:2].view(12) if x.shape[0] == 2 else x[1].reshape(-1),
    "a view of columns": lambda x: x[..., :2].view(2, 3, 1, 2),
    "a view of columns, open": lambda x: x[..., 2:].view(-1, 2),
    "a view of what was turned": lambda x: x.transpose(0, 1).view(3, 2, 2, -1),
    "a reshape of what was turned": lambda x: x.transpose(0, 1).reshape(3, 2, 2, 2)[:, 1],
    "a row turned": lambda x: x[0].transpose(0, 1)[None],
    "part of a part": lambda x: x[:, 1:][:, :1],
}
every_view = pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)


def both(make: Callable[[Any], Any], *, there: bool = True) -> None:
    """What `make` gives of torch and of us, on the CPU and (there) on a device, is the same list."""
    theirs, ours = make(torch), make(distcompile)
    assert ours == theirs
    if there:
        with on_fake_device(devices=1), distcompile.device("cuda"):
            assert make(distcompile) == theirs


@every_view
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "bfloat16"])
def test_a_view_lies_as_in_torch(view: View, dtype: str) -> None:
    def told(t: Any) -> list[Any]:
        x = t.arange(24).reshape(2, 3, 4).to(getattr(t, dtype))
        y = view(x)
        steps = [step for n, step in zip(y.shape, y.stride()) if n > 1]  # of others none is walked
        lies = (steps, y.storage_offset(), y.data_ptr() - x.data_ptr()) if y.numel() else ()
        return [y.tolist(), tuple(y.shape), lies, y.is_contiguous(), y._base is not None]

    both(told)


@every_view
def test_writes_go_both_ways(view: View) -> None:
    def told(t: Any) -> list[Any]:
        x = t.arange(24.0).reshape(2, 3, 4)
        y, z = view(x), view(x)
        y.add_(100)
        before = x.tolist(), z.tolist(), x._version, y._version
        x.mul_(2)
        return [*before, y.tolist(), z.tolist(), y._version, z._version]

    both(told)


@every_view
def test_gradients_go_through(view: View) -> None:
    def told(t: Any) -> list[Any]:
        x = t.arange(24.0).reshape(2, 3, 4).requires_grad_()
        y = view(x)
        (y * y).sum().backward()
        return [x.grad.tolist(), y.requires_grad, y.is_leaf, y.grad_fn is not None]

    both(told)


@every_view
def test_a_write_through_a_view_is_recorded(view: View) -> None:
    def told(t: Any) -> list[Any]:
        x = t.arange(24.0).reshape(2, 3, 4).requires_grad_()
        w = x * 1
        y, z = view(w), view(w)
        y.mul_(3)
        (w.sum() + (z * z).sum()).backward()
        return [x.grad.tolist(), w.tolist()]

    both(told)


@every_view
def test_a_view_taken_before_its_base_got_a_history_has_it(view: View) -> None:
    def told(t: Any) -> list[Any]:
        x, weight = t.zeros(2, 3, 4), t.full((), 3.0, requires_grad=True)
        y = view(x)
        before = y.requires_grad
        x.add_(weight)
        (y * y).sum().backward()
        return [before, y.requires_grad, y.tolist(), weight.grad.item()]

    both(told)


@every_view
def test_without_gradients_a_view_has_no_history(view: View) -> None:
    def told(t: Any) -> list[Any]:
        x = t.arange(24.0).reshape(2, 3, 4).requires_grad_()
        with t.no_grad():
            y = view(x)
            y.fill_(1)
        with t.inference_mode():
            z = view(t.zeros(2, 3, 4))
        return [y.requires_grad, y._base is x, x.tolist(), z.is_inference(), view(x.detach()).requires_grad]

    both(told)


@every_view
def test_a_leaf_is_not_written_through_its_view(view: View) -> None:
    def told(t: Any) -> list[bool]:
        x = t.ones(2, 3, 4, requires_grad=True)
        try:
            view(x).add_(1)
        except RuntimeError:
            return [True, bool((x == 1).all())]
        return [False]

    both(told)


@every_view
def test_what_was_saved_knows_of_a_write_through_a_view(view: View) -> None:
    def told(t: Any) -> list[bool]:
        x = t.arange(24.0).reshape(2, 3, 4).requires_grad_()
        w = x * 1
        out = (w * w).sum()
        view(w).add_(1)
        try:
            out.backward()
        except RuntimeError:
            return [True]
        return [x.grad.tolist()]

    both(told)


@every_view
def test_lent_memory_is_shown(view: View) -> None:
    def told(t: Any) -> list[Any]:
        array = np.arange(24.0).reshape(2, 3, 4)
        x = t.from_numpy(array)
        y = view(x)
        array += 5
        seen = y.tolist()
        y.fill_(7)
        lent = t.zeros(2, 3, 4)
        part, memory = view(lent), lent.numpy()
        memory += 1
        return [seen, array.tolist(), part.tolist()]

    both(told, there=False)  # NumPy's memory


@every_view
def test_views_of_data_and_of_parameters(view: View) -> None:
    def told(t: Any) -> list[Any]:
        p = t.nn.Parameter(t.arange(24.0).reshape(2, 3, 4))
        y = view(p.data)
        y.mul_(2)
        z = view(p)
        return [p.tolist(), p._version, y.requires_grad, type(z) is t.Tensor, z.requires_grad, z._base is p]

    both(told)


@every_view
def test_ops_make_the_same(view: View) -> None:
    ops: list[Any] = []
    x = distcompile.arange(24.0).reshape(2, 3, 4)
    at_once = view(x)
    with observed(lambda op, arrays, attrs, result: ops.append((op, attrs))):
        asked = view(x)
    assert distcompile.equal(at_once, asked)
    chain, cell = [], at_once._cell
    while cell is not x._cell:
        chain.append((cell.op, cell.attrs))
        cell = cell.base
    assert chain[::-1] == ops
    assert [type(n) for o in ops for n in _numbers(o[1])] == [int for o in ops for _ in _numbers(o[1])]


def _numbers(attrs: dict[str, Any]) -> list[Any]:
    return [n for value in attrs.values() for n in value]


PARTS: dict[str, View] = {
    "split": lambda x: x.split(2, 1),
    "split by name": lambda x: x.split(2, dim=-1),
    "split of the first": lambda x: x.split(1),
    "split by sizes": lambda x: x.split([1, 2, 1], -1),
    "split with nothing": lambda x: x.split([0, 4], -1),
    "split to one": lambda x: x.split(5, 1),
    "chunk": lambda x: x.chunk(2, -1),
    "chunk unevenly": lambda x: x.chunk(2, dim=1),
    "chunk to more": lambda x: x.chunk(5, 1),
    "chunk to one": lambda x: x.chunk(1),
}
every_parting = pytest.mark.parametrize("parting", PARTS.values(), ids=PARTS)


@every_parting
def test_parts_lie_as_in_torch_and_are_views(parting: View) -> None:
    def told(t: Any) -> list[Any]:
        x = t.arange(24.0).reshape(2, 3, 4)
        parts = parting(x)
        parts[-1].mul_(2)
        lies = [(tuple(y.shape), y.stride(), y.storage_offset()) for y in parts if y.numel()]
        return [type(parts), lies, [y.tolist() for y in parts], x.tolist(), x._version, parts[0]._base is x]

    both(told)


@every_parting
def test_gradients_go_through_parts(parting: View) -> None:
    def told(t: Any) -> list[Any]:
        x = t.arange(24.0).reshape(2, 3, 4).requires_grad_()
        parts = parting(x * 1)
        sum((k + 1) * (y * y).sum() for k, y in enumerate(parts)).backward()
        return [x.grad.tolist(), [y.requires_grad for y in parts]]

    both(told)


@every_parting
def test_a_part_of_several_is_not_written_where_it_is_recorded(parting: View) -> None:
    def told(t: Any) -> list[bool]:
        w = t.arange(24.0).reshape(2, 3, 4).requires_grad_() * 1
        try:
            parting(w)[0].mul_(3)
        except RuntimeError:
            return [True]
        return [False]

    both(told)


@every_parting
def test_ops_make_the_same_parts(parting: View) -> None:
    ops: list[Any] = []
    x = distcompile.arange(24.0).reshape(2, 3, 4)
    at_once = parting(x)
    with observed(lambda op, arrays, attrs, result: ops.append((op, attrs))):
        asked = parting(x)
    assert all(map(distcompile.equal, at_once, asked))
    assert [(part._cell.op, part._cell.attrs) for part in at_once] == ops


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x[2],
        lambda x: x[-3],
        lambda x: x[0, 0, 0, 0],
        lambda x: x[..., 0, 0, 0, 0],
        lambda x: x[::-1],
        lambda x: x[::0],
        lambda x: x[1.0:],
        lambda x: x[1.5],
        lambda x: x.view(5, 5),
        lambda x: x.view(-1, -1),
        lambda x: x.view(-2, 12),
        lambda x: x.view(2, 2.0, 6),
        lambda x: x.transpose(0, 2).view(24),
        lambda x: x[:, :2].view(-1),
        lambda x: x[..., :2].view(12),
        lambda x: x[..., :2].view(5, -1),
        lambda x: x.split(0, 1),
        lambda x: x.split([1, 1], 1),
        lambda x: x.split([4, -1], 1),
        lambda x: x.split(1, 3),
        lambda x: x.chunk(0, 1),
        lambda x: x.transpose(0, 3),
        lambda x: x.transpose(0.0, 1.0),
        lambda x: x.transpose(0),
        lambda x: x.permute(0, 1),
        lambda x: x.permute(0, 0, 1),
        lambda x: x.permute(0, 1, 5),
        lambda x: x.select(3, 0),
        lambda x: x.select(0, 2),
        lambda x: x.select(0),
        lambda x: x.narrow(0, 1, 2),
        lambda x: x.narrow(0, 0, -1),
        lambda x: x.narrow(3, 0, 1),
        lambda x: x.squeeze(3),
        lambda x: x.unsqueeze(4),
        lambda x: x.unsqueeze(-5),
        lambda x: x.unsqueeze(),
        lambda x: x.t(),
        lambda x: x[0].t(1),
    ],
)
def test_what_is_wrong_is_refused_again_and_again(wrong: View) -> None:
    for t in (torch, distcompile):
        x = t.arange(24.0).reshape(2, 3, 4)
        x.transpose(0, 1), x.permute(2, 0, 1), x.unsqueeze(0)  # what is remembered of these does not help
        for _ in range(2):
            with pytest.raises((RuntimeError, IndexError, TypeError, ValueError)):
                wrong(x)


def test_a_tensor_without_elements_or_dims() -> None:
    def told(t: Any) -> list[Any]:
        empty, one = t.zeros(0, 3), t.tensor(5.0)
        shapes = [empty.view(3, 0), empty.view(0), empty[:, 1], empty[0:0], empty.t(), one[None], one[()], one[...]]
        shapes += [one.view(1, 1), one.unsqueeze(0), one.reshape(-1), one.t()]
        return [(tuple(s.shape), s.tolist()) for s in shapes]

    both(told)


def test_a_view_outlives_its_base_and_tells_of_its_tangent() -> None:
    y = distcompile.arange(6.0)[2:]
    assert y.tolist() == [2, 3, 4, 5]
    x = distcompile.arange(6.0).reshape(2, 3)
    with distcompile.autograd.forward_ad.dual_level():
        dual = distcompile.autograd.forward_ad.make_dual(x, 10 * x)
        for view in (lambda z: z[1], lambda z: z.t(), lambda z: z.view(6), lambda z: z.unsqueeze(0)):
            tangent = distcompile.autograd.forward_ad.unpack_dual(view(dual)).tangent
            assert distcompile.equal(tangent, view(10 * x))


def test_traces_and_batches_ask_the_ops() -> None:
    def views(x: Any) -> Any:
        assert straight.array_of(x) is None
        return x[0] + x.t()[1, :2] + x.view(4)[2:].unsqueeze(0)[0]

    x = distcompile.arange(4.0).reshape(2, 2)
    assert distcompile.equal(distcompile.func.vmap(views)(x[None])[0], x[0] + x[:, 1] + x[1])
    assert straight.array_of(3) is None


def test_an_in_place_change_of_shape_leaves_views_be() -> None:
    def told(t: Any) -> list[Any]:
        x = t.arange(6.0).reshape(2, 3).requires_grad_()
        w = x * 1
        row = w[1]
        w.t_()
        w.add_(1)
        row.mul_(2)
        w.sum().backward()
        return [row.tolist(), w.tolist(), x.grad.tolist()]

    both(told)


def test_a_tensor_subclass_is_asked_first() -> None:
    class Logged(distcompile.Tensor):  # type: ignore[misc]
        pass

    x = distcompile.arange(6.0).reshape(2, 3).as_subclass(Logged)
    assert [type(v) for v in (x[0], x.view(6), x.t(), x.unsqueeze(0))] == [Logged] * 4


@pytest.mark.parametrize("library", [torch, distcompile], ids=["torch", "ours"])
def test_a_tensor_that_is_one_number_selects_a_view(library: Any) -> None:
    x, one = library.zeros(2, 3), library.tensor(1)
    for k in library.arange(2):
        x[k].add_(k)
    x[:, one].mul_(5)
    x[one, one.to(library.int32)].sub_(2)
    x[np.array(0), None, 1:].fill_(4)
    assert x.tolist() == [[0, 4, 4], [1, 3, 1]]
    row = x[-one]
    x[one] = 6.5
    assert row.tolist() == [6.5] * 3
    assert row._base is x
    with pytest.raises(IndexError):
        x[one + 1]
    p = library.ones(2, 3, requires_grad=True)
    (p[one] * library.arange(3.0)).sum().backward()
    assert p.grad.tolist() == [[0, 0, 0], [0, 1, 2]]
    assert library.func.vmap(lambda k: x[k])(library.arange(2)).tolist() == x.tolist()
    assert x[one, [0, 2]].tolist() == [6.5] * 2
    assert library.zeros(2, 3, 4)[one, :, [0, 1]].shape == (3, 2)
    assert type(x.narrow(0, one, 1).storage_offset()) is int


@pytest.mark.parametrize("library", [torch, distcompile], ids=["torch", "ours"])
def test_numpys_whole_numbers_are_dims(library: Any) -> None:
    x, dim = library.arange(6.0).reshape(2, 3), np.int64(1)
    for name in ("sum", "mean", "amax", "prod", "std", "any", "logsumexp"):
        assert getattr(x, name)(dim).tolist() == getattr(x, name)(1).tolist()
    assert x.max(dim).indices.tolist() == [2, 2]
    assert x.min(dim).values.tolist() == [0, 3]


def test_who_looks_sees_the_ops_of_a_backward() -> None:
    def gradient(looks: bool) -> tuple[list[str], Any]:
        names: list[str] = []
        x = distcompile.arange(24.0).reshape(2, 3, 4).requires_grad_()
        out = (x.view(6, 4).transpose(0, 1) * 2).sum()
        if looks:
            with observed(lambda op, arrays, attrs, result: names.append(op.name)):
                out.backward()
        else:
            out.backward()
        return names, x.grad.tolist()

    (seen, looked), (_, alone) = gradient(True), gradient(False)
    assert {"reshape", "permute"} <= set(seen)
    assert looked == alone
