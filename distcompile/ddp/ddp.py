"""DistributedDataParallel: a module whose gradients are averaged over all ranks, eager or compiled.

In: a module, built alike on every rank, and the default process group. Out: a module with torch's DDP interface
(`module.` prefix of state_dict keys, `no_sync`), whose backward leaves averaged gradients in `.grad`, as bucket views.
`compile(DDP(model))` is the order: capture finds `__gradient_strategy__` and cuts the backward by one bucket plan
(strategy.py). Called uncompiled, hooks on the leaves fill buckets (eager.py); what is compiled inside of it, or after a
graph break, finds whose leaves it uses, and writes into the same buckets (pieces.py). Reference: Li et al., "PyTorch
Distributed", VLDB 2020. In forward, random draws are this rank's part of the joint batch's: N ranks drop out what one
rank would.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload
from weakref import WeakKeyDictionary

from collectives import Communicator
from compiler_core import log, observe
from compiler_core.aot.strategy import OwnerStrategy
from compiler_core.device import Device
from compiler_core.tensor.autograd.grad_mode import is_grad_enabled
from compiler_core.tensor.making.random_state import set_shard
from compiler_core.tensor.tensor import Tensor
from distcompile.ddp.agreement import Subject, agree
from distcompile.ddp.books import Books, DDPSettings
from distcompile.ddp.buffer_sync import BufferSync
from distcompile.ddp.comm_hook import Hook, make_hook, name_of
from distcompile.ddp.eager import keep_for_backward, own
from distcompile.ddp.errors import CommHookError, NoGradientsError
from distcompile.ddp.join import Joining
from distcompile.ddp.model_state import (
    IGNORED,
    IGNORED_TENSOR,
    Census,
    broadcast_tensors,
    check_devices,
    check_same_model,
    shared_of,
)
from distcompile.ddp.modes import NoSync, announced, begins_apart, ended, switch
from distcompile.ddp.overlap import JobReport, OverlapReport, gather_report, make_report, optimizer_spans
from distcompile.ddp.plan.bucket_plan import BucketPlan, Caps, ListedCaps
from distcompile.ddp.plan.layout import word_of
from distcompile.ddp.strategy import BucketStrategy
from distcompile.errors import ArgumentError
from distcompile.nn.module import Module
from distcompile.utils._pytree import tree_map

if TYPE_CHECKING:
    from distcompile.tuning.auto import AutoTuner, Tuning

PlanChoice: TypeAlias = BucketPlan | str | os.PathLike[str] | None
# torch's is 25. Simulated for the benchmark's GPTs (distcompile/tuning): over 1 Gbit/s caps of 2 to 4 MiB end the
# backward 11 to 26 % earlier than 25, and within 3 % of the optimum; between ranks of one host it makes 0.5 % or less.
DEFAULT_CAPS_MB = {"backward": 2.0, "step": 1.0}  # across the step, what is needed first may overtake more often
GPU_CAP_MB = 25.0  # torch's: NCCL needs large messages, and each bucket costs the host 40 us
INSTANCES: WeakKeyDictionary[Communicator, int] = WeakKeyDictionary()  # made so far on each communicator


def _need_something_to_train(module: Module) -> None:
    if not any(p.requires_grad for p in shared_of(module).parameters.values()):
        raise NoGradientsError(
            "DistributedDataParallel is not needed when a module has no parameter that requires a gradient",
            where=type(module).__name__,
            remedy="use the module itself",
        )


def _caps(module: Module, overlap: str, cap_mb: float | None, caps_mb: Sequence[float] | None) -> Caps:
    if overlap not in DEFAULT_CAPS_MB:
        raise ArgumentError(f"unknown overlap {overlap!r}", expected=" or ".join(map(repr, DEFAULT_CAPS_MB)))
    if caps_mb:
        return ListedCaps.from_mb_list(caps_mb)
    return Caps.from_mb(default_cap_mb(module, overlap) if cap_mb is None else cap_mb)


class DistributedDataParallel(Module):
    """Data parallelism: every rank runs its part of the batch; gradients are averaged while the backward goes on.

        p.grad = (g₀ + g₁ + ... + gₙ₋₁)/n, on every rank, in buckets that leave as soon as they are complete

    `compile(DistributedDataParallel(model))` is the order: the compiled backward is cut where a bucket is complete.

    Args:
        module: built alike on every rank; it starts from rank 0's parameters and buffers.
        device_ids: of a module on a GPU, that one GPU: then inputs are moved there. None: they stay where they are.
        broadcast_buffers: send rank 0's buffers at the start, and before the first forward after each synchronised one.
        forward_sync_buffers: the same of forwards alone: buffers are sent at the start. It outranks broadcast_buffers.
        init_sync: False: state is not sent at the start; that it has the same names and shapes is checked all the same.
        process_group: None: the one of init_process_group.
        bucket_cap_mb: size of buckets in MiB; None: 2 on the CPU (1 with overlap="step"), 25 on GPUs. The first is at
            most 1.
        bucket_cap_mb_list: the size of each bucket in MiB, the last one of all that follow; in place of bucket_cap_mb.
        find_unused_parameters: allow parameters that take no part in the loss; otherwise UnusedParameterError. Ranks
            may run other operations than each other then; their compiled graphs are not compared.
        static_graph: every backward is of one graph: some parameters may take no part, and several re-entrant
            checkpoints may use one (turns.py).
        bucket_plan: a BucketPlan, the path of a plan file (`distcompile tune`), or "auto" to tune in the first steps;
            None: buckets by bucket_cap_mb.
        overlap: what communication is hidden behind. "backward"; or "step": backward() returns while buckets travel,
            our optimizers update a parameter when its gradient has arrived, and the next forward waits for each where
            it first uses it. The same bits; any other reader of a value that is on its way waits for it.
        gradient_as_bucket_view: always so here; False is accepted, with a warning.
        output_device, dim, check_reduction, batched_grad_copy: taken for torch's sake, without effect (gradients are
            made in their buckets, so there is nothing to copy).

    Differs from torch: bucket_plan and overlap are ours. Gradients are always views of buckets. Compiled, buckets
    follow the backward's order from the first step on. In forward, random draws are this rank's part of the joint
    batch's: n ranks drop out what one rank would. There is no mixed_precision, no device_mesh, no
    delay_all_reduce_named_params and no skip_all_reduce_unused_params.

    Raises: ModelMismatchError if ranks built different modules, RankDisagreementError if they wrap them differently,
    NoGradientsError if nothing is to be trained.
    Source: Li et al. 2020 (VLDB), "PyTorch Distributed".

    Example (two threads, each a rank; in a job each rank is a process of `distcompile-run -n 2 script.py`):
        >>> from collectives import run_ranks
        >>> def gradient(ranks):
        ...     with dist.use_communicator(ranks):
        ...         model = nn.parallel.DistributedDataParallel(nn.Linear(1, 1, bias=False))
        ...         model(torch.tensor([[1.0 + dist.get_rank()]])).sum().backward()
        ...         return model.module.weight.grad
        >>> run_ranks(2, gradient)
        [tensor([[1.5000]]), tensor([[1.5000]])]
    """

    def __init__(
        self,
        module: Module,
        device_ids: list[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool | None = None,
        init_sync: bool = True,
        process_group: Communicator | None = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = True,
        static_graph: bool = False,
        bucket_plan: PlanChoice = None,
        overlap: Literal["backward", "step"] = "backward",
        *,
        bucket_cap_mb_list: Sequence[float] | None = None,
        batched_grad_copy: bool = False,
        forward_sync_buffers: bool | None = None,
    ) -> None:
        super().__init__()
        if not gradient_as_bucket_view:
            log.warn_once("ddp: views", "gradient_as_bucket_view=False has no effect: gradients are bucket views")
        self.module = module
        self.process_group = process_group or default_communicator()
        caps = _caps(module, overlap, bucket_cap_mb, bucket_cap_mb_list)
        sends_buffers = broadcast_buffers is not False if forward_sync_buffers is None else forward_sync_buffers
        starts_alike = sends_buffers or forward_sync_buffers is not None
        choice = bucket_plan.hash if isinstance(bucket_plan, BucketPlan) else str(bucket_plan)
        self._home = home_of(module, device_ids)
        settings = DDPSettings(caps, sends_buffers, find_unused_parameters, static_graph, choice, overlap)
        _need_something_to_train(module)
        instance = self._join_ranks(settings, init_sync, starts_alike)
        self._keep_books(settings, instance, are_equal=init_sync and starts_alike)
        self._tuner = None if bucket_plan is None else attach_plan(bucket_plan, self)

    _join_config: Any = None

    def _keep_books(self, settings: DDPSettings, instance: int, *, are_equal: bool) -> None:
        """Make what this instance keeps beside the module. are_equal: whether all ranks have the same buffers now."""
        self._census = Census(self.module)
        self._books = Books(self.process_group, self._census.trained(), settings, instance)
        self._buffer_sync = BufferSync(self.process_group, self._census.buffers, are_equal=are_equal)
        self._strategy = BucketStrategy(self._books, self._before_forward, self._look_again)
        own(self._books)

    def __deepcopy__(self, memo: dict[int, Any]) -> DistributedDataParallel:
        """The same wrapping, in the same process group, of a copy of the module. Ranks do not talk."""
        copied = memo[id(self)] = type(self).__new__(type(self))
        kept = ("process_group", "_books", "_buffer_sync", "_census", "_strategy", "_tuner")
        copied.__setstate__(deepcopy({k: v for k, v in self.__getstate__().items() if k not in kept}, memo))
        copied.process_group = self.process_group
        self._books.copies += 1
        instance = word_of(f"copy {self._books.copies} of {self._books.instance}")
        copied._keep_books(self._books.settings, instance, are_equal=False)
        copied._tuner = None
        return copied

    def _join_ranks(self, settings: DDPSettings, init_sync: bool, sends_buffers: bool) -> int:
        """Check that all ranks wrap the same module in the same way, and give them rank 0's state, buffers if asked.

        Returns a number by which all ranks know this instance.
        """
        group = self.process_group
        log.set_rank(group.rank)
        parameters, buffers = shared_of(self.module)
        check_devices(group, parameters)
        agree(
            group, [Subject("settings of DistributedDataParallel", (str(settings),))], label="DistributedDataParallel"
        )
        check_same_model(group, self.module)
        if init_sync:
            broadcast_tensors(group, {**parameters, **(buffers if sends_buffers else {})})
        INSTANCES[group] = max(group.all_gather_object(INSTANCES.get(group, 0) + 1))
        return INSTANCES[group]

    # --- forward --------------------------------------------------------------------------------------------------

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The wrapped module's forward."""
        begins_apart(self)
        if self._home is not None:
            inputs, kwargs = moved(self._home, inputs, kwargs)
        if not announced(self):
            return self._run_eager(inputs, kwargs)
        try:
            with set_shard(self.process_group.rank):
                return self.module(*inputs, **kwargs)
        finally:
            ended(self)

    def _run_eager(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The wrapped module's forward, op by op, timed."""
        self._before_forward()
        self._books.begin_forward()
        try:
            with observe.phase("forward", type(self.module).__name__), set_shard(self.process_group.rank):
                output = self.module(*inputs, **kwargs)
        finally:
            self._books.end_forward()
        keep_for_backward(self._strategy, output)
        return output

    def _look_again(self) -> None:
        """See what is trained now: parameters may have been frozen or unfrozen, on every rank alike."""
        if self._census.take():
            self._books.train_others(self._census.trained())
            own(self._books)

    def _before_forward(self) -> None:
        """Before every forward, eager or compiled: check the books, send buffers.

        As in torch, buffers are sent before the first forward after a synchronised one, whatever its own mode.
        """
        books, root = self._books, 0
        books.drop_broken_pass()
        is_recorded = is_grad_enabled()
        synchronises = is_recorded and books.is_synchronising
        if is_recorded:
            self._look_again()
            books.forward_synchronises = books.is_synchronising
        sends_buffers, books.sends_buffers_next = books.sends_buffers_next, synchronises
        if synchronises:
            books.awaits_backward = True
            books.forwards += self.training
            books.ledger.look(books.parameters)
        if books.joining is not None:
            sends_buffers = synchronises
            if synchronises and self._join_config is not None:  # in a block of Join
                from distcompile.distributed.algorithms.join import Join

                Join.notify_join_context(self)
            root = books.joining.announce() if synchronises else 0
        if sends_buffers and books.settings.broadcast_buffers and self._census.buffers:
            self._buffer_sync.run(self._census.buffers, root=root)
        if synchronises and self._tuner is not None and books.joining is None:
            self._tuner.before_forward()

    def no_sync(self) -> AbstractContextManager[None]:
        """Within the block, forwards are meant for accumulation: their backwards add to `.grad` on this rank only.

        The first backward whose forward ran outside reduces the whole sum.

        Example:
            >>> dist.init_process_group()
            >>> model = nn.parallel.DistributedDataParallel(nn.Linear(1, 1, bias=False))
            >>> with model.no_sync():
            ...     model(torch.ones(1, 1)).sum().backward()
            >>> model(torch.ones(1, 1)).sum().backward()
            >>> model.module.weight.grad
            tensor([[2.]])
            >>> dist.destroy_process_group()
        """
        return NoSync(self._books)

    @contextmanager
    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Iterator[None]:
        """Within the block, ranks may run out of batches at different times; see join.py.

        Gradients are averages over all ranks, those that have finished counting as zero, or, with
        divide_by_initial_world_size=False, over the ranks that still train. throw_on_early_termination: all ranks
        raise EarlyEndError when the first has finished, unless all finish together.
        """
        if not enable:
            yield
            return
        with self._joining(divide_by_initial_world_size, throw_on_early_termination) as joining:
            yield
            self._census.take()
            while joining.shadow(self._census.buffers):
                pass
            self._agree_after(joining)

    @contextmanager
    def _joining(self, divide_by_initial_world_size: bool, throws: bool) -> Iterator[Joining]:
        """Ranks may run out of batches within the block."""
        books = self._books
        joining = books.joining = Joining(
            books, self._buffer_sync, divide_by_initial_world_size=divide_by_initial_world_size, throws=throws
        )
        try:
            yield joining
        finally:
            books.joining, books.active_ranks = None, self.process_group.world_size

    def _agree_after(self, joining: Joining) -> None:
        joining.agree_on_state({**self._census.parameters, **self._census.buffers})

    def join_hook(self, **kwargs: Any) -> Any:
        """For `torch.distributed.algorithms.join.Join`. kwargs: divide_by_initial_world_size."""
        from distcompile.ddp.join_hook import DdpJoinHook

        return DdpJoinHook(self, divide_by_initial_world_size=kwargs.get("divide_by_initial_world_size", True))

    @property
    def join_device(self) -> str:
        """Where `Join` takes its sums: in host memory, which every group reaches."""
        return "cpu"

    @property
    def join_process_group(self) -> Communicator:
        """The ranks."""
        return self.process_group

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(
        module: Module, params_and_buffers_to_ignore: Sequence[str]
    ) -> None:
        """Have an instance that is made of `module` leave these alone, by their names: each rank has its own.

        They are neither compared nor sent, and their gradients stay as this rank's backward makes them.
        """
        setattr(module, IGNORED, params_and_buffers_to_ignore)
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            if name in params_and_buffers_to_ignore:
                setattr(tensor, IGNORED_TENSOR, True)

    @property
    def require_backward_grad_sync(self) -> bool:
        """False inside no_sync(). May be assigned, as in torch."""
        return self._books.is_synchronising

    @require_backward_grad_sync.setter
    def require_backward_grad_sync(self, value: bool) -> None:
        switch(self._books, value)

    def register_comm_hook(self, state: object, hook: Hook) -> None:
        """Have `hook(state, bucket)` reduce each bucket of gradients. Once, on all ranks.

        Args:
            state: handed to the hook.
            hook: (state, GradBucket) -> Future of the flat tensor that becomes its gradients; see `GradBucket`.

        Raises: CommHookError for a second one, or RankDisagreementError if the ranks register different hooks.
        """
        if self._books.comm_hook is not None:
            raise CommHookError("a communication hook can be registered only once, and this instance has one")
        made = make_hook(state, hook, self.process_group)
        agree(self.process_group, [Subject("communication hook", (name_of(hook),))], label="register_comm_hook")
        self._books.comm_hook = made

    # --- the compiler's side ----------------------------------------------------------------------------------------

    def __gradient_strategy__(self) -> OwnerStrategy:
        """What capture asks for: who cuts the backward and owns the gradients."""
        return self._strategy

    @property
    def bucket_plan(self) -> BucketPlan:
        """The plan in use on all ranks; with segments, as the backward compiled last is cut by it.

        Of several graphs in one step, the segments of all are counted through, as the last backward ran them.
        """
        made, layout = self._strategy.cut_made, self._books.layout
        if layout.last_flown is not None:
            return layout.last_flown.plan
        return made[1] if made is not None and made[0] is layout else layout.plan

    def propose_plan(self, plan: BucketPlan) -> None:
        """Reduce by `plan` from the next synchronised backward on. Call it on every rank, before the same step.

        Backwards that are compiled already are cut again; their forwards stay as they are. A rank that proposes earlier
        than another costs one step without overlap. Raises PlanError unless it covers the trained parameters exactly.
        """
        self._look_again()
        self._books.propose(plan)

    @property
    def tuning(self) -> Sequence[Tuning]:
        """What bucket_plan="auto" has decided so far, and why."""
        return () if self._tuner is None else tuple(self._tuner.history)

    @overload
    def overlap_report(self, all_ranks: Literal[False] = False) -> OverlapReport: ...
    @overload
    def overlap_report(self, all_ranks: Literal[True]) -> JobReport: ...
    def overlap_report(self, all_ranks: bool = False) -> OverlapReport | JobReport:
        """How much of the communication the backward hid: medians of the last 32 steps.

        Per bucket: bytes; when it was ready, launched, started and ended; how long it was waited for, and why.

        Args:
            all_ranks: False: this rank's `OverlapReport`. True: a `JobReport` of every rank, on one clock, with
                `to_perfetto`, `to_html`, `to_json`, `plot`; every rank must call it.

        Example (`print(report)` shows the table):
            >>> dist.init_process_group()
            >>> model = nn.parallel.DistributedDataParallel(nn.Linear(2, 1))
            >>> model(torch.ones(1, 2)).sum().backward()
            >>> report = model.overlap_report()
            >>> report.steps, [row.parameters for row in report.rows]
            (1, [2])
            >>> dist.destroy_process_group()
        """
        recorder = self._books.recorder
        if not all_ranks:
            return make_report(self.process_group.rank, recorder.steps(), recorder.unseen)
        spans = [*recorder.spans(), *optimizer_spans(self._books.parameters.values())]
        return gather_report(self.process_group, recorder.steps(), spans)


def default_cap_mb(module: Module, overlap: str) -> float:
    """The size of buckets, in MiB, where none is given."""
    is_on_gpu = any(parameter.device.is_gpu for parameter in shared_of(module).parameters.values())
    return GPU_CAP_MB if is_on_gpu else DEFAULT_CAPS_MB[overlap]


def home_of(module: Module, device_ids: Sequence[Any] | None) -> Device | None:
    """Where `device_ids` has inputs moved to. Raises ArgumentError for ids that are not the module's GPU."""
    device = next((parameter.device for parameter in shared_of(module).parameters.values()), None)
    if not device_ids or device is None:
        return None
    if device.is_host:
        raise ArgumentError(
            "DistributedDataParallel device_ids only work with a module on a GPU",
            got=f"device_ids {list(device_ids)}, and parameters on the CPU", remedy="device_ids=None",
        )  # fmt: skip
    asked = [Device(f"cuda:{one}" if isinstance(one, int) else one) for one in device_ids]
    if asked != [device]:
        raise ArgumentError(
            "device_ids of DistributedDataParallel name the one GPU that the module is on",
            expected=f"[{device.index}]",
            got=str(list(device_ids)),
            remedy="module.to(local_rank), and device_ids=[local_rank] or none",
        )
    return device


def moved(home: Device, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The same with all tensors on `home`."""

    def move(value: Any) -> Any:
        return value.to(home) if isinstance(value, Tensor) and value.device != home else value

    return tree_map(move, inputs), tree_map(move, kwargs)


def attach_plan(choice: PlanChoice, ddp: DistributedDataParallel) -> AutoTuner | None:
    """Use the plan that was asked for. Imported here, as tuning itself reads DDP's records."""
    from distcompile.tuning.view import attach

    return attach(choice, ddp)


def default_communicator() -> Communicator:
    """The communicator of init_process_group(). Raises NotInitializedError."""
    from distcompile.distributed import group_or_default

    return group_or_default(None)
