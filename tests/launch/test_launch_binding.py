"""Shares of the cores: disjoint, whole cores, quotas, and the user's own settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.machine.binding import Share, cores_of, quota_cpus, share, thread_environment

FOUR = [(0,), (1,), (2,), (3,)]
SMT = [(0, 4), (1, 5), (2, 6), (3, 7)]


def test_ranks_share_the_cores_evenly() -> None:
    assert [share(r, 2, FOUR).cpus for r in range(2)] == [(0, 1), (2, 3)]
    assert share(0, 2, FOUR).threads == 2


def test_a_core_is_not_split_while_there_are_enough() -> None:
    assert [share(r, 4, SMT).cpus for r in range(4)] == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert share(0, 4, SMT).threads == 1


def test_hardware_threads_are_used_before_ranks_share_one() -> None:
    shares = [share(r, 8, SMT).cpus for r in range(8)]
    assert sorted(cpu for cpus in shares for cpu in cpus) == list(range(8))


def test_more_ranks_than_hardware_threads_wrap_around() -> None:
    assert [share(r, 3, [(0,), (1,)]).cpus for r in range(3)] == [(0,), (1,), (0,)]


@pytest.mark.parametrize("size", range(1, 12))
def test_every_rank_gets_a_cpu_and_the_same_number(size: int) -> None:
    shares = [share(r, size, SMT) for r in range(size)]
    assert len({len(s.cpus) for s in shares}) == 1
    assert all(s.cpus and s.threads >= 1 for s in shares)
    if size <= 4:
        assert len({cpu for s in shares for cpu in s.cpus}) == size * len(shares[0].cpus)


def test_no_binding_still_counts_threads() -> None:
    assert share(1, 2, FOUR, bind=False) == Share((), 2)


def test_a_quota_bounds_the_threads() -> None:
    assert share(0, 1, FOUR, quota=2.5).threads == 2
    assert share(0, 4, FOUR, quota=2.0).threads == 1


def test_quota_is_read_from_cgroup_v2(tmp_path: Path) -> None:
    assert quota_cpus(tmp_path) == float("inf")
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert quota_cpus(tmp_path) == float("inf")
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert quota_cpus(tmp_path) == 1.5


def test_cores_follow_the_topology(tmp_path: Path) -> None:
    for cpu, package, core in [(0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 0, 0)]:
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{package}\n")
        (folder / "core_id").write_text(f"{core}\n")
    assert cores_of([0, 1, 2, 3], tmp_path) == [(0, 3), (1,), (2,)]
    assert cores_of([1, 3], tmp_path) == [(3,), (1,)]


def test_without_topology_each_cpu_is_a_core(tmp_path: Path) -> None:
    assert cores_of([2, 5], tmp_path) == [(2,), (5,)]


def test_the_users_thread_counts_win() -> None:
    assert thread_environment(2, {"OMP_NUM_THREADS": "7"}) == {}
    changed = thread_environment(2, {"OPENBLAS_NUM_THREADS": "7"})
    assert changed == {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}
