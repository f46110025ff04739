"""torch.distributed's names over our collectives: process groups, collectives and messages on Tensors and objects.

In: Tensors and picklable objects. Out: the same, reduced, broadcast, gathered, sent. See group.py (groups and ranks),
tensors.py, messages.py, objects.py and work.py; environment.py for how a job must be started.
"""

from __future__ import annotations

from compiler_core.names.namespaces import named_in
from distcompile.ddp import comm_hook
from distcompile.distributed import backend, in_graphs, messages, objects, seen, tensors, traced, work
from distcompile.distributed import group as groups
from distcompile.surface.laid_out import lay_out

_NAMES = {
    comm_hook: "GradBucket",
    backend: """
        Backend is_available is_backend_available is_gloo_available is_mpi_available is_nccl_available
        is_torchelastic_launched is_ucc_available
    """,
    groups: """
        GroupMember ProcessGroup destroy_process_group get_backend get_backend_config get_global_rank get_group_rank
        get_node_local_rank get_process_group_ranks get_rank get_world_size group group_or_default init_process_group
        is_initialized new_group new_subgroups new_subgroups_by_enumeration use_communicator
    """,
    messages: "P2POp batch_isend_irecv irecv isend recv send",
    objects: """
        all_gather_object broadcast_object_list gather_object recv_object_list scatter_object_list send_object_list
    """,
    tensors: """
        ReduceOp all_gather all_gather_into_tensor all_gather_single all_reduce all_to_all all_to_all_single barrier
        broadcast gather monitored_barrier reduce reduce_scatter reduce_scatter_single reduce_scatter_tensor scatter
    """,
    seen: "watch_collectives",
    work: "TensorWork",
}

globals().update(named_in(_NAMES), Work=work.TensorWork)
__all__ = sorted([*named_in(_NAMES), "Work"])
globals().update(
    lay_out(
        __name__,
        __name__,
        {
            "distributed_c10d": "group tensors objects messages backend work",
            "_functional_collectives": "functional_collectives",
        },
    )
)
in_graphs.use_groups()
traced.replace_in_captured_code()
