"""Two hosts over a shaped link: which steps are compared, and how either side is started on both hosts.

In: options of run.py, a pair of hosts. Out: a `Measure`. The hosts are network namespaces (`shaped_hosts.py`); each
rank has a core of its own. Ours runs under mpiexec over the link (MPICH through libfabric's tcp, Open MPI through its
tcp BTL); the peer under gloo. Both sides' caches are kept between rounds, so that a round is warm after the first.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from measures import Measure
from shaped_hosts import ADDRESSES, INTERFACE, TwoHosts
from sides import OURS, PEER, PYTHON, Side, script

_TUNED = ["--plan", "auto", "--warm-up", "40"]
# name -> arguments of bench_ddp.py after the model; ours, then the peer's
OUR_SIDES: dict[str, list[str]] = {
    "ours": ["default"],
    "ours 5 MB": ["5"],
    "ours tuned": ["default", *_TUNED],
    'ours overlap="step"': ["default", "--overlap", "step"],
    'ours overlap="step" tuned': ["default", "--overlap", "step", *_TUNED],
    "ours bf16": ["default", "--hook", "bf16"],
}
PEER_SIDES: dict[str, list[str]] = {
    "torch": ["default"],
    "torch 5 MB": ["5"],
    "torch 1 MB": ["1"],
    "torch bf16": ["default", "--hook", "bf16"],
    "torch bf16 5 MB": ["5", "--hook", "bf16"],
    "torch bf16 1 MB": ["1", "--hook", "bf16"],
}
_PLAIN = ["torch", "torch 5 MB", "torch 1 MB"]
COMPARED: dict[str, list[str]] = {
    "ours": ["torch"],
    "ours 5 MB": _PLAIN,
    "ours tuned": _PLAIN,
    'ours overlap="step"': _PLAIN,
    'ours overlap="step" tuned': _PLAIN,
    "ours bf16": ["torch bf16", "torch bf16 5 MB", "torch bf16 1 MB"],
}


def network_measures(options: argparse.Namespace, hosts: TwoHosts) -> list[Measure]:
    """Training steps of `options.network_model` over the link. options.sides: which, by name; empty: all."""
    wanted = [name for name in options.sides.split(",") if name] or [*OUR_SIDES, *PEER_SIDES]
    unknown = set(wanted) - {*OUR_SIDES, *PEER_SIDES}
    if unknown:
        raise SystemExit(f"no side {', '.join(unknown)}; there are: {', '.join([*OUR_SIDES, *PEER_SIDES])}")
    common = ["--repeats", options.repeats, "--only-step"]
    sides = {
        name: _ours(hosts, [options.network_model, "compile", *arguments, *common])
        for name, arguments in OUR_SIDES.items()
        if name in wanted
    }
    sides |= {
        name: _peer(hosts, options.peer_python, [options.network_model, "compile", *arguments, *common])
        for name, arguments in PEER_SIDES.items()
        if name in wanted
    }
    title = f"{options.network_model}: training step, 2 hosts x 1 core, {options.rate} link"
    return [Measure(title, "step_ms", "ms", sides, {o: p for o, p in COMPARED.items() if o in wanted})]


def mpiexec() -> str:
    """The mpiexec beside this interpreter, else the one on PATH. Raises SystemExit."""
    found = shutil.which("mpiexec", path=str(Path(PYTHON).parent)) or shutil.which("mpiexec")
    if found is None:
        raise SystemExit("no mpiexec: pip install mpich")
    return found


def _ours(hosts: TwoHosts, arguments: list[str]) -> Side:
    launch = [mpiexec(), "-hosts", ",".join(ADDRESSES), "-n", "2", "-ppn", "1"]
    command = hosts.on(0, [*launch, PYTHON, *script("bench_ddp.py", *arguments)])
    return Side(OURS, (tuple(command),), (*hosts.environment().items(), ("BENCH_PIN", "rank")))


def _peer(hosts: TwoHosts, python: str, arguments: list[str]) -> Side:
    commands = []
    for rank in range(2):
        facts = {"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": ADDRESSES[0]}
        facts |= {"MASTER_PORT": "29511", "GLOO_SOCKET_IFNAME": INTERFACE, "BENCH_PIN": "rank"}
        settings = ["env", *(f"{name}={value}" for name, value in facts.items())]
        commands.append(tuple(hosts.on(rank, [*settings, python, *script("bench_ddp.py", *arguments)])))
    return Side(PEER, tuple(commands))
