"""torchrun's names: what they mean here, what contradicts what; allocations; environment of the ranks."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from launch_jobs import program, run

from launch import restarts
from launch.errors import UsageError
from launch.folder import JobFolder, sweep
from launch.machine import allocation
from launch.machine.binding import allowed_cpus
from launch.machine.cores import CoreClaim
from launch.options import parse
from launch.restarts import Attempt
from launch.screen.relay import Files

THIS = ["-m", "this"]


@pytest.mark.parametrize(
    ("line", "ranks"),
    [
        ("-n 3", 3),
        ("-np 3", 3),
        ("--nproc-per-node 3", 3),
        ("--nproc_per_node=3", 3),
        ("--nproc-per-node 2 --nnodes 2 --hosts a,b", 4),
        ("--nproc-per-node 2 --nnodes 2:2 --hostfile /dev/null", 4),
        ("--nproc-per-node cpu --standalone", len(set(allowed_cpus()))),
        ("-n 4 --nproc-per-node 4 --node-rank 0", 4),
        ("", 1),
    ],
)
def test_the_number_of_ranks(line: str, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launch.machine.binding.cores_of", lambda cpus: [(cpu,) for cpu in cpus])
    assert parse([*line.split(), *THIS], {}).ranks == ranks


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-n 3 --nproc-per-node 2", "contradicts"),
        ("--nproc-per-node 0", "--nproc-per-node 0"),
        ("--nnodes 2", "no hosts"),
        ("--nnodes 1:4", "does not change"),
        ("--nnodes 2 --standalone --hosts a,b", "contradict"),
        ("--node-rank 1", "started once"),
        ("--no-python", "contradict"),
        ("--as-torch --no-python", "--as-torch and --no-python contradict"),
        ("--as-torch --check", "--as-torch and --check contradict"),
        ("--master-port 1 --rdzv-endpoint h:2", "contradicts"),
        ("--master-addr a --rdzv-endpoint h:2", "contradicts"),
        ("--tee 3", "need a folder"),
        ("--log-dir d --tee 4", "streams 0 to 3"),
        ("--log-dir d -r 5:1", "ranks 0 to 0"),
        ("--bind 0,x", "--bind 0,x"),
        ("--bind 99999", "may use"),
        ("--check", "runs no program"),
    ],
)
def test_contradictions_are_errors(line: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse([*line.split(), *THIS], {})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--rdzv-endpoint h:port", "--rdzv-endpoint h:port"),
        ("--rdzv-endpoint h:99999999", "--rdzv-endpoint h:99999999"),
        ("--mpi-args 'a", "--mpi-args 'a[^~]*No closing quotation"),
        ("--hostfile /nowhere/h", "there is no file '/nowhere/h'"),
        ("--log-dir /dev/null/logs", r"/dev/null is no folder"),
        ("--log-dir d --rdzv-id ../../x", "is to name a folder below --log-dir"),
        ("-n 2 --local-ranks-filter 7", "would show nothing[^~]*ranks 0 to 1"),
    ],
)
def test_what_would_fail_later_or_in_silence_is_an_error_at_once(line: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse([*line.split(), *THIS], {})


def test_a_program_that_is_not_there_is_an_error_here_but_not_on_other_hosts() -> None:
    with pytest.raises(UsageError, match="there is no program '/nowhere/program'"):
        parse(["--no-python", "/nowhere/program"], {})
    assert parse(["--no-python", "--hosts", "a", "/nowhere/program"], {}).program == ("/nowhere/program",)
    assert parse(["--no-python", "/nowhere/program"], {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "2"}).ranks == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--timeout nan", "'nan': expected seconds, 0 or more"),
        ("--timeout -1", "'-1': expected seconds, 0 or more"),
        ("--grace inf", "'inf': expected seconds"),
        ("--watchdog soon", "'soon': expected seconds"),
        ("--save-limit -3", "'-3': expected seconds"),
        ("--stop-limit nan", "'nan': expected seconds"),
        ("--master-port 99999999", "'99999999': expected a port, 1 to 65535"),
        ("--master-port -1", "'-1': expected a port"),
        ("--max-restarts -5", "'-5': expected a whole number, 0 or more"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse([*line.split(), *THIS], {})
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_options_without_meaning_are_said_to_have_none() -> None:
    settings = parse(["--rdzv-backend", "c10d", "--start-method=spawn", "--monitor-interval", "1", *THIS], {})
    assert [line.split()[0] for line in settings.ignored] == ["--rdzv-backend", "--monitor-interval", "--start-method"]


def test_streams_are_told_as_torchrun_tells_them() -> None:
    settings = parse(["-n", "2", "--log-dir", "d", "-r", "0:1", "-t", "2", *THIS], {})
    assert (settings.redirects, settings.tee) == (Files(0, {0: 1}), Files(2, {}))
    assert parse(["--log-dir", "d", *THIS], {}).tee == Files(3, {})


def test_allocations_are_left_to_mpi(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes"
    nodes.write_text("a\na\nb\n")
    slurm = {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "6"}
    assert allocation.detect(slurm) == ("Slurm", 6)
    assert allocation.detect({"SLURM_JOB_ID": "1", "SLURM_NNODES": "2", "SLURM_NTASKS_PER_NODE": "4"}) == ("Slurm", 8)
    assert allocation.detect({"PBS_NODEFILE": str(nodes)}) == ("PBS", 3)
    assert parse(THIS, slurm).ranks == 6
    assert parse(["-n", "2", *THIS], slurm).ranks == 2
    with pytest.raises(UsageError, match="allocation of Slurm"):
        parse(["--hosts", "a", *THIS], slurm)


def test_in_an_allocation_no_hosts_and_no_mapping_are_named() -> None:
    shown = run("--dry-run", "-n", "2", "--mpi", "openmpi", *THIS, SLURM_JOB_ID="7", SLURM_NTASKS="2").stdout
    assert "allocation of Slurm" in shown
    assert "OVERSUBSCRIBE" not in shown
    assert "--host" not in shown


def test_ranks_find_torchruns_variables(tmp_path: Path) -> None:
    text = "import json, os\nprint(json.dumps(dict(os.environ)))\n"
    line = ["-n", "2", "--bind", "none", "--role", "trainer", "--rdzv-id", "r1", "--max-restarts", "3"]
    done = run(*line, "--master-port", "12345", program(tmp_path, text), TMPDIR=str(tmp_path))
    found = sorted((json.loads(line[4:]) for line in done.stdout.splitlines()), key=lambda e: str(e["RANK"]))
    for rank, environ in enumerate(found):
        expected = {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0",
            "NODE_RANK": "0", "ROLE_RANK": str(rank), "ROLE_WORLD_SIZE": "2", "ROLE_NAME": "trainer",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "12345", "TORCHELASTIC_RUN_ID": "r1",
            "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "3", "TMPDIR": str(tmp_path),
        }  # fmt: skip
        assert {name: environ.get(name) for name in expected} == expected


def test_a_program_may_be_something_else_than_python() -> None:
    done = run("-n", "2", "--bind", "none", "--no-python", "sh", "-c", 'echo "$RANK of $WORLD_SIZE"')
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, ["[0] 0 of 2", "[1] 1 of 2"])
    failed = run("-n", "2", "--bind", "none", "--no-python", "sh", "-c", 'test "$RANK" = 0 || exit 5; sleep 100')
    assert failed.returncode == 5
    assert "rank 1" in failed.stderr


@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
def test_the_mpi_that_is_asked_for_is_loaded(tmp_path: Path, mpi: str) -> None:
    text = "from mpi4py import MPI\nprint(MPI.Get_library_version()[:8], MPI.COMM_WORLD.size)\n"
    done = run("-n", "2", "--bind", "none", "--mpi", mpi, program(tmp_path, text))
    name = {"mpich": "MPICH Ve", "openmpi": "Open MPI"}[mpi]
    assert sorted(done.stdout.splitlines()) == [f"[0] {name} 2", f"[1] {name} 2"]


def test_a_job_is_started_again_and_told_how_often(tmp_path: Path) -> None:
    text = """
import os, sys
count = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
print("start", count, flush=True)
if count < 1 and os.environ["RANK"] == "1":
    raise ValueError("not yet")
"""
    done = run("-n", "2", "--bind", "none", "--max-restarts", "2", program(tmp_path, text))
    assert done.returncode == 0, done.stderr
    assert "start 1 of 3 failed: rank 1 failed with exit code 1: ValueError: not yet" in done.stderr
    assert "[0] start 1" in done.stdout


def test_a_job_that_always_fails_ends_with_each_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    said: list[str] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    code = restarts.run(lambda count: Attempt(3, "", f"cause {count}", True), 3, said.append)
    assert code == 3
    assert pauses == [1, 2, 4]
    assert said[-1].splitlines()[1:] == [f"  start {count + 1}: cause {count}" for count in range(4)]


def test_what_the_user_ended_is_not_started_again() -> None:
    starts: list[int] = []

    def attempt(count: int) -> Attempt:
        starts.append(count)
        return Attempt(130, "", "", may_restart=False)

    assert restarts.run(attempt, 5, lambda text: None) == 130
    assert starts == [0]


def test_two_jobs_do_not_share_cores(tmp_path: Path) -> None:
    one, two, three = (CoreClaim(tmp_path / "cores") for _ in range(3))
    for claim, name in ((one, "1"), (two, "2"), (three, "3")):
        claim.file = claim.folder / name
    assert one.take((0, 1, 2, 3), least=2) == (0, 1, 2, 3)
    assert two.take((0, 1, 2, 3), least=1) == ()
    one.release()
    one.take_these((0, 1))
    assert two.take((0, 1, 2, 3), least=2) == (2, 3)
    assert three.take((0, 1, 2, 3), least=1) == ()
    for claim in (one, two, three):
        claim.release()
    assert [path.name for path in (tmp_path / "cores").iterdir()] == ["lock"]


def test_threads_per_rank_leave_cores_to_the_next_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launch.machine.cores.cores_of", lambda cpus: [(cpu,) for cpu in cpus])
    one, two = CoreClaim(tmp_path / "cores"), CoreClaim(tmp_path / "cores")
    two.file = two.folder / "2"
    assert one.take(range(8), least=4, cores=4) == (0, 1, 2, 3)
    assert two.take(range(8), least=2, cores=2) == (4, 5)
    one.release()
    two.release()


def test_cores_of_a_dead_job_are_free(tmp_path: Path) -> None:
    folder = tmp_path / "cores"
    folder.mkdir()
    (folder / "4711").write_text("0,1")  # nobody holds its lock
    assert CoreClaim(folder).take((0, 1), least=1) == (0, 1)
    assert not (folder / "4711").exists()


def test_a_second_job_says_that_it_is_not_bound(tmp_path: Path) -> None:
    claim = CoreClaim(tmp_path / "cores")
    claim.file = claim.folder / "99999999"
    claim.take_these(allowed_cpus())
    script = program(tmp_path, "import os\nprint(len(os.sched_getaffinity(0)))")
    folder = str(tmp_path / "cores")
    done = run("-n", "2", script, DISTCOMPILE_RUN_CORES=folder)
    assert "its ranks are not bound" in done.stderr
    assert done.stdout.splitlines() == [f"[{rank}] {len(os.sched_getaffinity(0))}" for rank in range(2)] or done.stdout
    told = run("-n", "1", "--bind", str(allowed_cpus()[0]), script, DISTCOMPILE_RUN_CORES=folder)
    assert (told.stdout, told.stderr) == ("1\n", "")
    claim.release()


def test_a_registry_of_cores_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run("-n", "1", *THIS, DISTCOMPILE_RUN_CORES=str(tmp_path / "file" / "cores"))
    assert done.returncode == 2
    assert "CoreRegistryError: which cores other jobs are bound to cannot be seen" in done.stderr


def test_folders_of_dead_launchers_are_removed_and_no_others(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path = tmp_path_factory.getbasetemp() / "d"  # short: a socket's path must fit
    tmp_path.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dead, unlocked = tmp_path / "dcrun-dead", tmp_path / "dcrun-new"
    for folder in (dead, unlocked):
        folder.mkdir()
    (dead / "lock").touch()
    with JobFolder() as living:
        sweep(tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([Path(living).name, unlocked.name])
    assert not Path(living).exists()


def test_as_torch_puts_our_runner_before_the_program() -> None:
    assert parse(["-n", "2", "--as-torch", "-m", "this", "-x"], {}).program == (
        "-m", "distcompile.as_torch", "-m", "this", "-x",
    )  # fmt: skip


@pytest.mark.parametrize(("word", "meant"), [("--timeot", "--timeout"), ("--nproc-per-nod=2", "--nproc-per-node")])
def test_an_unknown_option_is_answered_with_the_nearest(word: str, meant: str) -> None:
    with pytest.raises(UsageError, match=f"there is no option {word.partition('=')[0]}\n.*did you mean {meant}"):
        parse([word, "-m", "this"])


def test_an_option_near_to_none_is_sent_to_help() -> None:
    with pytest.raises(UsageError, match="see distcompile-run --help"):
        parse(["--zzzz", "-m", "this"])
