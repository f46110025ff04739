"""ONNXProgram: an ONNX model, and the exported program that it was made of.

In: what `export` puts together. Out: the model as protobuf (`model_proto`), as files (`save`), and run by ONNX Runtime
(a call). Its inputs are the tensors among the arguments, in order; its outputs those of the result.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from compiler_core.engines.engine import require_package
from compiler_core.engines.onnx.onnxrt import session
from compiler_core.tensor.tensor import Tensor
from compiler_core.trees import flatten
from distcompile.errors import ArgumentError
from distcompile.export.exported_program import ExportedProgram

INLINE_NBYTES = 1024  # weights that are smaller stand in the model, even with external data
AT_ONCE_NBYTES = 1 << 30  # of larger models the weights go into a file of their own where nothing is said


class ONNXProgram:
    """See the head of this file. model_proto: an `onnx.ModelProto`."""

    def __init__(self, model_proto: Any, exported_program: ExportedProgram) -> None:
        self.model_proto, self.exported_program = model_proto, exported_program
        self._session: Any = None

    @property
    def model(self) -> Any:
        """The model as an `onnx_ir.Model`, as torch has it. Raises MissingPackageError without that package."""
        return require_package("onnx_ir", "onnxrt").from_proto(self.model_proto)

    def __repr__(self) -> str:
        graph = self.model_proto.graph
        inputs, outputs = (", ".join(value.name for value in values) for values in (graph.input, graph.output))
        return f"ONNXProgram({graph.name}: {len(graph.node)} nodes; {inputs} -> {outputs})"

    def save(
        self,
        destination: str | os.PathLike[str] | BinaryIO,
        *,
        include_initializers: bool = True,
        keep_initializers_as_inputs: bool = False,
        external_data: bool | None = None,
    ) -> None:
        """Write the model to a file; to an open one in one piece.

        include_initializers: with weights. keep_initializers_as_inputs: weights can be overridden by inputs of their
        names. external_data: weights stand in `<destination>.data`; None: if they are over 1 GB. Raises BackendError
        for weights of 2 GB without external data.
        """
        import onnx

        from compiler_core.engines.onnx.model import nbytes, serialized

        model = self._copy(include_initializers, keep_initializers_as_inputs)
        if not isinstance(destination, str | os.PathLike):
            destination.write(serialized(model))
            return
        path = Path(destination)
        if external_data is None:
            external_data = nbytes(model) > AT_ONCE_NBYTES
        if not external_data:
            path.write_bytes(serialized(model))
            return
        beside = path.with_name(path.name + ".data")
        beside.unlink(missing_ok=True)  # onnx appends to what is there
        onnx.save_model(
            model, str(path), save_as_external_data=True, location=beside.name, size_threshold=INLINE_NBYTES
        )

    def _copy(self, include_initializers: bool, as_inputs: bool) -> Any:
        import onnx

        model = onnx.ModelProto()
        model.CopyFrom(self.model_proto)
        if as_inputs or not include_initializers:
            shown = [onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in model.graph.initializer]
            model.graph.input.extend(shown)
        if not include_initializers:
            del model.graph.initializer[:]
        return model

    def initialize_inference_session(self) -> None:
        """Make the session of ONNX Runtime that calls use; the first call does."""
        self._session = session(self.model_proto)

    def release(self) -> None:
        """Drop the session."""
        self._session = None

    def __call__(self, *args: Any, **kwargs: Any) -> Sequence[Tensor]:
        """The outputs, by ONNX Runtime. args, kwargs: as the module takes them.

        Raises ArgumentError for another number of tensors.
        """
        if self._session is None:
            self.initialize_inference_session()
        given = [leaf for leaf in flatten((args, kwargs))[0] if isinstance(leaf, Tensor)]
        names = [value.name for value in self.model_proto.graph.input]
        if len(given) != len(names):
            raise ArgumentError(f"the model takes {len(names)} tensors", expected=", ".join(names), got=str(len(given)))
        feed = {name: np.ascontiguousarray(x.detach().cpu().numpy()).reshape(x.shape) for name, x in zip(names, given)}
        return [Tensor._wrap(np.asarray(value)) for value in self._session.run(None, feed)]
