"""What to say when a job has ended, and with which exit code.

In: `Outcome`. Out: (exit code, text): what failed, by time, a line each; the last lines are the first cause, in full,
with its traceback.
Exit codes: the failing rank's own, 1 if that was 0; 128 + signal for a rank, an mpiexec or a job that a signal ended or
stopped, also where the ranks handled it and ended well: the program did not come to its own end; 124 for a timeout.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from launch.cause import MPIEXEC, Cause, causes
from launch.records import RankRecord
from launch.supervise import Outcome

TIMEOUT_EXIT_CODE = 124  # as coreutils' timeout
_ME = "distcompile-run:"
_SHOWN = 20  # failures that followed the first
_ABORTS = (
    re.compile(r"^Abort\((?P<code>\d+)\) on node (?P<rank>\d+)", re.MULTILINE),  # MPICH
    re.compile(r"MPI_ABORT was invoked on rank (?P<rank>\d+).*?with errorcode (?P<code>\d+)", re.DOTALL),  # Open MPI
)


def judge(outcome: Outcome) -> tuple[int, str]:
    """Exit code and last words; the words are empty if all went well."""
    left = f"{_ME} still alive after SIGKILL: {', '.join(map(str, outcome.survivors))}\n" if outcome.survivors else ""
    code, words = _judge(outcome)
    return code, left + words


def _judge(outcome: Outcome) -> tuple[int, str]:
    found = all_causes(outcome)
    told = _standstill(outcome, found)
    if told is not None:
        code, words = told
        return code, "".join([*_report(outcome), *_others(found, outcome), f"{_ME} {words}\n"])
    if outcome.signum and not (found and _precedes_signal(found[0], outcome)):
        name, code = signal.Signals(outcome.signum).name, 128 + outcome.signum
        if outcome.returncode == 0 and not found:
            if all(record.end is not None and record.end.at < (outcome.ending_at or 0) for record in outcome.records):
                return 0, ""  # it came when all was over
            return code, f"{_ME} ended by {name}, which all ranks handled: they ended well\n"
        return code, f"{_ME} ended by {name}\n"
    if found:
        return found[0].exit_code, _failure(found, outcome)
    return _without_cause(outcome)


def _standstill(outcome: Outcome, found: Sequence[Cause]) -> tuple[int, str] | None:
    """(exit code, words) of a job that the launcher ended because it stood still; None if it did not.

    found: what failed before that. Where a rank's watchdog says that the job hangs, its own error says more, if it came
    in time; how ranks end after the launcher began to end them says nothing.
    """
    if outcome.timed_out:
        before = f"; before that, {outcome.hang.text}" if outcome.hang is not None else ""
        return TIMEOUT_EXIT_CODE, f"the job ran longer than --timeout{before}"
    if outcome.stopped is not None:
        stop = outcome.stopped
        words = f"rank {stop.rank} (process {stop.pid}) has been stopped (SIGSTOP) for {stop.for_s:.0f} s"
        return 128 + signal.SIGSTOP, words
    if outcome.hang is not None and outcome.ending_at is not None and not outcome.signum and not found:
        late = ", ".join(map(str, sorted(outcome.hang.goes_on)))
        more = f"; rank(s) {late} handled that error, and had not ended within --save-limit" if late else ""
        return TIMEOUT_EXIT_CODE, f"the job hangs, says rank {outcome.hang.rank}: {outcome.hang.text}{more}"
    return None


def first_line(outcome: Outcome, words: str) -> str:
    """The first cause in one line."""
    found = all_causes(outcome)
    if outcome.stopped is not None or not found or found[0].rank == MPIEXEC:
        lines = words.strip().splitlines()
        return lines[-1].removeprefix(f"{_ME} ") if lines else ""
    first = found[0]
    record = next((record for record in outcome.records if record.rank == first.rank), None)
    why = f": {record.failure.summary}" if record is not None and record.failure is not None else ""
    return f"rank {first.rank} {first.what}{why}"


def _precedes_signal(first: Cause, outcome: Outcome) -> bool:
    return outcome.ending_at is not None and first.at < outcome.ending_at and not first.is_consequence


def all_causes(outcome: Outcome) -> list[Cause]:
    """The first cause of a job's end, then what else failed."""
    found = causes(outcome.records, outcome.mpiexec, outcome.ending_at, _unborn(outcome))
    aborted = _aborted(outcome) if found and found[0].kind == "warden lost" else None
    return [aborted, *(cause for cause in found if cause.rank != aborted.rank)] if aborted else found


def _unborn(outcome: Outcome) -> list[Cause]:
    """Ranks that ended without a hello: the first of them by itself, the others by mpiexec."""
    code = _code_of_mpiexec(outcome) or 1
    is_signal = 128 < code < 128 + signal.NSIG
    how = f"was ended by {signal.Signals(code - 128).name}" if is_signal else f"left with exit code {code}"
    gone = sorted(outcome.vanished.items(), key=lambda item: item[1])
    if not gone and outcome.returncode and outcome.mpiexec is not None:
        silent = set(range(outcome.size)) - {record.rank for record in outcome.records}
        gone = [(rank, outcome.mpiexec.at) for rank in silent] if len(silent) == 1 else []
    first = [Cause("never started", rank, at, code, f"{how} before it had started") for rank, at in gone[:1]]
    what = "was ended by mpiexec before it had started"
    return first + [Cause("never started", rank, at, code, what, is_consequence=True) for rank, at in gone[1:]]


def _aborted(outcome: Outcome) -> Cause | None:
    """MPI_Abort has mpiexec kill all ranks at once; MPI itself says which rank called it."""
    words = [outcome.mpiexec_output, *(text.decode(errors="replace") for text in outcome.last_words.values())]
    said = next((match for text in words for pattern in _ABORTS if (match := pattern.search(text))), None)
    if said is None:
        return None
    code = int(said["code"])
    return Cause("aborted", int(said["rank"]), 0.0, code & 0xFF, f"called MPI_Abort with code {code}")


def _without_cause(outcome: Outcome) -> tuple[int, str]:
    """No rank failed, as far as anybody told."""
    became_others = any(record.is_replaced for record in outcome.records)  # which MPI takes amiss, not we
    all_well = all(record.ended_well for record in outcome.records)
    if outcome.returncode == 0 or (became_others and all_well and len(outcome.records) == outcome.size):
        return 0, ""
    if outcome.records and all(record.ended_well for record in outcome.records) and outcome.ending_at is not None:
        return 0, f"{_ME} all ranks ended well, but mpiexec did not end after them, and was ended\n"
    code = _code_of_mpiexec(outcome)
    return code, f"{_ME} mpiexec failed with exit code {code}, and said:\n{outcome.mpiexec_output}"


def _failure(found: Sequence[Cause], outcome: Outcome) -> str:
    """All failures by time, in a line each, then the first cause in full."""
    first = found[0]
    records = {record.rank: record for record in outcome.records}
    others = _others(found[1:], outcome)
    lines = [f"{_ME} first {_line(first, records)}\n", *others] if others else []
    lines += _report(outcome) if first.is_consequence else []  # nobody else failed: whom did it wait for?
    words = _in_full(first, records.get(first.rank), outcome.doing.get(first.rank, ""))
    said = outcome.mpiexec_output.strip() if first.kind == "never started" else ""
    return "".join(lines) + words + (f"  mpiexec said:\n{said}\n" if said else "")


def _others(found: Sequence[Cause], outcome: Outcome) -> list[str]:
    """What followed, a line each, but no more than fit a screen."""
    records = {record.rank: record for record in outcome.records}
    lines = [f"{_ME} then {_line(cause, records, ' too')}\n" for cause in found[:_SHOWN]]
    left = len(found) - len(lines)
    return [*lines, f"{_ME} then {left} other{'s' if left > 1 else ''}\n"] if left else lines


def _line(cause: Cause, records: dict[int, RankRecord], too: str = "") -> str:
    """A failure on one line."""
    record = records.get(cause.rank)
    if cause.rank == MPIEXEC:
        return cause.what
    if record is not None and record.failure is not None:
        return f"rank {cause.rank} failed{too}: {record.failure.summary}"
    return f"rank {cause.rank} {cause.what}"


def _in_full(cause: Cause, record: RankRecord | None, doing: str) -> str:
    if cause.rank == MPIEXEC:
        return f"{_ME} {cause.what}; no rank had failed\n"
    process = f" (process {record.pid})" if record is not None and record.pid else ""
    if record is None or record.failure is None:
        stack = _stack(record) if record is not None else ""
        before = f"  before that: {doing}\n" if doing else ""
        return f"{_ME} rank {cause.rank}{process} {cause.what}\n{before}{_hint(cause)}{stack}"
    failure = record.failure
    words = "it said:" if failure.summary.startswith("sys.exit(") else "its traceback:"
    how = failure.summary if failure.traceback == "" else words
    return f"{_ME} rank {cause.rank} {cause.what}; {how}\n{failure.traceback}"


def _hint(cause: Cause) -> str:
    if cause.exit_code == 128 + signal.SIGKILL and cause.kind in ("death", "warden lost", "never started"):
        return "  what to do: look in the kernel's log (dmesg) whether the machine ran out of memory\n"
    if cause.kind == "out of reach":
        return "  what to do: look whether that host is up, and at the network between it and this one\n"
    if cause.kind == "left early":
        return "  what to do: end the program by its last line or sys.exit(); os._exit() leaves the other ranks alone\n"
    return ""


def _stack(record: RankRecord) -> str:
    """faulthandler's text without the launcher's own frames."""
    ours = ("launch/child.py", "launch/program.py")
    lines = [line for line in record.fault.splitlines() if not any(name in line for name in ours)]
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("Extension modules"))


def _report(outcome: Outcome) -> list[str]:
    """Where every rank was that had not ended, then what each was doing, on one line each."""
    here = [f"{_ME} rank {r.rank} was here:\n{_stack(r)}" for r in outcome.records if r.fault]
    return here + _doing(outcome)


def _doing(outcome: Outcome) -> list[str]:
    """One line for each rank that keeps a status board."""
    return [f"{_ME} {sentence}\n" for _, sentence in sorted(outcome.doing.items())]


def _code_of_mpiexec(outcome: Outcome) -> int:
    """128 + the signal that mpiexec says it saw, else its exit code."""
    said = re.search(r"(?:EXIT STRING: .*\(signal |exited on\s+signal )(\d+)", outcome.mpiexec_output)
    candidates = [int(said.group(1))] if said else []
    candidates += [-outcome.returncode, outcome.returncode - 128]
    signum = next((c for c in candidates if 0 < c < signal.NSIG), 0)
    return 128 + signum if signum else outcome.returncode & 0xFF
