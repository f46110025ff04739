"""PyTorch's own op database against ours: every entry is right, eager and compiled, but those that are declared.

NOT_OURS names the entries that are not, each under its reason. It is held to be exactly the list: an entry that comes
right must leave it. Eager: a few samples of each entry always, all with --long; compiled: a few, with --long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest")  # torch's database needs it

import torch
import torch_samples as db
from not_ours import NOT_IN_EVERY_SAMPLE, NOT_OURS, NOT_OURS_COMPLEX, NOT_OURS_WHOLE

import distcompile as dc

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

ENTRIES = db.entries()
DECLARED = {name: reason for reason, names in NOT_OURS.items() for name in names.split()}
LATER = {name for names in NOT_IN_EVERY_SAMPLE for name in names.split()}
FEW = 12
OURS = sorted(set(ENTRIES) - set(DECLARED))
DECLARED_COMPLEX = {name for names in NOT_OURS_COMPLEX.values() for name in names.split()}
DECLARED_WHOLE = {name for names in NOT_OURS_WHOLE.values() for name in names.split()}
WHOLE = [torch.int64, torch.int32, torch.uint8, torch.bool]
COMPLEX = [name for name in OURS if torch.complex128 in ENTRIES[name].dtypes]


def verdict(
    name: str, count: int | None, wrap: Callable[[Any], Any] = lambda f: f, dtype: torch.dtype | None = None
) -> list[str]:
    """What is wrong with the first `count` samples (of `dtype`) of an entry; nothing: it is right."""
    op = ENTRIES[name]
    ours = db.find(name)
    if ours is None:
        return ["absent"]
    found = []
    for number, sample in enumerate(db.samples(op, count, dtype)):
        try:
            bad = db.run_sample(op, wrap(ours), sample)
        except db.Unsuitable:
            continue
        except Exception as error:  # noqa: BLE001 - any refusal is a verdict on the entry, whatever its class
            bad = f"{type(error).__name__}: {error}"
        if bad:
            found.append(f"sample {number}: {bad}")
    return found


@pytest.mark.parametrize("name", OURS)
def test_an_entry_is_torchs(name: str, in_full: bool) -> None:
    """A few samples; with --long all of them."""
    if not in_full:
        assert verdict(name, FEW) == []
    elif name in LATER:
        found = verdict(name, None)
        assert found != [], "all its samples are right: take it out of the list"
        assert not [bad for bad in found if int(bad.split(":")[0].split()[1]) < FEW], found
    else:
        assert verdict(name, None) == []


def compiled(function: Any) -> Any:
    return dc.compile(lambda *args, **kwargs: function(*args, **kwargs))


@pytest.mark.long
@pytest.mark.parametrize("name", OURS)
def test_a_compiled_entry_is_torchs(name: str) -> None:
    assert verdict(name, 2, compiled) == []


@pytest.mark.long
@pytest.mark.parametrize("name", COMPLEX)
def test_an_entry_is_torchs_on_complex_numbers(name: str) -> None:
    """A few samples, eager and compiled."""
    found = verdict(name, FEW, dtype=torch.complex128) + verdict(name, 1, compiled, torch.complex128)
    if name in DECLARED_COMPLEX:
        assert found != [], "this entry is right: take it out of the list"
    else:
        assert found == []


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in OURS if set(WHOLE) & ENTRIES[name].dtypes])
def test_an_entry_is_torchs_on_whole_numbers(name: str) -> None:
    dtypes = [dtype for dtype in WHOLE if dtype in ENTRIES[name].dtypes]
    found = [bad for dtype in dtypes for bad in verdict(name, 4, dtype=dtype)]
    if name in DECLARED_WHOLE:
        assert found != [], "this entry is right: take it out of the list"
    else:
        assert found == []


@pytest.mark.parametrize("name", sorted(DECLARED))
def test_what_is_declared_not_ours_is_not(name: str) -> None:
    assert name in ENTRIES, "torch's database has no such entry (any more)"
    assert verdict(name, FEW) != [], "this entry is right: take it out of the list"
