"""A real agent that checks its node: what it finds reaches the hub, and no check that hangs holds anything up."""

from __future__ import annotations

import asyncio
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time

import pytest

from slurm.sockets import socket_dir
from supervisor.observe.hub import Hub

DEADLINE_S = 60
NEVER_S = 600
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=python, GPU has fallen off the bus."


@pytest.fixture
def run_dir(tmp_path):
    (tmp_path / "token").write_text("secret")
    folder = tmp_path / "attempts" / "0001"
    for name in ("logs", "pids", "exit"):
        (folder / name).mkdir(parents=True)
    (folder / "launch.json").write_text(json.dumps({"schema": 1, "slots": ["n000"], "ranks_per_node": 1}))
    yield str(tmp_path)
    shutil.rmtree(socket_dir(str(tmp_path)), ignore_errors=True)


@pytest.fixture
def agents(run_dir):
    started = []

    def start(**health):
        plan = {"schema": 1, "every_s": NEVER_S, "deadline_s": NEVER_S, "paths": [run_dir], "commands": []}
        with open(os.path.join(run_dir, "health.json"), "w") as file:
            json.dump({**plan, "kernel_log": "none", "nvrx_python": "", **health}, file)
        env = {**os.environ, "RELIGHT_NODE": "n000"}
        env.pop("SLURMD_NODENAME", None)
        started.append(subprocess.Popen([sys.executable, "-m", "supervisor.agent.agent", run_dir], env=env))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def _read(path):
    with open(path) as file:
        return file.readline()


def _add(path, text):
    with open(path, "a") as file:
        file.write(text)


class Controller:
    """A hub that an agent finds, and a way to await what it hears."""

    def __init__(self, run_dir, epoch=1):
        self.run_dir, self.epoch = run_dir, epoch
        self.seen = asyncio.Event()
        self.hub = Hub(run_dir, "secret", time.time, self.seen.set, beat_s=0.05)
        # What could not look changes the view and wakes nobody: here, it does.
        take = self.hub.take
        self.hub.take = lambda connection, message: (take(connection, message), self.seen.set())
        self.hub.set_attempt(epoch, 1, 1, ["n000"])

    async def __aenter__(self):
        port = await self.hub.start()
        path = os.path.join(self.run_dir, "endpoint.json")
        _add(path + ".tmp", json.dumps({"host": "127.0.0.1", "port": port, "epoch": self.epoch}))
        os.replace(path + ".tmp", path)
        return self

    async def __aexit__(self, *_):
        await self.hub.close()

    async def until(self, condition):
        async with asyncio.timeout(DEADLINE_S):
            while not (found := condition()):
                self.seen.clear()
                await self.seen.wait()
        return found

    def told(self, state):
        agent = self.hub.connected().get("n000")
        return {} if agent is None else dict(line.split(": ", 1) for line in getattr(agent, state))

    def kinds(self):
        return {found.kind: found for found in self.hub.findings(1)}


def test_a_check_that_hangs_delays_no_finding_and_no_end(run_dir, agents):
    began = os.path.join(run_dir, "began")
    os.mkfifo(began)

    async def scene():
        async with Controller(run_dir) as controller:
            agent = agents(commands=[["sh", "-c", f"echo $$ > {began}; exec sleep 600"]])
            pid = int(await asyncio.to_thread(_read, began))  # the check has begun: it hangs from here on
            rank = os.path.join(run_dir, "attempts", "0001", "logs", "rank_00000.log")
            _add(rank, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
            found = await controller.until(lambda: controller.kinds().get("cuda-gpu-oom"))
            assert (found.rank, found.source) == (0, "log")
            hanging = os.pidfd_open(pid)  # it hangs still
            assert not select.select([hanging], [], [], 0)[0]
            agent.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(agent.wait, DEADLINE_S) == 0
            assert select.select([hanging], [], [], DEADLINE_S)[0]  # and goes with the agent
            os.close(hanging)

    asyncio.run(scene())


def test_a_check_that_hangs_is_unknown_and_the_others_are_told(run_dir, agents):
    async def scene():
        async with Controller(run_dir) as controller:
            says_no = "echo 'ERROR:  nhc:  Health check failed:  check_hw_ib:  no port is up'; exit 1"
            agents(commands=[["sleep", "600"], ["sh", "-c", says_no]], deadline_s=3)
            await controller.until(lambda: "command sleep" in controller.told("unchecked"))
            assert controller.told("unchecked")["command sleep"] == "no answer within 3 s"
            await controller.until(lambda: "command sh" in controller.told("unhealthy"))
            found = controller.kinds()["site-check"]
            assert (found.node, found.rank, found.source, found.role) == ("n000", None, "health", "context")
            assert found.category == "hardware.network"
            assert "kernel-log" in controller.told("unchecked")
            # The disk of the run is well, or the test could not run: nothing is shown of it.
            assert f"disk {run_dir}" not in controller.told("unchecked") | controller.told("unhealthy")
        async with Controller(run_dir, epoch=2) as second:  # it is told all of it again
            await second.until(lambda: "command sleep" in second.told("unchecked"))
            await second.until(lambda: "site-check" in second.kinds())

    asyncio.run(scene())


def test_a_kernel_log_is_followed_live(run_dir, agents):
    log = os.path.join(run_dir, "kern.log")
    old = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(time.time() - 4000))
    with open(log, "w") as file:
        file.write(f"{old} n000 kernel: {XID.replace('79', '48')}\n")

    async def scene():
        async with Controller(run_dir) as controller:
            agents(kernel_log=log, every_s=0.5)
            await controller.until(lambda: controller.hub.connected().get("n000"))
            _add(log, f"{XID}\n")
            found = await controller.until(lambda: controller.kinds().get("xid-gpu"))
            assert (found.node, found.rank, found.source, found.category) == ("n000", None, "kernel", "hardware.gpu")
            assert set(controller.kinds()) == {"xid-gpu"}  # what is older than the attempt is not of it

    asyncio.run(scene())


def test_without_a_plan_it_says_so_and_works(run_dir, agents):
    async def scene():
        async with Controller(run_dir) as controller:
            agents(every_s="often")
            await controller.until(lambda: "health" in controller.told("unchecked"))
            assert controller.told("unchecked")["health"] == "health.json: made no sense of it"

    asyncio.run(scene())


def test_what_the_checks_keep_goes_with_the_agent(run_dir, agents):
    async def scene():
        async with Controller(run_dir) as controller:
            # A Python that has NVRx, as far as the agent can see: it leaves what it was given, and says nothing.
            python = os.path.join(run_dir, "python")
            _add(python, '#!/bin/sh\n[ -n "$2" ] && mkdir -p "$2/state"\n')
            os.chmod(python, 0o700)
            agent = agents(nvrx_python=python)
            await controller.until(lambda: "nvrx-gpu" in controller.told("unchecked"))
            kept = os.path.join(socket_dir(run_dir), "health-n000")
            assert await asyncio.to_thread(os.listdir, kept) == ["state"]
            agent.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(agent.wait, DEADLINE_S) == 0
            return kept

    assert not os.path.exists(asyncio.run(scene()))


def test_a_node_that_is_asked_looks_anew_and_a_new_controller_hears_what_it_said(run_dir, agents):
    looks, bad = os.path.join(run_dir, "looks"), os.path.join(run_dir, "bad")

    def checked(controller):
        agent = controller.hub.connected().get("n000")
        return agent.checked if agent is not None else None

    async def scene():
        async with Controller(run_dir) as controller:
            site = f"echo x >> {looks}; test ! -e {bad} || {{ echo 'no port is up'; exit 1; }}"
            agents(commands=[["sh", "-c", site]])
            first = await controller.until(lambda: checked(controller))
            assert (first.incident, controller.told("unhealthy")) == (0, {})
            assert first.checks > 1
            _add(bad, "")
            controller.hub.check("n000", 5)
            again = await controller.until(lambda: checked(controller).incident == 5 and checked(controller))
            assert controller.told("unhealthy") == {"command sh": "no port is up"}  # before the round is over
            assert again.at >= first.at
        async with Controller(run_dir, epoch=2) as second:
            heard = await second.until(lambda: checked(second))
            assert (heard.incident, second.told("unhealthy")) == (5, {"command sh": "no port is up"})

    asyncio.run(scene())
    with open(looks) as file:
        assert len(file.readlines()) == 2
