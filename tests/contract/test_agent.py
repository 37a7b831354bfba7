"""The agent against a real hub: sockets, processes, stacks, a controller that comes and goes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from policies.facts import Phase
from slurm.processes import look
from slurm.sockets import agent_socket, make_socket_dir, socket_dir
from supervisor.agent.uplink import read_endpoint
from supervisor.observe.hub import Hub
from supervisor.training import connect

DEADLINE_S = 20
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@pytest.fixture
def run_dir(tmp_path):
    (tmp_path / "token").write_text("secret")
    yield str(tmp_path)
    shutil.rmtree(socket_dir(str(tmp_path)), ignore_errors=True)


class Controller:
    """A hub, and a way to await what it sees."""

    def __init__(self, run_dir, epoch=1, attempt=1, world=2, announced=None):
        self.run_dir = run_dir
        self.seen = asyncio.Event()
        self.hub = Hub(run_dir, "secret", time.time, self.seen.set, beat_s=0.05)
        self.hub.set_attempt(epoch, attempt, world, ["n000"])
        self.epoch = announced or epoch
        self.attempt = attempt

    async def __aenter__(self):
        port = await self.hub.start()
        self._announce(port)
        return self

    def _announce(self, port):
        path = os.path.join(self.run_dir, "endpoint.json")
        with open(path + ".tmp", "w") as file:
            json.dump({"host": "127.0.0.1", "port": port, "epoch": self.epoch}, file)
        os.replace(path + ".tmp", path)

    async def __aexit__(self, *_):
        await self.hub.close()

    def view(self):
        return self.hub.progress(self.attempt, time.time())

    async def until(self, condition):
        async with asyncio.timeout(DEADLINE_S):
            while not (found := condition()):
                self.seen.clear()
                # Beats do not wake a controller, so a look every beat stands beside the events.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await self.seen.wait()
        return found


@pytest.fixture
def agents(run_dir):
    """Start real agents; all of them are ended."""
    started = []

    def start(node="n000"):
        env = {**os.environ, "RELIGHT_NODE": node}
        env.pop("SLURMD_NODENAME", None)
        started.append(subprocess.Popen([sys.executable, "-m", "supervisor.agent.agent", run_dir], env=env))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def ranks(run_dir):
    """Fake ranks that speak from this process."""
    opened = []

    def start(rank=0, attempt=1, node="n000"):
        run = connect(
            tp=rank, pp=0, dp=0,
            environ={
                "RANK": str(rank), "RELIGHT_ATTEMPT": str(attempt), "RELIGHT_RUN_DIR": run_dir,
                "RELIGHT_AGENT_SOCKET": agent_socket(make_socket_dir(run_dir), node), "RELIGHT_REPORTER": str(rank),
            },
        )  # fmt: skip
        opened.append(run)
        return run

    yield start
    for run in opened:
        run.close()


@pytest.fixture
def children():
    """Child processes that are ended whatever happens; stopped ones too."""
    started = []

    def start(code="import time\ndef deep():\n    time.sleep(600)\ndeep()", env=None):
        child = subprocess.Popen(
            [sys.executable, "-c", f"print(1, flush=True)\n{code}"],
            env={**os.environ, **(env or {})},
            stdout=subprocess.PIPE,
        )
        started.append(child)
        assert child.stdout.readline()
        return child

    yield start
    for child in started:
        child.kill()
        child.wait()
        child.stdout.close()


def place(run_dir, attempt, /, **more):
    folder = os.path.join(run_dir, "attempts", f"{attempt:04d}")
    for name in ("logs", "pids", "exit"):
        os.makedirs(os.path.join(folder, name), exist_ok=True)
    with open(os.path.join(folder, "launch.json"), "w") as file:
        json.dump({"schema": 1, "slots": ["n000"], "ranks_per_node": 2, **more}, file)
    return folder


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


LINES = """ [2026-11-30 10:40:05] iteration       12/     100 | consumed samples:   96 | elapsed time per iteration (ms): 150.0 |\
 learning rate: 1.0E-04 | lm loss: 2.5E+00 | number of skipped iterations: 1 |
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
"""


def write_pid(run_dir, attempt, rank, pid, node="n000", shim=None):
    with open(os.path.join(run_dir, "attempts", f"{attempt:04d}", "pids", f"rank_{rank:05d}.json"), "w") as file:
        json.dump({"schema": 1, "pid": pid, "shim_pid": shim, "node": node}, file)


def test_a_rank_is_seen_from_hello_to_done(run_dir, agents, ranks):
    async def scene():
        async with Controller(run_dir) as controller:
            agents()
            await controller.until(lambda: controller.hub.connected().get("n000"))
            quiet, reporter = ranks(0), ranks(1)
            await controller.until(lambda: controller.view().started == {0, 1})
            for run in (quiet, reporter):
                run.loaded(
                    checkpoint="a0000-i0000040", step=40, samples=320, updates=40, digest="d", tp=run.rank, pp=0, dp=0
                )
            await controller.until(lambda: len(controller.view().loaded) == 2)
            quiet.step(41)
            reporter.step(41, samples=328, updates=41, loss=2.5, seconds=0.1, batch=(320, 8, "h"))
            view = await controller.until(lambda: controller.view().phases == {Phase.STEP: 2} and controller.view())
            assert (view.frontier, view.last_step.loss, view.last_step.batch.first) == (41, 2.5, 320)
            assert view.loaded[1].counters.samples == 320
            assert view.behind == ()
            reporter.save_began(41, "iter_0000041")
            await controller.until(lambda: [s.state for s in controller.view().saves] == ["begin"])
            quiet.done()
            reporter.done()
            await controller.until(lambda: controller.view().done == 2)
            agent = controller.hub.connected()["n000"]
            assert abs(agent.offset) <= agent.offset_bound + 0.05
            assert agent.offset_bound < 1.0
            return [row.step for row in controller.hub.drain_rows()]

    assert asyncio.run(scene()) == [41]


@contextlib.asynccontextmanager
async def left(run_dir):
    """The agent has left a controller that is gone: it has come back to the same address, where nobody welcomes it.

    What it had written before into the connection that was closing would be lost.
    """
    endpoint = read_endpoint(str(run_dir))
    assert endpoint is not None
    came, writers = asyncio.Event(), []

    def hear(_, writer):
        writers.append(writer)
        came.set()

    async with await asyncio.start_server(hear, endpoint.host, endpoint.port):
        async with asyncio.timeout(DEADLINE_S):
            await came.wait()
        yield
        for writer in writers:
            writer.close()


def test_a_new_controller_is_told_again(run_dir, agents, ranks):
    async def scene():
        async with Controller(run_dir) as first:
            agents()
            await first.until(first.hub.connected)
            reporter = ranks(1)
            reporter.loaded(checkpoint="", step=0, samples=0, updates=0)
            reporter.step(1, loss=3.0, samples=8, updates=1)
            await first.until(lambda: first.view().frontier == 1)
        async with left(run_dir):
            reporter.step(2, loss=2.9, samples=16, updates=2)  # nobody listens: it waits in the agent
            reporter.step(3, loss=2.8, samples=24, updates=3)
        async with Controller(run_dir, epoch=2) as second:
            # What it had kept comes first, what it tells again after it, and then the first beat.
            await second.until(lambda: any(one.told for one in second.hub.connected().values()))
            view = second.view()
            assert view.frontier == 3
            assert view.loaded[1].checkpoint == ""
            assert view.started == {1}
            return [row.loss for row in second.hub.drain_rows()]

    # The first row too: this controller has not read what the one before wrote, and the first is never too late.
    assert sorted(asyncio.run(scene())) == [2.8, 2.9, 3.0]


def test_an_older_epoch_is_not_obeyed(run_dir, agents, ranks):
    async def scene():
        async with Controller(run_dir, epoch=5) as newer:
            agents()
            await newer.until(newer.hub.connected)
            async with Controller(run_dir, epoch=4, attempt=9) as older:
                # endpoint.json now names the older one. The agent loses the newer one and does not go there;
                # the next newer one is found.
                await newer.hub.close()
                async with Controller(run_dir, epoch=6) as newest:
                    await newest.until(newest.hub.connected)
                    assert older.hub.connected() == {}
                    assert not older.seen.is_set()

    asyncio.run(scene())


def test_a_welcome_of_an_older_epoch_is_refused(run_dir, agents):
    async def scene():
        async with Controller(run_dir, epoch=5) as newer:
            agents()
            await newer.until(newer.hub.connected)
        # It calls itself 6 in endpoint.json, but is 4: what it says itself is what counts.
        async with Controller(run_dir, epoch=4, announced=6) as older:
            await older.until(older.seen.is_set)
            await older.until(lambda: not older.hub.connected())

    asyncio.run(scene())


def test_a_frozen_controller_is_left_for_a_newer_one(run_dir, agents):
    async def scene():
        async with Controller(run_dir, epoch=1) as frozen:
            agents()
            await frozen.until(frozen.hub.connected)
            async with Controller(run_dir, epoch=2) as newer:
                await newer.until(newer.hub.connected)

    asyncio.run(scene())


def test_only_one_agent_serves_a_node_and_it_ends_when_told(run_dir, agents):
    async def scene():
        async with Controller(run_dir) as controller:
            first = agents()
            await controller.until(controller.hub.connected)
            assert await asyncio.to_thread(agents().wait, DEADLINE_S) == 0
            assert first.poll() is None
            controller.hub.over()
            assert await asyncio.to_thread(first.wait, DEADLINE_S) == 0

    asyncio.run(scene())


def test_sigterm_ends_it(run_dir, agents):
    async def scene():
        async with Controller(run_dir) as controller:
            agent = agents()
            await controller.until(controller.hub.connected)
            agent.send_signal(signal.SIGTERM)
            return await asyncio.to_thread(agent.wait, DEADLINE_S)

    assert asyncio.run(scene()) == 0


def test_without_a_node_or_a_directory_it_says_so(run_dir):
    env = {k: v for k, v in os.environ.items() if k not in ("RELIGHT_NODE", "SLURMD_NODENAME")}
    done = subprocess.run(
        [sys.executable, "-m", "supervisor.agent.agent", run_dir], env=env, capture_output=True, check=False
    )
    assert done.returncode == 2
    assert b"RELIGHT_NODE" in done.stderr


def test_what_the_cluster_can_not_end_is_ended_on_request(run_dir, agents, children):
    """The newest attempt's ranks go on, until somebody asks; an attempt that is not known yet is not ended ahead."""
    place(run_dir, 2)
    rank = children(env={"RELIGHT_RUN_DIR": run_dir, "RELIGHT_ATTEMPT": "2", "RELIGHT_NODE": "n000"})

    def gone(controller):
        return controller.hub.connected().get("n000", SimpleNamespace(gone_attempt=0)).gone_attempt

    async def scene():
        async with Controller(run_dir, attempt=2) as controller:
            agents()
            await controller.until(lambda: gone(controller) == 1)
            controller.hub.end(3)
            controller.hub.capture(1, 2, 1.0, stacks=False)  # heard after it
            await controller.until(lambda: controller.hub.capture_state().done)
            assert rank.poll() is None
            controller.hub.end(2)
            await controller.until(lambda: gone(controller) == 2)

    asyncio.run(scene())
    assert rank.wait(DEADLINE_S) == -signal.SIGKILL


def test_older_ranks_are_killed_and_only_they(run_dir, agents, children):
    place(run_dir, 1)
    place(run_dir, 2)

    def mark(attempt, node="n000"):
        return {"RELIGHT_RUN_DIR": run_dir, "RELIGHT_ATTEMPT": str(attempt), "RELIGHT_NODE": node}

    here = {"RELIGHT_RUN_DIR": run_dir, "RELIGHT_NODE": "n000"}
    # A worker of a rank that was forked warm: no attempt in its environment, but the rank's process group.
    forked = children(
        "import os, time\nos.setpgid(0, 0)\nif os.fork() == 0:\n    time.sleep(600)\nos._exit(0)", env=here
    )
    write_pid(run_dir, 1, 2, forked.pid)
    old, stopped, warm, shim = children(env=mark(1)), children(env=mark(1)), children(), children()
    new, elsewhere, reused = children(env=mark(2)), children(env=mark(1, "n001")), children()
    stopped.send_signal(signal.SIGSTOP)
    write_pid(run_dir, 1, 0, warm.pid, shim=shim.pid)
    # A file that is older than the process it names speaks of another process.
    write_pid(run_dir, 1, 1, reused.pid)
    past = time.time() - 3600
    os.utime(os.path.join(run_dir, "attempts", "0001", "pids", "rank_00001.json"), (past, past))

    async def scene():
        async with Controller(run_dir, attempt=2) as controller:
            agents()
            await controller.until(
                lambda: controller.hub.connected().get("n000", SimpleNamespace(gone_attempt=0)).gone_attempt == 1
            )

    asyncio.run(scene())
    assert [p.wait(DEADLINE_S) for p in (old, stopped, warm, shim)] == [-signal.SIGKILL] * 4
    assert forked.wait(DEADLINE_S) == 0
    assert [
        p for p in os.listdir("/proc") if p.isdigit() and (found := look(int(p))) and found.group == forked.pid
    ] == []
    assert [p.poll() for p in (new, elsewhere, reused)] == [None] * 3


def test_stacks_of_a_sleeping_and_of_a_stopped_rank(run_dir, agents, children):
    folder = place(run_dir, 1, ranks_per_node=4)
    sleeping, stopped, ended = children(), children(), children()
    stopped.send_signal(signal.SIGSTOP)
    ended.kill()
    ended.wait()
    for rank, child in enumerate((sleeping, stopped, ended)):
        write_pid(run_dir, 1, rank, child.pid)
    with open(os.path.join(folder, "logs", "rank_00000.log"), "w") as file:
        file.write("x" * 100_000 + "the end\n")

    async def scene():
        async with Controller(run_dir, world=4) as controller:
            agents()
            await controller.until(controller.hub.connected)
            controller.hub.capture(7, 1, 20)
            told = []
            controller.hub.when_captured(told.append)
            state = await controller.until(
                lambda: controller.hub.capture_state().done and controller.hub.capture_state()
            )
            return state, told

    state, told = asyncio.run(scene())
    assert (state.incident, state.kept, state.unknown, told) == (7, 2, 2, [2])
    evidence = os.path.join(folder, "evidence", "n000")
    for rank, kind in ((0, "S"), (1, "T")):
        with open(os.path.join(evidence, f"rank_{rank:05d}.stack")) as file:
            text = file.read()
        assert f"state {kind}" in text
        assert re.search(r"deep \(<string>", text)
    with open(os.path.join(evidence, "rank_00000.log")) as file:
        tail = file.read()
    assert tail.endswith("the end\n")
    assert len(tail) == 64 << 10
    assert look(stopped.pid).state == "T"  # looking has not set it going
    assert sorted(os.listdir(evidence)) == ["rank_00000.log", "rank_00000.stack", "rank_00001.stack"]


def test_an_agent_that_is_frozen_leaves_its_ranks_unknown(run_dir, agents):
    place(run_dir, 1)

    async def scene():
        async with Controller(run_dir) as controller:
            agent = agents()
            await controller.until(controller.hub.connected)
            agent.send_signal(signal.SIGSTOP)
            controller.hub.capture(1, 1, 0.3)
            return await controller.until(
                lambda: controller.hub.capture_state().done and controller.hub.capture_state()
            )

    state = asyncio.run(scene())
    assert (state.kept, state.unknown) == (0, 2)


def test_a_refused_start_is_read_from_its_record(run_dir, agents):
    folder = place(run_dir, 1)
    record = {
        "schema": 1,
        "rank": 1,
        "node": "n000",
        "attempt": 1,
        "pid": None,
        "code": 94,
        "signal": None,
        "wall": 5.0,
        "refused": "fenced",
    }

    async def scene():
        async with Controller(run_dir) as controller:
            agents()
            await controller.until(controller.hub.connected)
            write(os.path.join(folder, "exit", "rank_00000.json"), "{")
            write(os.path.join(folder, "exit", "rank_00001.json"), json.dumps(record))
            await controller.until(lambda: controller.view().exits)
            return controller.view()

    view = asyncio.run(scene())
    assert [(e.rank, e.code, e.refused) for e in view.exits] == [(1, 94, "fenced")]
    assert view.started == frozenset()


def test_logs_become_findings_and_steps(run_dir, agents):
    folder = place(run_dir, 1)
    log = os.path.join(folder, "logs", "rank_00001.log")

    async def scene():
        async with Controller(run_dir) as controller:
            agents()
            await controller.until(controller.hub.connected)
            write(log, LINES)
            await controller.until(lambda: controller.view().frontier and controller.hub.findings(1))
            return controller.view(), controller.hub.findings(1)

    view, (finding,) = asyncio.run(scene())
    assert (view.frontier, view.last_step.samples, view.last_step.updates, view.last_step.seconds) == (12, 96, 11, 0.15)
    assert view.limited
    assert view.phase is Phase.STEP
    assert (finding.category, finding.role, finding.rank, finding.line, finding.node) == (
        "oom.gpu",
        "root",
        1,
        2,
        "n000",
    )
    assert finding.file == "attempts/0001/logs/rank_00001.log"


def test_nonsense_on_the_ranks_socket_changes_nothing(run_dir, agents, ranks):
    async def scene():
        async with Controller(run_dir) as controller:
            agents()
            await controller.until(controller.hub.connected)
            path = agent_socket(make_socket_dir(run_dir), "n000")
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                for data in (
                    b"",
                    b"\xff",
                    b"[" * 9000,
                    b"7",
                    b"{}",
                    b'{"k":[],"r":{},"a":1}',
                    b'{"k":"step","r":1e400,"a":1}',
                ):
                    sender.sendto(data, path)
            ranks(1)
            await controller.until(lambda: controller.view().started == {1})

    asyncio.run(scene())


SCRIPT = """
from supervisor.training import connect
run = connect(tp=0, pp=0, dp=0, capability="AVX2")
run.loaded(checkpoint=run.checkpoint, step=0, samples=0, updates=0)
run.step(1, samples=8, updates=1, loss=2.5)
run.done()
"""


def test_a_rank_under_its_shim_is_seen_whole(run_dir, agents):
    with open(os.path.join(run_dir, "train.py"), "w") as file:
        file.write(SCRIPT)
    place(
        run_dir, 1, run="demo", epoch=1, attempt=1, tp=1, pp=1, dp=1, ranks_per_node=1, master_addr="127.0.0.1", master_port=29999,
        command=[sys.executable, os.path.join(run_dir, "train.py")], cwd=run_dir, env={"PYTHONPATH": ROOT}, save_dir="/s", load_dir="/l",
        checkpoint="", warm=False, reporter=0, agent_sockets=make_socket_dir(run_dir),
    )  # fmt: skip
    shim = [sys.executable, "-I", "-S", os.path.join(ROOT, "supervisor", "agent", "shim.py"), run_dir, "1"]

    async def scene():
        async with Controller(run_dir, world=1) as controller:
            agents()
            await controller.until(controller.hub.connected)
            env = {**os.environ, "RELIGHT_PROCID": "0", "RELIGHT_NODE": "n000"}
            done = await asyncio.to_thread(subprocess.run, shim, env=env, check=False)
            await controller.until(lambda: controller.view().exits)
            return done.returncode, controller.view()

    code, view = asyncio.run(scene())
    assert (code, view.exits[0].clean, view.started, view.done, view.frontier) == (0, True, {0}, 1, 1)
    assert view.loaded[0].place is None
    assert not view.limited
