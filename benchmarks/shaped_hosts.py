"""Two hosts on one machine: network namespaces joined by a veth pair, its two ends shaped to a rate.

In: a rate (`"1gbit"`, or "" for none). Out: `TwoHosts`: how to run a command on either, and how MPI's own launchers
reach both. Made and removed by `with two_hosts(...)`, under names of this process, so that several may live at once.
Each host has its own network, host name and temporary directory (TMPDIR), so that ranks of different hosts cannot meet
in files there; the rest of the file system and the cores are shared. A process on host h is pinned by its caller.
Needs Linux, root (CAP_NET_ADMIN) and iproute2: `why_not()` says what is missing. Shaping: a token bucket at both ends.
A burst below 128 kB is less than one GSO packet: the shaper then burns the cores.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ADDRESSES = ("10.99.0.1", "10.99.0.2")
INTERFACE = "dcveth"
_TIMEOUT_S = 20
# Called by MPI's launchers as `agent [-option]... HOST COMMAND...`, as they would call ssh.
_AGENT = """#!/bin/sh
while :; do case $1 in -*) shift ;; *) break ;; esac; done
host=$1; shift
case $host in
{cases}
  *) echo "no host $host here" >&2; exit 255 ;;
esac
exec ip netns exec "$space" unshare --uts --mount sh -c "mount -t tmpfs tmpfs {tmp} && hostname $name && $*"
"""


class NoTwoHostsError(RuntimeError):
    """This machine does not let us make two hosts; the text says why."""


@dataclass(frozen=True, slots=True)
class TwoHosts:
    """A pair that is up. names: host names; agent: a program in ssh's place; tmp: each host's own directory."""

    names: tuple[str, str]
    agent: Path
    tmp: Path

    def on(self, host: int, command: Sequence[str]) -> list[str]:
        """`command`, run on host 0 or 1."""
        prepared = f'mount -t tmpfs tmpfs {self.tmp} && hostname {self.names[host]} && exec "$@"'
        own = ["unshare", "--uts", "--mount", "sh", "-c", prepared, "sh"]
        return ["ip", "netns", "exec", self.names[host], *own, *command]

    def environment(self) -> dict[str, str]:
        """What makes either MPI use the link between the hosts, and start its daemons through `agent`."""
        agents = ("HYDRA_LAUNCHER", "ssh"), ("HYDRA_LAUNCHER_EXEC", str(self.agent)), ("HYDRA_IFACE", INTERFACE)
        mpich = ("MPIR_CVAR_CH4_NETMOD", "ofi"), ("FI_PROVIDER", "tcp"), ("FI_TCP_IFACE", INTERFACE)
        ompi = ("OMPI_MCA_pml", "ob1"), ("OMPI_MCA_btl", "self,sm,tcp"), ("OMPI_MCA_btl_tcp_if_include", INTERFACE)
        prte = ("PRTE_MCA_plm_ssh_agent", str(self.agent)), ("PRTE_MCA_prte_if_include", INTERFACE)
        root = ("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        return dict((*agents, *mpich, *ompi, *prte, *root, ("TMPDIR", str(self.tmp))))


def why_not() -> str:
    """Why two hosts cannot be made here; "" if they can. Tries it."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    missing = [program for program in ("ip", "tc", "unshare") if shutil.which(program, path=_path()) is None]
    if missing:
        return f"{' and '.join(missing)} not found (Debian: apt install iproute2)"
    if os.geteuid() != 0:
        return "making network namespaces takes root"
    try:
        with two_hosts():
            return ""
    except NoTwoHostsError as error:
        return str(error)


@contextlib.contextmanager
def two_hosts(rate: str = "", *, burst: str = "128kb") -> Iterator[TwoHosts]:
    """Two hosts for the length of a `with`. rate: as tc writes it, each way. Raises NoTwoHostsError."""
    _sweep()
    names = (f"dc{os.getpid()}a", f"dc{os.getpid()}b")
    with tempfile.TemporaryDirectory(prefix="dchosts-") as folder:
        try:
            _make(names, rate, burst)
            agent, tmp = Path(folder) / "agent", Path(folder) / "tmp"
            tmp.mkdir()
            cases = [f"  {address}|{name}) space={name} name={name} ;;" for address, name in zip(ADDRESSES, names)]
            agent.write_text(_AGENT.format(cases="\n".join(cases), tmp=tmp))
            agent.chmod(0o755)
            yield TwoHosts(names, agent, tmp)
        finally:
            _remove(names)


def _make(names: tuple[str, str], rate: str, burst: str) -> None:
    for name in names:
        _ip("netns", "add", name)
        files = Path("/etc/netns") / name
        files.mkdir(parents=True)
        known = [f"{address} {n}" for address, n in zip(ADDRESSES, names)]
        (files / "hosts").write_text("\n".join(["127.0.0.1 localhost", *known, ""]))
        (files / "resolv.conf").write_text("")  # no waiting for a name server
    _ip("link", "add", INTERFACE, "netns", names[0], "type", "veth", "peer", "name", INTERFACE, "netns", names[1])
    for name, address in zip(names, ADDRESSES):
        _ip("-n", name, "addr", "add", f"{address}/24", "dev", INTERFACE)
        for device in ("lo", INTERFACE):
            _ip("-n", name, "link", "set", device, "up")
        if rate:
            shape = ["tbf", "rate", rate, "burst", burst, "latency", "50ms"]
            _run("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", INTERFACE, "root", *shape)
    for name in names:
        _wait_for_carrier(name)


def _wait_for_carrier(name: str) -> None:
    """Both ends are set up, but the kernel tells it late: until then libfabric does not see the address."""
    deadline_s = time.monotonic() + _TIMEOUT_S
    while "state UP" not in _ip("-n", name, "link", "show", INTERFACE):
        if time.monotonic() > deadline_s:
            raise NoTwoHostsError(f"{INTERFACE} of {name} did not come up within {_TIMEOUT_S} s")
        time.sleep(0.02)


def _remove(names: tuple[str, str]) -> None:
    """Whatever of the pair is there. The veth goes with its namespaces."""
    for name in names:
        with contextlib.suppress(NoTwoHostsError):  # it was never made
            _ip("netns", "del", name)
        shutil.rmtree(Path("/etc/netns") / name, ignore_errors=True)


def _sweep() -> None:
    """Remove the pairs of processes that were killed before they could."""
    for name in re.findall(r"^(dc\d+)a\b", _ip("netns", "list"), re.MULTILINE):
        if not Path(f"/proc/{name[2:]}").exists():
            _remove((f"{name}a", f"{name}b"))


def _ip(*arguments: str) -> str:
    return _run("ip", *arguments)


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def _run(*command: str) -> str:
    environment = {**os.environ, "PATH": _path()}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoTwoHostsError(f"{' '.join(command)}: {error}") from error
    if done.returncode:
        raise NoTwoHostsError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout
