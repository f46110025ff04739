"""Stand-ins for what torch.distributed has beyond data parallelism: sharded tensors and modules, device meshes.

In: nothing. Out: `NAMES`. A process group and DistributedDataParallel are here; a tensor lies whole on every rank, so
`isinstance(x, DTensor)` is False, which is what libraries ask before they take another way.
"""

from __future__ import annotations

from dataclasses import dataclass

from distcompile.as_torch.stand_ins.kinds import StandIn, error, listed, nothing_is_one, true

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

NAMES: dict[str, StandIn] = {
    "torch.distributed.tensor.DTensor": nothing_is_one(_WHOLE),
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
    **listed("torch.distributed._functional_collectives", "wait_tensor all_reduce all_gather_tensor "
             "reduce_scatter_tensor all_to_all_single all_to_all_single_autograd",
             error("collectives over meshes are not here; use torch.distributed's")),
    **listed("torch.distributed.fsdp", "FullyShardedDataParallel CPUOffload CPUOffloadPolicy MixedPrecision "
             "MixedPrecisionPolicy OffloadPolicy FSDPModule ShardingStrategy BackwardPrefetch StateDictType "
             "FullStateDictConfig", nothing_is_one(_MODULES)),
    **listed("torch.distributed.fsdp", "fully_shard register_fsdp_forward_method", error(_MODULES)),
    **listed("torch.distributed._composable.fsdp", "fully_shard", error(_MODULES)),
    **listed("torch.distributed._composable.fsdp", "CPUOffloadPolicy MixedPrecisionPolicy FSDPModule",
             nothing_is_one(_MODULES)),
    **listed("torch.distributed.checkpoint", "save load async_save", error(_CHECKPOINTS)),
    **listed("torch.distributed.checkpoint", "FileSystemReader FileSystemWriter DefaultLoadPlanner "
             "DefaultSavePlanner", nothing_is_one(_CHECKPOINTS)),
    **listed("torch.distributed.checkpoint.hf_storage", "HuggingFaceStorageReader HuggingFaceStorageWriter",
             nothing_is_one(_CHECKPOINTS)),
    "torch.distributed.checkpoint.default_planner.DefaultLoadPlanner": nothing_is_one(_CHECKPOINTS),
    "torch.distributed.checkpoint._consolidate_hf_safetensors.consolidate_safetensors_files": error(_CHECKPOINTS),
    "torch.distributed.checkpoint.state_dict.StateDictOptions": nothing_is_one(_CHECKPOINTS),
    **listed("torch.distributed.checkpoint.state_dict", "get_model_state_dict set_model_state_dict "
             "get_optimizer_state_dict set_optimizer_state_dict get_state_dict set_state_dict", error(_CHECKPOINTS)),
}  # fmt: skip
