"""Public functions as overridable ones: `torch.add`, `torch.linalg.norm`, `nn.functional.relu`.

In: a function, the namespace that it is public in, its name there. Out: an object of its own that does the same, and
asks from the start, for the first argument that overrides may be of a class that is no Tensor (a proxy, a lazy matrix).
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from compiler_core.overrides.calls import Entry
from compiler_core.overrides.switch import ENTRIES, copy_of, overridable
from compiler_core.spelling import spelled

# not overridable in torch, or no functions of tensors
_NOT_IN_TORCH = """
from_numpy frombuffer broadcast_shapes manual_seed seed initial_seed get_rng_state set_rng_state set_printoptions
is_anomaly_enabled is_anomaly_check_nan_enabled is_grad_enabled is_inference_mode_enabled get_default_dtype
set_default_dtype from_dlpack to_dlpack set_default_tensor_type vmap
"""
_NOT_IN_FUNCTIONAL = "sigmoid tanh upsample upsample_bilinear upsample_nearest"
_NOT = {"": frozenset(_NOT_IN_TORCH.split()), "nn.functional": frozenset(_NOT_IN_FUNCTIONAL.split())}
# of nn.functional, the same functions as torch's of that name
_SHARED = """
adaptive_avg_pool1d avg_pool1d bilinear celu_ channel_shuffle conv1d conv2d conv3d conv_tbc conv_transpose1d
conv_transpose2d conv_transpose3d cosine_similarity hardshrink native_channel_shuffle pairwise_distance pdist
pixel_shuffle pixel_unshuffle prelu relu_ rrelu_ selu_ threshold_
"""
SHARED = frozenset(_SHARED.split())
# of torch's, those that are written in Python in torch; of nn.functional's, those that are not
_IN_PYTHON = """
atleast_1d atleast_2d atleast_3d block_diag broadcast_tensors cartesian_prod cdist chain_matmul einsum lu meshgrid norm
pca_lowrank split stft svd_lowrank tensordot unique unique_consecutive unravel_index
"""
_IN_C = """
avg_pool2d avg_pool3d elu_ gelu hardtanh_ leaky_relu_ linear logsigmoid one_hot scaled_dot_product_attention softplus
softshrink
"""
_PYTHONS, _CS = frozenset(_IN_PYTHON.split()), frozenset(_IN_C.split())
_FOR_MODES = ("tensor", "as_tensor", "asarray", "scalar_tensor")
_PREFIXED = ("linalg", "fft", "special")  # torch.linalg.norm calls itself linalg_norm
_public: list[FunctionType] = []


def public_function(function: Any, space: str, name: str) -> Any:
    """`function` as it is public under `name` in torch's namespace `space` ("" for torch, "linalg", "nn.init")."""
    if not isinstance(function, FunctionType):
        return function
    if name in _NOT.get(space, ()):
        return function
    if id(function) in ENTRIES:
        function = ENTRIES[id(function)].origin
    own = copy_of(function, f"{space}_{name}" if space in _PREFIXED else name)
    own.__qualname__, own.__module__ = name, spelled(space) if space else spelled("")[:-1]
    is_shared = space == "nn.functional" and name in SHARED
    where = "torch" if not space or is_shared else f"torch.{space}"
    entry = Entry(own, function, f"{where}.{name}")
    entry.in_python = _is_in_python("" if is_shared else space, name)
    entry.all_by_name = space == "nn.init"
    entry.is_for_modes = not space and name in _FOR_MODES
    overridable(own, entry, at_once=True)
    _public.append(own)
    return own


def call_modules() -> None:
    """The library goes by another name from now on (`spelling.py`): so do the modules of its public functions."""
    for function in _public:
        _, _, space = function.__module__.partition(".")
        function.__module__ = spelled(space) if space else spelled("")[:-1]


def _is_in_python(space: str, name: str) -> bool:
    """Whether torch has it in Python: see `calls.py`."""
    if space == "nn.functional":
        return name not in _CS
    return space in ("nn.init", "autograd") or (not space and name in _PYTHONS)


def make_functions_overridable(namespace: dict[str, Any], names: list[str], space: str) -> None:
    """Put overridable functions in the place of those in `namespace`."""
    for name in names:
        namespace[name] = public_function(namespace[name], space, name)
