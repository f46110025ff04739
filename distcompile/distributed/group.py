"""Process groups: the default one, sub-groups, and who has which rank in them.

In: the launcher's environment (`init_process_group`), lists of ranks (`new_group`). Out: communicators. A group *is* a
`collectives.Communicator`; this module keeps beside it which global ranks it is made of. As in torch, `src` and `dst`
are global ranks everywhere, and a rank that is not in a new group gets `GroupMember.NON_GROUP_MEMBER` for it.
The default group is the process's; a thread that is a rank of its own (`use_communicator`) sees its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from types import ModuleType
from typing import Literal, TypeAlias, cast
from weakref import WeakKeyDictionary

from collectives import Communicator, was_launched_by_mpi
from collectives.nccl.communicator import NcclCommunicator
from compiler_core import log
from compiler_core.config import config
from compiler_core.device import Device
from compiler_core.errors import GraphBreak
from compiler_core.location import user_location
from compiler_core.ops.registry import current_trace
from compiler_core.tensor.memory.fence import settle_all
from distcompile import watchdog
from distcompile.ddp.errors import NotInitializedError
from distcompile.distributed import environment
from distcompile.distributed.backend import Backend, transport_of
from distcompile.distributed.errors import GroupRankError, LaunchError

ProcessGroup: TypeAlias = Communicator
Timeout: TypeAlias = "timedelta | float | None"


class _Names(type):
    @property
    def WORLD(cls) -> Communicator | None:
        """The default group; None before init_process_group()."""
        return _current()


class group(metaclass=_Names):
    """torch's name of the default group: `group.WORLD`."""


class GroupMember(metaclass=_Names):
    """Names of the default group, `GroupMember.WORLD`, and of a group that this rank is not in, NON_GROUP_MEMBER.

    Example:
        >>> dist.GroupMember.WORLD is None, dist.GroupMember.NON_GROUP_MEMBER  # before init_process_group
        (True, -100)
    """

    NON_GROUP_MEMBER = -100


class _Process:
    """What this process has, as an attribute: that is guarded in compiled code, names in modules of ours are not."""

    group: Communicator | None = None  # the default one


_process = _Process()
_thread_group: ContextVar[Communicator | None] = ContextVar("communicator", default=None)
_members: WeakKeyDictionary[Communicator, tuple[int, ...]] = WeakKeyDictionary()  # global ranks of sub-groups
_twins: WeakKeyDictionary[Communicator, Communicator] = WeakKeyDictionary()
_children: WeakKeyDictionary[Communicator, list[Communicator]] = WeakKeyDictionary()
_groups_made: WeakKeyDictionary[Communicator, int] = WeakKeyDictionary()  # by new_group, on all ranks alike


# --- the default group ------------------------------------------------------------------------------------------------


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: Timeout = None,
    world_size: int = -1,
    rank: int = -1,
    store: object = None,
    group_name: str = "",
    pg_options: object = None,
    device_id: object = None,
    *,
    reduction: Literal["fast", "rank_order"] = "fast",
) -> None:
    """Make the default group of all ranks that the MPI launcher started; one rank alone without a launcher.

    Args:
        backend: None: tensors on the CPU travel over MPI, tensors on a GPU over NCCL, where there is one. "nccl"
            insists on that; "gloo" or "mpi": no GPUs.
        init_method ("env://", "tcp://...", "file://..."), world_size, rank: checked, for MPI knows them.
        timeout: limit of every wait, also of this call's; timedelta or seconds. None: the launcher's, else 30 minutes.
        device_id: this rank's GPU; NCCL starts at once then, and not at the first collective of a tensor on it.
        reduction: "rank_order" makes sums on the CPU independent of bucket sizes.
        store: LaunchError if given. group_name, pg_options: taken for torch's sake, without effect.

    Raises: LaunchError if arguments, or the variables of torchrun, Slurm or MPI, promise another world than there is:
    never is a world of one made of them. NotInitializedError for a second call, CollectiveTimeoutError,
    MpiNotFoundError.

    Example (`distcompile-run -n 4 script.py` starts four such ranks):
        >>> dist.init_process_group()
        >>> dist.get_rank(), dist.get_world_size()
        (0, 1)
        >>> dist.destroy_process_group()
    """
    from collectives import connect
    from collectives.work import DEFAULT_TIMEOUT_S
    from distcompile.engine_build import build_engine

    if is_initialized():
        raise NotInitializedError(
            "the default process group is already initialised", remedy="call destroy_process_group() first"
        )
    transport = transport_of(backend)
    if store is not None:
        raise LaunchError("no store is needed: MPI brings the ranks together", remedy="leave store out")
    given = environment.promises_of_arguments(init_method, world_size, rank)
    found = [] if transport == "threaded" else environment.promises_of_environment(os.environ)
    says_size = any(promise.world_size is not None for promise in given)
    environment.check_before(given if says_size else given + found)
    limit_s = (watchdog.limit_s() or DEFAULT_TIMEOUT_S) if timeout is None else seconds(timeout)
    made = connect(transport, timeout_s=limit_s, reduction=reduction, build=build_engine)
    promises = given + (found if made.host_transport == "mpi" and was_launched_by_mpi() else [])
    environment.check_after(promises, made.world_size, made.rank, made.host_transport)
    _process.group = made
    log.set_rank(made.rank)
    if made.host_transport == "mpi":
        for part in _beside():
            part.attach(made)
    if isinstance(made, NcclCommunicator):
        made.stages_messages = not config.nccl_messages
    bind_device(made, device_id)


def _beside() -> tuple[ModuleType, ...]:
    """What the processes of a job share beside the group, collectively."""
    from distcompile.distributed import code_of_hosts

    return watchdog, code_of_hosts


def bind_device(communicator: Communicator, device_id: object) -> None:
    """Start NCCL on the GPU that `device_id` (a device, its name or number) says. Waits for nobody."""
    if isinstance(device_id, (int, str, Device)) and isinstance(communicator, NcclCommunicator):
        device = Device(f"cuda:{device_id}" if isinstance(device_id, int) else device_id)
        if device.is_gpu and device.index is not None:
            communicator.bind(device.index)


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Close a group; the default one (None) with all its sub-groups. Waits until all its ranks do.

    Before that it waits for what is still on its way in the group.

    Example:
        >>> dist.init_process_group()
        >>> dist.destroy_process_group()
        >>> dist.is_initialized()
        False
    """
    if not_in(group):
        return
    closing = group_or_default(group)
    settle_all(closing)
    for child in _children.pop(closing, []):
        destroy_process_group(child)
    closing.close()
    for siblings in _children.values():
        siblings[:] = [sibling for sibling in siblings if sibling is not closing]
    if closing is _process.group:
        for part in _beside():
            part.detach()
        _process.group = None


@contextmanager
def use_communicator(communicator: Communicator) -> Iterator[None]:
    """Within the block, in this thread, `communicator` is the default group: one rank a thread, for tests and examples.

    Example:
        >>> from collectives import run_ranks
        >>> def where(ranks):
        ...     with dist.use_communicator(ranks):
        ...         return dist.get_rank(), dist.get_world_size()
        >>> run_ranks(2, where)
        [(0, 2), (1, 2)]
    """
    token = _thread_group.set(communicator)
    try:
        yield
    finally:
        _thread_group.reset(token)


def _current() -> Communicator | None:
    return _thread_group.get() or _process.group


def default_group() -> Communicator:
    """The default group. Raises NotInitializedError if there is none."""
    return group_or_default(None)


def group_or_default(group: ProcessGroup | None) -> Communicator:
    """`group`, or the default one. Raises NotInitializedError if there is none."""
    found = _current() if group is None else group
    if found is None:
        raise NotInitializedError(
            "the default process group is not initialised",
            remedy="call distcompile.distributed.init_process_group() first",
        )
    if not isinstance(found, Communicator):
        raise GroupRankError(f"{found!r} is not a process group that this rank is in")
    return found


def all_groups() -> list[Communicator]:
    """The default group of this thread and those made of it; none before init_process_group."""
    world = _current()
    return [] if world is None else [world, *_children.get(world, ())]


def group_of_key(key: str) -> Communicator:
    """The group that graphs call `key`: "world", or one of `new_group`. Raises NotInitializedError if it is gone."""
    world = group_or_default(None)
    if key == "world":
        return world
    found = next((group for group in _children.get(world, ()) if group.graph_key == key), None)
    if found is None:
        raise NotInitializedError(
            f"the process group {key!r} of a compiled graph is gone", remedy="make the groups anew, in the same order"
        )
    return found


def has_peers(group: Communicator | None) -> bool:
    """Whether there are ranks beside this one in `group` (None: the default group, if there is one)."""
    if group is None and not is_initialized():
        return False
    return group_or_default(group).world_size > 1


def is_initialized() -> bool:
    """Whether there is a default group."""
    return _current() is not None


# --- sub-groups -------------------------------------------------------------------------------------------------------


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: Timeout = None,
    backend: str | None = None,
    pg_options: object = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: object = None,
) -> ProcessGroup:
    """A group of these global ranks, sorted. Every rank of the default group must call it, in one order.

    Args:
        ranks: None: all of them.
        timeout: limit of its every wait; None: the default group's.
        backend: "nccl" where the default group has none.
        device_id: as in `init_process_group`. pg_options, use_local_synchronization, group_desc: without effect.

    Returns: the group; on ranks that are not in it `GroupMember.NON_GROUP_MEMBER`, an int.
    Raises: CollectiveMismatchError, on every rank, if the ranks gave different lists.

    Example:
        >>> from collectives import run_ranks
        >>> def place(ranks):
        ...     with dist.use_communicator(ranks):
        ...         return dist.get_rank(dist.new_group([1, 2]))
        >>> run_ranks(3, place)
        [-1, 0, 1]
    """
    check_not_traced("new_group")
    transport = transport_of(backend)
    world = group_or_default(None)
    members = tuple(range(world.world_size)) if ranks is None else tuple(sorted(int(rank) for rank in ranks))
    made = world.subgroup(members)
    number = _groups_made[world] = _groups_made.get(world, 0) + 1
    if made is None:
        return cast(ProcessGroup, GroupMember.NON_GROUP_MEMBER)
    if transport == "nccl" and not made.takes_device_arrays():
        made = NcclCommunicator(made)
        made.stages_messages = not config.nccl_messages
    bind_device(made, device_id)
    if timeout is not None:
        made.timeout_s = seconds(timeout)
    made.graph_key, made.members = f"group {number}", members
    _members[made] = members
    _children.setdefault(world, []).append(made)
    return made


def new_subgroups(
    group_size: int | None = None,
    group: ProcessGroup | None = None,
    timeout: Timeout = None,
    backend: str | None = None,
    pg_options: object = None,
    group_desc: str | None = None,
) -> tuple[ProcessGroup, list[ProcessGroup]]:
    """Groups of `group_size` consecutive ranks, which must divide the number of ranks.

    Returns: this rank's group, and the list of all, with NON_GROUP_MEMBER for the others. Raises: GroupRankError.

    Example:
        >>> from collectives import run_ranks
        >>> def pair(ranks):
        ...     with dist.use_communicator(ranks):
        ...         return dist.get_process_group_ranks(dist.new_subgroups(2)[0])
        >>> run_ranks(4, pair)
        [[0, 1], [0, 1], [2, 3], [2, 3]]
    """
    world_size = get_world_size()
    if group_size is None or not 0 < group_size <= world_size or world_size % group_size:
        raise GroupRankError(
            f"the ranks cannot be cut into groups of {group_size}", expected=f"a divisor of {world_size}"
        )
    everyone = range(world_size)
    return new_subgroups_by_enumeration(
        [list(everyone[start : start + group_size]) for start in range(0, world_size, group_size)], timeout, backend
    )


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]],
    timeout: Timeout = None,
    backend: str | None = None,
    pg_options: object = None,
    group_desc: str | None = None,
) -> tuple[ProcessGroup, list[ProcessGroup]]:
    """Groups of the ranks given: a list of global ranks for each.

    Returns: this rank's group, or None, and the list of all. Raises: GroupRankError if a rank is in two of them.

    Example:
        >>> from collectives import run_ranks
        >>> def mine(ranks):
        ...     with dist.use_communicator(ranks):
        ...         return dist.get_process_group_ranks(dist.new_subgroups_by_enumeration([[0, 2], [1]])[0])
        >>> run_ranks(3, mine)
        [[0, 2], [1], [0, 2]]
    """
    listed = [rank for ranks in ranks_per_subgroup_list for rank in ranks]
    if not listed or len(set(listed)) < len(listed):
        raise GroupRankError("a rank is in two of the groups, or there are none", got=str(ranks_per_subgroup_list))
    groups = [new_group(ranks, timeout, backend) for ranks in ranks_per_subgroup_list]
    mine = next((made for made in groups if not not_in(made)), None)
    return cast(ProcessGroup, mine), groups


def twin(group: ProcessGroup) -> ProcessGroup:
    """A second communicator of the same ranks, one for each group: for collectives that come in the middle of others.

    Collective the first time. Closed with its group.
    """
    if group not in _twins:
        made = group.subgroup(range(group.world_size))
        assert made is not None
        _twins[group] = made
        _children.setdefault(group, []).append(made)
    return _twins[group]


def check_not_traced(name: str) -> None:
    """Raise GraphBreak while tracing: a call that talks to other ranks would happen once a trace, not once a call."""
    if current_trace() is not None:
        raise GraphBreak(
            f"{name} talks to other ranks",
            where=user_location(),
            remedy="call it outside of the compiled function, or compile with fullgraph=False",
        )


# --- ranks ------------------------------------------------------------------------------------------------------------


def not_in(group: ProcessGroup | None) -> bool:
    """Whether `group` is the NON_GROUP_MEMBER that `new_group` gave this rank."""
    return group == GroupMember.NON_GROUP_MEMBER  # type: ignore[comparison-overlap]


def get_rank(group: ProcessGroup | None = None) -> int:
    """This process's rank in the group, 0 .. world_size-1; -1 if it is not in it. None: the default group."""
    return -1 if not_in(group) else group_or_default(group).rank


def get_world_size(group: ProcessGroup | None = None) -> int:
    """The number of ranks; -1 if this one is not among them."""
    return -1 if not_in(group) else group_or_default(group).world_size


def get_process_group_ranks(group: ProcessGroup | None) -> list[int]:
    """The global ranks of the group, by group rank. None: the default group.

    Example:
        >>> from collectives import run_ranks
        >>> def members(ranks):
        ...     with dist.use_communicator(ranks):
        ...         return dist.get_process_group_ranks(dist.new_subgroups(2)[0])
        >>> run_ranks(4, members)
        [[0, 1], [0, 1], [2, 3], [2, 3]]
    """
    found = group_or_default(group)
    return list(_members.get(found, range(found.world_size)))


def get_group_rank(group: ProcessGroup | None, global_rank: int) -> int:
    """The rank in `group` of a global rank. Raises GroupRankError if it is not in it.

    Example:
        >>> from collectives import run_ranks
        >>> def of_2(ranks):
        ...     with dist.use_communicator(ranks):
        ...         group = dist.new_group([0, 2])
        ...         return dist.get_group_rank(group, 2) if dist.get_rank() == 0 else None
        >>> run_ranks(3, of_2)
        [1, None, None]
    """
    ranks = get_process_group_ranks(group)
    if global_rank not in ranks:
        raise GroupRankError(f"global rank {global_rank} is not part of the group", expected=f"one of {ranks}")
    return ranks.index(global_rank)


def get_global_rank(group: ProcessGroup | None, group_rank: int) -> int:
    """The global rank of a rank in `group`. Raises GroupRankError if there is none.

    Example:
        >>> from collectives import run_ranks
        >>> def of_1(ranks):
        ...     with dist.use_communicator(ranks):
        ...         group = dist.new_group([0, 2])
        ...         return dist.get_global_rank(group, 1) if dist.get_rank() == 0 else None
        >>> run_ranks(3, of_1)
        [2, None, None]
    """
    ranks = get_process_group_ranks(group)
    if not 0 <= group_rank < len(ranks):
        raise GroupRankError(f"group rank {group_rank} is not part of the group", expected=f"0..{len(ranks) - 1}")
    return ranks[group_rank]


def peer_rank(group: ProcessGroup | None, global_rank: int | None, group_rank: int | None, name: str) -> int:
    """The group rank that `src`/`dst` (global) or `group_src`/`group_dst` means; neither given: global rank 0."""
    if global_rank is not None and group_rank is not None:
        raise GroupRankError(f"give {name} or group_{name}, not both", got=f"{global_rank} and {group_rank}")
    if group_rank is not None:
        get_global_rank(group, group_rank)
        return group_rank
    return get_group_rank(group, 0 if global_rank is None else global_rank)


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """This process's number on its host, as the launcher says in LOCAL_RANK; else `fallback_rank`."""
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is not None:
        return int(fallback_rank)
    raise LaunchError(
        "LOCAL_RANK is not set, so the rank on this host is not known",
        remedy="start with distcompile-run, or give fallback_rank",
    )


# --- backends ---------------------------------------------------------------------------------------------------------


def get_backend(group: ProcessGroup | None = None) -> Backend:
    """The transport: "nccl" (with MPI for tensors on the CPU), "mpi" or "threaded"."""
    return Backend(group_or_default(group).transport)


def get_backend_config(group: ProcessGroup | None = None) -> str:
    """The transport by device, as torch writes it."""
    found = group_or_default(group)
    return f"cpu:{found.host_transport}" + (",cuda:nccl" if found.takes_device_arrays() else "")


def seconds(timeout: timedelta | float) -> float:
    """A time limit in seconds."""
    limit_s = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
    if not limit_s > 0:
        raise LaunchError(f"a time limit of {limit_s:g} s", expected="more than 0 s")
    return limit_s
