"""Real agents of this machine as readers of a save, a core each: how two of them do beside one, and beside threads here.

Their children give way to everything (nice 19), so on a machine with other work these figures say little.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from slurm.sockets import socket_dir
from supervisor.bench.figure import Figure
from supervisor.checkpoints.readers import Readers
from supervisor.checkpoints.reading.by_threads import ByThreads, ReadFiles
from supervisor.checkpoints.reading.content import Job
from supervisor.checkpoints.reading.folder import look_at
from supervisor.checkpoints.reading.structure import Structure, limits_for, read_structure
from supervisor.observe.hub import Hub
from supervisor.observe.reads import Reads

BEAT_S = 0.1
WAIT_S = 60.0


LINE: Final = 200e6
"""Bytes a second that a node gets from the store where its line is what limits it; low, so that two cores are enough."""


GAIN: Final = 1.6
"""Two nodes must give so much more than one; some of a second goes into starting their children."""


class Lines(Reads):
    """Nodes that get so many bytes a second each from the store; None: what there is."""

    line: float | None = None

    def ask(self, reading: str, node: str, message: dict[str, Any]) -> None:
        """See Crew."""
        super().ask(reading, node, message | {"rate": self.line})


class AgentsError(RuntimeError):
    """An agent did not come, or what was read is not as it was written."""


@contextmanager
def agents(count: int, threads: int) -> Iterator[tuple[Lines, Readers]]:
    """So many agents, connected to a hub of this process; how to read by them."""
    names = [f"n{number:03d}" for number in range(count)]
    with tempfile.TemporaryDirectory(prefix="relight-agents-") as run_dir:
        with open(os.path.join(run_dir, "token"), "w", encoding="ascii") as file:
            file.write("bench")
        crew, loop = Lines(), asyncio.new_event_loop()
        beside = threading.Thread(target=loop.run_forever, daemon=True)
        beside.start()
        hub = Hub(run_dir, "bench", time.time, lambda: None, BEAT_S, reads=crew)
        started = []
        try:
            hub.set_attempt(1, 0, 1)
            port = asyncio.run_coroutine_threadsafe(hub.start(), loop).result(WAIT_S)
            with open(os.path.join(run_dir, "endpoint.json"), "w", encoding="ascii") as file:
                json.dump({"host": "127.0.0.1", "port": port, "epoch": 1}, file)
            cores = sorted(os.sched_getaffinity(0))
            for number, name in enumerate(names):
                env = {**os.environ, "RELIGHT_NODE": name}
                started.append(subprocess.Popen([sys.executable, "-m", "supervisor.agent.agent", run_dir], env=env))
                # A node has cores of its own: here each agent, with its child, has one.
                os.sched_setaffinity(started[-1].pid, {cores[number % len(cores)]})
            _wait(lambda: {name for name, one in hub.connected().items() if one.told} >= set(names))
            crew.allow(frozenset(names))
            yield crew, Readers(ByThreads(threads), crew, lambda *_: None, worth=0)
        finally:
            for process in started:
                process.kill()
                process.wait()
            with suppress(TimeoutError):
                asyncio.run_coroutine_threadsafe(hub.close(), loop).result(WAIT_S)
            loop.call_soon_threadsafe(loop.stop)
            beside.join()
            loop.close()
            shutil.rmtree(socket_dir(run_dir), ignore_errors=True)


def _wait(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > until:
            raise AgentsError("the agents did not come")
        time.sleep(0.05)


def of_agents(folder: str, threads: int, rounds: int) -> list[Figure]:
    """Figures on reading the save in `folder`, the best of some rounds, taken in turn."""
    look = look_at(folder)
    structure = read_structure(folder, limits_for(1 << 20))
    total = sum(look.sizes.values())
    first = [Job(name, stamp, extents=structure.files.get(name)) for name, stamp in look.files.items()]
    later = [Job(name, stamp) for name, stamp in look.files.items()]
    took: dict[str, float] = {}
    with agents(2, threads) as (crew, readers):
        for _ in range(rounds):
            for kind, jobs, held in (("first", first, structure), ("later", later, None), ("line", later, None)):
                crew.line = LINE if kind == "line" else None
                by: list[tuple[str, ReadFiles, Sequence[str]]] = [
                    ("one agent", readers, ("n000",)),
                    ("two agents", readers, ("n000", "n001")),
                ]
                if kind != "line":
                    by.append(("threads", readers.here, ()))
                for name, reader, nodes in by:
                    crew.allow(frozenset(nodes))
                    seconds = _timed(reader, folder, held, jobs)
                    key = f"{kind} by {name}"
                    took[key] = min(seconds, took.get(key, seconds))
    beside = {f"{name} GB/s": total / seconds / 1e9 for name, seconds in took.items()}
    beside["cores"] = float(os.cpu_count() or 1)

    def gain(kind: str) -> float:
        return took[f"{kind} by one agent"] / took[f"{kind} by two agents"]

    return [
        Figure(
            f"two agents, of one, where a node gets {LINE / 1e6:.0f} MB/s", gain("line"), "x", GAIN, beside, least=True
        ),
        Figure("the same, later read from page cache", gain("later"), "x"),
        Figure("the same, first read from page cache", gain("first"), "x"),
        Figure("one agent, of threads here, later read", took["later by threads"] / took["later by one agent"], "x"),
    ]


def _timed(reader: ReadFiles, folder: str, structure: Structure | None, jobs: list[Job]) -> float:
    began = time.perf_counter()
    found = [finding for one in reader.read(folder, structure, jobs, lambda _: None) for finding in one.findings]
    if found:
        raise AgentsError(str(found[0]))
    return time.perf_counter() - began
