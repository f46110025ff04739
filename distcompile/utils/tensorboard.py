"""torch.utils.tensorboard: SummaryWriter, which leaves event files that TensorBoard shows.

In: tags, steps; numbers, arrays or tensors. Out: event files of tensorboard's own writer, with the messages that torch
writes. Without tensorboard the import fails as torch's does (ModuleNotFoundError). Graphs, figures, embeddings, meshes,
videos, sound and precision-recall curves: NotSupportedError.
"""

from __future__ import annotations

import os
import socket
import time
from datetime import datetime
from typing import Any, NoReturn

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from distcompile.errors import NotSupportedError
from distcompile.utils import _summaries as summaries

__all__ = ["FileWriter", "SummaryWriter"]


class FileWriter:
    """One event file: `add_summary` and `add_event` put messages in it."""

    def __init__(self, log_dir: Any, max_queue: int = 10, flush_secs: int = 120, filename_suffix: str = "") -> None:
        self.event_writer = EventFileWriter(str(log_dir), max_queue, flush_secs, filename_suffix)

    def get_logdir(self) -> str:
        """Its folder."""
        return str(self.event_writer.get_logdir())

    def add_event(self, event: Any, step: Any = None, walltime: float | None = None) -> None:
        """An Event, at a step, at a time (seconds since 1970; now if not given)."""
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self.event_writer.add_event(event)

    def add_summary(self, summary: Any, global_step: Any = None, walltime: float | None = None) -> None:
        """A Summary, as an Event."""
        self.add_event(Event(summary=summary), global_step, walltime)

    def flush(self) -> None:
        """Wait until all is in the file."""
        self.event_writer.flush()

    def close(self) -> None:
        """Flush and close."""
        self.event_writer.close()

    def reopen(self) -> None:
        """After `close`: go on, in a new file."""
        self.event_writer.reopen()


def _refused(name: str) -> Any:
    """A method that torch's writer has and this one has not."""

    def refuse(self: SummaryWriter, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotSupportedError(
            f"utils.tensorboard.SummaryWriter.{name} is not offered",
            remedy="add_scalar, add_scalars, add_histogram, add_text, add_image, add_images, add_hparams are",
        )

    refuse.__name__, refuse.__doc__ = name, "Raises NotSupportedError."
    return refuse


class SummaryWriter:
    """Event files in `log_dir` (runs/TIME_HOST + comment if not given). Closed, it opens a new file at the next call.

    purge_step: TensorBoard hides what earlier files have from this step on. max_queue: messages that may wait;
    flush_secs: seconds. A context manager: its end closes.
    """

    def __init__(
        self,
        log_dir: Any = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: int = 120,
        filename_suffix: str = "",
    ) -> None:
        now = datetime.now().strftime("%b%d_%H-%M-%S")
        self.log_dir = log_dir or os.path.join("runs", f"{now}_{socket.gethostname()}{comment}")
        self.purge_step, self.max_queue = purge_step, max_queue
        self.flush_secs, self.filename_suffix = flush_secs, filename_suffix
        self.file_writer: FileWriter | None = None
        self.all_writers: dict[str, FileWriter] | None = None
        self.default_bins = summaries.default_bins()
        self._get_file_writer()

    def _get_file_writer(self) -> FileWriter:
        if self.file_writer is None or self.all_writers is None:
            self.all_writers = {}
            self.file_writer = self._writer_at(str(self.log_dir))
            if self.purge_step is not None:
                step, self.purge_step = self.purge_step, None
                self.file_writer.add_event(Event(step=step, file_version="brain.Event:2"))
                self.file_writer.add_event(Event(step=step, session_log=SessionLog(status=SessionLog.START)))
        return self.file_writer

    def _writer_at(self, folder: str) -> FileWriter:
        """The writer into a folder, made if there is none yet."""
        assert self.all_writers is not None
        if folder not in self.all_writers:
            self.all_writers[folder] = FileWriter(folder, self.max_queue, self.flush_secs, self.filename_suffix)
        return self.all_writers[folder]

    def get_logdir(self) -> Any:
        """The folder of the event files."""
        return self.log_dir

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: Any = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """One number (a tensor of one element). new_style: as a tensor. Raises AssertionError for several elements."""
        summary = summaries.scalar(tag, scalar_value, new_style, double_precision)
        self._get_file_writer().add_summary(summary, global_step, walltime)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: dict[str, Any], global_step: Any = None, walltime: float | None = None
    ) -> None:
        """Numbers for one chart: each curve has a folder of its own below `log_dir`."""
        walltime = time.time() if walltime is None else walltime
        folder = self._get_file_writer().get_logdir()
        for tag, value in tag_scalar_dict.items():
            writer = self._writer_at(f"{folder}/{main_tag.replace('/', '_')}_{tag}")
            writer.add_summary(summaries.scalar(main_tag, value), global_step, walltime)

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: Any = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """How values of any shape are distributed. bins: "tensorflow", or what numpy.histogram takes."""
        limits = self.default_bins if isinstance(bins, str) and bins == "tensorflow" else bins
        summary = summaries.histogram(tag, values, limits, max_bins)
        self._get_file_writer().add_summary(summary, global_step, walltime)

    def add_text(self, tag: str, text_string: str, global_step: Any = None, walltime: float | None = None) -> None:
        """A text, in Markdown."""
        self._get_file_writer().add_summary(summaries.text(tag, text_string), global_step, walltime)

    def add_image(
        self, tag: str, img_tensor: Any, global_step: Any = None, walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:  # fmt: skip
        """An image: uint8, or floats of 0 to 1; dims as `dataformats` says: CHW, HWC, HW; 1, 3 or 4 channels."""
        self._get_file_writer().add_summary(summaries.image(tag, img_tensor, dataformats), global_step, walltime)

    def add_images(
        self, tag: str, img_tensor: Any, global_step: Any = None, walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:  # fmt: skip
        """Images, as one grid of eight columns."""
        self.add_image(tag, img_tensor, global_step, walltime, dataformats)

    def add_hparams(
        self,
        hparam_dict: dict[str, Any],
        metric_dict: dict[str, Any],
        hparam_domain_discrete: dict[str, list[Any]] | None = None,
        run_name: str | None = None,
        global_step: Any = None,
    ) -> None:
        """Hyperparameters (numbers, texts) and the metrics they led to, as a run of its own below `log_dir`.

        Raises TypeError if they are no dictionaries, or a domain's values are of another type; ArgumentError.
        """
        if type(hparam_dict) is not dict or type(metric_dict) is not dict:
            raise TypeError("hparam_dict and metric_dict should be dictionaries")
        domains = hparam_domain_discrete or {}
        for name, values in domains.items():
            if name not in hparam_dict or not all(isinstance(value, type(hparam_dict[name])) for value in values):
                raise TypeError(f"hparam_domain_discrete[{name!r}] should list values of hparam_dict[{name!r}]'s type")
        messages = summaries.hparams(hparam_dict, metric_dict, domains)
        folder = os.path.join(self._get_file_writer().get_logdir(), run_name or str(time.time()))
        with SummaryWriter(folder) as run:
            for message in messages:
                run._get_file_writer().add_summary(message, global_step)
            for tag, value in metric_dict.items():
                run.add_scalar(tag, value, global_step)

    add_tensor, add_histogram_raw = _refused("add_tensor"), _refused("add_histogram_raw")
    add_image_with_boxes, add_figure = _refused("add_image_with_boxes"), _refused("add_figure")
    add_video, add_audio, add_mesh = _refused("add_video"), _refused("add_audio"), _refused("add_mesh")
    add_graph, add_onnx_graph = _refused("add_graph"), _refused("add_onnx_graph")
    add_embedding, add_pr_curve = _refused("add_embedding"), _refused("add_pr_curve")
    add_pr_curve_raw, add_custom_scalars = _refused("add_pr_curve_raw"), _refused("add_custom_scalars")
    add_custom_scalars_multilinechart = _refused("add_custom_scalars_multilinechart")
    add_custom_scalars_marginchart = _refused("add_custom_scalars_marginchart")

    def flush(self) -> None:
        """Wait until all is in the files."""
        for writer in (self.all_writers or {}).values():
            writer.flush()

    def close(self) -> None:
        """Flush and close. The next call opens a new file."""
        for writer in (self.all_writers or {}).values():
            writer.flush()
            writer.close()
        self.file_writer = self.all_writers = None

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
