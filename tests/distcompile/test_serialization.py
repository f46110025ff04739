"""Checkpoints: what goes in comes out, in files that others read, and nothing else goes in."""

from __future__ import annotations

import io
import os
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import distcompile as dc
from distcompile.errors import CheckpointError

DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "uint32", "bool"]


def test_a_training_checkpoint_round_trips(tmp_path: Path) -> None:
    model = dc.nn.Sequential(dc.nn.Linear(3, 3), dc.nn.Linear(3, 3))
    optimizer = dc.optim.AdamW(model.parameters(), betas=(0.8, 0.9), fused=False)
    model(dc.ones(1, 3)).sum().backward()
    optimizer.step()
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "best": float("inf")}
    dc.save(saved, tmp_path / "last.safetensors")
    loaded = dc.load(tmp_path / "last.safetensors")

    twin = dc.nn.Sequential(dc.nn.Linear(3, 3), dc.nn.Linear(3, 3))
    twin.load_state_dict(loaded["model"])
    again = dc.optim.AdamW(twin.parameters())
    again.load_state_dict(loaded["optimizer"])
    assert (loaded["epoch"], loaded["best"]) == (3, float("inf"))
    assert again.param_groups[0]["betas"] == (0.8, 0.9)
    for a, b in (
        (model.state_dict(), twin.state_dict()),
        (optimizer.state_dict()["state"], again.state_dict()["state"]),
    ):
        assert flat(a) == flat(b)


def flat(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: flat(value) for key, value in tree.items()}
    return tree.tolist() if isinstance(tree, dc.Tensor) else tree


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_and_empty_and_scalar_shapes(dtype: str, tmp_path: Path) -> None:
    tensors = {
        "x": dc.tensor([[0.0, 1.0, 3.0]]).to(getattr(dc, dtype)),
        "empty": dc.zeros(0, 3, dtype=getattr(dc, dtype)),
        "scalar": dc.ones((), dtype=getattr(dc, dtype)),
        "strided": dc.arange(6).reshape(2, 3).T.to(getattr(dc, dtype)),
    }
    dc.save_file(tensors, tmp_path / "t.safetensors")
    for name, loaded in dc.load_file(tmp_path / "t.safetensors").items():
        assert loaded.dtype is tensors[name].dtype
        assert tuple(loaded.shape) == tuple(tensors[name].shape)
        assert loaded.tolist() == tensors[name].tolist()


def test_nesting_keeps_its_types_and_order() -> None:
    tree = {"b": [1, (2.5, None)], "a": OrderedDict(z=True, y="text"), 7: dc.ones(2), "dtype": dc.bfloat16}
    buffer = io.BytesIO()
    dc.save(tree, buffer)
    buffer.seek(0)
    loaded = dc.load(buffer)
    assert list(loaded) == ["b", "a", 7, "dtype"]
    assert loaded["b"] == [1, (2.5, None)]
    assert isinstance(loaded["a"], OrderedDict)
    assert loaded["dtype"] is dc.bfloat16
    assert loaded[7].tolist() == [1.0, 1.0]


def test_tied_weights_are_stored_once(tmp_path: Path) -> None:
    w = dc.nn.Parameter(dc.ones(1000))
    dc.save({"a": w, "b": w.detach()}, tmp_path / "tied.safetensors")
    assert os.path.getsize(tmp_path / "tied.safetensors") < 6000
    loaded = dc.load(tmp_path / "tied.safetensors")
    assert loaded["a"] is loaded["b"]


def test_files_are_readable_by_the_safetensors_library_under_dotted_names(tmp_path: Path) -> None:
    dc.save({"model": {"layer.weight": dc.ones(2)}, "n": 1}, tmp_path / "m.safetensors")
    tensors = safetensors.numpy.load_file(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(tensors["model.layer.weight"], np.ones(2, np.float32))


def test_torch_reads_our_files_and_we_read_torchs(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    st = pytest.importorskip("safetensors.torch")
    dc.save_file({"w": dc.tensor([1.0, 2.0], dtype=dc.bfloat16)}, tmp_path / "ours.safetensors")
    assert st.load_file(tmp_path / "ours.safetensors")["w"].tolist() == [1.0, 2.0]
    st.save_file({"w": torch.tensor([3.0], dtype=torch.bfloat16)}, tmp_path / "theirs.safetensors")
    assert dc.load_file(tmp_path / "theirs.safetensors")["w"].tolist() == [3.0]
    torch.save({"w": torch.ones(1)}, tmp_path / "old.pt")
    with pytest.raises(CheckpointError, match=r"torch\.save"):
        dc.load_file(tmp_path / "old.pt")


def test_a_loaded_tensor_can_be_written_to_and_trained(tmp_path: Path) -> None:
    dc.save_file({"w": dc.ones(2)}, tmp_path / "w.safetensors")
    w = dc.nn.Parameter(dc.load_file(tmp_path / "w.safetensors")["w"])
    w.grad = dc.ones(2)
    dc.optim.SGD([w], 0.5, fused=False).step()
    assert w.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("bad", [object(), {"f": abs}, {(1, 2): 3}, [1 + 2j], {True: 1}])
def test_objects_that_would_need_code_are_refused_and_leave_no_file(bad: Any, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError):
        dc.save(bad, tmp_path / "bad.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_other_files_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "junk").write_bytes(b"\x10\x00\x00\x00\x00\x00\x00\x00{broken")
    with pytest.raises(CheckpointError, match="not a safetensors file"):
        dc.load_file(tmp_path / "junk")
    dc.save_file({"w": dc.ones(1)}, tmp_path / "plain")
    with pytest.raises(CheckpointError, match="load_file"):
        dc.load(tmp_path / "plain")
    with pytest.raises(CheckpointError, match="tensors only"):
        dc.save_file({"w": [1.0]}, tmp_path / "x")  # type: ignore[dict-item]
