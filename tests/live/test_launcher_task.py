"""The one task of a node where torchrun starts the ranks, as it is really started; a small script stands for torchrun."""

import json
import os
import signal
import subprocess
import sys

import pytest

from slurm import processes
from supervisor.agent import launcher_task

WAIT_S = 20.0
TWO_RANKS = """
import json, os, subprocess, sys
options = dict(word.removeprefix("--").split("=") for word in sys.argv[1:] if word.startswith("--"))
shim = [word for word in sys.argv[1:] if not word.startswith("--")]
print(json.dumps(options), flush=True)
each = int(options["nproc-per-node"])
ranks = [str(int(options["node-rank"]) * each + local) for local in range(each)]
assert "RANK" not in os.environ and os.environ["RELIGHT_ATTEMPT"] == "3"
children = [subprocess.Popen([sys.executable, *shim], env=os.environ | {"RANK": rank}) for rank in ranks]
sys.exit(max(abs(child.wait()) for child in children))
"""


@pytest.fixture
def start(tmp_path):
    """Starts the task of slot 1 with `launcher` as the text of a script, and `command` for each rank."""
    started = []

    def do(launcher, command="print('hello')", node="n001", **changes) -> subprocess.Popen:
        (tmp_path / "launcher.py").write_text(launcher)
        launch = {
            "schema": 1, "run": "demo", "epoch": 1, "attempt": 3, "tp": 2, "pp": 1, "dp": 2, "ranks_per_node": 2,
            "slots": ["n000", "n001"], "master_addr": "127.0.0.1", "master_port": 29511,
            "launcher": [sys.executable, str(tmp_path / "launcher.py"), "--nnodes={nodes}", "--nproc-per-node={each}",
                         "--node-rank={slot}", "--meet={master_addr}:{master_port}", "--id={run}"], "command": ["{python}", "-c", command],
            "cwd": str(tmp_path), "env": {}, "save_dir": "/s", "load_dir": "/l", "checkpoint": None, "warm": False,
            "reporter": 3, "agent_sockets": str(tmp_path),
        } | changes  # fmt: skip
        folder = tmp_path / "attempts/0003"
        folder.mkdir(parents=True)
        (folder / "launch.json").write_text(json.dumps(launch))
        started.append(
            subprocess.Popen(
                [sys.executable, "-I", "-S", launcher_task.__file__, str(tmp_path), "3"],
                env=os.environ | {"SLURM_PROCID": "1", "SLURMD_NODENAME": node},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                process_group=0,
            )
        )
        return started[-1]

    yield do
    for one in started:
        if one.poll() is None:
            os.killpg(one.pid, signal.SIGKILL)
        one.wait()
        one.stdout.close()
        one.stderr.close()


def record(tmp_path, rank):
    return json.loads((tmp_path / f"attempts/0003/exit/rank_{rank:05d}.json").read_text())


def test_torchrun_is_told_of_the_node_and_each_rank_has_its_shim(start, tmp_path):
    task = start(TWO_RANKS, "import os, sys; print(os.environ['RANK'], os.environ['LOCAL_RANK'], sys.executable)")
    said, error = task.communicate(timeout=WAIT_S)
    assert (task.returncode, error) == (0, "")
    wanted = {"nnodes": "2", "nproc-per-node": "2", "node-rank": "1", "meet": "127.0.0.1:29511", "id": "demo.3"}
    assert json.loads(said) == wanted
    for rank in (2, 3):
        log = (tmp_path / f"attempts/0003/logs/rank_{rank:05d}.log").read_text()
        assert log == f"{rank} {rank - 2} {sys.executable}\n"
        assert (record(tmp_path, rank)["code"], record(tmp_path, rank)["node"]) == (0, "n001")


def test_ranks_that_torchrun_never_started_have_ended_with_its_code(start, tmp_path):
    task = start("import sys; sys.exit('no rendezvous')")
    _, error = task.communicate(timeout=WAIT_S)
    assert (task.returncode, error) == (1, "no rendezvous\n")
    assert [record(tmp_path, rank)["code"] for rank in (2, 3)] == [1, 1]


def test_how_a_rank_ended_stands_against_how_torchrun_did(start, tmp_path):
    task = start(TWO_RANKS, "import os, sys; sys.exit(7 if os.environ['RANK'] == '2' else 0)")
    task.communicate(timeout=WAIT_S)
    assert task.returncode == 7
    assert [record(tmp_path, rank)["code"] for rank in (2, 3)] == [7, 0]


def test_a_signal_reaches_torchrun_and_a_torchrun_that_is_killed_leaves_records(start, tmp_path):
    task = start("import signal, sys; print('up', flush=True); signal.pause()")
    assert task.stdout.readline() == "up\n"
    task.terminate()
    task.communicate(timeout=WAIT_S)
    assert task.returncode == 128 + signal.SIGTERM
    assert [record(tmp_path, rank)["signal"] for rank in (2, 3)] == [signal.SIGTERM, signal.SIGTERM]


def test_torchrun_dies_with_its_task(start):
    task = start("import os, signal; print(os.getpid(), flush=True); signal.pause()")
    torchrun = int(task.stdout.readline())
    task.kill()
    assert processes.wait_gone([torchrun], WAIT_S)


def test_a_node_that_is_not_the_slots_is_refused(start, tmp_path):
    task = start(TWO_RANKS, node="n007")
    said, error = task.communicate(timeout=WAIT_S)
    assert (task.returncode, said) == (94, "")
    assert "slot 1 of attempt 3 is on n001, this is n007" in error
    assert not (tmp_path / "attempts/0003/exit").exists()
