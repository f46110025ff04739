"""Places that are computed of truth values: what a vector loop reads there is what eager code reads."""

from typing import Any

import numpy as np
import pytest

import distcompile as dc

PLACES = {
    "a mask": lambda x: (x > 4).long(),
    "a mask, scaled": lambda x: (x > 4).long() * 2,
    "a mask, moved": lambda x: (x > 4).long() + 1,
    "of 32 bits": lambda x: (x > 4).int(),
    "of 8 bits": lambda x: (x > 4).to(dc.uint8).long() * 3,
    "two masks": lambda x: (x > 4).long() + (x > 6).long(),
    "both masks": lambda x: ((x > 4) & (x < 6)).long(),
    "a choice": lambda x: dc.where(x > 4, 1, 0),
    "another choice": lambda x: dc.where(x > 4, 3, 2),
    "of NaN": lambda x: x.isnan().long(),
}


@pytest.mark.parametrize("size", [4, 5, 16, 1000])
@pytest.mark.parametrize("table", [dc.float32, dc.float64, dc.float16, dc.int32])
@pytest.mark.parametrize("place", PLACES)
def test_a_place_made_of_a_mask_is_read_as_eager_reads_it(place: str, table: Any, size: int) -> None:
    weights = (dc.arange(20.0) * 1.5).to(table)
    for dtype in (dc.float32, dc.float64):
        x = dc.tensor(np.random.default_rng(size).uniform(0, 9, size), dtype=dtype)
        eager = weights[PLACES[place](x)]
        assert dc.compile(lambda w, x: w[PLACES[place](x)])(weights, x).tolist() == eager.tolist()


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 9])
def test_compiled_buckets_are_numpys(count: int, right: bool) -> None:
    edges = np.arange(count, dtype=np.float32)
    for size in (4, 7, 33):
        x = np.random.default_rng(size).integers(0, count + 1, size).astype(np.float32)
        made = dc.compile(lambda x, b: dc.bucketize(x, b, right=right))(dc.tensor(x), dc.tensor(edges))
        assert made.tolist() == np.searchsorted(edges, x, "right" if right else "left").tolist()
