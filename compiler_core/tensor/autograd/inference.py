"""Inference tensors: those made inside `inference_mode()`, which have no version and take part in no gradient.

In: cells of what is made there. Out: the refusals of torch: outside of that mode an inference tensor is not written to,
asked for its version or told to require a gradient, and what is recorded for backward does not save it.
A tensor is one if its storage was made in the mode, as views of it then are whenever they are taken; the storage's
version is no number then, and stays none however often one is added to it. Until there is one, nobody looks for any.
Limit: what compiled code makes inside a mode that it enters itself is an ordinary tensor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compiler_core.errors import AutogradError, GraphBreak
from compiler_core.location import user_location
from compiler_core.ops.registry import current_trace
from compiler_core.tensor.autograd.grad_mode import Inference, thread_mode
from compiler_core.tensor.autograd.tape import GradNode, OpNode
from compiler_core.tensor.autograd.watching import watch
from compiler_core.tensor.memory.cell import Cell, DataCell

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor

NO_VERSION: Any = float("nan")


def made(cell: Cell) -> Cell:
    """`cell`, which was made just now, as that of an inference tensor if the thread is in inference mode."""
    if Inference.entered and thread_mode.inference and current_trace() is None:
        if not Inference.in_use:
            Inference.in_use = True
            watch.enter(check_saved)  # for good: nobody knows when the last of them is gone
        cell.root.version = NO_VERSION  # the root of one that lies in another order is as fresh (`layout.py`)
    return cell


def has_no_version(cell: Cell) -> bool:
    """Whether it is an inference tensor's."""
    version = cell.root.version
    return version != version


def is_inference(input: Tensor) -> bool:
    """Whether it is an inference tensor."""
    if current_trace() is not None and input._cell.is_external:
        raise GraphBreak("is_inference() of a tensor from outside is asked for", where=user_location())
    return Inference.in_use and has_no_version(input._cell)


def version_of(input: Tensor) -> int:
    """How often it was written to. Raises AutogradError for an inference tensor."""
    if Inference.in_use and has_no_version(input._cell):
        raise AutogradError("Inference tensors do not track version counter.")
    return input._cell.version


def check_written(cell: Cell) -> None:
    """Raises AutogradError for an inference tensor that is written to outside of the mode; not through `.data`."""
    if has_no_version(cell) and not thread_mode.inference and not isinstance(cell, DataCell):
        raise AutogradError(
            "Inplace update to inference tensor outside InferenceMode is not allowed.",
            remedy="clone() it to get a normal tensor, or write to it inside inference_mode()",
        )


def check_required(input: Tensor) -> None:
    """Raises AutogradError for an inference tensor that is to require a gradient outside of the mode."""
    if has_no_version(input._cell) and not thread_mode.inference:
        raise AutogradError(
            "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.",
            remedy="clone() it to get a normal tensor",
        )


def saved_error() -> AutogradError:
    """What is raised where an inference tensor would be saved for backward."""
    return AutogradError(
        "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in "
        "computation tracked by autograd.",
        remedy="clone() it to get a normal tensor, or use no_grad() instead of inference_mode()",
    )


def is_watched() -> bool:
    """Whether anybody but `check_saved`, which stays for good, is told of the tape's nodes: hooks on what is saved."""
    return watch.active and any(tell is not check_saved for tell in watch.told)


def check_saved(node: GradNode) -> None:
    """Raises AutogradError if the backward of a node that was just recorded reads an inference tensor."""
    if not isinstance(node, OpNode) or (total := sum(node.versions)) == total:
        return
    from compiler_core.tensor.nodes.reads import read_by_rule

    read = read_by_rule(node)
    if any(k in read and isinstance(saved, Cell) and has_no_version(saved) for k, saved in enumerate(node.saved)):
        raise saved_error()
