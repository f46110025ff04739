"""torch's old tensor types: what they make, what is an instance of them, and the names of types."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import distcompile as dc

torch = pytest.importorskip("torch")

CASES: dict[str, Callable[[Any], Any]] = {
    "sizes": lambda t: t.LongTensor(2, 3).shape,
    "a Size": lambda t: t.FloatTensor(t.ones(2, 3).shape).shape,
    "nothing": lambda t: t.FloatTensor(),
    "list": lambda t: t.FloatTensor([1, 2]),
    "tuple": lambda t: t.LongTensor((2, 3)),
    "range": lambda t: t.IntTensor(range(3)),
    "floats as integers": lambda t: t.LongTensor([1.5, -1.5]),
    "array": lambda t: t.LongTensor(np.arange(3)),
    "array of floats": lambda t: t.LongTensor(np.ones(3)),
    "same type": lambda t: t.LongTensor(t.tensor([1, 2])),
    "bools": lambda t: t.BoolTensor([1, 0, 2]),
    "bytes": lambda t: t.ByteTensor([-1, 3]),
    "too large": lambda t: t.CharTensor([300]),
    "tensor too large": lambda t: t.tensor([300], dtype=t.int8),
    "other type": lambda t: t.LongTensor(t.zeros(2)),
    "a float": lambda t: t.FloatTensor(2.5),
    "Tensor of sizes": lambda t: t.Tensor(2, 3).shape,
    "Tensor of data": lambda t: t.Tensor([1, 2]),
    "Tensor of a tensor": lambda t: t.Tensor(t.tensor([1, 2])),
    "Tensor of an array": lambda t: t.Tensor(np.arange(3)),
    "Tensor of a float": lambda t: t.Tensor(2.5),
    "type": lambda t: [t.zeros(1, dtype=getattr(t, d)).type() for d in DTYPES],
    "to a type by name": lambda t: t.tensor([1.5]).type("torch.LongTensor"),
    "to a type": lambda t: t.tensor([1.5]).type(t.IntTensor),
    "to a dtype": lambda t: t.tensor([1.5]).type(t.float64),
    "to no type": lambda t: t.tensor([1.5]).type("torch.FooTensor"),
    "to a type of the GPU": lambda t: t.tensor([1.5]).type("torch.cuda.FloatTensor"),
    "instances": lambda t: [
        isinstance(x, getattr(t, name))
        for name in ("FloatTensor", "LongTensor", "BoolTensor", "DoubleTensor")
        for x in (t.ones(1), t.tensor(1), t.tensor(True), t.nn.Parameter(t.ones(1)), 3)
    ],
    "default type": lambda t: (t.set_default_tensor_type("torch.DoubleTensor"), t.ones(1), t.Tensor([1]))[1:],
    "default type as a class": lambda t: (t.set_default_tensor_type(t.HalfTensor), t.tensor(1.0).dtype)[1],
    "default of integers": lambda t: t.set_default_tensor_type("torch.LongTensor"),
    "default as dtype": lambda t: t.set_default_tensor_type(t.float32),
    "default dtype": lambda t: t.set_default_dtype(t.int64),
    "typename": lambda t: t.typename(t.ones(1)),
}
DTYPES = [
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
    "complex64",
    "complex128",
]


@pytest.fixture(autouse=True)
def default_again() -> Iterator[None]:
    yield
    dc.set_default_dtype(dc.float32)
    torch.set_default_dtype(torch.float32)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_as_in_torch(name: str) -> None:
    try:
        expected = CASES[name](torch)
    except (TypeError, ValueError, RuntimeError) as error:
        with pytest.raises(type(error)):
            CASES[name](dc)
    else:
        assert plain(CASES[name](dc)) == plain(expected)


def plain(result: Any) -> Any:
    if isinstance(result, (dc.Tensor, torch.Tensor)):
        return str(result.dtype).split(".")[-1], tuple(result.shape), result.tolist()
    if isinstance(result, (list, tuple)):
        return [plain(r) for r in result]
    return str(result).split(".")[-1] if "dtype" in type(result).__name__.lower() else result


def test_annotations_and_pickles_of_types() -> None:
    def model(ids: dc.LongTensor, mask: dc.BoolTensor | None = None) -> dc.FloatTensor:
        return dc.ones(1)

    assert model(dc.LongTensor([1])).dtype is dc.float32
    assert dc.LongTensor.dtype is dc.int64
    assert dc.LongTensor.__name__ == "LongTensor"
