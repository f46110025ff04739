"""What TensorBoard shows, as its protocol buffers: scalars, histograms, text, images, hyperparameters.

In: tags; numbers, arrays or tensors. Out: `Summary` messages of tensorboard.compat.proto, equal to those that torch
writes (a test compares them); an image's pixels are equal, its PNG bytes need not be. Needs tensorboard.
Source: PNG, second edition (W3C), sections 5 and 9 (one IDAT chunk, filter 0 in every row).
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
from google.protobuf import struct_pb2
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.plugins.hparams import metadata as hparams_metadata
from tensorboard.plugins.hparams.api_pb2 import DataType, Experiment, HParamInfo, MetricInfo, MetricName, Status
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo, SessionStartInfo
from tensorboard.plugins.text.plugin_data_pb2 import TextPluginData

import distcompile as dc
from distcompile.errors import ArgumentError

Array = np.ndarray[Any, Any]
_PNG_COLOURS = {1: 0, 3: 2, 4: 6}  # channels -> PNG's colour type
_GRID_COLUMNS = 8


def array(value: Any) -> Array:
    """A tensor, array or number as an array (bfloat16 as float32). Raises ArgumentError for others."""
    if isinstance(value, dc.Tensor):
        value = value.detach()
        return np.asarray((value.float() if value.dtype == dc.bfloat16 else value)._array("a summary"))
    if isinstance(value, np.ndarray) or np.isscalar(value):
        return np.asarray(value)
    raise ArgumentError("no value that TensorBoard shows", expected="a tensor, an array or a number",
                        got=type(value).__name__)  # fmt: skip


def scalar(tag: str, value: Any, new_style: bool = False, double_precision: bool = False) -> Any:
    """One number. Raises AssertionError if `value` has not one element, as torch."""
    values = array(value).squeeze()
    assert values.ndim == 0, f"a scalar has one element, not shape {values.shape}"
    number = float(values)
    if not new_style:
        return Summary(value=[Summary.Value(tag=tag, simple_value=number)])
    form: dict[str, Any] = {"float_val": [number], "dtype": "DT_FLOAT"}
    if double_precision:
        form = {"double_val": [number], "dtype": "DT_DOUBLE"}
    return Summary(value=[Summary.Value(tag=tag, tensor=TensorProto(**form), metadata=_metadata("scalars"))])


def default_bins() -> list[float]:
    """TensorFlow's: from -1e20 to 1e20, each 1.1 times as far from 0 as the one before."""
    limits = [1e-12]
    while limits[-1] * 1.1 < 1e20:
        limits.append(limits[-1] * 1.1)
    return [-limit for limit in reversed(limits)] + [0.0] + limits


def histogram(tag: str, values: Any, bins: Any, max_bins: int | None = None) -> Any:
    """How many values lie in each bin (`numpy.histogram`'s); empty bins at both ends left out. Raises ValueError."""
    flat = array(values).astype(float).reshape(-1)
    if flat.size == 0:
        raise ArgumentError("a histogram of no values")
    counts, limits = np.histogram(flat, bins=bins)
    if max_bins is not None and len(counts) > max_bins:
        counts, limits = _joined(counts, limits, len(counts) // max_bins)
    (filled,) = counts.nonzero()
    if not filled.size:
        raise ArgumentError("no value lies in the histogram's bins", got=f"{flat.min()} to {flat.max()}")
    first, end = int(filled[0]), int(filled[-1]) + 1
    # TensorBoard knows right limits only: an empty bin before the first shows where that begins
    shown = np.concatenate([[0], counts[first:end]])
    proto = HistogramProto(
        min=flat.min(),
        max=flat.max(),
        num=len(flat),
        sum=flat.sum(),
        sum_squares=flat.dot(flat),
        bucket_limit=limits[first : end + 1].tolist(),
        bucket=shown.tolist(),
    )
    return Summary(value=[Summary.Value(tag=tag, histo=proto)])


def _joined(counts: Array, limits: Array, each: int) -> tuple[Array, Array]:
    """Every `each` neighbouring bins as one; the last has what is left."""
    starts = np.arange(0, len(counts), each)
    return np.add.reduceat(counts, starts), np.append(limits[starts], limits[-1])


def text(tag: str, words: str) -> Any:
    """Markdown."""
    tensor = TensorProto(
        dtype="DT_STRING",
        string_val=[words.encode()],
        tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)]),
    )
    metadata = _metadata("text", TextPluginData(version=0).SerializeToString())
    return Summary(value=[Summary.Value(tag=f"{tag}/text_summary", metadata=metadata, tensor=tensor)])


def image(tag: str, values: Any, dataformats: str) -> Any:
    """uint8 pixels, or numbers of 0 to 1. dataformats: which dim is which: "CHW", "HW", "NCHW" (a grid of images)..."""
    given = array(values)
    scale = 1 if given.dtype == np.uint8 else 255
    pixels = (_rows(given, dataformats.upper()).astype(np.float32) * scale).clip(0, 255).astype(np.uint8)
    height, width, channels = pixels.shape
    shown = Summary.Image(height=height, width=width, colorspace=channels, encoded_image_string=png(pixels))
    return Summary(value=[Summary.Value(tag=tag, image=shown)])


def _rows(given: Array, form: str) -> Array:
    """The image as (H, W, channels); one channel becomes three."""
    if sorted(form) not in (sorted("HW"), sorted("CHW"), sorted("NCHW")) or len(form) != given.ndim:
        raise ArgumentError(f"an image of dims {form!r}", expected=f"{given.ndim} of N, C, H, W, each once",
                            got=f"shape {given.shape}")  # fmt: skip
    if len(form) == 2:
        return np.stack([given.transpose([form.find(dim) for dim in "HW"])] * 3, 2)
    if len(form) == 4:
        return _grid(given.transpose([form.find(dim) for dim in "NCHW"])).transpose(1, 2, 0)
    rows = given.transpose([form.find(dim) for dim in "HWC"])
    return np.concatenate([rows] * 3, 2) if rows.shape[2] == 1 else rows


def _grid(images: Array) -> Array:
    """(N, C, H, W) -> (3, rows * H, columns * W), at most eight columns."""
    images = np.concatenate([images] * 3, 1) if images.shape[1] == 1 else images
    number, channels, height, width = images.shape
    columns = max(1, min(number, _GRID_COLUMNS))
    rows = -(-number // columns)
    padded = np.zeros((rows * columns, channels, height, width), images.dtype)
    padded[:number] = images
    tiles = padded.reshape(rows, columns, channels, height, width).transpose(2, 0, 3, 1, 4)
    return tiles.reshape(channels, rows * height, columns * width)


def png(pixels: Array) -> bytes:
    """uint8[H, W, C], C of 1, 3 or 4, as a PNG file."""
    height, width, channels = pixels.shape
    if channels not in _PNG_COLOURS:
        raise ArgumentError(f"an image of {channels} channels", expected="1, 3 or 4")
    lines = np.zeros((height, 1 + width * channels), np.uint8)
    lines[:, 1:] = pixels.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, _PNG_COLOURS[channels], 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(lines.tobytes())), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def hparams(parameters: dict[str, Any], metrics: dict[str, Any], domains: dict[str, list[Any]]) -> list[Any]:
    """Three messages: the experiment (names), the session's start (values), its end. Raises ArgumentError."""
    start, infos = SessionStartInfo(), []
    for name, value in parameters.items():
        if value is None:
            continue
        is_text = isinstance(value, str)
        if not isinstance(value, (int, float, str, dc.Tensor)):
            raise ArgumentError(f"hyperparameter {name!r}", expected="a number, a text or a tensor",
                                got=type(value).__name__)  # fmt: skip
        field = "string_value" if is_text else "number_value"
        setattr(start.hparams[name], field, value if is_text else float(array(value).reshape(-1)[0]))
        kind = DataType.Value("DATA_TYPE_STRING" if is_text else "DATA_TYPE_FLOAT64")
        domain = domains.get(name)
        values = [struct_pb2.Value(**{field: each}) for each in domain or []]
        listed = None if domain is None else struct_pb2.ListValue(values=values)
        infos.append(HParamInfo(name=name, type=kind, domain_discrete=listed))
    experiment = Experiment(hparam_infos=infos, metric_infos=[MetricInfo(name=MetricName(tag=tag)) for tag in metrics])
    end = SessionEndInfo(status=Status.Value("STATUS_SUCCESS"))
    return [
        _of_session(hparams_metadata.EXPERIMENT_TAG, experiment=experiment),
        _of_session(hparams_metadata.SESSION_START_INFO_TAG, session_start_info=start),
        _of_session(hparams_metadata.SESSION_END_INFO_TAG, session_end_info=end),
    ]


def _of_session(tag: str, **part: Any) -> Any:
    content = HParamsPluginData(version=hparams_metadata.PLUGIN_DATA_VERSION, **part).SerializeToString()
    return Summary(value=[Summary.Value(tag=tag, metadata=_metadata(hparams_metadata.PLUGIN_NAME, content))])


def _metadata(plugin: str, content: bytes = b"") -> Any:
    return SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name=plugin, content=content))
