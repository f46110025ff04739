"""What to say when a job has ended, and with which exit code.

In: `Outcome`. Out: (exit code, text); the text's last lines are the traceback of the rank that failed first.
Exit codes: the failing rank's own; 128 + signal for a rank or a job that a signal ended; 124 for a timeout.
"""

from __future__ import annotations

import re
import signal

from launch.channel import RankLink
from launch.supervise import Outcome

TIMEOUT_EXIT_CODE = 124  # as coreutils' timeout
_ME = "distcompile-run:"


def judge(outcome: Outcome) -> tuple[int, str]:
    """Exit code and last words; the words are empty if all went well."""
    left = f"{_ME} still alive after SIGKILL: {', '.join(map(str, outcome.survivors))}\n" if outcome.survivors else ""
    if outcome.timed_out:
        return TIMEOUT_EXIT_CODE, left + _timeout(outcome)
    if outcome.signum:
        if outcome.returncode == 0 and not outcome.ranks:
            return 0, left  # the ranks handled the signal and ended well
        return 128 + outcome.signum, f"{left}{_ME} ended by {signal.Signals(outcome.signum).name}\n"
    reported = [link for link in outcome.ranks if link.failed_at is not None]
    if reported:
        return reported[0].exit_code, left + _failure(reported[0], reported[1:])
    if outcome.returncode == 0:
        return 0, left
    return _silent_death(outcome, left)


def _failure(first: RankLink, others: list[RankLink]) -> str:
    """The other ranks in a line each, then the first failure in full."""
    lines = [f"{_ME} rank {link.rank} failed too: {link.summary}\n" for link in others]
    what = first.summary if first.traceback == "" else "its traceback:"
    head = f"{_ME} rank {first.rank} failed with exit code {first.exit_code}; {what}\n"
    return "".join([*lines, head, first.traceback])


def _silent_death(outcome: Outcome, left: str) -> tuple[int, str]:
    """A rank that the kernel ended, or an mpiexec that could not start one."""
    faulted = [link for link in outcome.ranks if link.fault]
    first = next(iter([*faulted, *outcome.ranks]), None)
    signum = _signal_of(outcome)
    code = 128 + signum if signum else outcome.returncode & 0xFF
    if first is None:
        return code, f"{left}{_ME} mpiexec failed with exit code {code}, and said:\n{outcome.mpiexec_output}"
    how = f"was ended by {signal.Signals(signum).name}" if signum else f"left with exit code {code}"
    hint = ""
    if signum == signal.SIGKILL:
        hint = "  what to do: look in the kernel's log (dmesg) whether the machine ran out of memory\n"
    return code, f"{left}{_ME} rank {first.rank} (process {first.pid}) {how}\n{hint}{_stack(first)}"


def _stack(link: RankLink) -> str:
    """faulthandler's text without the launcher's own frames."""
    lines = [line for line in link.fault.splitlines() if "launch/child.py" not in line]
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("Extension modules"))


def _signal_of(outcome: Outcome) -> int:
    """The signal that ended the first rank to die: from mpiexec's words, else from its exit code; 0 if none did."""
    said = re.search(r"(?:EXIT STRING: .*\(signal |exited on\s+signal )(\d+)", outcome.mpiexec_output)
    candidates = [int(said.group(1))] if said else []
    candidates += [-outcome.returncode, outcome.returncode - 128]
    return next((c for c in candidates if 0 < c < signal.NSIG), 0)


def _timeout(outcome: Outcome) -> str:
    """Where every rank was."""
    stacks = [
        f"{_ME} rank {link.rank} was here:\n{_stack(link)}" for link in sorted(outcome.ranks, key=lambda r: r.rank)
    ]
    return "".join([f"{_ME} the job ran longer than --timeout\n", *stacks])
