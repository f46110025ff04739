"""Tensors as HTML: what they are, and their numbers, of any dtype and layout."""

from __future__ import annotations

import re

import pytest

import distcompile as dc


def cells(tensor: dc.Tensor) -> list[str]:
    return re.findall(r"<td[^>]*>([^<]*)</td>", tensor._repr_html_())


def test_a_matrix_is_a_table() -> None:
    tensor = dc.tensor([[1.0, 2.5], [-3.0, float("nan")]], requires_grad=True)
    assert cells(tensor) == ["1", "2.5", "-3", "nan"]
    assert "float32 · 2 × 2 · cpu · requires_grad" in tensor._repr_html_()


@pytest.mark.parametrize("dtype", [dc.int64, dc.bool, dc.bfloat16, dc.float16, dc.float64, dc.complex64, dc.uint8])
def test_every_kind_of_number_is_shown(dtype: dc.dtype) -> None:
    found = cells(dc.tensor([0, 1]).to(dtype))
    assert len(found) == 2
    assert found[0] != found[1]


def test_edges_of_a_long_one_are_shown() -> None:
    found = cells(dc.arange(1000))
    assert found == [*map(str, range(6)), "…", *map(str, range(994, 1000))]
    assert len(cells(dc.zeros(100, 100))) == 13 * 13


@pytest.mark.parametrize(
    "tensor",
    [dc.tensor(3.0), dc.zeros(2, 3, 4), dc.zeros(0), dc.ones(2, 2, device="meta"), dc.eye(3).to_sparse()],
    ids=["scalar", "three_dims", "empty", "meta", "sparse"],
)
def test_what_is_no_table_is_its_text(tensor: dc.Tensor) -> None:
    page = tensor._repr_html_()
    assert cells(tensor) == []
    assert "<pre>" in page or tensor.numel() == 0
    assert tensor.dtype.name in page


def test_a_subclass_with_a_text_of_its_own_is_shown_by_it() -> None:
    class Named(dc.Tensor):
        def __repr__(self, *, tensor_contents: object = None) -> str:
            return "<named>"

    assert "<pre>&lt;named&gt;</pre>" in dc.ones(2).as_subclass(Named)._repr_html_()


def test_a_parameter_says_so() -> None:
    assert "requires_grad" in dc.nn.Parameter(dc.ones(2))._repr_html_()
