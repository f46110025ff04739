"""torch.save and torch.load: files of torch are read, torch reads ours, and a file runs nothing unless asked to."""

from __future__ import annotations

import ast
import contextlib
import copy
import io
import os
import pickle
import random
import subprocess
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.errors import DistCompileError, NoDataError
from distcompile import nn
from distcompile.errors import ArgumentError, CheckpointError, NotSupportedError, WeightsOnlyError
from distcompile.serialization import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals

torch = pytest.importorskip("torch")
ROOT = Path(__file__).resolve().parents[2]
DTYPES = [
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
    "complex64",
    "complex128",
]


def everything(t: Any) -> dict[str, Any]:
    """A checkpoint with all that one may hold, of either library."""
    row, model = t.arange(12.0), t.nn.Sequential(t.nn.Linear(2, 3), t.nn.BatchNorm1d(3))
    optimizer = t.optim.Adam(model.parameters())
    model(t.ones(2, 2)).sum().backward()
    optimizer.step()
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "dtypes": {d: t.tensor([0, 1, 1]).to(getattr(t, d)) for d in DTYPES},
        "base": row,
        "slice": row[2:8:2],
        "matrix": row.view(3, 4).t(),
        "same": row.detach(),
        "parameter": t.nn.Parameter(t.ones(2)),
        "frozen": t.nn.Parameter(t.ones(2), requires_grad=False),
        "empty": t.zeros(0, 3),
        "scalar": t.tensor(2.5, requires_grad=True),
        "conjugate": t.tensor([1 + 2j]).conj(),
        "meta": t.ones(2, 3, device="meta"),
        "size": t.zeros(2, 3).shape,
        "dtype": t.bfloat16,
        "device": t.device("cpu"),
        "plain": [1, -(2**70), 2.5, None, True, "text", b"bytes", bytearray(b"x"), {1, 2}, 1 + 2j, (1, (2,)), ()],
        "ordered": OrderedDict(b=1, a=[OrderedDict()]),
        7: {True: 1, (1, 2): 3},
    }


def plain(tree: Any) -> Any:
    """A tree that compares: tensors as their facts."""
    if isinstance(tree, (dc.Tensor, torch.Tensor)):
        values = None if tree.is_meta else tree.tolist()
        kind = type(tree).__name__
        return kind, str(tree.dtype).split(".")[1], tuple(tree.shape), tree.stride(), tree.requires_grad, values
    if isinstance(tree, dict):
        return isinstance(tree, OrderedDict), [(key, plain(value)) for key, value in tree.items()]
    if type(tree) in (list, tuple):
        return [plain(value) for value in tree]
    name = str(tree).removeprefix("torch.").removeprefix("distcompile.").removeprefix("Size")
    return name if "torch" in type(tree).__module__ or "dtype" in type(tree).__module__ else tree


@pytest.mark.parametrize("zipped", [True, False])
def test_files_of_torch_load(tmp_path: Path, zipped: bool) -> None:
    theirs = everything(torch)
    torch.save(theirs, tmp_path / "t.pt", _use_new_zipfile_serialization=zipped)
    ours = dc.load(tmp_path / "t.pt")
    theirs.pop("size"), ours.pop("size")
    theirs.pop("device"), ours.pop("device")
    assert plain(ours) == plain(theirs)
    assert ours["model"]._metadata == theirs["model"]._metadata
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    model.load_state_dict(ours["model"])
    dc.optim.Adam(model.parameters()).load_state_dict(ours["optimizer"])


def test_torch_loads_our_files(tmp_path: Path) -> None:
    ours = everything(dc)
    dc.save(ours, tmp_path / "ours.pt")
    theirs = torch.load(tmp_path / "ours.pt")
    assert type(theirs["size"]) is torch.Size
    for tree in (ours, theirs):
        assert tuple(tree.pop("size")) == (2, 3)
        assert str(tree.pop("device")) == "cpu"
    assert plain(theirs) == plain(ours)
    torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).load_state_dict(theirs["model"])
    mapped = torch.load(tmp_path / "ours.pt", mmap=True)
    assert torch.equal(mapped["base"], theirs["base"])


@pytest.mark.parametrize("writer", [dc, torch])
@pytest.mark.parametrize("reader", [dc, torch])
@pytest.mark.parametrize("mmap", [False, True])
def test_tensors_that_share_memory_share_it_when_loaded(writer: Any, reader: Any, mmap: bool, tmp_path: Path) -> None:
    row = writer.arange(12.0)
    tied = writer.nn.Parameter(writer.ones(3))
    writer.save({"slice": row[2:8:2], "m": row.view(3, 4).t(), "row": row, "a": tied, "b": tied}, tmp_path / "s.pt")
    before = (tmp_path / "s.pt").read_bytes()
    loaded = reader.load(tmp_path / "s.pt", mmap=mmap)
    assert loaded["a"] is loaded["b"]
    loaded["slice"].add_(100)
    assert loaded["row"].tolist() == [0, 1, 102, 3, 104, 5, 106, 7, 8, 9, 10, 11]
    assert loaded["m"].t().reshape(-1).tolist() == loaded["row"].tolist()
    loaded["row"].zero_()
    assert loaded["slice"].tolist() == [0, 0, 0]
    assert (tmp_path / "s.pt").read_bytes() == before


def test_a_view_alone_brings_its_storage_once(tmp_path: Path) -> None:
    row = dc.zeros(10_000)
    dc.save([row[:2], row[5:7], row.detach(), row.view(100, 100)], tmp_path / "v.pt")
    assert 40_000 < os.path.getsize(tmp_path / "v.pt") < 45_000


def test_records_lie_at_multiples_of_64_bytes(tmp_path: Path) -> None:
    dc.save({str(n): dc.ones(n) for n in range(1, 9)}, tmp_path / "aligned.pt")
    data = (tmp_path / "aligned.pt").read_bytes()
    with zipfile.ZipFile(tmp_path / "aligned.pt") as archive:
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
        for info in archive.infolist():
            header = data[info.header_offset : info.header_offset + 30]
            lengths = np.frombuffer(header[26:30], "<u2")
            assert (info.header_offset + 30 + int(lengths.sum())) % 64 == 0


def test_streams_and_what_is_left_of_a_failure(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    dc.save({"w": dc.ones(2)}, buffer)
    buffer.seek(0)
    assert torch.load(buffer)["w"].tolist() == [1, 1]
    buffer.seek(0)
    assert dc.load(buffer)["w"].tolist() == [1, 1]
    with pytest.raises((pickle.PicklingError, AttributeError)):
        dc.save({"f": lambda: 0}, tmp_path / "bad.pt")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(NotSupportedError, match="before"):
        dc.save({}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)


# ---- what a file may do


class Config:
    """A class of a user's."""

    def __init__(self, width: int) -> None:
        self.width = width


def test_a_class_of_the_users_is_named_and_can_be_allowed(tmp_path: Path) -> None:
    dc.save({"config": Config(3)}, tmp_path / "c.pt")
    with pytest.raises(pickle.UnpicklingError, match=rf"{__name__}\.Config.*(.|\n)*add_safe_globals"):
        dc.load(tmp_path / "c.pt")
    assert dc.load(tmp_path / "c.pt", weights_only=False)["config"].width == 3
    with safe_globals([Config]):
        assert dc.load(tmp_path / "c.pt")["config"].width == 3
        assert get_safe_globals() == [Config]
    assert get_safe_globals() == []
    add_safe_globals([(Config, f"{__name__}.Config")])
    assert dc.load(tmp_path / "c.pt")["config"].width == 3
    clear_safe_globals()
    with pytest.raises(WeightsOnlyError, match="not an allowed global"):
        dc.load(tmp_path / "c.pt")


ATTACKS = {
    "calls os.system": b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00exit\x85R.",
    "calls eval": b"\x80\x02c__builtin__\neval\nX\x01\x00\x00\x001\x85R.",
    "calls by instance": b"(S'exit'\nios\nsystem\n.",
    "makes an object": b"\x80\x02ctorch\nfloat32\n)\x81.",
    "calls what is no function": b"\x80\x02ctorch\nfloat32\n)R.",
    "changes a dtype": b"\x80\x02ctorch\nfloat32\n}X\x04\x00\x00\x00nameX\x01\x00\x00\x00xsb.",
    "changes a class": b"\x80\x02ctorch\nTensor\n}X\x04\x00\x00\x00nameX\x01\x00\x00\x00xsb.",
    "fills a class": b"\x80\x02ctorch\nTensor\nK\x01a.",
    "fills a dtype": b"\x80\x02ctorch\nfloat32\nK\x01K\x02s.",
    "extension": b"\x80\x02\x82\x01.",
    "a storage from elsewhere": b"\x80\x02X\x04\x00\x00\x00fileQ.",
    "nothing": b"",
    "no end": b"\x80\x02]",
    "no stack": b"\x80\x02R.",
    "less than no elements": b"\x80\x02(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000"
    b"X\x03\x00\x00\x00cpuJ"
    b"\xff\xff\xff\xfftQ.",
}  # fmt: skip


NAME = dc.Tensor.name


@pytest.mark.parametrize("name", ATTACKS)
def test_a_file_runs_nothing(name: str, tmp_path: Path) -> None:
    write(tmp_path / "attack.pt", ATTACKS[name])
    with pytest.raises((WeightsOnlyError, CheckpointError)):
        dc.load(tmp_path / "attack.pt")
    assert dc.float32.name == "float32"
    assert dc.Tensor.name is NAME


def write(path: Path, data: bytes) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", data)
        archive.writestr("a/data/0", b"\0" * 64)
        archive.writestr("a/version", "3")


def test_damage_anywhere_is_found_or_harmless(tmp_path: Path) -> None:
    dc.save({"w": dc.arange(6.0).view(2, 3), "p": nn.Parameter(dc.ones(2)), "n": [1, "x", 2.5]}, tmp_path / "w.pt")
    with zipfile.ZipFile(tmp_path / "w.pt") as archive:
        whole = archive.read("w/data.pkl")
    for seed in range(300):
        draw, data = random.Random(seed), bytearray(whole)
        data[draw.randrange(len(data))] = draw.randrange(256)
        write(tmp_path / "d.pt", bytes(data[: draw.choice([len(data), draw.randrange(len(data))])]))
        with contextlib.suppress(DistCompileError):
            dc.load(tmp_path / "d.pt")
    contents = (tmp_path / "w.pt").read_bytes()
    at = contents.index(np.arange(6, dtype=np.float32).tobytes())
    (tmp_path / "w.pt").write_bytes(contents[: at + 5] + b"\xff" + contents[at + 6 :])
    with pytest.raises(CheckpointError, match="storage 0"):
        dc.load(tmp_path / "w.pt")
    (tmp_path / "w.pt").write_bytes(contents[:-30])
    with pytest.raises(CheckpointError, match="damaged"):
        dc.load(tmp_path / "w.pt")


@pytest.mark.parametrize("data", [b"", b"text", b"PK\x03\x04", pickle.dumps([1, 2])])
def test_other_files_are_refused_by_name(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(CheckpointError):
        dc.load(tmp_path / "x")


@pytest.mark.parametrize("data", [b"", b"text, and no checkpoint", bytes(range(256)), pickle.dumps([1, 2], 4)])
@pytest.mark.parametrize("weights_only", [True, False])
def test_they_are_caught_as_torchs_errors_are(data: bytes, weights_only: bool, tmp_path: Path) -> None:
    """`except pickle.UnpicklingError:`, `except EOFError:`, `except RuntimeError:`."""
    (tmp_path / "x").write_bytes(data)
    with pytest.raises((RuntimeError, EOFError, pickle.UnpicklingError, LookupError)) as theirs:
        torch.load(tmp_path / "x", weights_only=weights_only)
    kind = next(c for c in type(theirs.value).__mro__ if c.__module__ in ("builtins", "_pickle"))
    with pytest.raises(pickle.UnpicklingError if issubclass(kind, LookupError) else kind):  # those are slips of its own
        dc.load(tmp_path / "x", weights_only=weights_only)
    with pytest.raises(pickle.UnpicklingError):
        dc.load(tmp_path / "x", weights_only=weights_only)


def test_whole_modules_of_torch_load_where_the_user_allows_them(tmp_path: Path) -> None:
    """Every layer's do, in tests/oracles/test_moduleinfo.py."""
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.GELU())
    torch.save(theirs, tmp_path / "m.pt")
    with pytest.raises(WeightsOnlyError, match=r"torch\.nn\.modules\.container\.Sequential"):
        dc.load(tmp_path / "m.pt")
    x = np.ones((1, 3), np.float32)
    want = theirs(torch.from_numpy(x)).detach().numpy()
    with dc.serialization.safe_globals([dc.nn.Sequential, dc.nn.Linear, dc.nn.GELU]):
        allowed = dc.load(tmp_path / "m.pt")
    for ours in (allowed, dc.load(tmp_path / "m.pt", weights_only=False)):
        np.testing.assert_allclose(ours(dc.from_numpy(x)).detach().numpy(), want, rtol=1e-5, atol=1e-6)
        ours.eval().train()(dc.from_numpy(x)).sum().backward()
        ours.register_forward_hook(lambda module, inputs, output: output + 1)
        np.testing.assert_allclose(dc.compile(ours)(dc.from_numpy(x)).detach().numpy(), want + 1, rtol=1e-5, atol=1e-6)


def doubles(module: Any, args: Any, kwargs: Any, output: Any) -> Any:
    return output * 2


def test_hooks_of_a_whole_module_keep_their_options(tmp_path: Path) -> None:
    theirs = torch.nn.Linear(3, 2)
    theirs.register_forward_hook(doubles, with_kwargs=True)
    torch.save(theirs, tmp_path / "m.pt")
    ours = dc.load(tmp_path / "m.pt", weights_only=False)
    x = np.ones((1, 3), np.float32)
    want = theirs(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(ours(dc.from_numpy(x)).detach().numpy(), want, rtol=1e-6)
    theirs.register_state_dict_post_hook(doubles)
    torch.save(theirs, tmp_path / "m.pt")
    with pytest.raises(NotSupportedError, match="_state_dict_hooks"):
        dc.load(tmp_path / "m.pt", weights_only=False)


def test_optimizers_of_torch_are_named(tmp_path: Path) -> None:
    torch.save(torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], 0.1), tmp_path / "o.pt")
    with pytest.raises(CheckpointError, match=r"SGD(.|\n)*state_dict"):
        dc.load(tmp_path / "o.pt", weights_only=False)


SAVES = """
import torch
from layers import Net
torch.manual_seed(0)
net = Net()
torch.save(net, "net.pt")
print(net(torch.ones(2, 3)).tolist())
"""
LOADS = """
import torch
net = torch.load("net.pt", weights_only=False)
assert "distcompile" in torch.__version__ + torch.nn.Linear.__module__
print(net(torch.ones(2, 3)).tolist(), type(net).__name__)
"""
LAYERS = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, activation=torch.nn.functional.gelu)
        self.up = torch.nn.Linear(3, 4)
        self.register_buffer("scale", torch.tensor(2.0))
    def forward(self, x):
        return self.body(self.up(x)) * self.scale
"""


def test_a_users_module_that_torch_saved_loads_under_torchs_name(tmp_path: Path) -> None:
    for name, text in (("saves.py", SAVES), ("loads.py", LOADS), ("layers.py", LAYERS)):
        (tmp_path / name).write_text(text)

    def run(*command: str) -> str:
        variables = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
        done = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env=variables,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    want = ast.literal_eval(run("saves.py"))
    got, _, name = run("-m", "distcompile.as_torch", "loads.py").strip().rpartition(" ")
    np.testing.assert_allclose(np.array(ast.literal_eval(got)), np.array(want), rtol=1e-5, atol=1e-6)
    assert name == "Net"


# ---- where it goes

LOCATIONS: dict[str, Callable[[Any], Any]] = {
    "a device": lambda t: t.device("cpu"),
    "a name": lambda t: "cpu",
    "meta": lambda t: "meta",
    "a dict": lambda t: {"cpu": "cpu"},
    "a dict of others": lambda t: {"cuda:0": "cpu"},
    "a function": lambda t: lambda storage, location: storage,
    "a function that gives up": lambda t: lambda storage, location: None,
}


@pytest.mark.parametrize("name", LOCATIONS)
def test_map_location(name: str, tmp_path: Path) -> None:
    torch.save({"w": torch.ones(2, 3)}, tmp_path / "w.pt")
    ours, theirs = (t.load(tmp_path / "w.pt", map_location=LOCATIONS[name](t))["w"] for t in (dc, torch))
    assert plain(ours) == plain(theirs)


def test_a_file_from_a_gpu(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(2, 3)}, tmp_path / "w.pt")
    with zipfile.ZipFile(tmp_path / "w.pt") as archive:
        records = {n: archive.read(n) for n in archive.namelist()}
    location = records["w/data.pkl"].replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0")
    with zipfile.ZipFile(tmp_path / "g.pt", "w") as archive:
        for n, data in (records | {"w/data.pkl": location}).items():
            archive.writestr(n, data)
    for t in (dc, torch):
        with pytest.raises(RuntimeError, match="map_location"):
            t.load(tmp_path / "g.pt")
        assert t.load(tmp_path / "g.pt", map_location="cpu")["w"].tolist() == [[1, 1, 1], [1, 1, 1]]
        assert t.load(tmp_path / "g.pt", map_location={"cuda:0": "cpu"})["w"].sum().item() == 6
    with pytest.raises(DistCompileError, match="no device"):
        dc.load(tmp_path / "g.pt", map_location="cuda:1")
    with pytest.raises(NoDataError):
        dc.load(tmp_path / "g.pt", map_location="meta")["w"].tolist()
    with pytest.raises(ArgumentError, match="mmap"):
        dc.load(io.BytesIO((tmp_path / "w.pt").read_bytes()), mmap=True)


def test_big_endian_files(tmp_path: Path) -> None:
    torch.save({"w": torch.tensor([1.5, -2.0]), "b": torch.tensor([True])}, tmp_path / "w.pt")
    with zipfile.ZipFile(tmp_path / "w.pt") as archive:
        records = {n: archive.read(n) for n in archive.namelist()}
    records["w/byteorder"] = b"big"
    records["w/data/0"] = np.array([1.5, -2.0], ">f4").tobytes()
    with zipfile.ZipFile(tmp_path / "big.pt", "w") as archive:
        for n, data in records.items():
            archive.writestr(n, data)
    loaded = dc.load(tmp_path / "big.pt")
    assert (loaded["w"].tolist(), loaded["b"].tolist()) == ([1.5, -2.0], [True])


# ---- modules, optimizers, copies


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.ReLU())
        self.head = nn.Linear(3, 1)
        self.head.weight.tag = "kept"  # type: ignore[attr-defined]
        self.register_buffer("mask", dc.ones(1), persistent=False)

    def forward(self, x: dc.Tensor) -> Any:
        return self.head(self.body(x)) * self.mask


def test_whole_modules_by_pickle_only_where_asked(tmp_path: Path) -> None:
    net = Net()
    net(dc.randn(4, 2))
    dc.save(net.eval(), tmp_path / "net.pt")
    with pytest.raises(WeightsOnlyError, match=rf"{__name__}\.Net"):
        dc.load(tmp_path / "net.pt")
    again = dc.load(tmp_path / "net.pt", weights_only=False)
    x = dc.randn(3, 2)
    assert dc.equal(again(x), net(x))
    assert again.head.weight.tag == "kept"
    assert not again.training
    again.train()(x).sum().backward()
    dc.optim.SGD(again.parameters(), 0.1).step()
    assert dc.compile(again.eval(), backend="aot_eager")(x).shape == (3, 1)


def test_whole_modules_and_optimizers_from_before_files_moved(tmp_path: Path) -> None:
    """Layers lay in nn itself, what optimizers hold in optim itself."""
    net = dc.nn.Sequential(dc.nn.Conv2d(1, 2, 3), dc.nn.MaxPool2d(2), dc.nn.Flatten(), dc.nn.Linear(2, 1))
    x = dc.randn(1, 1, 4, 4)
    optimizer = dc.optim.SGD(net.parameters(), 0.1)
    net(x).sum().backward()
    optimizer.step()
    now = io.BytesIO()
    dc.save((net, optimizer), now)
    with zipfile.ZipFile(now) as new, zipfile.ZipFile(tmp_path / "old.pt", "w") as old:
        for entry in new.infolist():
            data = new.read(entry)
            for room in (b"nn.layers", b"optim.update_rules") if entry.filename.endswith("data.pkl") else ():
                data = _renamed(data, b"distcompile." + room, b"distcompile." + room.partition(b".")[0])
            old.writestr(entry, data)
    again, its_optimizer = dc.load(tmp_path / "old.pt", weights_only=False)
    assert dc.equal(again(x), net(x))
    assert its_optimizer.state_dict()["param_groups"] == optimizer.state_dict()["param_groups"]


def _renamed(pickled: bytes, room: bytes, before: bytes) -> bytes:
    """A pickle of protocol 2, whose global names are lines."""
    assert b"c" + room in pickled
    return pickled.replace(b"c" + room, b"c" + before)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_of_tensors_modules_and_optimizers(copied: Callable[[Any], Any]) -> None:
    net = Net()
    optimizer = dc.optim.AdamW(net.parameters(), fused=False)
    net(dc.ones(4, 2)).sum().backward()
    optimizer.step()
    tree = {"net": net, "optimizer": optimizer, "w": net.head.weight, "t": dc.arange(6).view(2, 3).t()}
    twin = copied(tree)
    assert twin["w"] is twin["net"].head.weight
    assert twin["w"] is twin["optimizer"].param_groups[0]["params"][-2]
    assert twin["t"].tolist() == tree["t"].tolist()
    before = net.head.weight.tolist()
    twin["net"](dc.ones(4, 2)).sum().backward()
    twin["optimizer"].step()
    assert twin["w"].tolist() != before
    assert net.head.weight.tolist() == before
    assert plain(optimizer.state_dict()) != plain(twin["optimizer"].state_dict())
