"""A srun is started once for a name, whoever asks, and is found again. Here any command stands in for srun."""

import json
import os
import select
import signal
import threading
from pathlib import Path

import pytest

from slurm import launching, localfiles, processes
from slurm.calls import call, clean_environment
from slurm.cluster import LaunchSpec

STEP = "demo.a0001.e1"
WAIT_S = 15.0


@pytest.fixture
def run_dir(tmp_path):
    yield str(tmp_path)
    for path in tmp_path.glob("nodes/orders/*.claim"):
        claim = launching.read_claim(str(tmp_path), path.stem)
        assert claim is not None
        launching.end(str(tmp_path), path.stem, claim, WAIT_S)


def order(run_dir, **env):
    spec = LaunchSpec(STEP, 1, ("n002", "n001", "n001"), ("/bin/true",), env, run_dir, f"{run_dir}/out/srun.err")
    localfiles.write_order(run_dir, spec)
    return spec


def start(run_dir, *argv, **env):
    return launching.start(run_dir, "17", order(run_dir, **env), argv, {"PATH": os.environ["PATH"]}, WAIT_S)


def shell(text):
    return ("/bin/sh", "-c", text)


def gone(claim):
    """Wait for the end of whoever holds the claim."""
    return processes.wait_gone([claim.pid], WAIT_S)


def test_it_runs_in_a_session_of_its_own_and_leaves_its_code(run_dir):
    assert start(run_dir, *shell('echo "$RELIGHT_STEP $X"; cat "$SLURM_HOSTFILE"; exit 7'), X="y")
    claim = launching.read_claim(run_dir, STEP)
    assert claim is not None
    assert gone(claim)
    assert (claim.job, claim.started, claim.here) == ("17", True, True)
    assert claim.session != os.getsid(0)
    assert launching.exit_code(run_dir, STEP) == 7
    assert launching.said(f"{run_dir}/out/srun.err") == f"{STEP} y\nn002\nn001\nn001\n"
    assert not launching.lives(claim)


def test_many_who_ask_at_once_start_one(run_dir):
    fifo = f"{run_dir}/fifo"
    os.mkfifo(fifo)
    started, spec = [], order(run_dir)
    argv, env = shell(f"echo here >&2; read -r line <{fifo}"), {"PATH": os.environ["PATH"]}

    def ask():
        started.append(launching.start(run_dir, "17", spec, argv, env, WAIT_S))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(started) == [False] * 5 + [True]
    claim = launching.read_claim(run_dir, STEP)
    assert claim is not None
    assert launching.lives(claim)
    assert launching.exit_code(run_dir, STEP) is None
    Path(fifo).write_text("go\n")
    assert gone(claim)
    assert launching.said(f"{run_dir}/out/srun.err") == "here\n"
    assert not list(Path(run_dir).rglob("*.tmp"))


def test_a_name_that_is_forbidden_never_starts(run_dir):
    claim = launching.forbid(run_dir, "17", STEP)
    assert not claim.started
    assert not start(run_dir, *shell("touch started"))
    assert not Path(run_dir, "started").exists()
    assert not launching.lives(claim)
    assert launching.end(run_dir, STEP, claim, WAIT_S)


def test_to_forbid_what_has_started_changes_nothing(run_dir):
    start(run_dir, "/bin/sleep", "1000")
    claim = launching.forbid(run_dir, "18", STEP)
    assert claim.started
    assert claim.job == "17"
    assert launching.lives(claim)


def test_end_kills_srun_and_its_parent(run_dir):
    start(run_dir, *shell("trap '' TERM INT; sleep 1000 & wait"))
    claim = launching.read_claim(run_dir, STEP)
    assert claim is not None
    assert launching.end(run_dir, STEP, claim, WAIT_S)
    assert processes.members(claim.session) == []
    assert launching.exit_code(run_dir, STEP) is None


def test_end_finds_a_srun_whose_parent_is_gone(run_dir):
    fifo = f"{run_dir}/fifo"
    os.mkfifo(fifo)
    start(run_dir, *shell(f"echo up >{fifo}; exec sleep 1000"))
    assert Path(fifo).read_text() == "up\n"  # its parent has come that far
    claim = launching.read_claim(run_dir, STEP)
    assert claim is not None
    os.kill(claim.pid, signal.SIGKILL)
    assert gone(claim)
    assert processes.members(claim.session)
    assert launching.end(run_dir, STEP, claim, WAIT_S)
    assert processes.members(claim.session) == []


def test_end_leaves_alone_whoever_has_the_numbers_now(run_dir):
    start(run_dir, "/bin/true")
    claim = launching.read_claim(run_dir, STEP)
    assert claim is not None
    assert gone(claim)
    path = Path(launching.path(run_dir, STEP, "claim"))
    head, stat = path.read_text().splitlines()
    fields = stat.split(") ")[1].split()
    fields[3] = str(os.getsid(0))  # our own session: it must not be touched
    path.write_text(f"{head}\n{stat.split(') ')[0]}) {' '.join(fields)}\n")
    stolen = launching.read_claim(run_dir, STEP)
    assert stolen is not None
    assert stolen.session == os.getsid(0)
    assert launching.end(run_dir, STEP, stolen, WAIT_S)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema":2}', '{"schema":1,"job":"1"}', "[" * 60000])
def test_a_claim_that_lies_is_refused(run_dir, text):
    os.makedirs(f"{run_dir}/nodes/orders")
    Path(launching.path(run_dir, STEP, "claim")).write_text(text)
    with pytest.raises(ValueError, match=r"claim"):
        launching.read_claim(run_dir, STEP)
    Path(launching.path(run_dir, STEP, "claim")).unlink()


def test_a_claim_of_another_machine_is_not_here(run_dir):
    start(run_dir, "/bin/sleep", "1000")
    path = Path(launching.path(run_dir, STEP, "claim"))
    whole = path.read_text()
    head, stat = whole.splitlines()
    path.write_text(json.dumps(json.loads(head) | {"host": "elsewhere"}) + f"\n{stat}\n")
    claim = launching.read_claim(run_dir, STEP)
    assert claim is not None
    assert claim.started
    assert not launching.lives(claim)
    path.write_text(whole)


def test_a_folder_that_takes_no_claim_is_an_error(run_dir):
    spec = order(run_dir)
    os.makedirs(launching.path(run_dir, STEP, "claim"))
    with pytest.raises(IsADirectoryError):
        launching.start(run_dir, "17", spec, ("/bin/true",), {"PATH": os.environ["PATH"]}, WAIT_S)
    os.rmdir(launching.path(run_dir, STEP, "claim"))
    with pytest.raises(OSError, match="no claim could be made"):
        launching.start(run_dir, "17", spec, ("/bin/true",), {"PATH": "/nowhere"}, WAIT_S)


def test_the_command_of_a_step_and_of_an_agent():
    spec = LaunchSpec(STEP, 1, ("n002", "n001", "n001"), ("python", "-c", "x"), {}, "/data", "/data/out")
    argv = launching.command("17", spec, ("--cpu-bind=none",))
    assert argv[-len(launching.TASK) - 3 :] == (*launching.TASK, "python", "-c", "x")
    assert {"--jobid=17", "--ntasks=3", "--distribution=arbitrary", "--overlap", "--cpu-bind=none"} <= set(argv)
    assert {"--kill-on-bad-exit=0", "--wait=0", "--no-kill", "--chdir=/data", f"--job-name={STEP}"} <= set(argv)
    assert not any(word.startswith(("-N", "--nodes")) for word in argv)  # 24.11 refuses it beside a hostfile
    assert "--gres=none" not in argv
    agent = LaunchSpec("demo.agent.n001.e1.2", 1, ("n001",), ("python",), {}, "/data", "/data/out")
    assert "--gres=none" in launching.command("17", agent, ())


def test_a_late_command_is_killed_with_all_that_it_started(tmp_path):
    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo)
    alive = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    text = f"exec 9>{fifo}; echo up >&9; sleep 1000 & sleep 1000"
    answer = call(("/bin/sh", "-c", text), 1.0, {"PATH": os.environ["PATH"]})
    assert answer.code is None
    assert "in time" in answer.why("squeue")
    assert select.select([alive], [], [], WAIT_S)[0]
    said = b""
    while (more := os.read(alive, 100)) != b"":  # ends when the last writer is gone
        said += more
        select.select([alive], [], [], WAIT_S)
    os.close(alive)
    assert said == b"up\n"


def test_a_command_says_how_it_ended():
    answer = call(("/bin/sh", "-c", "echo out; echo bad >&2; echo worse >&2; exit 3"), WAIT_S, {})
    assert (answer.code, answer.out, answer.ok) == (3, "out\n", False)
    assert answer.why("squeue") == "squeue ended with 3: worse"
    missing = call(("/no/such/program",), WAIT_S, {})
    assert missing.code == 127
    assert "/no/such/program" in missing.err


def test_what_shapes_slurms_output_is_not_passed_on():
    outer = {
        "SLURM_CONF": "/etc/x",
        "SLURM_NNODES": "4",
        "SQUEUE_FORMAT": "%i",
        "SINFO_FORMAT": "x",
        "SLURM_PROCID": "3",
    }
    outer |= {"PATH": "/bin", "RELIGHT_PROCID": "3", "RELIGHT_NODE": "n1", "SLURM_HOSTFILE": "/x", "PMIX_RANK": "1"}
    outer |= {"SLURMD_NODENAME": "n1", "HOME": "/root", "SLURM_TIME_FORMAT": "relative"}
    assert clean_environment(outer) == {"SLURM_CONF": "/etc/x", "PATH": "/bin", "HOME": "/root"}
    told = call(("/usr/bin/env",), WAIT_S, {"PATH": "/bin", "LC_ALL": "de_DE.UTF-8", "TZ": "Asia/Shanghai"})
    assert {"LC_ALL=C", "TZ=UTC"} <= set(told.out.split())
