"""Addresses, storages and bytes: one address for one storage, in row-major order, and torch's view(dtype)."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.errors import DomainError, DTypeError, GraphBreak, ShapeError


def memory(x: Any) -> np.ndarray[Any, Any]:
    """What lies at `x`'s address, as libraries read it that were given a contiguous Tensor."""
    assert x.is_contiguous()
    data = ctypes.string_at(x.data_ptr(), x.nbytes)
    return np.frombuffer(data, x.numpy().dtype).reshape(tuple(x.shape))


def transposed() -> Any:
    x = dc.arange(12.0).reshape(3, 4).t().cumsum(0)  # computed in the order of its operand
    assert not x._cell.current().flags.c_contiguous
    return x


def test_at_the_address_of_a_contiguous_tensor_its_elements_lie_in_order() -> None:
    x = transposed()
    row = x[1]
    want = x.tolist()
    np.testing.assert_array_equal(memory(x), want)
    np.testing.assert_array_equal(memory(row), want[1])
    np.testing.assert_array_equal(memory(x[2:]), want[2:])
    assert row.data_ptr() - x.data_ptr() == 3 * 4
    parameter = dc.nn.Parameter(dc.zeros(4, 3))
    with dc.no_grad():
        parameter.copy_(dc.arange(12.0).reshape(3, 4).t())
    np.testing.assert_array_equal(memory(parameter.detach()), parameter.tolist())


def test_storages_have_one_address_if_they_are_one() -> None:
    a, b = dc.nn.Linear(2, 2), dc.nn.Linear(2, 2)
    b.load_state_dict(a.state_dict())
    pointers = {p.data_ptr() for p in (*a.parameters(), *b.parameters())}
    assert len(pointers) == 4
    assert pointers == {p.untyped_storage().data_ptr() for p in (*a.parameters(), *b.parameters())}
    assert a.weight.data_ptr() == a.weight.detach().data_ptr() == a.weight.data.view(-1).data_ptr()
    b.weight = a.weight
    assert b.weight.data_ptr() == a.weight.data_ptr()
    x = dc.arange(6.0)
    assert x[2:].untyped_storage().data_ptr() == x.data_ptr() == x[2:].data_ptr() - 8
    assert x[2:].untyped_storage().nbytes() == 24
    x.add_(1)
    assert memory(x).tolist() == [1, 2, 3, 4, 5, 6]


def test_tensors_without_memory_have_no_address() -> None:
    for x, nbytes in ((dc.empty(2, device="meta"), 8), (dc.empty(0), 0)):
        assert x.data_ptr() == 0
        assert x.untyped_storage().nbytes() == nbytes
        assert x.untyped_storage().data_ptr() == 0
    with pytest.raises(GraphBreak, match="needs the data"):
        dc.compile(lambda x: (x + 1).data_ptr(), fullgraph=True)(dc.ones(2))


def test_a_file_is_a_storage(tmp_path: Path) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(np.arange(4, dtype=np.float32).tobytes())
    storage = dc.UntypedStorage.from_file(path, shared=False, nbytes=16)
    assert len(storage) == storage.nbytes() == storage.untyped().size() == 16
    assert storage[15] == 0x40
    assert storage[4:8].tolist() == [0, 0, 0x80, 0x3F]
    x = dc.asarray(storage[4:12], dtype=dc.uint8).view(dtype=dc.float32)
    assert x.tolist() == [1.0, 2.0]
    x.fill_(7)
    assert np.frombuffer(path.read_bytes(), np.float32).tolist() == [0, 1, 2, 3]
    assert len(dc.UntypedStorage.from_file(path)) == 0
    written = dc.UntypedStorage.from_file(path, shared=True, nbytes=20)
    written[16] = 9
    assert path.read_bytes()[16:] == b"\x09\0\0\0"
    assert written.filename == str(path)
    path.write_bytes(bytes(16))
    with pytest.raises(DomainError, match="shorter"):
        dc.UntypedStorage.from_file(path, nbytes=17)


def bits(torch: Any) -> list[Any]:
    """What views of other dtypes show, and what is seen after writes through them and past them."""
    x = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    whole, tail = x.view(torch.int32), x[1:].view(dtype=torch.uint8)
    seen = [whole.tolist(), tuple(tail.shape), tail.storage_offset(), tail.stride(), tail.tolist()]
    whole[0, 0] = 5
    tail[0] = 0
    seen.append(x.tolist())
    x.fill_(1.5)
    wide = torch.arange(16, dtype=torch.uint8).view(torch.int16)
    number = torch.tensor(1, dtype=torch.int64).view(torch.float64)
    kept = torch.ones(2, requires_grad=True).view(torch.int32).requires_grad
    return [*seen, tail.tolist(), whole[0].tolist(), wide.tolist(), number.item(), kept, x.view(size=(4, 3)).tolist()]


@pytest.mark.torch
def test_views_of_another_dtype_are_torchs() -> None:
    torch = pytest.importorskip("torch")
    assert bits(dc) == bits(torch)


def test_views_of_another_dtype_compile_and_misfits_are_named() -> None:
    x = dc.arange(8.0)
    compiled = dc.compile(lambda x: x.view(dc.int32) + 1, fullgraph=True)
    assert compiled(x).tolist() == (x.view(dc.int32) + 1).tolist()
    with pytest.raises(ShapeError, match="rows do not hold whole elements"):
        dc.ones(3).view(dc.float64)
    with pytest.raises(DTypeError):
        x.view(dc.float8_e5m2)
