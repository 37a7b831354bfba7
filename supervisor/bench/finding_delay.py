"""How long a line takes from a rank's log to the controller: real agents, each a process of its own, and the real hub.

    python -m supervisor.bench.finding_delay

All of them run on this machine. Each agent lives in a wrong clock of its own, as nodes do; the files that its ranks write
are dated by that clock too.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from policies.facts import Finding
from slurm.sockets import socket_dir
from supervisor.agent import agent
from supervisor.observe.hub import Hub
from supervisor.rundir import RunDir

RANKS: Final = 8
RATE: Final = 60.0
"""Lines a second over all agents: so many that no moment of an agent's pace is missed, too few for it to matter."""

MOST_SKEW_S: Final = 30.0
"""The clocks differ by up to this, ahead and behind."""

DEADLINE_S: Final = 120.0
BEAT_S: Final = 2.0


@dataclass(slots=True)
class Told:
    """What was written and what came, by (rank, line). Times: the hub's monotonic and wall clocks, seconds."""

    written: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)
    came: dict[tuple[int, int], tuple[float, Finding]] = field(default_factory=dict)


def figures(told: Told, skip: int = 0) -> dict[str, float]:
    """Milliseconds from the line to the finding, and how the findings' times keep to their bounds.

    The first `skip` lines were for the start. Raises RuntimeError when a finding has not come.
    """
    lines = list(told.written)[skip:]
    missing = [key for key in lines if key not in told.came]
    if missing or not lines:
        raise RuntimeError(f"{len(missing)} of {len(lines)} findings have not come: {missing[:3]}")
    delays = sorted(told.came[key][0] - told.written[key][0] for key in lines)
    off, outside = [], 0
    for key in lines:
        found = told.came[key][1]
        if found.wall is None:
            raise RuntimeError(f"the finding of {key} has no time")
        off.append(abs(found.wall - told.written[key][1]))
        outside += off[-1] > found.offset_bound
    return {
        "delay_p50_ms": _quantile(delays, 0.5) * 1e3,
        "delay_p99_ms": _quantile(delays, 0.99) * 1e3,
        "delay_max_ms": delays[-1] * 1e3,
        "time_off_p99_ms": _quantile(sorted(off), 0.99) * 1e3,
        "outside_bound": float(outside),
        "findings": float(len(lines)),
    }


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class _Crowd:
    """The agents' processes, and what their ranks write."""

    def __init__(self, run: RunDir, skews: Sequence[float], seed: int) -> None:
        self.run = run
        self.nodes = [f"n{i:03d}" for i in range(len(skews))]
        self._skews = skews
        self._chance = random.Random(seed)
        self._lines = [0] * (len(skews) * RANKS)
        self._processes: list[subprocess.Popen[bytes]] = []

    def launch(self) -> None:
        """The map of the attempt, as the controller leaves it."""
        os.makedirs(self.run.attempt(1, "logs"))
        with open(self.run.attempt(1, "launch.json"), "w", encoding="ascii") as file:
            json.dump({"slots": self.nodes, "ranks_per_node": RANKS}, file)

    def start(self) -> None:
        """Start every agent."""
        command = [sys.executable, "-m", "supervisor.bench.finding_delay", "agent", self.run.root]
        with open(self.run.path("agents.log"), "wb") as log:
            for node, skew in zip(self.nodes, self._skews, strict=True):
                self._processes.append(
                    subprocess.Popen([*command, node, repr(skew)], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
                )

    def ended(self) -> str:
        """What is wrong with an agent that has ended; empty while all live."""
        gone = [n for n, p in zip(self.nodes, self._processes, strict=True) if p.poll() is not None]
        if not gone:
            return ""
        with open(self.run.path("agents.log"), "rb") as file:
            return f"{len(gone)} agents ended, first {gone[0]}: {file.read()[-300:].decode('utf-8', 'replace')}"

    def write(self, rank: int, told: Told) -> None:
        """An error, behind a few lines of no meaning."""
        plain = [f"fetched shard {self._chance.randrange(997)} in {self._chance.random():.3f} s" for _ in range(20)]
        error = f"[rank{rank}]: torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"
        self._lines[rank] += len(plain) + 1
        text = "".join(line + "\n" for line in (*plain, error))
        handle = os.open(
            self.run.attempt(1, "logs", f"rank_{rank:05d}.log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600
        )
        try:
            wall = time.time()
            os.write(handle, text.encode())
            dated = wall + self._skews[rank // RANKS]
            os.utime(handle, (dated, dated))
            told.written[rank, self._lines[rank]] = (time.monotonic(), wall)
        finally:
            os.close(handle)

    def stop(self) -> None:
        """End them all."""
        for process in self._processes:
            process.kill()
            process.wait()


async def _until(what: str, condition: Callable[[], bool], event: asyncio.Event, crowd: _Crowd) -> None:
    """Wait for it; beats wake nobody, so a look now and then stands beside the events. Raises RuntimeError."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        wrong = crowd.ended()
        if wrong or time.monotonic() > deadline:
            raise RuntimeError(wrong or f"{what} was not seen within {DEADLINE_S:.0f} s")
        event.clear()
        waiting = asyncio.ensure_future(event.wait())
        await asyncio.wait({waiting}, timeout=0.05)
        waiting.cancel()


async def _measure(run: RunDir, crowd: _Crowd, lines: int, seed: int) -> Told:
    told, event = Told(), asyncio.Event()
    hub: Hub | None = None

    def on_event() -> None:
        now = time.monotonic()
        for found in hub.findings(1) if hub is not None else ():
            if found.rank is not None and found.line is not None and (found.rank, found.line) not in told.came:
                told.came[found.rank, found.line] = (now, found)
        event.set()

    hub = Hub(run.root, run.token(), time.time, on_event, BEAT_S)
    world = len(crowd.nodes) * RANKS
    try:
        port = await hub.start()
        run.write_endpoint("127.0.0.1", port, 1)
        crowd.start()
        await _until(
            "every agent", lambda: sum(one.told for one in hub.connected().values()) == len(crowd.nodes), event, crowd
        )
        crowd.launch()
        hub.set_attempt(1, 1, world, crowd.nodes)  # from its answer each agent's clock is known
        for node in range(len(crowd.nodes)):
            crowd.write(node * RANKS, told)
        await _until("a first finding of every agent", lambda: len(told.came) == len(told.written), event, crowd)
        chance = random.Random(seed)
        for number in range(lines):
            await asyncio.sleep(chance.expovariate(RATE))
            crowd.write((number * 101 + 1) % world, told)
        await _until("every finding", lambda: len(told.came) == len(told.written), event, crowd)
    finally:
        await hub.close()
    return told


def measure_delay(agents: int = 64, lines: int = 2000, seed: int = 1) -> dict[str, float]:
    """`lines` errors, at random moments, in the logs of `agents` agents of 8 ranks. See `figures`.

    Raises RuntimeError when an agent ends or a finding does not come.
    """
    chance = random.Random(seed)
    skews = [chance.uniform(-MOST_SKEW_S, MOST_SKEW_S) for _ in range(agents)]
    with tempfile.TemporaryDirectory() as folder:
        run = RunDir(folder)
        run.create()
        crowd = _Crowd(run, skews, seed)
        try:
            told = asyncio.run(_measure(run, crowd, lines, seed))
        finally:
            crowd.stop()
            shutil.rmtree(socket_dir(folder), ignore_errors=True)
    return {**figures(told, skip=agents), "agents": float(agents), "skew_s": max(map(abs, skews))}


def _agent(run_dir: str, node: str, skew: float) -> int:
    """The agent itself, in a process whose wall clock is wrong."""
    true = time.time
    time.time = lambda: true() + skew
    os.environ.pop("SLURMD_NODENAME", None)
    os.environ["RELIGHT_NODE"] = node
    return agent.main([run_dir])


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["agent", run_dir_, node_, skew_]:
            sys.exit(_agent(run_dir_, node_, float(skew_)))
        case _:
            print(json.dumps(measure_delay(), indent=1))
