"""Small functions of torch's: frombuffer, _check, names of types."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest

import distcompile as dc
import distcompile.types
import distcompile.utils.flop_counter

REFUSED = [{"count": 0}, {"count": 4}, {"offset": 12}, {"offset": -1}, {"offset": 3}]


@pytest.mark.torch
@pytest.mark.parametrize(
    "options", [{}, {"count": 2}, {"offset": 4}, {"offset": 4, "count": 1}, {"requires_grad": True}], ids=str
)
@pytest.mark.parametrize("dtype", ["float32", "int16", "uint8"])
def test_frombuffer_reads_what_torchs_reads(options: dict[str, Any], dtype: str) -> None:
    torch = pytest.importorskip("torch")
    if "requires_grad" in options and dtype != "float32":
        pytest.skip("only floating dtypes")
    held = bytearray(np.arange(12, dtype=np.float32).tobytes())
    ours = dc.frombuffer(held, dtype=getattr(dc, dtype), **options)
    theirs = torch.frombuffer(held, dtype=getattr(torch, dtype), **options)
    assert ours.requires_grad == theirs.requires_grad
    np.testing.assert_array_equal(ours.detach().numpy(), theirs.detach().numpy())


@pytest.mark.torch
@pytest.mark.parametrize(
    "options", [{"count": 0}, {"count": 4}, {"offset": 12}, {"offset": -1}, {"offset": 3}], ids=str
)
def test_frombuffer_refuses_what_torchs_refuses(options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    for lib in (dc, torch):
        with pytest.raises(ValueError, match=r"buffer|count|offset"):
            lib.frombuffer(bytearray(12), dtype=lib.float32, **options)


def test_check_raises_what_it_is_told() -> None:
    dc._check(True, lambda: "not seen")
    with pytest.raises(RuntimeError, match=r"^three rows$"):
        dc._check(False, lambda: "three rows")
    with pytest.raises(RuntimeError, match="Expected cond"):
        dc._check(False)


def test_types_are_ours() -> None:
    types: Any = distcompile.types
    assert types._dtype is type(dc.float32)
    assert types._device is dc.device
    assert isinstance(dc.Size([1]), types._size)
    assert isinstance(1.5, types.Number)


@pytest.mark.torch
def test_limits_print_as_torchs() -> None:
    torch = pytest.importorskip("torch")
    for name in ("float16", "bfloat16", "float32", "float64", "complex64", "complex128"):
        ours, theirs = dc.finfo(getattr(dc, name)), torch.finfo(getattr(torch, name))
        assert repr(ours) == repr(theirs)
        assert (ours.resolution, ours.eps, ours.tiny) == (theirs.resolution, theirs.eps, theirs.tiny)
    for name in ("int8", "uint8", "int64"):
        assert repr(dc.iinfo(getattr(dc, name))) == repr(torch.iinfo(getattr(torch, name)))


def test_names_that_scripts_set_and_read() -> None:
    assert dc.ones(2)[:, dc.newaxis].shape == (2, 1)
    assert dc.vmap(lambda row: row.sum())(dc.ones(2, 3)).tolist() == [3.0, 3.0]
    assert dc.set_flush_denormal(True) is False
    dc.set_num_interop_threads(3)
    assert dc.get_num_interop_threads() == 3
    dc.set_num_interop_threads(1)
    with pytest.raises(RuntimeError, match="positive integer"):
        dc.set_num_interop_threads(0)


@pytest.mark.torch
def test_the_debug_mode_of_determinism_is_torchs() -> None:
    torch = pytest.importorskip("torch")
    for mode in (1, "error", "warn", 2, 0, "default"):
        for lib in (dc, torch):
            lib.set_deterministic_debug_mode(mode)
        assert dc.get_deterministic_debug_mode() == torch.get_deterministic_debug_mode()
        assert dc.are_deterministic_algorithms_enabled() == torch.are_deterministic_algorithms_enabled()
    for lib in (dc, torch):
        with pytest.raises(RuntimeError, match="invalid value of debug_mode"):
            lib.set_deterministic_debug_mode(3)


@pytest.mark.torch
def test_what_torch_asserts_is_an_assertion_error() -> None:
    torch = pytest.importorskip("torch")
    for lib in (dc, torch):
        with pytest.raises(AssertionError, match="embed_dim must be divisible"):
            lib.nn.MultiheadAttention(10, 3)
        with pytest.raises(AssertionError, match="Padding_idx must be within"):
            lib.nn.Embedding(3, 4, padding_idx=5)
        with pytest.raises(AssertionError, match="Size mismatch between tensors"):
            lib.utils.data.TensorDataset(lib.ones(2), lib.ones(3))


@pytest.mark.torch
def test_parameter_containers_print_as_torchs() -> None:
    torch = pytest.importorskip("torch")
    printed = []
    for lib in (dc, torch):
        values = {"a": lib.nn.Parameter(lib.ones(2, 3)), "b": lib.tensor(2.0, dtype=lib.float64), "c": "text"}
        printed.append([repr(lib.nn.ParameterDict(values)), repr(lib.nn.ParameterList(values.values()))])
    assert [text.replace("distcompile.", "torch.") for text in printed[0]] == printed[1]


@pytest.mark.torch
def test_stacked_modules_are_torchs() -> None:
    torch = pytest.importorskip("torch")
    found = []
    for lib in (dc, torch):
        modules = [lib.nn.BatchNorm1d(2) for _ in range(3)]
        states = lib.func.stack_module_state(modules)
        found.append([{k: (tuple(v.shape), v.requires_grad, v.is_leaf) for k, v in s.items()} for s in states])
        refused = [[], [lib.nn.Linear(1, 1), lib.nn.ReLU()], [lib.nn.ReLU(), lib.nn.ReLU().eval()],
                   [lib.nn.Linear(1, 1), lib.nn.Linear(1, 1).requires_grad_(False)]]  # fmt: skip
        for models in refused:
            with pytest.raises(RuntimeError):
                lib.func.stack_module_state(models)
    assert found[0] == found[1]


@pytest.mark.torch
@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda lib: lib.bincount(lib.tensor([1, -1])), RuntimeError),
        (lambda lib: lib.bincount(lib.tensor([1]), lib.ones(2)), RuntimeError),
        (lambda lib: lib.bincount(lib.tensor([1, 2]), lib.ones(2, 1)), RuntimeError),
        (lambda lib: lib.ones(2).repeat(-1, 1), RuntimeError),
        (lambda lib: lib.ones(2)[1.0], IndexError),
    ],
)
def test_arguments_that_make_no_sense_are_torchs_kind_of_error(call: Any, error: type[Exception]) -> None:
    torch = pytest.importorskip("torch")
    for lib in (dc, torch):
        with pytest.raises(error):
            call(lib)


def test_a_counter_of_operations_that_is_never_entered_has_counted_none() -> None:
    counter = distcompile.utils.flop_counter.FlopCounterMode(display=False)
    assert (counter.get_total_flops(), counter.get_flop_counts()) == (0, {})


def test_what_names_a_dtype_or_a_layout_is_no_dataclass() -> None:
    """Libraries take dataclasses apart, or refuse frozen ones."""
    for thing in (dc.float32, dc.uint4, dc.strided, dc.channels_last, dc.device("cpu")):
        assert not dataclasses.is_dataclass(thing)
        assert copy.deepcopy(thing) is thing
        assert pickle.loads(pickle.dumps(thing)) is thing
