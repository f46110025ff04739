"""Stand-ins for how torch starts and connects processes otherwise than over MPI: rpc, elastic, pipelines, stores.

In: nothing. Out: `NAMES`. `distcompile-run` starts the ranks here; all of them are there from the beginning.
"""

from __future__ import annotations

from distcompile.as_torch.stand_ins.kinds import StandIn, error, listed, names_only, nothing_is_one, record

_RPC = "ranks call collectives, not functions of each other"
_LAUNCH = "ranks are started by distcompile-run"
_STAGES = "a model is whole on every rank"

NAMES: dict[str, StandIn] = {
    **listed("torch.distributed.rpc", "init_rpc shutdown rpc_async rpc_sync remote", error(_RPC)),
    "torch.distributed.rpc.api._all_gather": error(_RPC),
    "torch.distributed.rpc.api._require_initialized": record("torch.distributed.rpc.init_rpc"),
    **listed("torch.distributed.rpc", "TensorPipeRpcBackendOptions RRef", nothing_is_one(_RPC)),
    **listed("torch.distributed.launcher.api", "LaunchConfig", nothing_is_one(_LAUNCH)),
    **listed("torch.distributed.launcher.api", "elastic_launch launch_agent", error(_LAUNCH)),
    **listed("torch.distributed.run", "run main get_args_parser", error(_LAUNCH)),
    "torch.numa.binding.NumaOptions": nothing_is_one(_LAUNCH),
    "torch.numa.binding.AffinityMode": names_only("NODE SOCKET EXCLUSIVE CORE_COMPLEX"),
    "torch.distributed.FileStore": nothing_is_one("ranks meet over MPI, without a store"),
    "torch.distributed.pipelining.pipeline": error(_STAGES),
    "torch.distributed.pipelining.ScheduleGPipe": nothing_is_one(_STAGES),
    "torch.distributed.pipelining.SplitPoint": names_only("BEGINNING END"),
}
