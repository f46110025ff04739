"""PyTorch's op database on a stand-in device that is not the current one: results and gradients are there, and torch's.

Samples that name a device themselves, and entries without a tensor among their operands, are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest")  # torch's database needs it

import torch
import torch_samples as db
from not_ours import NOT_OURS, NOT_OURS_COMPLEX, NOT_OURS_WHOLE

import distcompile as dc
from tests.fake_cupy import on_fake_device

pytestmark = [pytest.mark.torch, pytest.mark.long, pytest.mark.filterwarnings("ignore")]
PLACE = "cuda:1"
DTYPES = [torch.float32, torch.int64, torch.bool, torch.complex128]
ENTRIES = db.entries()
LEFT_OUT = {
    name for table in (NOT_OURS, NOT_OURS_COMPLEX, NOT_OURS_WHOLE) for names in table.values() for name in names.split()
}
LEFT_OUT |= {"linspace/tensor_overload", "logspace/tensor_overload"}  # of numbers, in torch too


class There:
    """distcompile, whose new tensors are on the device."""

    def __getattr__(self, name: str) -> Any:
        return getattr(dc, name)

    def tensor(self, data: Any) -> Any:
        return dc.tensor(data, device=PLACE)

    def zeros(self, *size: Any, **options: Any) -> Any:
        return dc.zeros(*size, **{"device": PLACE, **options})


@pytest.fixture(scope="module", autouse=True)
def device() -> Iterator[None]:
    of_the_cpu = db.difference

    def difference(got: Any, want: Any) -> str | None:
        if isinstance(got, dc.Tensor):
            if str(got.device) != PLACE:
                return f"on {got.device}"
            got = got.detach().cpu()
        return of_the_cpu(got, want)

    with on_fake_device(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(db, "dc", There())
        patch.setattr(db, "difference", difference)
        yield


def is_suitable(sample: Any) -> bool:
    """Whether a tensor, and nothing else, says where the result is."""
    given = [sample.input, *sample.args]
    tensors = [x for x in db.flat(given) if isinstance(x, torch.Tensor)]
    return bool(tensors) and "device" not in sample.kwargs


@pytest.mark.parametrize("name", sorted(set(ENTRIES) - LEFT_OUT))
def test_results_are_where_the_operands_are(name: str) -> None:
    op, ours, found = ENTRIES[name], db.find(name), []
    assert ours is not None
    for dtype in (dtype for dtype in DTYPES if dtype in op.dtypes):
        for number, sample in enumerate(filter(is_suitable, db.samples(op, 3, dtype))):
            try:
                bad = db.run_sample(op, ours, sample)
            except db.Unsuitable:
                continue
            if bad:
                found.append(f"{dtype} {number}: {bad}")
    assert found == []
