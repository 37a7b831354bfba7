"""Real agents read a save for a real hub: they give what threads give, and what becomes of one of them harms nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from slurm.sockets import socket_dir
from supervisor.bench.agent_readers import GAIN, of_agents
from supervisor.bench.checkpoint_reading import make_content
from supervisor.checkpoints.readers import Readers
from supervisor.checkpoints.reading.by_threads import ByThreads
from supervisor.checkpoints.reading.content import Job
from supervisor.checkpoints.reading.folder import look_at
from supervisor.checkpoints.reading.structure import limits_for, read_structure
from supervisor.checkpoints.reading.throttle import Pace
from supervisor.observe.hub import Hub
from supervisor.observe.reads import Reads

DEADLINE_S = 60
FILES = 8


@pytest.fixture
def run_dir(tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    (path / "token").write_text("secret")
    yield str(path)
    shutil.rmtree(socket_dir(str(path)), ignore_errors=True)


@pytest.fixture
def save(tmp_path):
    folder = tmp_path / "shared" / "iter_0000040"
    folder.mkdir(parents=True)
    make_content(str(folder), FILES, 1 << 20)
    return folder


@pytest.fixture
def agents(run_dir):
    """Start real agents; all of them are ended."""
    started = []

    def start(node, cwd=None):
        env = {**os.environ, "RELIGHT_NODE": node}
        env.pop("SLURMD_NODENAME", None)
        command = [sys.executable, "-m", "supervisor.agent.agent", run_dir]
        started.append(subprocess.Popen(command, env=env, cwd=cwd))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


class Scene:
    """A hub with its crew, and a way to read."""

    def __init__(self, run_dir, *, pace=None):
        self.run_dir = run_dir
        self.log = []
        self.heard = []
        self.seen = asyncio.Event()
        self.crew = Noting(self.heard)
        self.hub = Hub(run_dir, "secret", time.time, self.seen.set, beat_s=0.05, reads=self.crew)
        self.hub.set_attempt(1, 0, 1)
        self.readers = Readers(ByThreads(2, pace or Pace()), self.crew, self.tell, worth=0)

    def tell(self, line, wrong):
        if wrong:
            self.log.append(line)

    async def __aenter__(self):
        port = await self.hub.start()
        self._announce(port)
        return self

    def _announce(self, port):
        path = os.path.join(self.run_dir, "endpoint.json")
        with open(path + ".tmp", "w") as file:
            json.dump({"host": "127.0.0.1", "port": port, "epoch": 1}, file)
        os.replace(path + ".tmp", path)

    async def __aexit__(self, *_):
        await self.hub.close()

    async def until(self, condition):
        async with asyncio.timeout(DEADLINE_S):
            while not (found := condition()):
                self.seen.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await self.seen.wait()
        return found

    async def crew_of(self, *nodes):
        await self.until(lambda: {n for n, one in self.hub.connected().items() if one.told} >= set(nodes))
        self.crew.allow(frozenset(nodes))

    def reading(self, root, sums=None):
        jobs, structure = jobs_of(root, sums)
        return asyncio.ensure_future(asyncio.to_thread(self.readers.read, root, structure, jobs, lambda _: None))

    def answered(self, node):
        return [raw for name, raw in self.heard if name == node and raw["type"] == "read-part" and "xxh3" in raw]


class Noting(Reads):
    """The crew, and what it has heard."""

    def __init__(self, heard):
        super().__init__()
        self._heard = heard

    def heard(self, node, raw):
        self._heard.append((node, raw))
        return super().heard(node, raw)


def jobs_of(root, sums=None):
    look = look_at(root)
    structure = None if sums else read_structure(root, limits_for(1 << 20))
    jobs = [
        Job(n, s, xxh3=(sums or {}).get(n), extents=structure.files.get(n) if structure else None)
        for n, s in look.files.items()
    ]
    return jobs, structure


def alone(root):
    jobs, structure = jobs_of(root)
    return by_name(ByThreads(2).read(root, structure, jobs, lambda _: None))


def by_name(reads):
    return {read.name: read for read in reads}


def test_two_agents_read_a_save_between_them(run_dir, save, agents):
    agents("n000")
    agents("n001")

    async def scene():
        async with Scene(run_dir) as one:
            await one.crew_of("n000", "n001")
            first = await one.reading(str(save))
            later = await one.reading(str(save), {read.name: read.xxh3 for read in first})
            return one, first, later

    one, first, later = asyncio.run(scene())
    assert by_name(first) == alone(str(save))
    assert by_name(later) == by_name(first)
    assert len(one.answered("n000")) + len(one.answered("n001")) == 2 * (FILES + 1)
    assert one.answered("n000")
    assert one.answered("n001")
    assert one.log == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["dies", "stands still"])
def test_what_becomes_of_one_agent_in_the_middle_harms_nothing(run_dir, save, agents, number):
    crew = {node: agents(node) for node in ("n000", "n001")}

    async def scene():
        pace = Pace(20e6)  # a file takes 50 ms, so that the reading has a middle
        async with Scene(run_dir, pace=pace) as one:
            await one.crew_of(*crew)
            reading = one.reading(str(save))
            first = await one.until(lambda: next((node for node in crew if one.answered(node)), None))
            os.kill(crew[first].pid, number)
            return await reading

    assert by_name(asyncio.run(scene())) == alone(str(save))


def test_a_node_that_does_not_see_the_store_says_so(run_dir, save, agents, tmp_path, monkeypatch):
    """A path that leads elsewhere in each process stands for a store that is mounted on some nodes only."""
    monkeypatch.chdir(save.parent)
    (tmp_path / "elsewhere").mkdir()
    agents("n000", cwd=save.parent)
    agents("n001", cwd=tmp_path / "elsewhere")
    root = f"/proc/self/cwd/{save.name}"

    async def scene():
        async with Scene(run_dir) as one:
            await one.crew_of("n000", "n001")
            found = await one.reading(root)
            again = await one.reading(root)
            await one.crew_of("n001")
            by_threads = await one.reading(root)
            return one, found, again, by_threads

    one, *readings = asyncio.run(scene())
    assert all(by_name(found) == alone(root) for found in readings)
    assert one.answered("n000")
    assert one.answered("n001") == []
    assert len(one.log) == 1
    assert "can't be seen on n001" in one.log[0]


def test_rot_is_found_by_agents_and_confirmed(run_dir, save, agents):
    agents("n000")
    with open(save / "__5_0.distcp", "r+b") as file:
        file.seek(500_000)
        byte = file.read(1)
        file.seek(500_000)
        file.write(bytes([byte[0] ^ 1]))

    async def scene():
        async with Scene(run_dir) as one:
            await one.crew_of("n000")
            return one, await one.reading(str(save))

    one, found = asyncio.run(scene())
    assert [f.code for read in found for f in read.findings] == ["CRC"]
    assert [raw["findings"][0][0] for raw in one.answered("n000") if raw["findings"]] == ["CRC"]
    assert one.log == []


def test_the_figures_of_agents_as_readers(save):
    figures = of_agents(str(save), 2, 1)
    assert figures[0].least
    assert figures[0].limit == GAIN
    assert {"line by one agent GB/s", "first by two agents GB/s", "later by threads GB/s"} < figures[0].beside.keys()
    assert all(figure.value > 0 for figure in figures)
