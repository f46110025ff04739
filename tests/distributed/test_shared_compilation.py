"""What one rank compiles the others have: on one host through the cache, over hosts from a server, or by a file."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from mpi_job import check_ran, run_on_ranks

from tests.docs.pages import blocks

pytest.importorskip("mpi4py")
ROOT = Path(__file__).resolve().parents[2]

TRAIN = """
import os, sys
os.chdir(os.path.dirname(__file__))
sys.path.insert(0, "")
OWN
import distcompile as torch
import distcompile.distributed as dist
from distcompile import nn
dist.init_process_group(timeout=100)
torch.manual_seed(0)
BEFORE
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(24, 40), nn.GELU(), nn.Linear(40, 3)))
step = torch.compile(model)
step(torch.ones(5, 24)).square().mean().backward()
data, info = torch.compiler.save_cache_artifacts()
open(f"saved{dist.get_rank()}", "wb").write(data)
print("graphs", *info.inductor_artifacts, flush=True)
dist.destroy_process_group()
"""
OWN = 'os.environ["DISTCOMPILE_CACHE_DIR"] = "host" + os.environ["RANK"]'


# of two ranks, whose caches are apart, each compiles in an order of its own, and more than the other
ORDERS = """
import os, sys
OWN
import distcompile as torch
import distcompile.distributed as dist
FIRST
dist.init_process_group(timeout=100)
rank = dist.get_rank()
functions = [lambda x: x.sin() + 1, lambda x: x.exp() * 2, lambda x: (x * 3).cumsum(0), lambda x: x.tanh().sum()]
for function in functions[::-1] if rank else functions[1:]:
    torch.compile(function)(torch.ones(8))
print("graphs", *torch.compiler.save_cache_artifacts()[1].inductor_artifacts, flush=True)
dist.destroy_process_group()
torch.compile(lambda x: x.cos() - rank)(torch.ones(8))
"""
OTHER_CPU = """
from compiler_core.runtime import toolchain
real = toolchain.cpu_identity
toolchain.cpu_identity = lambda: real() + " of another kind" * int(os.environ["RANK"])
"""


def run(folder: Path, own: str = "", before: str = "") -> tuple[Counter[tuple[str, str, str]], set[str]]:
    """(rank, hit or miss or taken, key) -> how often, of a job; and the keys of compiled graphs."""
    script = folder / "train.py"
    script.write_text(TRAIN.replace("OWN", own).replace("BEFORE", before))
    return counted(folder, script)[:2]


def counted(
    folder: Path, script: Path, environment: dict[str, str] | None = None
) -> tuple[Counter[tuple[str, str, str]], set[str], str]:
    """The same of a script; and all that was said."""
    (folder / "t").mkdir(exist_ok=True)  # artefacts of earlier processes may lie in the temporary directory
    cache = {"DISTCOMPILE_LOGS": "cache", "DISTCOMPILE_CACHE_DIR": str(folder / "cache"), "TMPDIR": str(folder / "t")}
    done = run_on_ranks(2, [str(script)], environment=cache | (environment or {}))
    check_ran(done)
    found = re.findall(r"rank (\d)\S* cache: (hit|miss|taken) (\w{16})", done.stdout + done.stderr)
    graphs = {key[:16] for line in re.findall(r"graphs (.*)", done.stdout) for key in line.split()}
    return Counter(found), graphs, done.stdout + done.stderr


@pytest.mark.slow
def test_of_the_ranks_of_a_host_one_compiles_each_unit(tmp_path: Path) -> None:
    found, graphs = run(tmp_path)
    misses = [key for (_, word, key), number in found.items() for _ in range(number) if word == "miss"]
    assert len(misses) == len(set(misses))
    assert set(misses) >= graphs != set()
    assert {key for (_, word, key) in found if word == "hit"} == set(misses)


@pytest.mark.slow
def test_ranks_without_a_common_disk_have_what_rank_0_sends(tmp_path: Path) -> None:
    """The page's code, on ranks whose caches are apart, as those of two hosts are."""
    page = ROOT / "docs" / "howto" / "compile_once.md"
    send = next(block.text for block in blocks(page) if "broadcast_object_list" in block.text)
    _, graphs = run(tmp_path)
    (tmp_path / "saved0").rename(tmp_path / "artefacts.bin")
    (tmp_path / "share.py").write_text(send)
    found, again = run(tmp_path, OWN, "import share")
    assert again == graphs
    for rank in "01":
        assert {key for (r, word, key) in found if (r, word) == (rank, "taken")} >= graphs
        assert {key for (r, word, key) in found if (r, word) == (rank, "hit")} >= graphs
    assert not graphs & {key for (_, word, key) in found if word == "miss"}


def missed_or_taken(found: Counter[tuple[str, str, str]], graph: str) -> list[str]:
    """What became of a graph on the ranks that did not have it."""
    words = [word for (_, word, key), number in found.items() for _ in range(number) if key == graph]
    return sorted(word for word in words if word != "hit")


@pytest.mark.slow
def test_of_the_hosts_of_a_job_one_compiles_each_unit(tmp_path: Path) -> None:
    found, graphs = run(tmp_path, OWN)
    assert graphs
    for graph in graphs:
        assert missed_or_taken(found, graph) == ["miss", "taken"]


@pytest.mark.slow
def test_hosts_compile_in_any_order_and_more_than_others(tmp_path: Path) -> None:
    script = tmp_path / "orders.py"
    script.write_text(ORDERS.replace("OWN", own_below(tmp_path)).replace("FIRST", ""))
    found, graphs, _ = counted(tmp_path, script)
    assert sorted(missed_or_taken(found, graph) for graph in graphs) == [["miss"], *[["miss", "taken"]] * 3]


@pytest.mark.slow
def test_a_host_of_another_kind_compiles_for_itself_and_says_so_once(tmp_path: Path) -> None:
    script = tmp_path / "orders.py"
    script.write_text(ORDERS.replace("OWN", own_below(tmp_path)).replace("FIRST", OTHER_CPU))
    found, graphs, said = counted(tmp_path, script)
    assert len(graphs) == 7
    assert all(missed_or_taken(found, graph) == ["miss"] for graph in graphs)
    assert said.count("this host does not share compiled code with rank 0's, which is other: CPU") == 1


@pytest.mark.slow
def test_hosts_may_be_told_to_compile_each_for_itself(tmp_path: Path) -> None:
    script = tmp_path / "orders.py"
    script.write_text(ORDERS.replace("OWN", own_below(tmp_path)).replace("FIRST", ""))
    found, graphs, _ = counted(tmp_path, script, {"DISTCOMPILE_SHARE_CODE": "0"})
    assert sorted(missed_or_taken(found, graph) for graph in graphs) == [["miss"], *[["miss", "miss"]] * 3]


def own_below(folder: Path) -> str:
    return f'os.environ["DISTCOMPILE_CACHE_DIR"] = {str(folder)!r} + "/host" + os.environ["RANK"]'
