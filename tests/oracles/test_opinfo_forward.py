"""Forward mode against PyTorch's op database: the tangents of every entry that torch has a forward derivative of.

Each floating tensor of a sample gets a tangent, so that all of an entry's rules take part. NOT_OURS_FORWARD: entries
whose tangents are not torch's, each under its reason. Forward over reverse and reverse over forward: a few samples.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest")  # torch's database needs it

import torch
import torch.autograd.forward_ad as theirs
import torch_samples as db
from not_ours import NOT_OURS, NOT_OURS_COMPLEX, NOT_OURS_FORWARD

import distcompile as dc
import distcompile.autograd.forward_ad as ours

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

ENTRIES = db.entries()
DECLARED = {name for names in NOT_OURS.values() for name in names.split()}
DECLARED_COMPLEX = {name for names in NOT_OURS_COMPLEX.values() for name in names.split()}
NAMES = sorted(name for name, op in ENTRIES.items() if name not in DECLARED and op.supports_forward_ad)
FEW = 4
BY_CLASS = ("nn.functional.nll_loss", "nn.functional.cross_entropy", "nn.functional.linear_cross_entropy")
SYMMETRIC = ("linalg.cholesky", "linalg.cholesky_ex", "linalg.eigh", "linalg.eigvalsh", "cholesky")


def duals(
    name: str, tree: Any, made: dict[int, tuple[Any, Any]], rng: np.random.Generator, side: int, drawn: dict[int, Any]
) -> Any:
    """`tree` with each differentiable tensor as a dual; equal tensors of the two sides get equal tangents."""
    library, mode = ((torch, theirs), (dc, ours))[side]
    if isinstance(tree, library.Tensor):
        key = next((number for number, pair in made.items() if pair[side] is tree), id(tree))
        if not (tree.is_floating_point() or tree.is_complex()):
            return tree
        if key not in drawn:
            drawn[key] = rng.standard_normal(tuple(tree.shape)) * (1 + 1j if tree.is_complex() else 1)
            if name in SYMMETRIC:
                drawn[key] = drawn[key] + np.swapaxes(drawn[key], -1, -2).conj()
        return mode.make_dual(tree.detach(), library.tensor(drawn[key], dtype=tree.dtype))
    if isinstance(tree, list | tuple):
        parts = [duals(name, part, made, rng, side, drawn) for part in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    if isinstance(tree, dict):
        kept = "weight" if name in BY_CLASS else ""
        return {
            key: value if key == kept else duals(name, value, made, rng, side, drawn) for key, value in tree.items()
        }
    return tree


def tangents(mode: Any, result: Any) -> list[Any]:
    found = [mode.unpack_dual(part).tangent for part in db.flat(result)]
    return [None if one is None else one.resolve_conj() for one in found]


def difference(op: Any, function: Any, sample: Any) -> str | None:
    made: dict[int, tuple[Any, Any]] = {}
    given, words = db.convert([sample.input, *sample.args], made), db.convert(sample.kwargs, made)
    rng, drawn, determined = np.random.default_rng(0), {}, sample.output_process_fn_grad
    with theirs.dual_level():
        first, *rest = duals(op.name, [sample.input, *sample.args], made, rng, 0, drawn)
        try:
            want = tangents(theirs, determined(op(first, *rest, **duals(op.name, sample.kwargs, made, rng, 0, drawn))))
        except RuntimeError as error:  # torch has no forward derivative of this
            raise db.Unsuitable(str(error)) from error
    with ours.dual_level():
        args = duals(op.name, given, made, rng, 1, drawn)
        got = tangents(ours, determined(function(*args, **duals(op.name, words, made, rng, 1, drawn))))
    for number, (g, w) in enumerate(zip(got, want, strict=True)):
        if (g is None) != (w is None) and (w if g is None else g).any():  # none is one of zeros
            return f"result {number} has {'no' if g is None else 'a'} tangent"
        if g is not None and w is not None and (bad := db.difference(g, w)):
            return bad
    return None


def verdict(name: str, count: int | None, dtype: torch.dtype | None = None) -> list[str]:
    op, function = ENTRIES[name], db.find(name)
    found = []
    for number, sample in enumerate(db.samples(op, count, dtype)):
        try:
            bad = difference(op, function, sample)
        except db.Unsuitable:
            continue
        except Exception as error:  # noqa: BLE001
            bad = f"{type(error).__name__}: {error}"
        if bad:
            found.append(f"sample {number}: {bad}")
    return found


@pytest.mark.parametrize("name", [name for name in NAMES if name not in NOT_OURS_FORWARD])
def test_tangents_are_torchs(name: str, in_full: bool) -> None:
    assert verdict(name, None if in_full else FEW) == []


@pytest.mark.parametrize("name", sorted(NOT_OURS_FORWARD))
def test_declared_entries_are_not_right(name: str) -> None:
    assert verdict(name, FEW) != [], "it is right: take it out of the list"


COMPLEX = [name for name in NAMES if torch.complex128 in ENTRIES[name].dtypes and name not in NOT_OURS_FORWARD]


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in COMPLEX if name not in DECLARED_COMPLEX])
def test_tangents_of_complex_numbers_are_torchs(name: str) -> None:
    assert verdict(name, FEW, torch.complex128) == []
