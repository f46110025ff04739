"""torch.xpu, torch.mps and torch.mtia, where torch has none either: the same answers, and errors in the same places."""

from __future__ import annotations

from typing import Any

import pytest

import distcompile as dc
from distcompile.errors import NoGPUError

CALLS = [(kind, name) for kind in ("xpu", "mps", "mtia") for name in getattr(dc, kind).__all__]
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "manual_seed": (1,), "manual_seed_all": (1,), "set_device": (0,), "set_per_process_memory_fraction": (0.5,),
}  # fmt: skip
# what is a class in torch, that can be made and does nothing, takes other arguments, or asks a library that is missing
NOT_ASKED = (
    "Event Stream StreamContext device device_of stream set_stream set_rng_state set_rng_state_all compile_shader "
    "can_device_access_peer get_stream_from_external is_current_stream_capturing reset_accumulated_memory_stats "
    "reset_peak_memory_stats is_bf16_supported"
)


def told(lib: Any, kind: str, name: str) -> Any:
    try:
        return getattr(getattr(lib, kind), name)(*ARGUMENTS.get(name, ()))
    except (RuntimeError, AssertionError):
        return "refused"


@pytest.mark.torch
@pytest.mark.parametrize(("kind", "name"), [call for call in CALLS if call[1] not in NOT_ASKED.split()])
def test_the_answer_is_torchs(kind: str, name: str) -> None:
    torch = pytest.importorskip("torch")
    theirs = told(torch, kind, name)
    assert told(dc, kind, name) == (dict(theirs) if isinstance(theirs, dict) else theirs)


def test_what_is_refused_says_so() -> None:
    for kind, name in (("xpu", "current_device"), ("mps", "synchronize"), ("mtia", "Event")):
        if hasattr(getattr(dc, kind), name):
            with pytest.raises(NoGPUError, match=f"{kind}.{name}: there are no {kind.upper()} devices"):
                getattr(getattr(dc, kind), name)()
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        dc.xpu.nothing  # noqa: B018


@pytest.mark.torch
def test_every_name_is_torchs() -> None:
    torch = pytest.importorskip("torch")
    assert [f"{kind}.{name}" for kind, name in CALLS if not hasattr(getattr(torch, kind), name)] == []
