"""What one rank compiles the others have: on one host through the cache, over hosts by a file that rank 0 sends."""

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


def run(folder: Path, own: str = "", before: str = "") -> tuple[Counter[tuple[str, str, str]], set[str]]:
    """(rank, hit or miss or taken, key) -> how often, of a job; and the keys of compiled graphs."""
    script = folder / "train.py"
    script.write_text(TRAIN.replace("OWN", own).replace("BEFORE", before))
    (folder / "t").mkdir(exist_ok=True)  # artefacts of earlier processes may lie in the temporary directory
    cache = {"DISTCOMPILE_LOGS": "cache", "DISTCOMPILE_CACHE_DIR": str(folder / "cache"), "TMPDIR": str(folder / "t")}
    done = run_on_ranks(2, [str(script)], environment=cache)
    check_ran(done)
    found = re.findall(r"rank (\d)\S* cache: (hit|miss|taken) (\w{16})", done.stdout + done.stderr)
    graphs = {key[:16] for line in re.findall(r"graphs (.*)", done.stdout) for key in line.split()}
    return Counter(found), graphs


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
