"""Saves that torch DCP has just written, by two ranks, in each of its ways: whole ones are complete, broken ones are not."""

import os
import shutil
import socket
import subprocess
import sys

import pytest

from supervisor.checkpoints.reading.findings import Verdict
from supervisor.checkpoints.reading.verifying import Options, verify

pytestmark = [pytest.mark.real, pytest.mark.slow]

SCRIPT = """
import sys, warnings
warnings.filterwarnings("ignore")
import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

dist.init_process_group("gloo")
rank, root = dist.get_rank(), sys.argv[1]
mesh = init_device_mesh("cpu", (2,))
torch.manual_seed(1)

def state():
    whole = torch.randn(37, 16)
    return {
        "model": {
            "even": distribute_tensor(torch.randn(8, 6).bfloat16(), mesh, [Shard(0)]),
            "odd": distribute_tensor(whole, mesh, [Shard(0)]),
            "columns": distribute_tensor(torch.randn(4, 5), mesh, [Shard(1)]),
            "one_row": distribute_tensor(torch.randn(1, 5), mesh, [Shard(0)]),
            "copied": distribute_tensor(torch.randn(300), mesh, [Replicate()]),
            "number": torch.tensor(3.5),
            "nothing": torch.empty(0, 4),
            "half": torch.randn(9, 9).half(),
            "complex": torch.randn(4, dtype=torch.complex64),
        },
        "optim": {"exp_avg": torch.zeros(64, 64), "exp_avg_sq": torch.rand(64, 64) * 1e-44},
        "step": 12,
        "lr": 0.5,
        "notes": {"list": [1, 2, {"a": (1, 2)}], "set": {1, 2}},
        f"rng.{rank}": torch.get_rng_state(),
    }

def save(name, writer, **more):
    dcp.save(state(), storage_writer=writer(f"{root}/{name}"), **more)

save("plain", FileSystemWriter)
save("threads", lambda path: FileSystemWriter(path, thread_count=3))
save("files", lambda path: FileSystemWriter(path, single_file_per_rank=False))
save("by_rank", FileSystemWriter, use_collectives=False)
dcp.async_save(state(), storage_writer=FileSystemWriter(f"{root}/async")).result()
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def saves(tmp_path_factory):
    root = tmp_path_factory.mktemp("torch")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {
        **os.environ,
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(root)], env={**env, "RANK": str(rank)}, stderr=subprocess.PIPE
        )
        for rank in range(2)
    ]
    for rank in ranks:
        _, words = rank.communicate(timeout=240)
        assert rank.returncode == 0, words.decode()[-3000:]
    return root


WAYS = ["plain", "threads", "files", "by_rank", "async"]


@pytest.mark.parametrize("way", WAYS)
def test_what_torch_writes_is_complete(saves, way):
    report = verify(str(saves / way), Options(lag_s=0.0))
    assert report.verdict is Verdict.COMPLETE, report.findings
    assert report.structure.format == ("dcp-ranks" if way == "by_rank" else "dcp")
    assert report.counters["iteration"] == 12
    assert report.counters["lr"] == 0.5
    assert report.structure.tensors["model.odd"].shape == (37, 16)
    assert report.structure.tensors["model.even"].dtype == "bfloat16"
    assert {f.code for f in report.findings} <= {"UNPROVED", "OTHER_FILE"}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", ["gone", "short", "flipped", "stray"])
def test_what_was_broken_is_not(saves, tmp_path, way, how):
    save = tmp_path / "save"
    shutil.copytree(saves / way, save)
    shard = max((path for path in save.iterdir() if path.suffix == ".distcp"), key=lambda path: path.stat().st_size)
    data = bytearray(shard.read_bytes())
    if how == "gone":
        shard.unlink()
    elif how == "short":
        shard.write_bytes(data[:-7])
    elif how == "flipped":
        at = data.index(b"data/0") + 600
        data[at] ^= 4
        shard.write_bytes(data)
    else:
        (save / "__0_99.distcp").write_bytes(data)
    report = verify(str(save), Options(lag_s=0.0))
    assert report.verdict is Verdict.BROKEN, report.findings
