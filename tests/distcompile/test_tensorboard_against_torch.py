"""SummaryWriter's event files: message by message those of torch's writer. Skipped where tensorboard is missing."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from distcompile.errors import ArgumentError, NotSupportedError

pytest.importorskip("tensorboard")
torch = pytest.importorskip("torch")
theirs = pytest.importorskip("torch.utils.tensorboard")
from distcompile.utils import tensorboard as ours  # noqa: E402

RAMP = np.linspace(-2.0, 3.0, 60, dtype=np.float32)
PIXELS = (np.arange(3 * 4 * 5) * 4).astype(np.uint8).reshape(3, 4, 5)
Calls = Callable[[Any, Callable[[Any], Any]], None]

CALLS: dict[str, Calls] = {
    "scalar": lambda w, t: [w.add_scalar("a/b", 0.1, 3), w.add_scalar("c", t(RAMP[:1]), 4, walltime=5.0)],
    "scalar_new": lambda w, t: [w.add_scalar("a", 0.1, 3, new_style=True),
                                w.add_scalar("a", t(RAMP[0]), 3, new_style=True, double_precision=True)],
    "scalars": lambda w, t: w.add_scalars("losses/all", {"train": 1.5, "test": t(RAMP[1])}, 7),
    "histogram": lambda w, t: [w.add_histogram("h", t(RAMP), 1),
                               w.add_histogram("h", t(RAMP.reshape(6, 10)), 2, bins="auto"),
                               w.add_histogram("h", RAMP, 3, bins=[0.0, 0.1, 2.5, 9.0, 10.0]),
                               w.add_histogram("h", RAMP, 3, bins=50, max_bins=12)],
    "text": lambda w, t: w.add_text("words", "**ä** b", 2),
    "image": lambda w, t: [w.add_image("i", t(PIXELS), 1), w.add_image("i", t(PIXELS[0]), 1, dataformats="HW"),
                           w.add_image("i", RAMP.reshape(4, 5, 3), 2, dataformats="HWC"),
                           w.add_image("i", t(PIXELS[:1]))],
    "images": lambda w, t: [w.add_images("i", t(np.stack([PIXELS] * 11)), 1),
                            w.add_images("i", RAMP.reshape(3, 4, 5, 1), 2, dataformats="NHWC")],
    "hparams": lambda w, t: w.add_hparams(
        {"lr": 0.1, "n": 3, "kind": "adam", "bias": True, "none": None}, {"loss": 0.5, "acc": t(RAMP[2])},
        {"kind": ["adam", "sgd"], "lr": [0.1, 0.2]}, run_name="one", global_step=4),
}  # fmt: skip


def messages(folder: Path) -> dict[str, list[Any]]:
    """Folder below -> what its event files hold, without times."""
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event

    found: dict[str, list[Any]] = {}
    for path in sorted(folder.rglob("events.out.tfevents.*")):
        events = []
        for raw in RawEventFileLoader(str(path)).Load():
            event = Event.FromString(raw)
            event.ClearField("wall_time")
            event.ClearField("source_metadata")
            for value in event.summary.value:
                if value.HasField("image"):
                    events.append(pixels(value.image.encoded_image_string).tolist())
                    value.image.encoded_image_string = b""
            events.append(event)
        found.setdefault(str(path.parent.relative_to(folder)), []).extend(events)
    return found


def pixels(png: bytes) -> Any:
    """A PNG's pixels, by Pillow."""
    image = pytest.importorskip("PIL.Image")
    return np.asarray(image.open(io.BytesIO(png)))


@pytest.mark.parametrize("name", CALLS)
def test_messages_are_torchs(name: str, tmp_path: Path) -> None:
    for library, tensor in ((ours, dc.tensor), (theirs, torch.tensor)):
        with library.SummaryWriter(tmp_path / library.__name__, purge_step=2) as writer:
            CALLS[name](writer, tensor)
    got, expected = (messages(tmp_path / library.__name__) for library in (ours, theirs))
    assert got == expected
    assert sum(len(events) for events in got.values()) > 3  # version, purge (2), and what was called


def test_a_closed_writer_goes_on_in_a_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    writer = ours.SummaryWriter(comment="_x", filename_suffix=".s")
    assert str(writer.log_dir).startswith("runs/")
    assert str(writer.get_logdir()).endswith("_x")
    writer.add_scalar("a", dc.ones((), requires_grad=True), 1)
    writer.flush()
    assert len(list(tmp_path.rglob("*.s"))) == 1
    writer.close()
    writer.add_scalar("a", dc.ones((1, 1), dtype=dc.bfloat16), 2)
    writer.close()
    values = [
        e.summary.value[0].simple_value for events in messages(tmp_path).values() for e in events if e.summary.value
    ]
    assert values == [1.0, 1.0]


def test_what_cannot_be_shown_is_an_error(tmp_path: Path) -> None:
    with ours.SummaryWriter(tmp_path) as writer:
        with pytest.raises(AssertionError, match="one element"):
            writer.add_scalar("a", dc.ones(2))
        for call in (lambda: writer.add_scalar("a", [1.0]), lambda: writer.add_histogram("h", dc.ones(0)),
                     lambda: writer.add_histogram("h", dc.ones(2), bins=[3.0, 4.0]),
                     lambda: writer.add_image("i", dc.ones(2, 2)), lambda: writer.add_image("i", dc.ones(2, 4, 4)),
                     lambda: writer.add_hparams({"a": [1]}, {})):  # fmt: skip
            with pytest.raises(ArgumentError):
                call()
        with pytest.raises(TypeError, match="hparam_domain_discrete"):
            writer.add_hparams({"a": 1}, {}, {"a": ["one"]})
        public = {name for name in dir(theirs.SummaryWriter) if not name.startswith("_")}
        assert public <= set(dir(writer))
        with pytest.raises(NotSupportedError, match="add_graph"):
            writer.add_graph(None)


def test_a_png_is_one(tmp_path: Path) -> None:
    from distcompile.utils._summaries import png

    data = png(PIXELS.transpose(1, 2, 0))
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (5, 4)
    length = struct.unpack(">I", data[33:37])[0]
    lines = np.frombuffer(zlib.decompress(data[41 : 41 + length]), np.uint8).reshape(4, 16)
    assert np.array_equal(lines[:, 1:].reshape(4, 5, 3), PIXELS.transpose(1, 2, 0))
