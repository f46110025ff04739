"""The table of stand-ins, walked: each name is held to its kind, and each that claims to be true is tried here."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import distcompile as dc
from compiler_core.symbolic.size import Sizes
from distcompile.as_torch.stand_ins.kinds import Kind, RefusedError
from distcompile.as_torch.table import STAND_INS


def of_kind(kind: Kind) -> list[str]:
    return sorted(name for name, stand_in in STAND_INS.items() if stand_in.kind is kind)


def made(name: str) -> Any:
    return STAND_INS[name].make(name)


@pytest.mark.parametrize("name", of_kind(Kind.ERROR))
def test_what_is_refused_says_so(name: str) -> None:
    with pytest.raises(RefusedError, match=f"^{name} is not offered: "):
        made(name)(1, key=2)


@pytest.mark.parametrize("name", of_kind(Kind.TYPE))
def test_nothing_is_of_a_type_that_cannot_be_made(name: str) -> None:
    kind = made(name)
    assert inspect.isclass(kind)
    assert not isinstance(dc.ones(1), kind)
    assert not isinstance(dc.nn.Linear(1, 1), kind)
    assert kind | None  # annotations
    with pytest.raises(RefusedError, match=f"^{name} is not offered: "):
        kind(1)
    with pytest.raises(RefusedError, match=f"^{name} is not offered: "):
        type("Own", (kind,), {})()


@pytest.mark.parametrize("name", [name for name in of_kind(Kind.TYPE) if STAND_INS[name].make(name).__dict__])
def test_methods_of_a_type_are_refused_too(name: str) -> None:
    methods = [key for key, value in vars(made(name)).items() if isinstance(value, staticmethod) and key[:2] != "__"]
    for method in methods:
        with pytest.raises(RefusedError, match=f"^{name}.{method} is not offered: "):
            getattr(made(name), method)(1)


@pytest.mark.torch
@pytest.mark.parametrize("name", of_kind(Kind.NAMES))
def test_an_enumeration_has_torchs_members(name: str) -> None:
    pytest.importorskip("torch")
    theirs: Any = torchs(name)
    ours = [member.name for member in made(name)]
    members = theirs.__members__ if hasattr(theirs, "__members__") else [key for key in ours if hasattr(theirs, key)]
    assert set(ours) == set(members)


@pytest.mark.parametrize("name", of_kind(Kind.RECORD))
def test_what_is_recorded_is_kept_for_a_reader_that_is_refused(name: str) -> None:
    reader = STAND_INS[name].meaning.split(", ")[1].removeprefix("for ")
    assert STAND_INS[reader].kind is Kind.ERROR
    value = made(name)
    assert value("operator")(len) is len
    assert value(len) is len
    assert "operator" in str(value.recorded)


def _progress(tqdm: Any) -> bool:
    return list(tqdm([1, 2], disable=True)) == [1, 2]


PLACEMENTS: dict[str, Callable[[Any], bool]] = {
    "Placement": lambda kind: not (kind().is_shard() or kind().is_replicate() or kind().is_partial()),
    "Shard": lambda kind: (
        kind(1) == kind(dim=1) != kind(0)
        and kind(1).is_shard(1)
        and not kind(1).is_shard(0)
        and kind._local_shard_size_and_offset(5, 4, 2) == (1, 4)
        and kind(0).local_shard_size_and_offset(5, 4, 3) == (0, 5)
    ),
    "Replicate": lambda kind: kind() == kind() and kind().is_replicate(),
    "Partial": lambda kind: kind().is_partial("sum") and not kind("avg").is_partial("sum"),
    "_StridedShard": lambda kind: kind(0, split_factor=2).split_factor == 2 and kind(0, split_factor=2).is_shard(0),
}


def _classes_are_not_there(classes: Any) -> bool:
    with pytest.raises(RuntimeError, match=r"Tried to instantiate class 'pyg.CPUHashMap'"):
        classes.pyg.CPUHashMap  # noqa: B018
    return True


SYMBOLS = "torch.fx.experimental.symbolic_shapes"
SCRIPTS = (
    "_jit_override_can_fuse_on_cpu _jit_override_can_fuse_on_gpu _jit_set_nvfuser_enabled _jit_set_nvfuser_guard_mode "
    "_jit_set_profiling_executor _jit_set_profiling_mode _jit_set_texpr_fuser_enabled"
)
TRUTHS: dict[str, Callable[[Any], bool]] = {
    "torch._C.DispatchKeySet": lambda keys: (keys("a") | keys("b")).keys == {"a", "b"},
    "torch._C.DispatchKey": lambda names: names.AutocastCPU == "AutocastCPU",
    "torch.classes": _classes_are_not_there,
    "torch.onnx.register_custom_op_symbolic": lambda register: register("ns::op", len, 9) is None,
    "torch._C._get_privateuse1_backend_name": lambda name: name() == "privateuseone",
    "torch._C._are_functorch_transforms_active": lambda asked: dc.vmap(lambda x: x * asked())(dc.ones(2)).sum() == 0,
    "torch._C._functorch.is_legacy_batchedtensor": lambda asked: asked(dc.ones(1)) is False,
    "torch._C._set_math_sdp_allow_fp16_bf16_reduction": lambda allow: allow(True) is None,
    "torch._C._distributed_rpc._is_current_rpc_agent_set": lambda asked: asked() is False,
    "torch.distributed.distributed_c10d._pg_map": lambda groups: groups == {},
    "torch.distributed.distributed_c10d.is_xccl_available": lambda asked: asked() is False,
    "torch._inductor.cudagraph_mark_step_begin": lambda mark: mark() is None,
    **{f"{SYMBOLS}.{name}": lambda asked: asked(3 > 2) is True and asked(3 < 2) is False
       for name in ("expect_true", "guard_bool", "guard_or_false", "guard_or_true", "statically_known_true")},
    f"{SYMBOLS}.statically_known_false": lambda asked: asked(3 < 2) is True and asked(3 > 2) is False,
    f"{SYMBOLS}.guard_int": lambda asked: asked(3) == 3 and asked(Sizes().new(4)) == 4,
    f"{SYMBOLS}.sym_eq": lambda asked: asked((3, 4), (3, 4)) and not asked(3, 4),
    f"{SYMBOLS}.is_concrete_int": lambda asked: asked(3) and not asked(Sizes().new(4)),
    f"{SYMBOLS}.has_free_symbols": lambda asked: not asked(3) and asked((3, Sizes().new(4))),
    **{f"{SYMBOLS}.{name}": lambda asked: asked(3) == set() for name in ("free_symbols", "free_unbacked_symbols")},
    "torch._prims_common.is_contiguous_or_false": lambda asked: asked(dc.ones(2, 3)) and not asked(dc.ones(2, 3).t()),
    "torch._subclasses.fake_tensor.is_fake": lambda asked: asked(dc.ones(1)) is False,
    "torch.fx.experimental.proxy_tensor.get_proxy_mode": lambda mode: mode() is None,
    "torch.utils._python_dispatch.is_traceable_wrapper_subclass": lambda asked: asked(dc.ones(1)) is False,
    **{f"torch._C._jit_can_fuse_on_{device}": lambda asked: asked() is False for device in ("cpu", "gpu")},
    **{f"torch._C.{name}": lambda put: put(True) is None for name in SCRIPTS.split()},
    "torch._jit_internal._copy_to_script_wrapper": lambda wrap: wrap(len) is len,
    "torch.jit._recursive.concrete_type_store.type_store": lambda kept: kept == {},
    "torch._C._log_api_usage_once": lambda tell: tell("torchvision") is None,
    "torch._C._get_tracing_state": lambda state: state() is None and not dc.jit.is_tracing(),
    "torch._dynamo.utils.is_compile_supported": lambda asked: asked("cpu") and not asked("cuda"),
    "torch.onnx.symbolic_helper.parse_args": lambda decorator: decorator("v", "i")(len) is len,
    "torch.utils.model_zoo.tqdm": _progress,
    "torch.nn.attention.flex_attention._DEFAULT_SPARSE_BLOCK_SIZE": lambda size: size == 128,
    **{f"torch.distributed.tensor{path}.{name}": true for path in ("", ".placement_types")
       for name, true in PLACEMENTS.items() if (path, name) != ("", "_StridedShard")},
}  # fmt: skip


@pytest.mark.parametrize("name", of_kind(Kind.TRUE))
def test_what_claims_to_be_true_is(name: str) -> None:
    assert TRUTHS[name](made(name))


def test_every_truth_is_of_the_table() -> None:
    assert set(TRUTHS) == set(of_kind(Kind.TRUE))


@pytest.mark.parametrize("name", sorted(STAND_INS))
def test_a_stand_in_says_what_it_does_and_is_still_needed(name: str) -> None:
    assert len(STAND_INS[name].meaning) > 10
    found: Any = dc
    for part in name.split(".")[1:]:
        found = getattr(found, part, None)
    assert found is None, f"distcompile has {name} now: take it off the table"


def torchs(name: str) -> Any:
    """What torch has under a stand-in's name."""
    import importlib

    found: Any = importlib.import_module("torch")
    for position, part in enumerate(name.split(".")[1:], 2):
        there = hasattr(found, part)
        found = getattr(found, part) if there else importlib.import_module(".".join(name.split(".")[:position]))
    return found


@pytest.mark.torch
@pytest.mark.parametrize("name", sorted(STAND_INS))
def test_a_stand_in_is_a_name_of_torchs(name: str) -> None:
    pytest.importorskip("torch")
    torchs(name)
