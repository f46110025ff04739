"""Random training programs for N ranks, and what one process makes of the same batches: the oracle of the reducers.

In: a seed. Out: a `Program`, which `train` runs on one rank and `expected` in one process, rank after rank.
What varies: layers (tied, of two dtypes, used in another order than registered), bucket sizes and plans proposed at
different steps, batches by rank (odd sizes: recompiles), who runs eager and who compiled in a step, graph breaks,
after which layers they are, which layers an eager forward runs compiled, in graphs of their own (by rank),
accumulation under no_sync, several forwards in one backward, penalties on weights, hooks, branches by rank, frozen
parameters, `zero_grad` or none. `fault`: one rank does something that it must not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from ddp_models import DistributedDataParallel, gradients, loss_of, wrap

from collectives import Communicator
from compiler_core.capture import compile
from compiler_core.tensor.tensor import Tensor
from distcompile import optim
from distcompile.ddp.books import ready_parameters
from distcompile.ddp.plan.bucket_plan import plan_from_groups
from distcompile.nn.module import Module
from distcompile.nn.parameter import Parameter

WIDTH = 5
FAULTS = ("skip", "caught", "literal", "frozen", "extra")
Gradients = dict[str, np.ndarray]


@dataclass(frozen=True)
class Micro:
    """One forward of one rank: rows of its batch, whether it runs eager, breaks, or takes the branch."""

    seed: int
    rows: int
    eager: bool
    breaks: bool
    branch: bool


@dataclass(frozen=True)
class Step:
    """micros[rank]: its forwards. together: they share one backward, after the first (local) ones' own.

    penalty: factor of a term on the weights. proposals[rank]: the groups of a plan it proposes before the step.
    """

    micros: tuple[tuple[Micro, ...], ...]
    together: bool
    penalty: float
    zero: str  # "none", "zeros" or "keep"
    frozen: frozenset[str]
    proposals: tuple[tuple[tuple[str, ...], ...], ...]


@dataclass(frozen=True)
class Program:
    """A whole training run."""

    seed: int
    world: int
    backend: str
    cap_mb: float
    layers: tuple[str, ...]
    order: tuple[int, ...]
    hooked: str
    finds_unused: bool
    steps: tuple[Step, ...]
    fault: str = ""
    fault_at: tuple[int, int] = (0, 0)  # step, rank
    names: tuple[str, ...] = field(default=())
    overlap: str = "backward"
    pieces: tuple[tuple[tuple[int, int], ...], ...] = ()  # [rank]: the layers, from and to, that are compiled apart


class Layers(Module):
    """x through the layers; `extra` takes part in some calls only."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        rng = np.random.default_rng(program.seed)
        values: dict[str, np.ndarray] = {}
        for place, kind in enumerate(program.layers):
            name = "tied" if kind == "tied" else f"p{place}_{kind}"
            shape = {"bias": (WIDTH,), "single": (WIDTH,)}.get(kind, (WIDTH, WIDTH))
            value = rng.uniform(-0.7, 0.7, shape)
            values.setdefault(name, value.astype(np.float32) if kind == "single" else value)
        if program.finds_unused:
            values["extra"] = rng.uniform(-1, 1, (WIDTH,))
        used = [("tied" if kind == "tied" else f"p{place}_{kind}", kind) for place, kind in enumerate(program.layers)]
        object.__setattr__(self, "used", used)
        object.__setattr__(self, "pieces", {})
        rng = np.random.default_rng(program.seed + 3)
        after = {k for k in range(len(used)) if rng.random() < 0.4} | {len(used) - 1}
        object.__setattr__(self, "breaks_after", after)
        names = list(values)
        for index in np.random.default_rng(program.seed + 1).permutation(len(names)):
            setattr(self, names[index], Parameter(wrap(values[names[index]])))
        object.__setattr__(self, "factor", 1.0)

    def compile_pieces(self, pieces: Sequence[tuple[int, int]], backend: str) -> None:
        """From now on, run these layers compiled."""

        def piece(start: int, stop: int) -> Callable[[Tensor], Tensor]:
            return compile(lambda x: self.run_layers(x, start, stop), backend=backend)

        self.pieces.update({start: (stop, piece(start, stop)) for start, stop in pieces})

    def forward(self, x: Tensor, breaks: bool = False, branch: bool = False) -> Tensor:
        start = 0
        while start < len(self.used):
            stop, run = self.pieces.get(start, (start + 1, None))
            x = self.run_layers(x, start, stop) if run is None else run(x)
            if breaks and start in self.breaks_after:
                x = x * (1.0 if x.sum().item() < 1e9 else 0.0)
            start = stop
        x = x * self.factor
        return x + self.extra if branch else x

    def run_layers(self, x: Tensor, start: int, stop: int) -> Tensor:
        for name, kind in self.used[start:stop]:
            parameter = getattr(self, name)
            if kind == "bias":
                x = x + parameter
            elif kind == "single":
                x = x * parameter.double()
            else:
                x = (x @ parameter).tanh()
        return x


def make_program(
    seed: int, *, backends: Sequence[str] = ("aot_eager",), fault: str = "", steps: int = 4, overlap: str = "backward"
) -> Program:
    """The program of `seed`."""
    rng = np.random.default_rng(seed)
    world = int(rng.integers(1 if not fault else 2, 5))
    kinds = ["linear", "bias", "tied", "single"]
    layers = ("linear", *(str(rng.choice(kinds)) for _ in range(rng.integers(1, 6))))
    finds_unused = bool(rng.random() < 0.4)
    base = Program(
        seed, world, str(rng.choice(list(backends))), float(rng.choice([1e-6, 1e-4, 25.0])), layers, (), "",
        finds_unused, (), fault, (int(rng.integers(1, steps)), int(rng.integers(world))),
    )  # fmt: skip
    names = tuple(name for name, _ in Layers(base).named_parameters())
    made = tuple(_make_step(rng, base, names, number) for number in range(steps))
    hooked = str(rng.choice(["", *(n for n in names if n != "extra")]))
    others = {"steps": made, "hooked": hooked, "names": names, "overlap": overlap, "pieces": _make_pieces(base)}
    return Program(**{**base.__dict__, **others})


def _make_pieces(program: Program) -> tuple[tuple[tuple[int, int], ...], ...]:
    """For each rank, layers that are compiled apart: the same on all ranks, or not; or none."""
    rng = np.random.default_rng(program.seed + 2)
    if rng.random() < 0.4:
        return ((),) * program.world

    def draw() -> tuple[tuple[int, int], ...]:
        bounds = [0, *(k for k in range(1, len(program.layers)) if rng.random() < 0.6), len(program.layers)]
        return tuple(pair for pair in pairwise(bounds) if rng.random() < 0.7)

    drawn = [draw() for _ in range(program.world)]
    return tuple(drawn) if rng.random() < 0.5 else (drawn[0],) * program.world


def _make_step(rng: np.random.Generator, program: Program, names: Sequence[str], number: int) -> Step:
    count = int(rng.integers(1, 4)) if rng.random() < 0.5 else 1
    mixes = rng.random() < 0.5
    sizes = rng.integers(1, 6, program.world) if rng.random() < 0.4 else np.full(program.world, 4)

    def micro(rank: int, k: int) -> Micro:
        return Micro(
            seed=1000 * number + 100 * rank + k,
            rows=int(sizes[rank]),
            eager=bool(mixes and rng.random() < 0.4),
            breaks=bool(mixes and rng.random() < 0.2),
            branch=bool(program.finds_unused and rng.random() < 0.5),
        )

    may_freeze = [n for n in names if n != "p0_linear"] if rng.random() < 0.2 else []
    frozen = frozenset(n for n in may_freeze if rng.random() < 0.3)
    trained = [n for n in names if n not in frozen]
    proposals: list[tuple[tuple[str, ...], ...]] = [()] * program.world
    if rng.random() < 0.3 and not frozen:
        groups = _random_groups(rng, program, trained)
        late = rng.random() < 0.3
        proposals = [groups if not late or rng.random() < 0.5 else () for _ in range(program.world)]
    micros = tuple(tuple(micro(rank, k) for k in range(count)) for rank in range(program.world))
    return Step(
        micros,
        together=bool(rng.random() < 0.4),
        penalty=float(rng.choice([0.0, 0.0, 0.3])),
        zero=str(rng.choice(["none", "none", "zeros", "keep"])),
        frozen=frozen,
        proposals=tuple(proposals),
    )


def _random_groups(rng: np.random.Generator, program: Program, names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """A random plan: buckets of one dtype each, in random order."""
    lanes = [[n for n in names if n.endswith("single")], [n for n in names if not n.endswith("single")]]
    groups: list[tuple[str, ...]] = []
    for lane in lanes:
        shuffled = [lane[i] for i in rng.permutation(len(lane))]
        while shuffled:
            size = int(rng.integers(1, len(shuffled) + 1))
            groups.append(tuple(shuffled[:size]))
            shuffled = shuffled[size:]
    return tuple(groups[i] for i in rng.permutation(len(groups)))


def batch_of(micro: Micro) -> Tensor:
    return wrap(np.random.default_rng(micro.seed).uniform(-1, 1, (micro.rows, WIDTH)))


def penalty_of(model: Module, factor: float, rank: int) -> Tensor:
    trained = [p for name, p in model.named_parameters() if p.requires_grad and name[0] == "p"]
    terms = [(p * p).sum() * (factor * (rank + 1)) for p in trained]
    return sum(terms[1:], start=terms[0]).double()  # type: ignore[no-any-return]


def backwards_of(step: Step, rank: int) -> list[list[Micro]]:
    """The forwards of each backward of `rank`; all but the last backward are local."""
    micros = list(step.micros[rank])
    return [micros] if step.together else [[micro] for micro in micros]


def run_backward(
    step: Step, rank: int, micros: Sequence[Micro], model: Module, forward: Callable[[Micro, Tensor], Tensor]
) -> None:
    losses = [loss_of(forward(micro, batch_of(micro))) for micro in micros]
    total = sum(losses[1:], start=losses[0])
    if step.penalty and any(p.requires_grad and n[0] == "p" for n, p in model.named_parameters()):
        total = total + penalty_of(model, step.penalty, rank)
    total.backward()


def apply_zero(step: Step, model: Module) -> None:
    if step.zero != "keep":
        model.zero_grad(set_to_none=step.zero == "none")


def train(program: Program, communicator: Communicator) -> list[tuple[Gradients, Gradients]]:
    """Gradients and parameters after each step on this rank."""
    model, rank = Layers(program), communicator.rank
    ddp = DistributedDataParallel(
        model,
        bucket_cap_mb=program.cap_mb,
        find_unused_parameters=program.finds_unused,
        process_group=communicator,
        overlap=program.overlap,  # type: ignore[arg-type]
    )
    run = compile(ddp, backend=program.backend)
    model.compile_pieces(program.pieces[rank], program.backend)
    if program.hooked:
        getattr(model, program.hooked).register_hook(lambda gradient: gradient * 2.0)
    optimizer = optim.SGD(model.parameters(), lr=0.05)
    fault = _Fault(program, model, rank)
    found = []

    def forward(micro: Micro, x: Tensor) -> Tensor:
        return (ddp if micro.eager else run)(x, breaks=micro.breaks, branch=micro.branch)

    for number, step in enumerate(program.steps):
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name not in step.frozen)
        apply_zero(step, model)
        if step.proposals[rank]:
            ready = ready_parameters({n: p for n, p in model.named_parameters() if p.requires_grad})
            ddp.propose_plan(plan_from_groups(step.proposals[rank], ready, order=f"proposed in step {number}"))
        fault.before(number)
        parts = backwards_of(step, rank)
        with ddp.no_sync():
            for micros in parts[:-1]:
                run_backward(step, rank, micros, model, forward)
        if fault.around(number, lambda: run_backward(step, rank, parts[-1], model, forward), forward, step):  # noqa: B023
            found.append((gradients(model), values(model)))
            optimizer.step()
    return found


class _Fault:
    """What the faulty rank does, in its step."""

    def __init__(self, program: Program, model: Layers, rank: int) -> None:
        self.program, self.model = program, model
        self.is_here = bool(program.fault) and program.fault_at[1] == rank
        self.raises = False
        if program.fault == "caught":
            next(iter(model.parameters())).register_hook(self._hook)

    def _hook(self, gradient: Tensor) -> None:
        if self.raises:
            raise FloatingPointError("a fault")

    def _is_now(self, number: int, fault: str) -> bool:
        return self.is_here and self.program.fault == fault and self.program.fault_at[0] == number

    def before(self, number: int) -> None:
        if self._is_now(number, "literal"):
            object.__setattr__(self.model, "factor", 3.0)
        if self._is_now(number, "frozen"):
            parameter = next(p for p in self.model.parameters())
            parameter.requires_grad_(not parameter.requires_grad)

    def around(
        self, number: int, run: Callable[[], None], forward: Callable[[Micro, Tensor], Tensor], step: Step
    ) -> bool:
        """Run the synchronised backward. False: it was skipped or has failed, and the step with it."""
        if self._is_now(number, "skip"):
            forward(step.micros[self.program.fault_at[1]][-1], batch_of(step.micros[self.program.fault_at[1]][-1]))
            return False
        if self._is_now(number, "extra"):
            run()
        self.raises = self._is_now(number, "caught")
        try:
            run()
        except FloatingPointError:
            return False
        finally:
            self.raises = False
        return True


def values(model: Module) -> Gradients:
    return {name: np.array(p._cell.current()) for name, p in model.named_parameters()}


def expected(program: Program) -> list[tuple[Gradients, Gradients]]:
    """The same in one process: each rank's gradients by itself, then their mean."""
    model = Layers(program)
    optimizer = optim.SGD(model.parameters(), lr=0.05)
    kept: Gradients = {}  # the average that `.grad` holds
    found = []
    for step in program.steps:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name not in step.frozen)
        if step.zero == "none":
            kept = {}
        elif step.zero == "zeros":
            kept = {name: np.zeros_like(value) for name, value in kept.items()}
        sums: Gradients = {}
        for rank in range(program.world):
            for micros in backwards_of(step, rank):
                model.zero_grad()
                run_backward(step, rank, micros, model, lambda micro, x: model(x, branch=micro.branch))
                for name, value in gradients(model).items():
                    factor = (2.0 if name == program.hooked else 1.0) / program.world
                    sums[name] = sums.get(name, 0.0) + value * value.dtype.type(factor)
        for name, value in sums.items():
            kept[name] = kept[name] + value if name in kept else value
        for name, parameter in model.named_parameters():
            parameter.grad = wrap(kept[name]) if name in kept else None
        found.append((gradients(model), values(model)))
        optimizer.step()
    return found


def check(program: Program, results: list[tuple[Gradients, Gradients]]) -> None:
    """Raise AssertionError unless a rank's results are the oracle's."""
    for number, (mine, wanted) in enumerate(zip(results, expected(program), strict=True)):
        for kind, actual, oracle in zip(("gradient", "parameter"), mine, wanted, strict=True):
            assert sorted(actual) == sorted(oracle), f"step {number}: {kind}s of other names"
            for name, value in oracle.items():
                rtol, atol = (2e-4, 2e-5) if value.dtype == np.float32 else (1e-5, 1e-6)
                np.testing.assert_allclose(actual[name], value, rtol, atol, err_msg=f"step {number}: {kind} {name}")
