"""Stand-ins for what torch.distributed has beyond data parallelism: sharded tensors and modules, device meshes.

In: nothing. Out: `NAMES`. A process group and DistributedDataParallel are here; a tensor lies whole on every rank, so
`isinstance(x, DTensor)` is False, which is what libraries ask before they take another way.
"""

from __future__ import annotations

from dataclasses import dataclass

from distcompile.as_torch.stand_ins.kinds import StandIn, error, listed, names_only, nothing_is_one, true

_WHOLE = "tensors lie whole on every rank"
_MODULES = "modules lie whole on every rank; use DistributedDataParallel"
_CHECKPOINTS = "sharded checkpoints need sharded tensors; use save and load"


@dataclass(frozen=True)
class Placement:
    """How a sharded tensor would lie on the ranks of a mesh's dim. Only refused names read it."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether it is split: along `dim`, where that is given."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """Whether it is whole on each."""
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether it is a term of a sum, or of another reduction."""
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)


@dataclass(frozen=True)
class Shard(Placement):
    """Split along a dim."""

    dim: int

    @staticmethod
    def _local_shard_size_and_offset(curr_local_size: int, num_chunks: int, rank: int) -> tuple[int, int]:
        """(size, offset) of a rank's part: parts of one size, the last ones shorter or empty."""
        whole = -(-curr_local_size // num_chunks)
        begin = min(whole * rank, curr_local_size)
        size = max(min(whole, curr_local_size - whole * rank), 0)
        return size, begin

    def local_shard_size_and_offset(self, curr_local_size: int, num_chunks: int, rank: int) -> tuple[int, int]:
        """As above."""
        return self._local_shard_size_and_offset(curr_local_size, num_chunks, rank)


@dataclass(frozen=True)
class StridedShard(Shard):
    """Split along a dim that is split already, so that a rank's part is several pieces."""

    split_factor: int


@dataclass(frozen=True)
class Replicate(Placement):
    """Whole on each."""


@dataclass(frozen=True)
class Partial(Placement):
    """A term of a reduction."""

    reduce_op: str = "sum"


_PLACEMENTS = {
    name: true("a description; only refused names read it", kind)
    for name, kind in {
        "Placement": Placement, "Shard": Shard, "Replicate": Replicate, "Partial": Partial,
        "_StridedShard": StridedShard,
    }.items()
}  # fmt: skip

_METHODS = "fsdp_modules optim_state_dict optim_state_dict_to_load rekey_optim_state_dict state_dict_type"
_DTENSOR = nothing_is_one(_WHOLE, "from_local")
_CONFIGS = (
    "FullStateDictConfig FullOptimStateDictConfig LocalStateDictConfig LocalOptimStateDictConfig "
    "ShardedStateDictConfig ShardedOptimStateDictConfig StateDictConfig OptimStateDictConfig StateDictSettings"
)
_API = {
    **listed("api", f"{_CONFIGS} CPUOffload MixedPrecision", nothing_is_one(_MODULES)),
    "api.StateDictType": names_only("FULL_STATE_DICT LOCAL_STATE_DICT SHARDED_STATE_DICT"),
    "api.ShardingStrategy": names_only("FULL_SHARD SHARD_GRAD_OP NO_SHARD HYBRID_SHARD _HYBRID_SHARD_ZERO2"),
    "api.BackwardPrefetch": names_only("BACKWARD_PRE BACKWARD_POST"),
    "fully_sharded_data_parallel.FullyShardedDataParallel": nothing_is_one(
        _MODULES, f"{_METHODS} summon_full_params set_state_dict_type"
    ),
    "fully_sharded_data_parallel.OptimStateKeyType": names_only("PARAM_NAME PARAM_ID"),
}
_FSDP = {
    f"torch.distributed.fsdp.{file}{name.rpartition('.')[2]}": stand_in
    for name, stand_in in _API.items()
    for file in ("", "fully_sharded_data_parallel.", "api.")
    if file != "api." or name.startswith("api.")
}

NAMES: dict[str, StandIn] = {
    "torch.distributed.tensor.DTensor": _DTENSOR,
    "torch.distributed._tensor.DTensor": _DTENSOR,
    "torch.distributed._tensor.experimental.implicit_replication": error(_WHOLE),
    "torch.distributed.tensor.experimental.context_parallel": error(_WHOLE),
    "torch.distributed.tensor.experimental._attention.set_rotate_method": error(_WHOLE),
    **{f"torch.distributed.tensor.{name}": placement for name, placement in _PLACEMENTS.items()
       if name != "_StridedShard"},
    **{f"torch.distributed.tensor.placement_types.{name}": placement for name, placement in _PLACEMENTS.items()},
    **listed("torch.distributed.tensor", "distribute_tensor distribute_module", error(_WHOLE)),
    "torch.distributed.tensor._utils.compute_local_shape_and_global_offset": error(_WHOLE),
    **listed("torch.distributed.tensor.parallel", "ColwiseParallel RowwiseParallel SequenceParallel PrepareModuleInput "
             "PrepareModuleOutput ParallelStyle", nothing_is_one(_MODULES)),
    **listed("torch.distributed.tensor.parallel", "parallelize_module loss_parallel", error(_MODULES)),
    "torch.distributed.device_mesh.DeviceMesh": nothing_is_one(_WHOLE),
    "torch.distributed.device_mesh.init_device_mesh": error(_WHOLE),
    "torch.distributed.DeviceMesh": nothing_is_one(_WHOLE),
    "torch.distributed.init_device_mesh": error(_WHOLE),
    **_FSDP,
    **listed("torch.distributed.fsdp", "CPUOffloadPolicy MixedPrecisionPolicy OffloadPolicy FSDPModule",
             nothing_is_one(_MODULES)),
    "torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler": nothing_is_one(_MODULES),
    **listed("torch.distributed.fsdp.wrap", "transformer_auto_wrap_policy size_based_auto_wrap_policy "
             "lambda_auto_wrap_policy always_wrap_policy enable_wrap wrap _or_policy", error(_MODULES)),
    "torch.distributed.fsdp.wrap.ModuleWrapPolicy": nothing_is_one(_MODULES),
    **listed("torch.distributed.fsdp", "fully_shard register_fsdp_forward_method", error(_MODULES)),
    **listed("torch.distributed._composable.fsdp", "fully_shard", error(_MODULES)),
    **listed("torch.distributed._composable.fsdp", "CPUOffloadPolicy MixedPrecisionPolicy FSDPModule",
             nothing_is_one(_MODULES)),
    **listed("torch.distributed.checkpoint", "save load async_save", error(_CHECKPOINTS)),
    **listed("torch.distributed.checkpoint", "FileSystemReader FileSystemWriter DefaultLoadPlanner "
             "DefaultSavePlanner", nothing_is_one(_CHECKPOINTS)),
    **listed("torch.distributed.checkpoint", "save_state_dict load_state_dict", error(_CHECKPOINTS)),
    "torch.distributed.checkpoint.format_utils._EmptyStateDictLoadPlanner": nothing_is_one(_CHECKPOINTS),
    "torch.distributed.checkpoint.format_utils._load_state_dict": error(_CHECKPOINTS),
    "torch.distributed.checkpoint.optimizer.load_sharded_optimizer_state_dict": error(_CHECKPOINTS),
    "torch.distributed.checkpoint.state_dict_loader._load_state_dict": error(_CHECKPOINTS),
    "torch.distributed.checkpoint.default_planner.DefaultSavePlanner": nothing_is_one(_CHECKPOINTS),
    "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.offload_wrapper": error(_MODULES),
    "torch.distributed.optim.DistributedOptimizer": nothing_is_one("ranks call collectives alone"),
    "torch.distributed._functional_collectives.AsyncCollectiveTensor": nothing_is_one(_WHOLE),
    "torch.distributed.distributed_c10d._pg_map": true("groups are not looked up by a table", {}),
    "torch.distributed.distributed_c10d.is_xccl_available": true("there is no XCCL", lambda: False),
    "torch._C._distributed_c10d.Reducer": nothing_is_one("gradients are reduced by distcompile.ddp"),
    "torch._C._distributed_rpc._is_current_rpc_agent_set": true("there is no rpc", lambda: False),
    **listed("torch.distributed.checkpoint.hf_storage", "HuggingFaceStorageReader HuggingFaceStorageWriter",
             nothing_is_one(_CHECKPOINTS)),
    "torch.distributed.checkpoint.default_planner.DefaultLoadPlanner": nothing_is_one(_CHECKPOINTS),
    "torch.distributed.checkpoint._consolidate_hf_safetensors.consolidate_safetensors_files": error(_CHECKPOINTS),
    "torch.distributed.checkpoint.state_dict.StateDictOptions": nothing_is_one(_CHECKPOINTS),
    **listed("torch.distributed.checkpoint.state_dict", "get_model_state_dict set_model_state_dict "
             "get_optimizer_state_dict set_optimizer_state_dict get_state_dict set_state_dict", error(_CHECKPOINTS)),
}  # fmt: skip
