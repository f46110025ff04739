"""The command line: our options, and torchrun's under torchrun's names.

In: the words after `distcompile-run`. Out: `JobSettings`, complete and checked, or a UsageError that says what
contradicts what. What follows `-m MODULE` or SCRIPT belongs to the program. torchrun's options that have no meaning
here (MPI finds the ranks, so there is no rendezvous) are accepted, and said to have none, in `JobSettings.ignored`.
"""

from __future__ import annotations

import argparse
import difflib
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launch.errors import UsageError
from launch.machine import allocation, binding, gpus
from launch.screen.relay import Files

_DESCRIPTION = "Run a Python program on N MPI ranks, with the MPI that mpi4py loads."
_CHECK = ("-m", "distcompile.check")
_RANKS_TO_CHECK = 2
_CHECK_TIMEOUT_S = 300.0
_AS_TORCH = ("-m", "distcompile.as_torch")  # what runs a program with distcompile under torch's name
_NO_MEANING = {
    "rdzv_backend": "MPI's launcher brings the ranks together",
    "rdzv_conf": "MPI's launcher brings the ranks together",
    "monitor_interval": "failures are told at once",
    "start_method": "ranks are started by mpiexec",
    "local_addr": "MPI's launcher knows the hosts",
    "event_log_handler": "there is no event log",
    "logs_specs": "logs are laid out as torchrun's default lays them out",
}


@dataclass(frozen=True, slots=True)
class JobSettings:
    """What to run and how. Times in seconds, 0: no limit. bind: "core", "none" or hardware threads, "0,2-3"."""

    ranks: int
    program: tuple[str, ...]
    python: bool = True
    mpi: str = "auto"
    mpiexec: str = ""
    mpi_args: str = ""
    hosts: str = ""
    hostfile: str = ""
    allocation: str = ""  # the scheduler whose allocation MPI uses by itself
    per_node: int = 0
    bind: str = "core"
    threads: int = 0
    prefix: bool = True
    timeout_s: float = 0.0
    grace_s: float = 3.0
    signal_grace_s: float = 30.0
    save_limit_s: float = 600.0
    stop_limit_s: float = 5.0
    watchdog_s: float | None = None
    log_dir: str = ""
    tee: Files = field(default_factory=Files)
    redirects: Files = field(default_factory=Files)
    shown: frozenset[int] | None = None
    max_restarts: int = 0
    run_id: str = "none"
    role: str = "default"
    master_addr: str = ""
    master_port: int = 0
    dry_run: bool = False
    check: bool = False
    ignored: tuple[str, ...] = ()

    @property
    def is_remote(self) -> bool:
        """Ranks may run on other hosts."""
        return bool(self.hosts or self.hostfile or self.allocation)


def build_parser() -> argparse.ArgumentParser:
    """All options."""
    parser = argparse.ArgumentParser(
        prog="distcompile-run",
        description=_DESCRIPTION,
        usage="distcompile-run [options] (-m MODULE | SCRIPT) [arguments...]",
        allow_abbrev=False,
    )
    _add_world(parser)
    _add_watching(parser)
    _add_torchruns(parser.add_argument_group("torchrun's names"))
    return parser


def _add_world(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-n", "-np", "--ranks", type=int, metavar="N", help="number of ranks (default 1, or the allocation's)")
    add("--mpi", choices=("auto", "mpich", "openmpi"), default="auto", help="which MPI, where both are installed")
    add("--mpiexec", default="", metavar="PATH", help="this mpiexec (refused if of another MPI)")
    add("--mpi-args", default="", metavar="ARGS", help="more arguments for mpiexec, as one string")
    add("--hosts", "--host", default="", metavar="H1,H2", help="hosts, as mpiexec takes them")
    add("--hostfile", default="", metavar="FILE", help="a file of hosts, as mpiexec takes it")
    add("--bind", default="core", metavar="core|none|LIST", help="each rank on its share of the free cores, or of LIST")
    add("--threads-per-rank", type=int, default=0, metavar="T", help="cores, and OMP_NUM_THREADS, of each rank")
    add("--as-torch", action="store_true", help="run a script that imports torch, with distcompile in its place")
    add("--dry-run", action="store_true", help="print the command and the environment, and stop")
    add("--check", action="store_true", help="report MPI, progress, latency and bandwidth, binding, compiler, cache")


def _add_watching(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--no-prefix", action="store_true", help="leave output as it is, without the rank before each line")
    add("--timeout", type=_seconds, default=0.0, metavar="S", help="end the job after S seconds, with every stack")
    add(
        "--grace",
        type=_seconds,
        metavar="S",
        help="seconds from SIGTERM to SIGKILL (default 3 after a failure, 30 after a signal to the launcher)",
    )
    add(
        "--save-limit",
        type=_seconds,
        default=600.0,
        metavar="S",
        help="seconds that ranks have, which handle the error of a job that stands still (default 600, 0: no limit)",
    )
    add(
        "--stop-limit",
        type=_seconds,
        default=5.0,
        metavar="S",
        help="end the job when a rank has been stopped for S seconds",
    )
    add(
        "--watchdog",
        type=_seconds,
        metavar="S",
        help="report a job that stands still for S seconds, and end it (0: never)",
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}: expected seconds, 0 or more")
    return seconds


def _restarts(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number, 0 or more")
    return int(text)


def _port(text: str) -> int:
    if not (text.isdecimal() and int(text) < 1 << 16):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a port, 1 to 65535")
    return int(text)


def _add_torchruns(group: argparse._ArgumentGroup) -> None:
    def add(name: str, *more: str, **options: object) -> None:
        both = (name, name.replace("-", "_").replace("__", "--", 1)) if "-" in name[2:] else (name,)
        group.add_argument(*more, *both, **options)  # type: ignore[arg-type]

    add("--nproc-per-node", metavar="N", help="ranks on each node: a number, cpu, gpu or auto")
    add("--nnodes", metavar="N", help="number of nodes (MIN:MAX only where both are equal)")
    add("--node-rank", metavar="R", help="only 0: MPI's launcher starts the other nodes itself")
    add("--master-addr", default="", metavar="HOST", help="MASTER_ADDR for the ranks")
    add("--master-port", type=_port, default=0, metavar="PORT", help="MASTER_PORT for the ranks (default: a free one)")
    add("--standalone", action="store_true", help="one node; what happens anyway")
    add("--rdzv-endpoint", default="", metavar="HOST[:PORT]", help="as --master-addr and --master-port")
    add("--rdzv-id", default="", metavar="ID", help="the run's name, in TORCHELASTIC_RUN_ID and --log-dir")
    add(
        "--max-restarts",
        type=_restarts,
        default=0,
        metavar="N",
        help="start the whole job again after a failure, N times",
    )
    add("--role", default="default", metavar="NAME", help="ROLE_NAME for the ranks")
    add("--log-dir", default="", metavar="DIR", help="each rank's streams in files as well; see -r and -t")
    add(
        "--redirects",
        "-r",
        metavar="STREAMS",
        help="streams to files only: 0 none, 1 stdout, 2 stderr, 3 both, or 0:1,1:3",
    )
    add("--tee", "-t", metavar="STREAMS", help="streams to files and to the screen (default 3 with --log-dir)")
    add("--local-ranks-filter", metavar="R,R", help="show only these ranks")
    add("--no-python", action="store_true", help="the program is not a Python script")
    for name in _NO_MEANING:
        add("--" + name.replace("_", "-"), metavar="X", help=argparse.SUPPRESS)


def split_command_line(parser: argparse.ArgumentParser, argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """(launcher's options, the program and its arguments): the program starts at `-m`, or at the first word."""
    takes_value = {name for action in parser._actions if action.nargs is None for name in action.option_strings}
    own: list[str] = []
    position = 0
    while position < len(argv) and argv[position].startswith("-") and argv[position] not in ("-m", "--module", "--"):
        position += 2 if argv[position] in takes_value else 1
    own, program = list(argv[:position]), list(argv[position:])
    if program[:1] == ["--module"]:
        program[0] = "-m"
    return own, program[1:] if program[:1] == ["--"] else program


def parse(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> JobSettings:
    """The whole command line. Raises UsageError."""
    parser = build_parser()
    own, program = split_command_line(parser, argv)
    options, unknown = parser.parse_known_args(own)
    if unknown:
        raise _no_such_option(parser, unknown[0])
    _check_program(options, program)
    scheduler, slots = allocation.detect(environ)
    if scheduler and (options.hosts or options.hostfile):
        raise UsageError(
            f"--hosts and --hostfile contradict the allocation of {scheduler}",
            expected="hosts from the scheduler",
            remedy="leave them away, or leave the allocation",
        )
    _check_mpi(options)
    if options.no_python and not (options.hosts or options.hostfile or scheduler):
        _check_executable(program[0])
    per_node, ranks = _world(options, slots)
    address, port = _master(options)
    if options.check:
        program, options.no_prefix = list(_CHECK), True
        options.timeout = options.timeout or _CHECK_TIMEOUT_S
    if options.as_torch:
        program = [*_AS_TORCH, *program]
    redirects, tee = _streams(options, ranks)
    return JobSettings(
        ranks=ranks, program=tuple(program), python=not options.no_python, mpi=options.mpi, mpiexec=options.mpiexec,
        mpi_args=options.mpi_args, hosts=options.hosts, hostfile=options.hostfile, allocation=scheduler,
        per_node=per_node, bind=_bind(options), threads=options.threads_per_rank,
        prefix=ranks > 1 and not options.no_prefix, timeout_s=options.timeout,
        grace_s=3.0 if options.grace is None else options.grace,
        signal_grace_s=30.0 if options.grace is None else options.grace, save_limit_s=options.save_limit,
        stop_limit_s=options.stop_limit, watchdog_s=options.watchdog, log_dir=_log_dir(options, redirects, tee),
        tee=tee, redirects=redirects, shown=_filter(options.local_ranks_filter, per_node or ranks),
        max_restarts=options.max_restarts,
        run_id=options.rdzv_id or "none", role=options.role, master_addr=address, master_port=port,
        dry_run=options.dry_run, check=options.check,
        ignored=_ignored(options),
    )  # fmt: skip


def _no_such_option(parser: argparse.ArgumentParser, word: str) -> UsageError:
    name = word.partition("=")[0]
    known = [
        option for action in parser._actions if action.help != argparse.SUPPRESS for option in action.option_strings
    ]
    near = difflib.get_close_matches(name, known, n=1)
    return UsageError(
        f"there is no option {name}",
        remedy=f"did you mean {near[0]}?" if near else "see distcompile-run --help; a program's options stand after it",
    )


def _ignored(options: argparse.Namespace) -> tuple[str, ...]:
    """What to say of options without meaning here."""
    given = [(name, why) for name, why in _NO_MEANING.items() if getattr(options, name) is not None]
    return tuple(f"--{name.replace('_', '-')} has no effect: {why}" for name, why in given)


def _check_mpi(options: argparse.Namespace) -> None:
    """What mpiexec would refuse in words of its own, or Python by a traceback."""
    try:
        shlex.split(options.mpi_args)
    except ValueError as error:
        raise UsageError(
            f"--mpi-args {options.mpi_args}", expected="words, as a shell takes them", got=str(error)
        ) from error
    if options.hostfile and not os.path.exists(options.hostfile):
        raise UsageError(f"there is no file {options.hostfile!r}", where=os.getcwd(), expected="--hostfile FILE")


def _check_program(options: argparse.Namespace, program: Sequence[str]) -> None:
    if options.as_torch and (options.no_python or options.check):
        other = "--no-python" if options.no_python else "--check"
        raise UsageError(f"--as-torch and {other} contradict each other", expected="one of the two")
    if options.check:
        if program:
            raise UsageError("--check runs no program", got=" ".join(program), remedy="leave the program away")
        return
    if not program or list(program) == ["-m"]:
        raise UsageError("nothing to run", expected="-m MODULE or SCRIPT", remedy="see distcompile-run --help")
    if options.no_python and program[0] == "-m":
        raise UsageError("--no-python and -m contradict each other", expected="one of the two")
    if program[0] != "-m" and not options.no_python and not os.path.isfile(program[0]):
        raise UsageError(
            f"there is no file {program[0]!r}", where=os.getcwd(), expected="a Python script, or -m MODULE"
        )


def _check_executable(name: str) -> None:
    if shutil.which(name) is None:
        raise UsageError(
            f"there is no program {name!r}",
            where=os.getcwd(),
            expected="after --no-python, a file that can be executed, or the name of one on PATH",
        )


def _world(options: argparse.Namespace, slots: int) -> tuple[int, int]:
    """(ranks on each node or 0, ranks in all), from -n, --nproc-per-node, --nnodes and the allocation."""
    nodes = _nodes(options)
    per_node = _per_node(options.nproc_per_node) if options.nproc_per_node is not None else 0
    if options.node_rank not in (None, "0"):
        raise UsageError(
            f"--node-rank {options.node_rank}: distcompile-run is started once, not on each node",
            remedy="start it on the first node with --hosts H1,H2 or --hostfile; MPI's launcher starts the others",
        )
    if options.standalone and nodes > 1:
        raise UsageError(f"--standalone and --nnodes {nodes} contradict each other", expected="one of the two")
    if nodes > 1 and not (options.hosts or options.hostfile or slots):
        raise UsageError(f"--nnodes {nodes}, but no hosts", remedy="add --hosts H1,H2 or --hostfile FILE")
    told = per_node * nodes
    if told and options.ranks is not None and options.ranks != told:
        raise UsageError(
            f"-n {options.ranks} contradicts --nproc-per-node {per_node} on {nodes} nodes",
            expected=f"-n {told}, or none",
        )
    default = slots or (_RANKS_TO_CHECK if options.check else nodes)
    ranks = told or (options.ranks if options.ranks is not None else default)
    if ranks < 1:
        raise UsageError(f"cannot run on {ranks} ranks", expected="-n 1 or more")
    if options.threads_per_rank < 0:
        raise UsageError(
            f"cannot give a rank {options.threads_per_rank} threads", expected="1 or more, 0 for its share"
        )
    return per_node, ranks


def _nodes(options: argparse.Namespace) -> int:
    least, _, most = (options.nnodes or "1").partition(":")
    if not least.isdigit() or int(least) < 1 or (most and most != least):
        raise UsageError(f"--nnodes {options.nnodes}", expected="one number: a job's size does not change here")
    return int(least)


def _per_node(text: str) -> int:
    """ "auto": GPUs if there are any, else cores."""
    if text.isdigit() and int(text) > 0:
        return int(text)
    if text not in ("auto", "cpu", "gpu"):
        raise UsageError(f"--nproc-per-node {text}", expected="a number, cpu, gpu or auto")
    found = gpus.count()
    if text == "gpu" and not found:
        raise UsageError("--nproc-per-node gpu, but there is no GPU", remedy="--nproc-per-node cpu, or a number")
    return found if text != "cpu" and found else len(binding.cores_of(binding.allowed_cpus()))


def _master(options: argparse.Namespace) -> tuple[str, int]:
    """(MASTER_ADDR, MASTER_PORT) as told; empty and 0: to be chosen."""
    host, _, port = (
        options.rdzv_endpoint.rpartition(":") if ":" in options.rdzv_endpoint else (options.rdzv_endpoint, "", "0")
    )
    try:
        number = _port(port or "0")
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"--rdzv-endpoint {options.rdzv_endpoint}", expected="HOST or HOST:PORT") from error
    for name, one, other in (("addr", host, options.master_addr), ("port", number, options.master_port)):
        if one and other and one != other:
            raise UsageError(
                f"--rdzv-endpoint {options.rdzv_endpoint} contradicts --master-{name} {other}",
                expected="one of the two",
            )
    return options.master_addr or host, options.master_port or number


def _bind(options: argparse.Namespace) -> str:
    if options.bind in ("core", "none"):
        return str(options.bind)
    try:
        missing = set(binding.cpu_list(options.bind)) - set(binding.allowed_cpus())
    except ValueError as error:
        raise UsageError(f"--bind {options.bind}", expected="core, none, or hardware threads as in 0,2-3") from error
    if missing:
        allowed = ",".join(map(str, binding.allowed_cpus()))
        raise UsageError(f"--bind {options.bind}", expected=f"some of {allowed}, which this process may use")
    return str(options.bind)


def _streams(options: argparse.Namespace, ranks: int) -> tuple[Files, Files]:
    """(redirects, tee)."""
    default = "3" if options.log_dir and options.redirects is None else "0"
    redirects = _files(options.redirects or "0", "--redirects", ranks)
    return redirects, _files(options.tee or default, "--tee", ranks)


def _files(text: str, name: str, ranks: int) -> Files:
    """torchrun's form: "3", or "0:1,1:3" by rank."""
    try:
        if text.isdigit():
            pairs, others = {}, int(text)
        else:
            pairs = {int(rank): int(what) for rank, _, what in (part.partition(":") for part in text.split(","))}
            others = 0
    except ValueError as error:
        raise UsageError(f"{name} {text}", expected="0, 1, 2 or 3, or RANK:STREAMS,...") from error
    if not {others, *pairs.values()} <= {0, 1, 2, 3} or any(not 0 <= rank < ranks for rank in pairs):
        raise UsageError(f"{name} {text}", expected=f"streams 0 to 3, ranks 0 to {ranks - 1}")
    return Files(others, pairs)


def _log_dir(options: argparse.Namespace, *files: Files) -> str:
    """torchrun makes a temporary folder where files are wanted and no folder is named; we ask for one."""
    if not options.log_dir and any(f.others or any(f.ranks.values()) for f in files):
        raise UsageError("--tee and --redirects need a folder", remedy="add --log-dir DIR")
    if options.log_dir:
        _check_folder(Path(options.log_dir).absolute(), options.rdzv_id)
    return str(options.log_dir)


def _check_folder(folder: Path, run: str) -> None:
    """Whether logs can be written below it, before ranks begin to."""
    if "/" in run or run in (".", ".."):
        raise UsageError(f"--rdzv-id {run} is to name a folder below --log-dir", expected="a name without /")
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        why = "is no folder" if not there.is_dir() else "cannot be written"
        raise UsageError(f"--log-dir {folder}", expected="a folder that can be made and written", got=f"{there} {why}")


def _filter(text: str | None, ranks: int) -> frozenset[int] | None:
    try:
        shown = frozenset(int(part) for part in text.split(",")) if text else None
    except ValueError as error:
        raise UsageError(f"--local-ranks-filter {text}", expected="ranks, as in 0,2") from error
    if shown and not any(0 <= rank < ranks for rank in shown):
        raise UsageError(f"--local-ranks-filter {text} would show nothing", expected=f"ranks 0 to {ranks - 1}")
    return shown
