"""The rank shim as it is really started: a process of its own, with real signals, files and sockets."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from slurm import processes
from supervisor.agent import shim as shim_module

SHIM = shim_module.__file__
WAIT_S = 20.0


class Attempt:
    """A run directory with one attempt, an agent socket that is listened to, and shims to start in it."""

    def __init__(self, run_dir: Path, **changes) -> None:
        self.run_dir = run_dir
        self.sockets = run_dir / "s"
        self.sockets.mkdir()
        self.launch = {
            "schema": 1, "run": "demo", "epoch": 1, "attempt": 3, "tp": 2, "pp": 2, "dp": 2, "ranks_per_node": 2,
            "slots": ["n000", "n001", "n002", "n003"], "master_addr": "127.0.0.1", "master_port": 29511,
            "command": ["python", "-c", "print('hello')"], "cwd": str(run_dir), "env": {},
            "save_dir": "/saves/a0003", "load_dir": "/views/a0003", "checkpoint": None, "warm": False, "reporter": 7,
            "agent_sockets": str(self.sockets),
        } | changes  # fmt: skip
        self.folder = run_dir / "attempts/0003"
        self.folder.mkdir(parents=True)
        (self.folder / "launch.json").write_text(json.dumps(self.launch))
        self.agent = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.agent.bind(str(self.sockets / "agent-n001.sock"))
        self.agent.settimeout(WAIT_S)

    def start(self, rank=3, node="n001", attempt="3", **env) -> subprocess.Popen:
        place = {"RELIGHT_PROCID": str(rank), "RELIGHT_NODE": node}
        path = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
        return subprocess.Popen(
            [sys.executable, "-I", "-S", SHIM, str(self.run_dir), attempt],
            env=os.environ | {"PATH": path} | place | env,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )

    def run(self, *arguments, **settings) -> tuple[int, str]:
        shim = self.start(*arguments, **settings)
        _, error = shim.communicate(timeout=WAIT_S)
        return shim.returncode, error

    def hear(self) -> dict:
        return json.loads(self.agent.recv(65536))

    def record(self, rank=3) -> dict:
        return json.loads((self.folder / f"exit/rank_{rank:05d}.json").read_text())

    def log(self, rank=3) -> str:
        return (self.folder / f"logs/rank_{rank:05d}.log").read_text()


@pytest.fixture
def make(tmp_path):
    made = []

    def attempt(command=None, **changes):
        if isinstance(command, str):
            command = ["python", "-c", command]
        made.append(Attempt(tmp_path, **changes, **({} if command is None else {"command": command})))
        return made[-1]

    yield attempt
    for one in made:
        one.agent.close()


def test_a_rank_is_told_its_place_and_its_end_is_kept(make):
    attempt = make("import os, json; print(json.dumps(dict(os.environ)))", env={"MINE": "1", "RANK": "ours wins"})
    assert attempt.run(PYTHONPATH="/kept") == (0, "")
    env = json.loads(attempt.log())
    expected = {
        "RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "NODE_RANK": "1",
        "GROUP_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511", "RELIGHT_RUN": "demo",
        "RELIGHT_RUN_DIR": str(attempt.run_dir), "RELIGHT_EPOCH": "1", "RELIGHT_ATTEMPT": "3", "RELIGHT_SLOT": "1",
        "RELIGHT_NODE": "n001", "RELIGHT_TP": "1", "RELIGHT_PP": "0", "RELIGHT_DP": "1",
        "RELIGHT_SAVE_DIR": "/saves/a0003", "RELIGHT_LOAD_DIR": "/views/a0003", "RELIGHT_CHECKPOINT": "",
        "RELIGHT_AGENT_SOCKET": f"{attempt.sockets}/agent-n001.sock", "RELIGHT_REPORTER": "0",
        "MINE": "1", "PYTHONPATH": "/kept",
    }  # fmt: skip
    assert {key: env.get(key) for key in expected} == expected
    start, end = attempt.hear(), attempt.hear()
    assert (start["k"], start["r"], start["a"], start["warm"]) == ("start", 3, 3, False)
    record = attempt.record()
    assert {key: end[key] for key in record} == record
    assert (end["k"], record["code"], record["signal"], record["refused"]) == ("exit", 0, None, None)
    assert record["pid"] == start["pid"]
    pids = json.loads((attempt.folder / "pids/rank_00003.json").read_text())
    assert (pids["pid"], pids["node"]) == (start["pid"], "n001")


def test_isolated_mode_stays_with_the_shim(make, tmp_path):
    (tmp_path / "beside.py").write_text("here = 'found'")
    attempt = make("import sys, beside; print(beside.here, sys.flags.isolated, sys.flags.no_site)")
    assert attempt.run(PYTHONPATH=str(tmp_path))[0] == 0
    assert attempt.log() == "found 0 0\n"


def test_slurm_has_the_first_word_on_the_place(make):
    attempt = make("import os; print(os.environ['RANK'])")
    assert attempt.run(rank=0, node="n009", SLURM_PROCID="2", SLURMD_NODENAME="n001")[0] == 0
    assert attempt.log(2) == "2\n"


def test_directories_are_filled_in_and_the_log_is_appended_to(make):
    attempt = make(["/bin/echo", "--save={save_dir}", "{load_dir}/x", "{other}"])
    (attempt.folder / "logs").mkdir()
    (attempt.folder / "logs/rank_00003.log").write_text("before\n")
    assert attempt.run()[0] == 0
    assert attempt.log() == "before\n--save=/saves/a0003 /views/a0003/x {other}\n"


def test_what_was_written_before_a_kill_is_in_the_log(make):
    attempt = make("import os; print('a line'); os.kill(os.getpid(), 9)")
    assert attempt.run()[0] == 128 + 9
    assert attempt.log() == "a line\n"
    assert (attempt.record()["code"], attempt.record()["signal"]) == (None, 9)


def test_a_code_is_passed_through(make):
    attempt = make("raise SystemExit(41)")
    assert attempt.run()[0] == 41
    assert attempt.record()["code"] == 41


def test_a_command_that_does_not_exist(make):
    attempt = make(["no-such-program"])
    assert attempt.run()[0] == 127
    assert "no-such-program" in attempt.log()
    assert attempt.record()["code"] == 127


def test_a_missing_agent_is_no_reason_to_stop(make):
    attempt = make()
    os.unlink(attempt.sockets / "agent-n001.sock")
    assert attempt.run() == (0, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_passed_on(make, number):
    text = "import signal, sys; signal.signal({0}, lambda *_: sys.exit(7)); print('ready'); signal.pause()"
    attempt = make(["python", "-c", "import os; import socket\n" + text.format(int(number)) + "\n"])
    shim = attempt.start()
    attempt.hear()
    _wait_for_line(attempt)
    shim.send_signal(signal.SIGUSR1)  # the shim must not die of what the ranks are told by others
    shim.send_signal(number)
    shim.communicate(timeout=WAIT_S)
    assert shim.returncode == 7
    assert attempt.record()["code"] == 7


def test_the_rank_dies_with_its_shim(make):
    attempt = make("import time; time.sleep(1000)")
    shim = attempt.start()
    rank = attempt.hear()["pid"]
    assert processes.look(rank) is not None
    shim.kill()
    shim.communicate(timeout=WAIT_S)
    assert processes.wait_gone([rank], WAIT_S)
    assert not (attempt.folder / "exit").exists()


REFUSALS = {
    "fenced": ({}, {}, "attempt 3 is fenced"),
    "newer": ({}, {}, "attempt 4 has been launched since"),
    "other node": ({}, {"node": "n002"}, "slot 1 of attempt 3 is on n001, this is n002"),
    "no such rank": ({}, {"rank": 8}, "rank 8 is not in a layout of 2 x 2 x 2"),
    "other attempt": ({"attempt": 2}, {}, "not the map of attempt 3"),
    "wrong world": ({"dp": 3}, {}, "12 ranks do not fill 4 slots of 2"),
    "no command": ({"command": []}, {}, "command"),
    "env of numbers": ({"env": {"A": 1}}, {}, "env"),
    "truth as number": ({"tp": True}, {}, "tp"),
    "zero byte": ({"cwd": "a\0b"}, {}, "cwd"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_it_refuses(make, case):
    changes, where, why = REFUSALS[case]
    attempt = make(**{"command": "open('started', 'w')"} | changes)
    if case == "fenced":
        (attempt.folder / "FENCED").touch()
    if case == "newer":
        newer = attempt.run_dir / "attempts/0004"
        newer.mkdir()
        assert attempt.run()[0] == 0  # a folder alone has launched nothing
        (attempt.run_dir / "started").unlink()
        (attempt.folder / "exit/rank_00003.json").unlink()
        (newer / "launch.json").write_text("{}")
    code, error = attempt.run(**where)
    assert code == 94
    assert why in error
    assert not (attempt.run_dir / "started").exists()
    record = attempt.record(where.get("rank", 3))
    assert why in record["refused"]
    assert (record["code"], record["signal"], record["pid"]) == (94, None, None)


def test_a_torn_or_missing_map_is_refused(make):
    attempt = make("open('started', 'w')")
    path = attempt.folder / "launch.json"
    path.write_text(path.read_text()[:50])
    assert attempt.run()[0] == 94
    path.unlink()
    assert attempt.run()[0] == 94
    assert not (attempt.run_dir / "started").exists()


def test_a_refusal_never_hides_how_the_rank_ended(make):
    attempt = make("raise SystemExit(5)")
    assert attempt.run()[0] == 5
    (attempt.folder / "FENCED").touch()
    assert attempt.run()[0] == 94
    assert attempt.record()["code"] == 5


def test_without_a_place_it_refuses(make):
    attempt = make()
    assert "which rank" in attempt.run(rank="x")[1]
    assert "which node" in attempt.run(node="")[1]


def test_it_imports_the_standard_library_only():
    text = (
        f"import sys, runpy; runpy.run_path({SHIM!r}, run_name='seen');"
        "print([n for n in sys.modules if n.split('.')[0] not in sys.stdlib_module_names and n != '__main__'])"
    )
    out = subprocess.run([sys.executable, "-I", "-S", "-c", text], capture_output=True, text=True, check=True).stdout
    assert out == "['place']\n"


def test_a_rank_that_cannot_be_warm_starts_cold_and_says_so(make):
    attempt = make("import os; print(os.environ['OMP_NUM_THREADS'])", warm=True)
    assert attempt.run()[0] == 0
    start = attempt.hear()
    assert start["warm"] is False
    assert start["note"].startswith("not warm: ")
    assert attempt.log() == "1\n"  # with as many threads as a warm one would have


def _wait_for_line(attempt) -> None:
    """Block until the rank has written; the log is a file, so it is followed by another process of the system."""
    path = str(attempt.folder / "logs/rank_00003.log")
    follow = subprocess.Popen(["tail", "-n", "+1", "-F", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert follow.stdout.readline()
    finally:
        follow.kill()
        follow.stdout.close()
        follow.wait()
