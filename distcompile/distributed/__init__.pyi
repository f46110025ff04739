"""Written by tests/test_stubs.py from what the namespace holds: see there."""

# ruff: noqa
# fmt: off

from collectives.communicator import Communicator as ProcessGroup
from distcompile.ddp.comm_hook import GradBucket as GradBucket
from distcompile.distributed.backend import Backend as Backend
from distcompile.distributed.backend import is_available as is_available
from distcompile.distributed.backend import is_backend_available as is_backend_available
from distcompile.distributed.backend import is_gloo_available as is_gloo_available
from distcompile.distributed.backend import is_mpi_available as is_mpi_available
from distcompile.distributed.backend import is_nccl_available as is_nccl_available
from distcompile.distributed.backend import is_torchelastic_launched as is_torchelastic_launched
from distcompile.distributed.backend import is_ucc_available as is_ucc_available
from distcompile.distributed.group import GroupMember as GroupMember
from distcompile.distributed.group import destroy_process_group as destroy_process_group
from distcompile.distributed.group import get_backend as get_backend
from distcompile.distributed.group import get_backend_config as get_backend_config
from distcompile.distributed.group import get_global_rank as get_global_rank
from distcompile.distributed.group import get_group_rank as get_group_rank
from distcompile.distributed.group import get_node_local_rank as get_node_local_rank
from distcompile.distributed.group import get_process_group_ranks as get_process_group_ranks
from distcompile.distributed.group import get_rank as get_rank
from distcompile.distributed.group import get_world_size as get_world_size
from distcompile.distributed.group import group as group
from distcompile.distributed.group import group_or_default as group_or_default
from distcompile.distributed.group import init_process_group as init_process_group
from distcompile.distributed.group import is_initialized as is_initialized
from distcompile.distributed.group import new_group as new_group
from distcompile.distributed.group import new_subgroups as new_subgroups
from distcompile.distributed.group import new_subgroups_by_enumeration as new_subgroups_by_enumeration
from distcompile.distributed.group import use_communicator as use_communicator
from distcompile.distributed.messages import P2POp as P2POp
from distcompile.distributed.messages import batch_isend_irecv as batch_isend_irecv
from distcompile.distributed.messages import irecv as irecv
from distcompile.distributed.messages import isend as isend
from distcompile.distributed.messages import recv as recv
from distcompile.distributed.messages import send as send
from distcompile.distributed.objects import all_gather_object as all_gather_object
from distcompile.distributed.objects import broadcast_object_list as broadcast_object_list
from distcompile.distributed.objects import gather_object as gather_object
from distcompile.distributed.objects import recv_object_list as recv_object_list
from distcompile.distributed.objects import scatter_object_list as scatter_object_list
from distcompile.distributed.objects import send_object_list as send_object_list
from distcompile.distributed.seen import watch_collectives as watch_collectives
from distcompile.distributed.tensors import ReduceOp as ReduceOp
from distcompile.distributed.tensors import all_gather as all_gather
from distcompile.distributed.tensors import all_gather_into_tensor as all_gather_into_tensor
from distcompile.distributed.tensors import all_gather_into_tensor as all_gather_single
from distcompile.distributed.tensors import all_reduce as all_reduce
from distcompile.distributed.tensors import all_to_all as all_to_all
from distcompile.distributed.tensors import all_to_all_single as all_to_all_single
from distcompile.distributed.tensors import barrier as barrier
from distcompile.distributed.tensors import broadcast as broadcast
from distcompile.distributed.tensors import gather as gather
from distcompile.distributed.tensors import monitored_barrier as monitored_barrier
from distcompile.distributed.tensors import reduce as reduce
from distcompile.distributed.tensors import reduce_scatter as reduce_scatter
from distcompile.distributed.tensors import reduce_scatter_tensor as reduce_scatter_single
from distcompile.distributed.tensors import reduce_scatter_tensor as reduce_scatter_tensor
from distcompile.distributed.tensors import scatter as scatter
from distcompile.distributed.work import TensorWork as TensorWork
from distcompile.distributed.work import TensorWork as Work

__all__ = [
    "Backend",
    "GradBucket",
    "GroupMember",
    "P2POp",
    "ProcessGroup",
    "ReduceOp",
    "TensorWork",
    "Work",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_gather_single",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_object_list",
    "destroy_process_group",
    "gather",
    "gather_object",
    "get_backend",
    "get_backend_config",
    "get_global_rank",
    "get_group_rank",
    "get_node_local_rank",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "group",
    "group_or_default",
    "init_process_group",
    "irecv",
    "is_available",
    "is_backend_available",
    "is_gloo_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "is_ucc_available",
    "isend",
    "monitored_barrier",
    "new_group",
    "new_subgroups",
    "new_subgroups_by_enumeration",
    "recv",
    "recv_object_list",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    "send",
    "send_object_list",
    "use_communicator",
    "watch_collectives",
]
