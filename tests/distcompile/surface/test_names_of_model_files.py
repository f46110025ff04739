"""Names that model files use around their layers: torch.jit, fx, compiler, amp, checkpoint, paths of nn.modules."""

from __future__ import annotations

import hashlib
import importlib
import subprocess
import sys
import warnings
from collections import OrderedDict, defaultdict, deque
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import distcompile as dc
from compiler_core.errors import AutogradError, GraphBreak
from distcompile.errors import ArgumentError, CheckpointError, NoGPUError, NotSupportedError
from distcompile.nn.modules import FILES
from distcompile.utils.checkpoint import checkpoint, checkpoint_sequential

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def test_nothing_is_scripted() -> None:
    assert not dc.jit.is_scripting()
    assert not dc.jit.is_tracing()

    def f(x: int) -> int:
        return x + 1

    for decorate in (dc.jit.ignore, dc.jit.unused, dc.jit.export, dc.jit.script, dc.jit.ignore(drop=True)):
        assert decorate(f) is f
    assert dc.jit.annotate(list[int], [1]) == [1]
    with pytest.raises(NotSupportedError, match=r"jit\.trace"):
        dc.jit.save(f, "model.pt")


def test_what_is_kept_out_of_graphs_runs_eager_and_says_why() -> None:
    seen = []

    @dc.compiler.disable(reason="it prints")
    def watched(x: Any) -> Any:
        seen.append(dc.compiler.is_compiling())
        return x + 1

    def f(x: Any) -> Any:
        return watched(x) * 2

    np.testing.assert_array_equal(dc.compile(f)(dc.ones(2)).numpy(), [4.0, 4.0])
    assert seen == [False]
    with pytest.raises(GraphBreak, match=r"watched is kept out of graphs by compiler.disable: it prints"):
        dc.compile(f, fullgraph=True)(dc.ones(2))
    asked = dc.compile(lambda x: x + 1 if dc.compiler.is_compiling() else x, fullgraph=True)(dc.ones(2))
    np.testing.assert_array_equal(asked.numpy(), [2.0, 2.0])
    assert not dc.compiler.is_compiling()


def test_autocast_of_what_is_not_here_does_nothing() -> None:
    with dc.autocast("cpu", enabled=False), dc.amp.autocast("cuda"), dc.cuda.amp.autocast():
        assert dc.mm(dc.ones(2, 2), dc.ones(2, 2)).dtype is dc.float32
        assert not dc.is_autocast_enabled()
    assert dc.autocast("cuda")(lambda: 3)() == 3
    with pytest.raises(RuntimeError, match="device_type"):
        dc.autocast("gpu")
    assert (dc.get_autocast_dtype("cpu"), dc.get_autocast_dtype("cuda")) == (dc.bfloat16, dc.float16)


def scaled_training(lib: Any) -> tuple[list[Any], list[Any]]:
    scaler = lib.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    weight = lib.ones(3, requires_grad=True)
    optimizer = lib.optim.SGD([weight], lr=0.1)
    seen = []
    for step in range(6):
        optimizer.zero_grad()
        loss = (weight * lib.tensor([1.0, 2.0, float("inf") if step == 3 else 3.0])).sum()
        scaler.scale(loss).backward()
        if step % 2:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        seen.append((scaler.get_scale(), *weight.detach().numpy().tolist()))
    return seen, sorted(scaler.state_dict().items())


def test_grad_scaler_is_torchs() -> None:
    (mine, my_state), (theirs, their_state) = scaled_training(dc), scaled_training(torch)
    np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-7)
    assert my_state == their_state


def test_a_disabled_grad_scaler_passes_everything_on() -> None:
    scaler, loss = dc.cuda.amp.GradScaler(), dc.ones(1)
    assert scaler.scale(loss) is loss
    assert (scaler.is_enabled(), scaler.get_scale(), scaler.state_dict()) == (False, 1.0, {})


def test_checkpointed_functions_have_their_gradients() -> None:
    layers = dc.nn.Sequential(dc.nn.Linear(3, 3), dc.nn.Tanh(), dc.nn.Linear(3, 3))
    x = dc.ones(2, 3, requires_grad=True)
    layers(x).sum().backward()
    want, x.grad = x.grad.numpy().copy(), None
    checkpoint(layers, x, use_reentrant=False, preserve_rng_state=True).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), want)
    x.grad = None
    checkpoint_sequential(layers, 2, x, use_reentrant=False).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), want)
    with pytest.raises(ArgumentError, match="Unexpected keyword"):
        checkpoint(layers, x, use_reentrant=True, y=1)


def test_memory_formats_change_no_values() -> None:
    x = dc.randn(2, 3, 4, 5)
    for changed in (x.to(memory_format=dc.channels_last), x.contiguous(memory_format=dc.contiguous_format)):
        np.testing.assert_array_equal(changed.numpy(), x.numpy())
    assert dc.nn.Conv2d(3, 2, 1).to(memory_format=dc.channels_last)(x).shape == (2, 2, 4, 5)
    assert repr(dc.channels_last) == "distcompile.channels_last"


@pytest.mark.parametrize("name", FILES)
def test_every_file_of_nn_modules_has_torchs_public_names(name: str) -> None:
    mine, theirs = importlib.import_module(f"distcompile.nn.modules.{name}"), getattr(torch.nn.modules, name)
    absent = {"NonDynamicallyQuantizableLinear", "Container", "NLLLoss2d", "register_module_backward_hook"}
    public = set(getattr(theirs, "__all__", ())) - absent
    assert public <= set(vars(mine))


@pytest.mark.parametrize(
    "path",
    ["batchnorm._BatchNorm", "batchnorm._NormBase", "conv._ConvNd", "conv._ConvTransposeNd", "utils._pair",
     "instancenorm._InstanceNorm", "dropout._DropoutNd", "loss._Loss", "loss._WeightedLoss", "pooling._MaxPoolNd",
     "pooling._AvgPoolNd", "pooling._AdaptiveAvgPoolNd", "module.Module", "lazy.LazyModuleMixin"],
)  # fmt: skip
def test_bases_are_found_where_torch_keeps_them(path: str) -> None:
    file, name = path.split(".")
    assert callable(getattr(getattr(dc.nn.modules, file), name))
    assert callable(getattr(importlib.import_module(f"distcompile.nn.modules.{file}"), name))


def test_data_parallel_without_gpus_runs_its_module() -> None:
    module = dc.nn.Linear(2, 3)
    parallel = dc.nn.DataParallel(module, device_ids=[0, 1])
    assert list(parallel.state_dict()) == ["module.weight", "module.bias"]
    np.testing.assert_array_equal(parallel(dc.ones(4, 2)).detach().numpy(), module(dc.ones(4, 2)).detach().numpy())
    assert dc.nn.parallel.data_parallel(module, dc.ones(4, 2)).shape == (4, 3)


def test_sparse_adam_refuses_dense_gradients_as_torch_does() -> None:
    theirs = torch.ones(2, requires_grad=True)
    theirs.grad = torch.ones(2)
    with pytest.raises(RuntimeError, match="SparseAdam does not support dense gradients"):
        torch.optim.SparseAdam([theirs]).step()
    weight = dc.ones(2, requires_grad=True)
    optimizer = dc.optim.SparseAdam([weight])
    optimizer.step()
    weight.grad = dc.ones(2)
    with pytest.raises(AutogradError, match="SparseAdam does not support dense gradients"):
        optimizer.step()
    with pytest.raises(ArgumentError, match="beta parameter at index 1"):
        dc.optim.SparseAdam([weight], betas=(0.9, 1.0))


@pytest.mark.parametrize("name", ["uniform", "normal", "constant", "eye", "dirac", "xavier_uniform", "kaiming_normal"])
def test_older_names_of_initialisations_warn(name: str) -> None:
    shape = (2, 2, 3) if name == "dirac" else (2, 2)
    with pytest.warns(FutureWarning, match=f"`nn.init.{name}` is now deprecated"):
        getattr(dc.nn.init, name)(dc.zeros(*shape), *((1.0,) if name == "constant" else ()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        getattr(dc.nn.init, f"{name}_")(dc.zeros(*shape), *((1.0,) if name == "constant" else ()))


def test_dtypes_of_several_are_torchs() -> None:
    names = ["float32", "float64", "bfloat16", "int64", "uint8", "bool"]
    for a in names:
        for b in names:
            want = torch.promote_types(getattr(torch, a), getattr(torch, b))
            assert dc.promote_types(getattr(dc, a), getattr(dc, b)).name == str(want).removeprefix("torch.")
            assert dc.can_cast(getattr(dc, a), getattr(dc, b)) == torch.can_cast(getattr(torch, a), getattr(torch, b))
    assert dc.result_type(dc.ones(2, dtype=dc.int64), 1.5) is dc.float32
    with pytest.raises(AssertionError, match="too wide"):
        dc._assert(False, "too wide")
    assert dc.typename(dc.nn.Linear(1, 1)).endswith("Linear")
    assert dc.typename(dc.ones(1)) == "torch.FloatTensor"


class Pair(NamedTuple):
    first: Any
    second: Any


TREES: list[Any] = [
    3,
    None,
    [1, (2, None), {"b": 4, "a": [5, 6]}],
    Pair(1, OrderedDict(x=2, y=())),
    deque([1, [2]], maxlen=3),
    defaultdict(list, k=[1, 2]),
]


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_trees_are_flattened_as_torchs(tree: Any) -> None:
    theirs, mine = torch.utils._pytree, dc.utils._pytree
    leaves, spec = mine.tree_flatten(tree)
    assert leaves == theirs.tree_flatten(tree)[0]
    assert mine.tree_unflatten(leaves, spec) == tree
    assert type(mine.tree_unflatten(leaves, spec)) is type(tree)
    assert spec.num_leaves == len(leaves)
    for lib in (theirs, mine):
        assert lib.tree_map(str, tree) == theirs.tree_map(str, tree)
        assert lib.tree_map_only(int, lambda x: x * 2, tree) == theirs.tree_map_only(int, lambda x: x * 2, tree)
        assert lib.tree_any(lambda x: x == 2, tree) == (2 in leaves)
    if isinstance(tree, dict):
        for lib in (theirs, mine):
            pairs, keys = lib._dict_flatten_with_keys(tree)
            assert [(key.get(tree), str(key)) for key, _ in pairs] == [(v, f"[{k!r}]") for k, v in tree.items()]
            assert lib._dict_unflatten([value for _, value in pairs], keys) == tree
            assert lib._dict_flatten(tree) == ([value for _, value in pairs], keys)
    assert mine.tree_map(lambda a, b: (a, b), [1, [2]], [3, [4]]) == [(1, 3), [(2, 4)]]


def test_trees_that_do_not_fit_are_named_errors() -> None:
    tree = dc.utils._pytree
    with pytest.raises(ArgumentError, match="`leaves` has length 1"):
        tree.tree_unflatten([1], tree.tree_structure([1, 2]))
    with pytest.raises(ArgumentError, match="type mismatch"):
        tree.tree_map(max, [1], (1,))
    with pytest.raises(ArgumentError, match="already registered"):
        tree.register_pytree_node(list, lambda t: (t, None), lambda v, _: list(v))


def test_switches_of_attention_and_cudnn_are_contexts() -> None:
    with dc.backends.cuda.sdp_kernel(enable_flash=True, enable_math=False), dc.backends.cudnn.flags(enabled=False):
        assert dc.nn.functional.scaled_dot_product_attention(*[dc.ones(1, 2, 3)] * 3).shape == (1, 2, 3)
    with dc.nn.attention.sdpa_kernel([dc.nn.attention.SDPBackend.MATH]):
        assert dc.backends.cuda.math_sdp_enabled()
    with pytest.raises(ArgumentError, match="SDPBackend"), dc.nn.attention.sdpa_kernel(["math"]):
        pass


PATHS = """
backends.cudnn backends.cuda cuda.amp amp utils.checkpoint utils._pytree utils.data.distributed nn.parallel nn.init
nn.functional nn.attention nn.utils.rnn nn.utils.parametrize nn.parameter nn.utils.stateless nn.modules.utils
nn.modules.batchnorm optim.lr_scheduler optim.swa_utils jit fx func compiler _dynamo accelerator multiprocessing
distributed fft linalg special hub jit.annotations utils.data.sampler
utils.data.dataset utils.data.dataloader
"""


@pytest.mark.parametrize("path", PATHS.split())
def test_every_path_is_imported_by_itself(path: str) -> None:
    code = f"import distcompile.{path} as m, sys; assert m is not None; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_weights_of_a_url_are_kept_and_checked(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    dc.save_file({"weight": dc.ones(2)}, str(source / "w.safetensors"))
    digest = hashlib.sha256((source / "w.safetensors").read_bytes()).hexdigest()
    named = source / f"w-{digest[:8]}.safetensors"
    (source / "w.safetensors").rename(named)
    folder = str(tmp_path / "kept")
    for _ in range(2):  # downloaded, then found
        state = dc.hub.load_state_dict_from_url(named.as_uri(), folder, check_hash=True)
        np.testing.assert_array_equal(state["weight"].numpy(), [1.0, 1.0])
        named.unlink(missing_ok=True)
    other = source / "w-00000000.safetensors"
    other.write_bytes(b"something else")
    with pytest.raises(CheckpointError, match="another hash"):
        dc.hub.load_state_dict_from_url(other.as_uri(), folder, check_hash=True)
    assert sorted(p.name for p in Path(folder).iterdir()) == [named.name]
    torch.save({"weight": torch.ones(2)}, source / "model.pth")
    state = dc.utils.model_zoo.load_url((source / "model.pth").as_uri(), folder)
    assert state["weight"].tolist() == [1.0, 1.0]


def test_a_summary_writer_without_tensorboard_fails_to_import_as_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "distcompile.utils.tensorboard", raising=False)
    monkeypatch.delitem(sys.modules, "distcompile.utils._summaries", raising=False)
    for name in [name for name in sys.modules if name.split(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ModuleNotFoundError, match="tensorboard"):
        importlib.import_module("distcompile.utils.tensorboard")


def test_models_of_a_local_folder(tmp_path: Path) -> None:
    (tmp_path / "hubconf.py").write_text(
        "import distcompile.nn as nn\n\n\ndef tiny(width=2):\n    'A layer.'\n    return nn.Linear(width, 1)\n"
    )
    folder = str(tmp_path)
    assert dc.hub.list(folder, source="local") == ["tiny"]
    assert dc.hub.help(folder, "tiny", source="local") == "A layer."
    assert dc.hub.load(folder, "tiny", width=3, source="local", trust_repo=True).in_features == 3
    with pytest.raises(NotSupportedError, match="source='local'"):
        dc.hub.load("pytorch/vision", "resnet18")
    for wrong in ({"source": "cellar"}, {"source": "local", "model": "huge"}):
        with pytest.raises(ValueError, match=r"Unknown source|Cannot find callable"):
            dc.hub.load(folder, **{"model": "tiny", **wrong})


def test_without_a_gpu_cuda_and_accelerator_answer_as_torchs() -> None:
    for t in (dc, torch):
        assert t.cuda.memory_allocated() == t.cuda.max_memory_allocated() == t.cuda.max_memory_reserved() == 0
        assert t.cuda.get_arch_list() == t.cuda.get_rng_state_all() == []
        assert not t.cuda.memory_stats()
        with t.cuda.stream(None):
            assert not isinstance(3, (t.cuda.Stream, t.cuda.Event, t.cuda.CUDAGraph))
        for made in (t.cuda.Stream, t.cuda.Event, t.cuda.CUDAGraph, t.accelerator.synchronize):
            with pytest.raises(RuntimeError):
                made()
        for refused in (t.cuda.current_device, t.cuda.synchronize, t.cuda.get_device_name, t.cuda.get_rng_state):
            with pytest.raises(AssertionError):
                refused()
        with pytest.raises(TypeError, match="not available"):
            t.cuda.FloatTensor(2)
        assert not isinstance(t.ones(1), t.cuda.FloatTensor)
    with pytest.raises(NoGPUError, match="cuda"):
        dc.cuda.set_rng_state_all([dc.ones(1)])
    with pytest.raises(NoGPUError, match="StreamContext"):
        dc.cuda.stream("one")


def test_the_folder_of_weights_is_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", "/somewhere")
    assert dc.hub.get_dir() == torch.hub.get_dir() == "/somewhere/hub"
