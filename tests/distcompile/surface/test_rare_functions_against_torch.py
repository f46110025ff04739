"""Functions of torch's that few programs call, its helpers of optimizers, and dtypes that have no tensors."""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.errors import BranchError
from compiler_core.symbolic.expression import is_same
from compiler_core.symbolic.size import Sizes
from distcompile.as_torch.places import PLACES, found

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
DATA = np.random.default_rng(0).standard_normal((6, 3))


def both(function: Any) -> None:
    """A function of the package gives the same numbers on both sides, and the same gradient of their sum."""
    results = []
    for lib in (dc, torch):
        x = lib.tensor(DATA.tolist(), dtype=lib.float64, requires_grad=True)
        value = function(lib, x)
        if value.requires_grad:
            (value.nan_to_num(0, 0, 0) * lib.arange(value.numel()).view(value.shape)).sum().backward()
        results.append((value.detach().numpy(), None if x.grad is None else x.grad.numpy()))
    for ours, theirs in zip(*results):
        assert (ours is None) is (theirs is None)
        if ours is not None:
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("initial", [None, 2.0])
@pytest.mark.parametrize("by", ["lengths", "offsets"])
def test_segment_reduce(reduce: str, initial: float | None, by: str) -> None:
    runs = {"lengths": [2, 0, 4], "offsets": [0, 2, 2, 6]}[by]
    both(lambda lib, x: lib.segment_reduce(x, reduce, **{by: lib.tensor(runs)}, initial=initial))


def test_segment_reduce_refuses() -> None:
    for words in ({"lengths": [1, 2]}, {}, {"lengths": [6], "axis": 1}):
        for lib in (dc, torch):
            given = {name: lib.tensor(value) if name == "lengths" else value for name, value in words.items()}
            with pytest.raises((RuntimeError, ValueError)):
                lib.segment_reduce(lib.ones(6, 3), "sum", **given)


FUNCTIONS: dict[str, Any] = {
    "expand_copy": lambda lib, x: lib.expand_copy(x, (2, 6, 3)),
    "_shape_as_tensor": lambda lib, x: lib._shape_as_tensor(x),
    "selu_": lambda lib, x: lib.selu_(x * 1),
    "_softmax_backward_data": lambda lib, x: lib._softmax_backward_data(x, x.detach().softmax(1), 1, lib.float64),
    "coo_to_csr": lambda lib, x: lib._convert_indices_from_coo_to_csr(lib.tensor([0, 0, 2, 3]), 5),
    "csr_to_coo": lambda lib, x: lib._convert_indices_from_csr_to_coo(lib.tensor([0, 2, 3]), lib.tensor([0, 1, 1])),
    "cond": lambda lib, x: lib.cond(lib.tensor(True), lambda a: a.sin(), lambda a: a.cos(), (x,)),
}


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_a_function_is_torchs(name: str) -> None:
    if name == "cond":  # torch compiles it
        x = dc.ones(2)
        assert FUNCTIONS[name](dc, x).tolist() == x.sin().tolist()
        return
    both(FUNCTIONS[name])


def test_a_loop_runs_until_its_condition_fails() -> None:
    ends = dc.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (dc.tensor(0), dc.ones(2)))
    assert [end.tolist() for end in ends] == [3, [8.0, 8.0]]
    with pytest.raises(BranchError, match="same number of outputs"):
        dc.while_loop(lambda i: i < 3, lambda i: (i, i), (dc.tensor(0),))
    scan = found(PLACES["torch._higher_order_ops.associative_scan"])
    x = dc.tensor(DATA.tolist(), dtype=dc.float64)
    np.testing.assert_allclose(scan(lambda a, b: a + b, x, 0).numpy(), np.cumsum(DATA, 0), rtol=1e-12)
    running = scan(lambda a, b: {"s": a["s"] * b["s"]}, {"s": x}, 1, reverse=True)["s"]
    np.testing.assert_allclose(running.numpy(), np.cumprod(DATA[:, ::-1], 1)[:, ::-1], rtol=1e-12)


GROUPS: dict[str, tuple[tuple[int, ...], tuple[int, ...], list[int] | None]] = {
    "rows": ((8, 16), (3, 16, 32), [2, 2, 8]), "columns": ((3, 8, 16), (16, 24), [8, 16, 24]),
    "sums": ((8, 24), (24, 16), [8, 16, 24]), "all": ((3, 8, 16), (3, 16, 8), None),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(GROUPS))
def test_grouped_products_are_torchs(name: str) -> None:
    a, b, ends = GROUPS[name]
    rng = np.random.default_rng(1)
    numbers = rng.standard_normal(a).astype("f4"), rng.standard_normal(b).astype("f4")
    results = []
    for lib, function in ((dc, dc._grouped_mm), (torch, torch.nn.functional.grouped_mm)):
        x, y = (lib.tensor(n.tolist(), requires_grad=True) for n in numbers)
        offs = None if ends is None else lib.tensor(ends, dtype=lib.int32)
        try:
            value = function(x.bfloat16(), y.bfloat16(), offs=offs)
        except RuntimeError as refused:  # torch's, for this machine
            assert lib is torch
            pytest.skip(str(refused)[:80])
        value.float().square().sum().backward()
        results.append([t.detach().float().numpy() for t in (value, x.grad, y.grad)])
    for ours, theirs in zip(*results):
        np.testing.assert_allclose(ours, theirs, rtol=3e-2, atol=0.3)


CHECKS = ("_check", "_check_value", "_check_index", "_check_type", "_check_not_implemented")


@pytest.mark.parametrize("name", CHECKS)
def test_checks_raise_torchs_errors(name: str) -> None:
    told = []
    for lib in (dc, torch):
        getattr(lib, name)(True, lambda: "not seen")
        with pytest.raises(Exception, match="three rows") as caught:
            getattr(lib, name)(False, lambda: "three rows")
        told.append(caught.type)
    assert told[0] is told[1]


@pytest.mark.parametrize("values", [[0.0], [0.0, 1.0], [], [True, False], [True], [3.0]])
@pytest.mark.parametrize("name", ["_assert_async", "_check_tensor_all"])
def test_checks_of_tensors_are_torchs(name: str, values: list[Any]) -> None:
    told = []
    for lib in (dc, torch):
        try:
            told.append(getattr(lib, name)(lib.tensor(values)))
        except (RuntimeError, TypeError) as error:
            told.append((type(error), str(error).partition(" (Could")[0].replace("distcompile", "torch")))
    assert told[0] == told[1]


def test_symbols_are_numbers() -> None:
    for lib in (dc, torch):
        assert (lib.sym_int(2.7), lib.sym_float(2), lib.sym_not(0), lib.sym_max(1, 2.0), lib.sym_min(3, 2)) == (
            2, 2.0, True, 2.0, 2)  # fmt: skip
        assert type(lib.sym_max(2, 1.0)) is float
        assert (lib.sym_max(True, False), lib.sym_min(True, 2)) == (True, True)
        assert type(lib.sym_max(True, False)) is type(lib.sym_min(True, 2)) is bool
        assert (lib.sym_ite(True, 1, 2), lib.sym_sum([1, 2, 3])) == (1, 6)


def test_sizes_are_checked() -> None:
    for lib in (dc, torch):
        assert lib._check_is_size(3, max=3) is lib._check_is_size(0) is None
        for wrong, most in ((-1, None), (3, 2)):
            with pytest.raises(RuntimeError, match="no size"):
                lib._check_is_size(wrong, lambda: "no size", max=most)


def test_sizes_that_the_call_decides_stay_so() -> None:
    sizes = Sizes()
    a = sizes.new(4)
    assert is_same(dc.sym_sum([dc.sym_int(a), a, 1]), 2 * a + 1)
    assert is_same(dc.sym_max(a, 1), a)
    assert is_same(dc.sym_ite(a >= 2, a, 0), a)
    dc._check_is_size(a, max=9)
    assert [str(guard) for guard in sizes.guards] == ["s0 <= 9"]


def test_named_results_have_torchs_classes() -> None:
    for name in dc.return_types.__all__:
        assert hasattr(torch.return_types, name)
    x = dc.tensor(DATA.tolist())
    assert isinstance(x.topk(2), dc.return_types.topk)
    assert isinstance(dc.linalg.svd(x), dc.return_types.linalg_svd)
    assert isinstance(dc.aminmax(x), dc.return_types.aminmax)
    with pytest.raises(AttributeError, match="no attribute 'topl'"):
        dc.return_types.topl  # noqa: B018


@pytest.mark.parametrize("call", [
    *(f"m.{name}(x, 1)" for name in ["max", "min", "median", "nanmedian", "mode", "sort", "cummax", "cummin", "topk"]),
    "m.kthvalue(x, 1)",
    "m.aminmax(x)", "m.frexp(x)", "m.qr(x)", "m.lu_unpack(*m.linalg.lu_factor(x))",
    *(f"m.linalg.{name}(x)" for name in ["eigh", "slogdet", "inv_ex", "lu_factor_ex", "cholesky_ex", "qr", "lu"]),
    "m.linalg.solve_ex(x, x)", "m.histogram(x, 2)",
])  # fmt: skip
def test_named_results_print_and_pickle_as_torchs(call: str) -> None:
    data = [[4.0, 1.0], [1.0, 3.0]]
    ours, theirs = (eval(call, {"m": m, "x": m.tensor(data)}) for m in (dc, torch))
    texts = [re.sub(r"-?[0-9]+\.[0-9]*", "N", repr(one)) for one in (ours, theirs)]
    assert re.sub(r"\s+", "", texts[0]) == re.sub(r"\s+", "", texts[1].replace("torch.", "distcompile."))
    assert repr(pickle.loads(pickle.dumps(ours))) == repr(ours)
    compiled = dc.compile(lambda x: eval(call, {"m": dc, "x": x}))(dc.tensor(data))
    assert type(compiled) is type(ours)


@pytest.mark.parametrize("name", ["complex32", "uint1", "uint4", "uint7", "int1", "int7"])
def test_dtypes_without_tensors_have_torchs_facts(name: str) -> None:
    ours, theirs = getattr(dc, name), getattr(torch, name)
    facts = [
        (d.itemsize, d.is_signed, d.is_floating_point, d.is_complex, str(d).rpartition(".")[2]) for d in (ours, theirs)
    ]
    assert facts[0] == facts[1]
    for lib, dtype in ((dc, ours), (torch, theirs)):
        with pytest.raises(TypeError):
            lib.iinfo(dtype)
    with pytest.raises(TypeError, match="no tensors of"):
        dc.zeros(2, dtype=ours)


def test_limits_of_complex32_are_float16s() -> None:
    assert repr(dc.finfo(dc.complex32)) == repr(torch.finfo(torch.complex32))


def test_helpers_of_optimizers_are_torchs() -> None:
    for lib, kinds in ((dc, dc.optim.Optimizer), (torch, torch.optim.Optimizer)):
        lists = [
            [lib.ones(1), lib.ones(2, dtype=lib.float64), lib.ones(3)],
            [lib.zeros(1), lib.zeros(2), lib.zeros(3)],
            [],
        ]
        groups = kinds._group_tensors_by_device_and_dtype(lists, with_indices=True)
        found_groups = {str(key[1]).rpartition(".")[2]: ([len(part) for part in parts], places)
                        for key, (parts, places) in groups.items()}  # fmt: skip
        assert found_groups == {"float32": ([2, 2, 0], [0, 2]), "float64": ([1, 1, 0], [1])}
    assert found(PLACES["torch.optim.optimizer._default_to_fused_or_foreach"])([], False) == (False, False)


def test_an_optimizer_that_holds_another_has_no_hooks_of_its_own() -> None:
    seen = []
    for lib in (dc, torch):

        class Around(lib.optim.Optimizer):  # type: ignore[name-defined, misc]
            def __init__(self, inner: Any) -> None:
                self.inner = inner

            def step(self, closure: Any = None) -> Any:
                return self.inner.step(closure)

        p = lib.nn.Parameter(lib.ones(2))
        inner = lib.optim.SGD([p], lr=0.5)
        inner.register_step_pre_hook(lambda *args: seen.append("hook"))
        p.grad = lib.ones(2)
        Around(inner).step()
        assert p.tolist() == [0.5, 0.5]
    assert seen == ["hook", "hook"]


def test_swapped_tensors_exchange_all_that_they_are() -> None:
    for lib in (dc, torch):
        a, b = lib.nn.Parameter(lib.ones(2)), lib.zeros(3)
        a.grad, a.mark = lib.ones(2), "a"
        lib.utils.swap_tensors(a, b)
        assert (type(a), type(b)) == (lib.Tensor, lib.nn.Parameter)
        assert (a.tolist(), b.tolist(), b.grad.tolist(), b.mark) == ([0.0] * 3, [1.0] * 2, [1.0] * 2, "a")
        assert b.requires_grad
        assert not a.requires_grad
        assert not hasattr(a, "mark")
    with pytest.raises(RuntimeError, match="cannot be swapped"):
        dc.utils.swap_tensors(dc.ones(2, requires_grad=True) * 2, dc.ones(1))


def test_variables_are_tensors() -> None:
    for lib in (dc, torch):
        x = lib.autograd.Variable(lib.ones(2), requires_grad=True)
        (x * 3).sum().backward()
        assert x.grad.tolist() == [3.0, 3.0]
        assert isinstance(x, lib.autograd.Variable)
        assert isinstance(lib.ones(1), lib.autograd.Variable)
        assert not isinstance(1, lib.autograd.Variable)
        assert type(x) is lib.Tensor


def test_a_part_that_alone_requires_a_gradient_is_strided_within_itself() -> None:
    for lib in (dc, torch):
        x = lib.arange(12.0).view(3, 4)[1].detach().requires_grad_()
        y = lib.as_strided(x, (2,), (2,))
        y.sum().backward()
        assert (y.tolist(), x.grad.tolist()) == ([4.0, 6.0], [1.0, 0.0, 1.0, 0.0])


def test_a_model_is_moved_to_a_complex_dtype_as_in_torch() -> None:
    parse = found(PLACES["torch._C._nn._parse_to"])
    for lib, parsed in ((dc, parse), (torch, torch._C._nn._parse_to)):
        told = [parsed(*args, **words) for args, words in (
            (("cpu",), {}), ((lib.float64,), {"non_blocking": True}), (("cpu", lib.float16, True), {}),
            ((lib.ones(1, dtype=lib.float64),), {}))]  # fmt: skip
        texts = [[str(part).rpartition(".")[2] for part in row[:3]] for row in told]
        assert texts == [["cpu", "None", "False"], ["None", "float64", "True"], ["cpu", "float16", "True"],
                         ["cpu", "float64", "False"]]  # fmt: skip
