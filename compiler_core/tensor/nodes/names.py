"""What torch calls the node of each primitive and composite: `AddBackward0`. Others are called after their operation.

In: a tape node. Out: the name of the class that stands for it. Where torch has one function and the tape records
several primitives (`mean` is a sum and a quotient), the names are those of the primitives.
"""

from __future__ import annotations

from typing import Any

_SAME = """
cast:ToCopy expand:Expand permute:Permute reshape:View slice:Slice take:IndexSelect where:Where diagonal:Diagonal
complex:Complex det:LinalgDet slogdet:LinalgSlogdet solve:LinalgSolveEx cholesky:LinalgCholeskyEx svd:LinalgSvd
svdvals:LinalgSvd eigh:LinalgEigh eig:LinalgEig qr:LinalgQr pinv:Pinverse matrix_exp:LinalgMatrixExp lu:LinalgLuFactorEx
solve_triangular:LinalgSolveTriangular convolution:Convolution convolution_inner:Convolution
convolution_last:Convolution lowered_convolution:Convolution attention:ScaledDotProductFlashAttentionForCpu linear:Addmm
lowered_linear:Addmm affine:Addmm lowered_affine:Addmm
widened_sum:Add widened_product:Mul layer_norm:NativeLayerNorm
group_norm:NativeGroupNorm batch_norm:NativeBatchNorm cross_entropy:NllLoss nll_loss:NllLoss strided:AsStrided
pad:ConstantPadNd
"""
_NAMES = dict(entry.split(":") for entry in _SAME.split())
_BY_DIMS = {"sum": "Sum", "prod": "Prod", "average": "Mean"}  # of all elements: 0, of some dims: 1


def name_of(node: Any) -> str:
    """`AddBackward0`."""
    op = getattr(node, "op", None)
    if op is None:  # a call, or one of its outputs
        return str(node.name())
    number = 0
    name = op.name
    if name in _BY_DIMS:
        name, number = _BY_DIMS[name], 0 if len(_shape(node.out)) == 0 else 1
    elif name == "matmul":
        name = "Bmm" if len(_shape(node.out)) > 2 else "Mm"
    elif name == "reshape" and _shape(node.out) == _shape(node.saved[0]):
        name = "Alias"
    elif name == "pow":
        name, number = "Pow", 1 if node.edges[-1] is not None else 0
    return f"{_NAMES.get(name) or name.title().replace('_', '')}Backward{number}"


def _shape(saved: Any) -> Any:
    """Of what a node keeps: a cell, an array, or what stands for one that is gone."""
    return getattr(saved, "raw", saved).shape
