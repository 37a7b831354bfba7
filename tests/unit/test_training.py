"""The training call: it never blocks, never raises, and tells the truth."""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import sys
import threading
import time

import pytest

from supervisor.training import Run, connect
from supervisor.training.channel import KEPT


@pytest.fixture
def agent(tmp_path):
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.settimeout(5)
    listener.bind(str(tmp_path / "agent.sock"))
    yield listener
    listener.close()


OPEN: list[Run] = []


@pytest.fixture(autouse=True)
def closed():
    yield
    while OPEN:
        OPEN.pop().close()


def environ(tmp_path, **more):
    return {
        "RANK": "3",
        "RELIGHT_ATTEMPT": "2",
        "RELIGHT_RUN_DIR": str(tmp_path),
        "RELIGHT_SAVE_DIR": "/s",
        "RELIGHT_LOAD_DIR": "/l",
        "RELIGHT_CHECKPOINT": "a0001-i0000040",
        "RELIGHT_AGENT_SOCKET": str(tmp_path / "agent.sock"),
        **more,
    }


def read(agent):
    return json.loads(agent.recv(65536))


def attached(tmp_path, **more) -> Run:
    run = connect(tp=1, pp=0, dp=1, capability="AVX512", environ=environ(tmp_path, **more))
    OPEN.append(run)
    return run


def fill(run: Run) -> None:
    while not run.dropped:
        run.step(1)


def test_outside_relight_every_call_does_nothing(tmp_path):
    run = connect(environ={})
    assert not run.attached
    run.phase("load")
    run.loaded()
    run.step(1, loss=math.nan)
    run.save_began(1, "iter_0000001")
    run.save_blocked(1)
    run.save_written(1)
    run.save_failed(1, "no")
    run.done()
    assert run.describe_save(str(tmp_path), step=1, samples=8, updates=1) is None
    assert os.listdir(tmp_path) == []
    assert run.fenced() is run.should_stop() is False


@pytest.mark.parametrize("broken", [{"RANK": "x"}, {"RELIGHT_ATTEMPT": ""}, {"RELIGHT_AGENT_SOCKET": ""}])
def test_a_broken_environment_is_no_rank(tmp_path, broken):
    assert not connect(environ=environ(tmp_path, **broken)).attached


def test_hello_says_who_and_where(tmp_path, agent):
    run = attached(tmp_path)
    message = read(agent)
    assert message.pop("t") == pytest.approx(time.time(), abs=60)
    assert message.pop("m") == pytest.approx(time.monotonic(), abs=60)
    assert message == {
        "k": "hello", "r": 3, "a": 2, "pid": os.getpid(), "tp": 1, "pp": 0, "dp": 1,
        "capability": "AVX512", "phase": "start-up",
    }  # fmt: skip
    assert (run.attempt, run.save_dir, run.load_dir, run.checkpoint) == (2, "/s", "/l", "a0001-i0000040")


def test_only_the_reporter_sends_the_row(tmp_path, agent):
    run = attached(tmp_path)
    read(agent)
    run.step(41, loss=2.5, samples=328)
    assert "loss" not in read(agent)
    run = attached(tmp_path, RELIGHT_REPORTER="1")
    read(agent)
    run.step(41, loss=2.5, samples=328, batch=(320, 8, "aa"))
    message = read(agent)
    assert (message["step"], message["loss"], message["batch"], message["phase"]) == (41, 2.5, [320, 8, "aa"], "step")


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_non_finite_loss_is_null_and_said(tmp_path, agent, loss):
    run = attached(tmp_path, RELIGHT_REPORTER="1")
    read(agent)
    run.step(1, loss=loss)
    message = read(agent)
    assert message["loss"] is None
    assert message["non_finite"] is True


def test_an_infinite_grad_norm_alone_is_no_non_finite_loss(tmp_path, agent):
    run = attached(tmp_path, RELIGHT_REPORTER="1")
    read(agent)
    run.step(1, loss=2.0, grad_norm=math.inf)
    message = read(agent)
    assert message["grad_norm"] is None
    assert "non_finite" not in message


class Scalar:
    def item(self):
        return 7.5


def test_scalars_of_other_libraries_become_plain(tmp_path, agent):
    run = attached(tmp_path, RELIGHT_REPORTER="1")
    read(agent)
    run.step(1, loss=2.0, lr=Scalar())
    assert read(agent)["lr"] == 7.5


def test_what_cannot_be_encoded_is_dropped_and_counted(tmp_path, agent):
    class Poison:
        def item(self):
            raise RuntimeError

    run = attached(tmp_path, RELIGHT_REPORTER="1")
    read(agent)
    run.step(1, lr=Poison())
    run.step(2, loss=2.0)
    message = read(agent)
    assert (message["step"], message["dropped"]) == (2, 1)
    run.step(3, loss=2.0)
    assert "dropped" not in read(agent)


def test_no_socket_neither_raises_nor_blocks(tmp_path):
    run = attached(tmp_path)
    assert run.attached
    for step in range(100):
        run.step(step)
    assert run.dropped == 100


def test_a_deaf_agent_never_blocks_a_step(tmp_path, agent):
    run = attached(tmp_path)
    worker = threading.Thread(target=lambda: [run.step(n) for n in range(5000)], daemon=True)
    worker.start()
    worker.join(30)
    assert not worker.is_alive()
    assert run.dropped > 0


def test_what_must_not_be_lost_is_kept_and_sent_in_order(tmp_path, agent):
    run = attached(tmp_path)
    fill(run)
    run.loaded(step=40, digest="d")
    run.phase("step")
    while read(agent)["k"] != "step" or not _empty(agent):
        pass
    run.step(41)
    assert [read(agent)["k"] for _ in range(3)] == ["loaded", "phase", "step"]


def _empty(agent) -> bool:
    agent.setblocking(False)
    try:
        agent.recv(65536, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        agent.settimeout(5)


def test_what_is_kept_is_bounded(tmp_path):
    run = attached(tmp_path)  # hello is kept: nobody listens
    for _ in range(KEPT + 9):
        run.phase("step")
    assert run.dropped == 10


def test_an_agent_that_was_started_again_is_found(tmp_path, agent):
    run = attached(tmp_path)
    agent.close()
    os.unlink(tmp_path / "agent.sock")
    run.step(1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as second:
        second.settimeout(5)
        second.bind(str(tmp_path / "agent.sock"))
        run.step(2)
        assert json.loads(second.recv(65536))["dropped"] == 1


def test_save_messages_carry_the_phase(tmp_path, agent):
    run = attached(tmp_path)
    read(agent)
    run.save_began(40, "iter_0000040", asynchronous=True)
    run.save_blocked(40, seconds=0.2)
    run.save_written(40, seconds=1.5, bytes=9)
    messages = [read(agent) for _ in range(3)]
    assert [(m["state"], m["phase"]) for m in messages] == [("begin", "save"), ("blocked", "step"), ("written", "step")]
    assert (messages[0]["dir"], messages[0]["asynchronous"], messages[2]["bytes"]) == ("iter_0000040", True, 9)


def test_the_sidecar_is_whole_and_the_contracts(tmp_path, agent):
    run = attached(tmp_path)
    path = run.describe_save(
        str(tmp_path / "iter_0000040"), step=40, samples=320, updates=40, lr=0.0012, digest="ab",
        next_batch=(320, 8, "h"), tp=1, pp=0, dp=1, files={"__3_0.distcp": 1234}, data_version="v1",
    )  # fmt: skip
    assert path == str(tmp_path / "iter_0000040" / "relight" / "rank_00003.json")
    assert os.listdir(os.path.dirname(path)) == ["rank_00003.json"]
    record = json.loads((tmp_path / "iter_0000040" / "relight" / "rank_00003.json").read_text())
    assert record.pop("wall") > 0
    assert record == {
        "schema": 1, "rank": 3, "attempt": 2, "tp": 1, "pp": 0, "dp": 1, "step": 40, "samples": 320, "updates": 40,
        "skipped": 0, "lr": 0.0012, "digest": "ab", "next": [320, 8, "h"], "files": {"__3_0.distcp": 1234},
        "data_version": "v1",
    }  # fmt: skip


def test_a_sidecar_that_cannot_be_written_raises(tmp_path, agent):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        attached(tmp_path).describe_save(str(tmp_path / "file"), step=1, samples=1, updates=1)


def test_the_fence(tmp_path, agent):
    run = attached(tmp_path)
    attempts = tmp_path / "attempts"
    for number in (1, 2):
        (attempts / f"{number:04d}").mkdir(parents=True)
        (attempts / f"{number:04d}" / "launch.json").touch()
    assert not run.fenced()
    (attempts / "0004").mkdir()
    assert not run.fenced()  # planned, not launched
    (attempts / "0004" / "launch.json").touch()
    assert run.fenced()
    (attempts / "0004" / "launch.json").unlink()
    (attempts / "0002" / "FENCED").touch()
    assert run.fenced()


def test_a_run_directory_that_cannot_be_read_is_a_fence(tmp_path, agent):
    assert attached(tmp_path).fenced()  # no attempts/ there


def test_should_stop(tmp_path, agent):
    run = attached(tmp_path)
    (tmp_path / "attempts" / "0002").mkdir(parents=True)
    assert not run.should_stop()
    (tmp_path / "attempts" / "0002" / "STOP").touch()
    assert run.should_stop()


def test_an_uncaught_exception_is_reported_and_still_printed(tmp_path, agent):
    script = tmp_path / "train.py"
    script.write_text("from supervisor.training import connect\nconnect()\nconnect()\nraise ValueError('é' * 9000)\n")
    done = subprocess.run(
        [sys.executable, str(script)], env={**os.environ, **environ(tmp_path)}, capture_output=True, check=False
    )
    assert done.returncode == 1
    assert b"ValueError" in done.stderr
    kinds = [read(agent) for _ in range(3)]
    assert [m["k"] for m in kinds] == ["hello", "hello", "exception"]
    assert kinds[2]["type"] == "ValueError"
    assert kinds[2]["text"].startswith("é")
    assert kinds[2]["where"] == f"{script}:4 in <module>"


def test_done_is_the_last_word(tmp_path, agent):
    run = attached(tmp_path)
    fill(run)
    reader = threading.Thread(target=lambda: [read(agent) for _ in range(3)])
    reader.start()
    run.done()
    reader.join()
    messages = []
    while not _empty(agent):
        messages.append(read(agent))
    assert messages[-1]["k"] == "done"


def test_only_the_standard_library_is_loaded():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    code = "import sys, supervisor.training; print(*{m.split('.')[0] for m in sys.modules} - sys.stdlib_module_names)"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert set(done.stdout.split()) <= {"supervisor", "__main__"}


def test_a_closed_run_gives_the_hook_back(tmp_path, agent):
    before = sys.excepthook
    run = attached(tmp_path)
    assert sys.excepthook is not before
    run.close()
    run.step(1)
    assert sys.excepthook is before
    assert run.dropped == 1
