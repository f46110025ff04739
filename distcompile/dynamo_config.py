"""torch._dynamo.config: what scripts set before they compile.

In: assignments, and `patch`, which puts values back afterwards. Out: what was set, or torch's default. The limit of
recompiles is ours; nothing here reads the others: another value than torch's default is kept, with a warning once.
Names that torch does not have are an AttributeError, as there.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from compiler_core.config import config
from compiler_core.log import warn_once

_LIMITS = frozenset({"cache_size_limit", "recompile_limit"})
_OFF = """
verbose suppress_errors capture_scalar_outputs capture_dynamic_output_shape_ops allow_unspec_int_on_nn_module
skip_fwd_side_effects_in_bwd_under_checkpoint specialize_int specialize_float error_on_recompile allow_rnn
fail_on_recompile_limit_hit compiled_autograd disable cprofile replay_record_enabled enable_compiler_collectives
verify_correctness prepare_freezing use_numpy_random_stream allow_ignore_mark_dynamic
"""
_ON = """
assume_static_by_default automatic_dynamic_shapes dynamic_shapes optimize_ddp guard_nn_modules inline_inbuilt_nn_modules
skip_nnmodule_hook_guards trace_numpy rewrite_assert_with_torch_assert report_guard_failures
force_parameter_static_shapes
"""
_DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(_OFF.split(), False), **dict.fromkeys(_ON.split(), True),
    "accumulated_recompile_limit": 256, "accumulated_cache_size_limit": 256, "log_file_name": None, "repro_after": None,
    "repro_level": 2, "reorderable_logging_functions": set(),
}  # fmt: skip


class DynamoConfig:
    """The one object, `_dynamo.config`."""

    def __init__(self) -> None:
        self.__dict__["_set"] = {}

    def __getattr__(self, name: str) -> Any:
        if name in _LIMITS:
            return config.recompile_limit
        if name not in _DEFAULTS:
            raise AttributeError(f"torch._dynamo.config.{name} does not exist")
        if isinstance(_DEFAULTS[name], set):
            return self._set.setdefault(name, copy.copy(_DEFAULTS[name]))
        return self._set.get(name, _DEFAULTS[name])

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _LIMITS:
            config.recompile_limit = value
            return
        before = getattr(self, name)
        self._set[name] = value
        if value not in (before, _DEFAULTS[name]):
            warn_once(f"dynamo.config.{name}", f"torch._dynamo.config.{name} = {value!r}: nothing here reads it")

    def patch(self, arg1: str | Mapping[str, Any] | None = None, arg2: Any = None, **kwargs: Any) -> Any:
        """A block, or a decorator of functions, in which names have other values: a name and a value, a dict, or words.

        Raises AttributeError for a name that is none.
        """
        changes = {arg1: arg2} if isinstance(arg1, str) else dict(arg1 or kwargs)
        for name in changes:
            getattr(self, name)
        return _changed(self, changes)


@contextmanager
def _changed(target: DynamoConfig, changes: Mapping[str, Any]) -> Iterator[None]:
    before = {name: getattr(target, name) for name in changes}
    try:
        for name, value in changes.items():
            setattr(target, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(target, name, value)
