"""PyTorch's op database under vmap: each entry over a batch of samples is the entry on each sample, by rule.

In: an entry's samples, each made a batch of three by scaling its floats; batches in all tensors, in the first, in the
others. What one call for each example gives is right; so are gradients through the batch. Where ours raises, torch's
vmap does, but for REFUSED. SAMPLE_BY_SAMPLE names the entries that run once for each example, as all are read; RAISES
those that never come to a result.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest")  # torch's database needs it

import torch
import torch_samples as db
from not_ours import NOT_OURS
from torch.utils import _pytree as trees

import distcompile as dc
from compiler_core.errors import BatchError, RandomCallError
from compiler_core.log import forget_warnings

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

ENTRIES = db.entries()
DECLARED = {name for names in NOT_OURS.values() for name in names.split()}
OURS = sorted(set(ENTRIES) - DECLARED)
SAMPLE_BY_SAMPLE = {"bincount", "histogram"}
REFUSED = {"argwhere"}  # as `nonzero`, whose result it is; torch runs it where examples happen to have as many
RAISES = {"allclose", "equal", "item", "unique", "unique_consecutive", "pca_lowrank"}
FEW = 2


def batches(op: Any, count: int | None) -> Iterator[tuple[list[Any], list[int], Any, dict[str, Any]]]:
    """(leaves, of which those at these places are batches, their structure, keyword arguments)."""
    for sample in db.samples(op, count):
        leaves, spec = trees.tree_flatten((sample.input, *sample.args))
        places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        for chosen in (places, places[:1], places[1:]):
            if chosen and (chosen is places or len(places) > 1):
                yield (
                    [_batch(x.detach()) if k in chosen else x for k, x in enumerate(leaves)],
                    chosen,
                    spec,
                    sample.kwargs,
                )


def _batch(x: Any) -> Any:
    inexact = x.is_floating_point() or x.is_complex()
    return torch.stack([x * factor if inexact else x for factor in (1.0, 0.9, 0.8)])


def mapped(function: Any, leaves: list[Any], chosen: list[int], spec: Any, named: Any, kind: type) -> Any:
    """(function of the chosen tensors for one example, these tensors)."""

    def of_one(*examples: Any) -> tuple[Any, ...]:
        full = list(leaves)
        for place, example in zip(chosen, examples, strict=True):
            full[place] = example
        found = db.flat(function(*trees.tree_unflatten(full, spec), **named))
        return tuple(x for x in found if isinstance(x, kind))

    return of_one, [leaves[k] for k in chosen]


def verdict(name: str, count: int | None) -> tuple[list[str], int, bool]:
    """(what is wrong, how many batches came to a result, whether something ran once for each example)."""
    op, ours = ENTRIES[name], db.find(name)
    wrong, right, by_example = [], 0, False
    for leaves, chosen, spec, named in batches(op, count):
        try:
            mine = [db.convert(x.detach() if isinstance(x, torch.Tensor) else x, {}) for x in leaves]
            of_one, given = mapped(ours, mine, chosen, spec, db.convert(named, {}), dc.Tensor)
            rows = [of_one(*(x[k] for x in given)) for k in range(3)]
            want = [dc.stack(column) for column in zip(*rows, strict=True)]
        except Exception:  # noqa: BLE001 - no sample of ours, or none that is scaled
            continue
        forget_warnings()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                got = dc.func.vmap(of_one)(*given)
            except (BatchError, RandomCallError) as error:
                theirs, batched = mapped(op, leaves, chosen, spec, named, torch.Tensor)
                if name not in REFUSED and not _refuses(theirs, batched):
                    wrong.append(f"{chosen}: {error}")
                continue
        by_example = by_example or any("once for each example" in str(w.message) for w in said)
        bad = [db.difference(x, _torchs(y)) for x, y in zip(got, want, strict=True)]
        wrong += [f"{chosen}: {one}" for one in bad if one]
        right += bool(want)  # `equal` of unlike shapes is False, whatever the batch
    return wrong, right, by_example


def _torchs(x: Any) -> Any:
    narrow = x.dtype is dc.bfloat16
    made = torch.from_numpy((x.float() if narrow else x).detach().numpy().copy())
    return made.bfloat16() if narrow else made


def _refuses(function: Any, batched: Any) -> bool:
    try:
        torch.func.vmap(function)(*batched)
    except Exception:  # noqa: BLE001 - whatever torch raises
        return True
    return False


@pytest.mark.parametrize("name", OURS)
def test_an_entry_over_a_batch_is_the_entry_on_each(name: str, in_full: bool) -> None:
    wrong, right, by_example = verdict(name, None if in_full else FEW)
    assert wrong == []
    if right:
        assert name not in RAISES
        assert by_example == (name in SAMPLE_BY_SAMPLE)
