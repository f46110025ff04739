"""The text of a sparse tensor, laid out as torch lays it out: its parts, then size, nnz, dtype, layout, history.

In: a sparse tensor. Out: `tensor(indices=tensor([[0, 1]]), values=tensor([1., 2.]), size=(2,), nnz=2, ...)`.
"""

from __future__ import annotations

from typing import Any

from compiler_core import dtype as dt
from compiler_core.sparse.rules import rule
from compiler_core.sparse.tensor import SparseTensor
from compiler_core.tensor.printing import format_contents, history, with_suffixes
from compiler_core.tensor.tensor import Tensor

_NAMES = {
    "sparse_coo": ("indices",),
    "sparse_csr": ("crow_indices", "col_indices"),
    "sparse_csc": ("ccol_indices", "row_indices"),
}
_PREFIX = "tensor("


@rule("__repr__", "__str__", "__format__")
def text(self: SparseTensor, spec: Any = "", *, tensor_contents: str | None = None) -> str:
    """As torch prints it. Raises TypeError for a format that is not empty."""
    if spec:
        raise TypeError("unsupported format string passed to Tensor.__format__")
    pattern, indent = self.pattern, len(_PREFIX)
    parts = [*zip(_NAMES[pattern.layout.name], pattern.indices), ("values", self.sparse.values)]
    contents = (",\n" + " " * indent).join(_part(name, part, indent) for name, part in parts)
    place = self.device
    suffixes = [f"device='{place}'"] if place.is_gpu else []
    suffixes += [f"size={tuple(pattern.shape)}", f"nnz={pattern.nnz}"]
    if self.dtype not in (dt.get_default_dtype(), dt.of_number(complex), dt.int64, dt.bool_):
        suffixes.append(f"dtype={self.dtype!r}")
    suffixes += [f"layout={pattern.layout!r}", *history(self)]
    start = _PREFIX + (contents if tensor_contents is None else tensor_contents)
    whole = with_suffixes(start, suffixes, indent, force_newline=pattern.is_coo)
    return f"Parameter containing:\nParameter({whole})" if vars(self).get("_is_param") else whole


def _part(name: str, part: Tensor, indent: int) -> str:
    start = f"{name}=tensor("
    size = f", size={tuple(part.shape)}" if part.numel() == 0 else ""
    return f"{start}{format_contents(part.detach(), indent + len(start))}{size})"
