"""Modes of the thread that traced code depends on and may change: gradients, autocast, default dtype, shard of draws.

In: the thread. Out: `Ambient`: what they are now; guards on them; and what a captured segment left them at.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field, replace
from typing import Any

from compiler_core import dtype as dtypes
from compiler_core.capture.guards.guards import Guards
from compiler_core.device import Device, default_devices, set_default_devices, times_asked
from compiler_core.ops.casting import casting
from compiler_core.overrides.state import IDLE, Now, become, thread_overrides
from compiler_core.records import dataclass
from compiler_core.tensor.autograd.grad_mode import thread_mode
from compiler_core.tensor.making.random_state import current_shard, shard_mode


@dataclass(frozen=True, slots=True)
class Ambient:
    """What the thread's modes are."""

    gradients: bool
    inference: bool
    acting: Any
    lower: Any
    depth: int
    default: Any
    shard: int
    devices: tuple[Device, ...] | None  # the default one, and those of the blocks around; None: as they are
    switches: int = field(compare=False)  # of the shard
    asked: int = field(compare=False)  # how often the default device was asked for
    overrides: Now = IDLE  # what `__torch_function__` is asked for

    @staticmethod
    def now() -> Ambient:
        return Ambient(
            thread_mode.enabled,
            thread_mode.inference,
            casting.acting,
            casting.lower,
            casting.depth,
            dtypes.get_default_dtype(),
            current_shard(),
            default_devices(),
            shard_mode.switches,
            times_asked(),
            thread_overrides.now,
        )

    def change(self) -> Ambient | None:
        """What they have become since, if they have changed, for `follow`: `depth` says how many regions more."""
        now = Ambient.now()
        if now == self:
            return None
        devices = None if now.devices == self.devices else now.devices
        return replace(now, devices=devices, depth=now.depth - self.depth)

    def follow(self) -> None:
        """Have the thread in what `change` gave. A later call may be in more regions of autocast, or in fewer."""
        depth = casting.depth + self.depth
        self.set()
        casting.depth = depth

    def set(self) -> None:
        """Have the thread in these modes."""
        thread_mode.enabled, thread_mode.inference = self.gradients, self.inference
        casting.acting, casting.lower, casting.depth = self.acting, self.lower, self.depth
        if dtypes.get_default_dtype() is not self.default:
            dtypes.set_default_dtype(self.default)
        shard_mode.index = self.shard
        become(self.overrides)
        if self.devices is not None and self.devices != default_devices():
            set_default_devices(self.devices)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Within the block, the thread is in these modes."""
        now = Ambient.now()
        self.set()
        try:
            yield
        finally:
            now.set()

    def guard(self, guards: Guards) -> None:
        """Require them to be like this."""
        mode = guards.bind(thread_mode, "mode")
        same = f"{mode}.enabled is {self.gradients} and {mode}.inference is {self.inference}"
        guards.require(same, f"gradients are {'on' if self.gradients else 'off'}")
        default, getter = guards.bind(self.default, "dtype"), guards.bind(dtypes.get_default_dtype, "get_default_dtype")
        guards.require(f"{getter}() is {default}", f"the default dtype is {self.default.name}")
        state = guards.bind(casting, "casting")
        wanted = "None" if self.acting is None else guards.bind(self.acting, "dtype")
        guards.require(f"{state}.acting is {wanted}", f"autocast is {self.acting or 'off'}")
        asked = guards.bind(thread_overrides, "overrides")
        if self.overrides.modes:
            guards.require(f"{asked}.now.modes", "a TorchFunctionMode is on")
        else:
            same = "is" if self.overrides is IDLE else "=="
            guards.require(f"{asked}.now {same} {guards.bind(self.overrides, 'now')}", "no TorchFunctionMode is on")

    def guard_device(self, guards: Guards) -> None:
        """If the default device was asked for, or has changed: require it."""
        if times_asked() == self.asked and default_devices() == self.devices:
            return
        wanted, getter = guards.bind(self.devices, "devices"), guards.bind(default_devices, "default_devices")
        guards.require(f"{getter}() == {wanted}", f"the default device is {(self.devices or ('cpu',))[-1]}")

    def guard_shard(self, guards: Guards, draws: bool) -> None:
        """If random numbers are drawn, or blocks remember the shard of a joint batch that they found: require it."""
        if not draws and shard_mode.switches == self.switches:
            return
        mode = guards.bind(shard_mode, "shard")
        guards.require(f"{mode}.index == {self.shard}", f"random draws are for shard {self.shard}")
