"""The warm process: forks that are what `python SCRIPT` would have been, asked for by real shims on a local cluster."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from slurm import processes, sockets
from slurm.cluster import LaunchSpec
from slurm.local import LocalCluster
from supervisor.agent import shim as shim_module
from supervisor.bench import nodes

WAIT_S = 60.0
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
SHOW = """
import json, os, sys
print(json.dumps([sys.argv, dict(os.environ), os.getcwd(), sys.path[0], os.getpgrp(), os.getsid(0), __name__, __file__]))
"""


class Ground:
    """A one-node local cluster, and an agent socket that is listened to."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.cluster = LocalCluster(str(run_dir), ("n000",))
        self.cluster.boot()
        self.sockets = sockets.make_socket_dir(str(run_dir))
        self.agent = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.agent.bind(sockets.agent_socket(self.sockets, "n000"))
        self.agent.settimeout(WAIT_S)

    def launch(self, attempt: int, command, warm=True, **env) -> str:
        """Launch one rank through the cluster and the shim."""
        folder = self.run_dir / f"attempts/{attempt:04d}"
        folder.mkdir(parents=True)
        launch = {
            "schema": 1, "run": "demo", "epoch": 1, "attempt": attempt, "tp": 1, "pp": 1, "dp": 1, "ranks_per_node": 1,
            "slots": ["n000"], "master_addr": "127.0.0.1", "master_port": 29511, "command": command,
            "cwd": str(self.run_dir), "env": env, "save_dir": "/s", "load_dir": "/l", "checkpoint": "a0001-i0000001",
            "warm": warm, "reporter": 0, "agent_sockets": self.sockets,
        }  # fmt: skip
        (folder / "launch.json").write_text(json.dumps(launch))
        name = f"demo.a{attempt:04d}.e1"
        argv = (sys.executable, "-I", "-S", shim_module.__file__, str(self.run_dir), str(attempt))
        self.cluster.launch(LaunchSpec(name, 1, ("n000",), argv, {}, "/", f"{folder}/srun.err"))
        return name

    def hear(self, kind: str) -> dict:
        while True:
            message = json.loads(self.agent.recv(65536))
            if message["k"] == kind:
                return message

    def log(self, attempt: int) -> str:
        return (self.run_dir / f"attempts/{attempt:04d}/logs/rank_00000.log").read_text()

    def ask(self, line: bytes) -> dict:
        """One line to the warm process by hand; its first answer."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(WAIT_S)
            link.connect(sockets.warm_socket(self.sockets, "n000"))
            link.sendall(line + b"\n")
            return json.loads(link.makefile().readline())

    def request(self, argv, **changes) -> bytes:
        env = dict(os.environ) | ONE_THREAD
        document = {"argv": argv, "env": env, "cwd": str(self.run_dir), "log": str(self.run_dir / "by-hand.log")}
        return json.dumps(document | changes).encode()

    def close(self) -> None:
        self.cluster.release(1 << 30)
        self.agent.close()


class Warmed(Ground):
    """With a warm process that has imported next to nothing, so that the tests are quick."""

    def __init__(self, run_dir: Path, modules=("json",)) -> None:
        super().__init__(run_dir)
        text = (
            "import os, sys; from supervisor.agent import warm; r, w = int(sys.argv[1]), sys.argv[2:]; "
            "os.environ.update({n: '1' for n in warm.ONE_THREAD}); [__import__(m) for m in w[2:]]; "
            "server = warm.Warm(w[0], w[1]); os.write(r, b'!'); server.serve()"
        )
        ready, tell = os.pipe()
        command = [sys.executable, "-u", "-c", text, str(tell), str(run_dir), "n000", *modules]
        with open(run_dir / "warm.log", "wb") as log:
            self.process = subprocess.Popen(command, pass_fds=[tell], stdout=log, stderr=log)
        os.close(tell)
        with open(ready, "rb") as pipe:
            assert pipe.read(1) == b"!", (run_dir / "warm.log").read_text()

    def close(self) -> None:
        super().close()
        self.process.kill()
        self.process.wait()


@pytest.fixture
def warmed(tmp_path):
    with closing(Warmed(tmp_path)) as one:
        yield one


def script(warmed, text, name="script.py") -> str:
    path = warmed.run_dir / name
    path.write_text(text)
    return str(path)


def test_a_fork_is_what_python_would_have_been(warmed):
    command = [sys.executable, "-u", script(warmed, SHOW), "--save", "{save_dir}", "--n", "1"]
    seen = {}
    for attempt, warm in ((1, True), (2, False)):
        warmed.launch(attempt, command, warm=warm, MINE="x", **ONE_THREAD)
        start, end = warmed.hear("start"), warmed.hear("exit")
        assert (start["warm"], start.get("note"), end["code"]) == (warm, None, 0)
        seen[warm] = json.loads(warmed.log(attempt))
    forked, fresh = seen[True], seen[False]
    differ = {key for key in forked[1].keys() | fresh[1].keys() if forked[1].get(key) != fresh[1].get(key)}
    assert differ == {"RELIGHT_ATTEMPT", "RELIGHT_STEP"}
    assert (forked[1]["RELIGHT_ATTEMPT"], forked[1]["MINE"]) == ("1", "x")
    assert (forked[0], forked[2:4], forked[6:]) == (fresh[0], fresh[2:4], fresh[6:])


def test_a_fork_for_a_shim_of_another_session_has_a_group_of_its_own(warmed):
    # This warm process is in the tests' session, the shim in the node's; the last test has both in one.
    warmed.launch(1, [sys.executable, script(warmed, SHOW)])
    rank = warmed.hear("start")["pid"]
    assert warmed.hear("exit")["code"] == 0
    assert json.loads(warmed.log(1))[4:6] == [rank, os.getsid(warmed.process.pid)]


def test_a_module_is_run_as_one(warmed):
    script(warmed, SHOW, "wanted.py")
    warmed.launch(1, [sys.executable, "-m", "wanted", "a"])
    assert warmed.hear("exit")["code"] == 0
    argv, _, _, first, *_ = json.loads(warmed.log(1))
    assert argv == [str(warmed.run_dir / "wanted.py"), "a"]
    assert first == str(warmed.run_dir)


@pytest.mark.parametrize(
    ("text", "code", "number", "said"),
    [
        ("raise SystemExit(5)", 5, None, ""),
        ("import sys; sys.exit('no disk')", 1, None, "no disk"),
        ("raise RuntimeError('broken')", 1, None, "RuntimeError: broken"),
        ("import os; os._exit(9)", 9, None, ""),
        ("import os; print('last words'); os.kill(os.getpid(), 11)", None, 11, "last words"),
        ("import atexit; atexit.register(print, 'at exit')", 0, None, "at exit"),
        ("import sys; sys.excepthook = lambda *e: print('hook', e[0].__name__)\n1/0", 1, None, "hook ZeroDivision"),
        ("import threading as t, time; t.Thread(target=lambda: print('thread')).start()", 0, None, "thread"),
    ],
)
def test_every_end_is_kept(warmed, text, code, number, said):
    warmed.launch(1, [sys.executable, script(warmed, text)])
    start, end = warmed.hear("start"), warmed.hear("exit")
    assert start["warm"] is True, start
    assert (end["code"], end["signal"]) == (code, number)
    assert said in warmed.log(1)


def test_a_signal_to_the_shim_reaches_the_fork(warmed):
    text = (
        "import signal, sys\nsignal.signal(15, lambda *_: sys.exit(7))\nopen('ready', 'w').write('!')\nsignal.pause()"
    )
    ready = warmed.run_dir / "ready"
    os.mkfifo(ready)  # opening it for reading waits until the script opens it for writing
    warmed.launch(1, [sys.executable, script(warmed, text)])
    assert ready.read_text() == "!"
    warmed.hear("start")  # the script may be quicker than the shim's word of it
    os.kill(nodes.shim_pid(str(warmed.run_dir), 1, 0), signal.SIGTERM)
    assert warmed.hear("exit")["code"] == 7


def test_a_fork_dies_with_its_shim(warmed):
    name = warmed.launch(1, [sys.executable, script(warmed, "import signal; signal.pause()")])
    rank = warmed.hear("start")["pid"]
    warmed.cluster.stop(name, 1)
    assert processes.wait_gone([rank], WAIT_S)


def test_a_fork_dies_with_the_warm_process_and_that_is_a_kill(warmed):
    warmed.launch(1, [sys.executable, script(warmed, "import signal; signal.pause()")])
    rank = warmed.hear("start")["pid"]
    warmed.process.kill()
    assert processes.wait_gone([rank], WAIT_S)
    assert warmed.hear("exit")["signal"] == signal.SIGKILL


@pytest.mark.parametrize(
    ("command", "env", "why"),
    [
        (["/bin/echo", "cold"], {}, "/bin/echo"),
        ([sys.executable, "-c", "print('cold')"], {}, "can be forked"),
        ([sys.executable, "-X", "dev", "script.py"], {}, "can be forked"),
        ([sys.executable, "script.py"], {"OMP_NUM_THREADS": "2"}, "OMP_NUM_THREADS is '2'"),
        ([sys.executable, "script.py"], {"PYTHONHASHSEED": "7"}, "PYTHONHASHSEED"),
        ([sys.executable, "script.py"], {"CUDA_VISIBLE_DEVICES": "1"}, "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_what_cannot_be_forked_is_started_cold_with_a_note(warmed, command, env, why):
    script(warmed, "print('cold')")
    warmed.launch(1, command, **env)
    start, end = warmed.hear("start"), warmed.hear("exit")
    assert start["warm"] is False
    assert why in start["note"]
    assert end["code"] == 0
    assert "cold" in warmed.log(1)


def test_another_interpreter_is_refused(warmed, tmp_path):
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "python").symlink_to(os.path.realpath(sys.executable))
    answer = warmed.ask(warmed.request([str(other / "python"), "script.py"]))
    assert str(other / "python") in answer["refused"]


def test_a_second_thread_is_refused(tmp_path, monkeypatch):
    (tmp_path / "threaded.py").write_text("import threading; threading.Thread(target=threading.Event().wait).start()")
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with closing(Warmed(run_dir, ("threaded",))) as one:
        answer = one.ask(one.request([sys.executable, script(one, "print(1)")]))
        assert "2 threads" in answer["refused"]


@pytest.mark.parametrize(
    "line", [b"", b"[" * 60000, b"[]", b"{}", b"\xff", b'{"argv": [1]}', b'{"argv": ["python"], "env": 1}']
)
def test_what_is_no_request_is_refused_and_the_next_is_served(warmed, line):
    assert "the request" in warmed.ask(line)["refused"]
    assert "pid" in warmed.ask(warmed.request([sys.executable, script(warmed, "")]))


def test_a_shim_that_has_stopped_waiting_gets_no_rank(warmed):
    mark = warmed.run_dir / "ran"
    path = script(warmed, f"open({str(mark)!r}, 'w')")
    os.kill(warmed.process.pid, signal.SIGSTOP)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.connect(sockets.warm_socket(warmed.sockets, "n000"))
        link.sendall(warmed.request([sys.executable, path]) + b"\n")
    os.kill(warmed.process.pid, signal.SIGCONT)
    assert "pid" in warmed.ask(warmed.request([sys.executable, script(warmed, "", "empty.py")]))
    assert not mark.exists()


@pytest.mark.real
def test_torch_is_there_at_once_on_one_thread_in_the_group_of_the_shim(tmp_path):
    """The real server, started as a task of the node, with torch."""
    with closing(Ground(tmp_path)) as one:
        warm = (sys.executable, "-m", "supervisor.agent.warm", str(tmp_path))
        one.cluster.launch(LaunchSpec("demo.warm", 1, ("n000",), warm, {}, str(tmp_path), f"{tmp_path}/warm.log"))
        _wait_for_socket(Path(sockets.warm_socket(one.sockets, "n000")), tmp_path / "warm.log")
        text = (
            "import os, sys; had = 'torch' in sys.modules; import torch\n"
            "print(had, torch.get_num_threads(), torch.ones(3).sum().item(), len(os.listdir('/proc/self/task')))\n"
            "print(os.getpgrp())"
        )
        one.launch(1, [sys.executable, script(one, text)])
        start, end = one.hear("start"), one.hear("exit")
        assert (start["warm"], end["code"]) == (True, 0), start
        first, group = one.log(1).splitlines()
        assert first == "True 1 3.0 1"
        assert int(group) == nodes.shim_pid(str(tmp_path), 1, 0)
        name = one.launch(2, [sys.executable, script(one, "import signal; signal.pause()")])
        rank = one.hear("start")["pid"]
        one.cluster.stop(name, 1)
        assert processes.wait_gone([rank], WAIT_S)


def _wait_for_socket(path: Path, log: Path) -> None:
    """Wait until somebody listens there; a bind is not announced, so it is tried again."""
    pause = threading.Event()
    for _ in range(int(WAIT_S / 0.05)):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            if link.connect_ex(str(path)) == 0:
                return
        pause.wait(0.05)
    raise AssertionError(log.read_text())
