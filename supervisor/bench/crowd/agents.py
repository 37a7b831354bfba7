"""640 agents and the ranks that they speak for, in one process: a run that starts, loads nothing, and goes on.

`python -m supervisor.bench.crowd.agents RUN_DIR SLOTS BEAT_S` prints a line when all are connected and one when the attempt
runs, goes on until a line comes on stdin, and then prints what it has sent.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from policies.layout import Layout
from supervisor.bench.crowd.stage import RANKS_A_NODE, node_names, shape
from supervisor.rundir import RunDir

STEP_S = 2.0
BATCH = 16


class Crowd:
    """All agents of a run. `rows`: step rows sent by the reporter; `beats`: beats of all agents."""

    def __init__(self, run: RunDir, slots: int, beat_s: float) -> None:
        one = shape(slots)
        self.layout = Layout(one.tp, one.pp, one.dp, one.ranks_per_node)
        self.names = node_names(slots)
        self._run, self._slots, self._beat_s = run, slots, beat_s
        self._writers: list[asyncio.StreamWriter] = []
        self._attempt = 0
        self._running = asyncio.Event()
        self.step = self.rows = self.beats = 0

    async def connect(self) -> None:
        """Every agent says hello. Raises OSError, ConnectionError."""
        port, token = _port(self._run), self._run.token()
        for name in self.names:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            now = time.time()
            hello = {"type": "hello", "token": token, "node": name, "pid": 1, "start_ticks": 1, "wall": now}
            _send(writer, hello | {"monotonic": time.monotonic()})
            self._writers.append(writer)
            task = asyncio.create_task(self._listen(len(self._writers) - 1, reader))
            task.add_done_callback(lambda done: done.cancelled() or done.result())

    async def _listen(self, node: int, reader: asyncio.StreamReader) -> None:
        """What the controller says to one agent: a welcome is answered by a beat, a new attempt by its ranks' first words."""
        while line := await reader.readline():
            said: dict[str, Any] = json.loads(line)
            if said["type"] in {"welcome", "check"}:
                looked = {"ended": time.time(), "took_s": 0.1, "checks": 9, "for": said.get("incident", 0)}
                _send(self._writers[node], {"type": "checked", "node": self.names[node], **looked})
            if said["type"] in {"welcome", "attempt"}:
                self._beat(node, echo=said.get("clock"))
            if said["type"] == "attempt" and said["attempt"]:
                self._attempt = int(said["attempt"])
                self._begin(node)
                self._running.set()

    def _begin(self, node: int) -> None:
        if node >= self._slots:
            return
        for rank in range(node * RANKS_A_NODE, (node + 1) * RANKS_A_NODE):
            place = self.layout.place(rank)
            at = {"tp": place.tp, "pp": place.pp, "dp": place.dp}
            self._say(node, rank, "start", pid=rank + 2, warm=False, note="")
            self._say(node, rank, "hello", pid=rank + 2, capability="bench", **at)
            zero = {"step": 0, "samples": 0, "updates": 0, "skipped": 0, "lr": 0.001, "digest": "0" * 32}
            self._say(node, rank, "loaded", checkpoint="", next=[0, BATCH, "0" * 32], **zero, **at)

    def _say(self, node: int, rank: int, kind: str, **more: object) -> None:
        about = {"k": kind, "r": rank, "a": self._attempt, "t": time.time(), "m": time.monotonic(), "phase": "step"}
        _send(self._writers[node], {"type": "rank", "node": self.names[node], "m": about | more})

    def _beat(self, node: int, echo: object = None) -> None:
        ranks = range(node * RANKS_A_NODE, (node + 1) * RANKS_A_NODE) if node < self._slots and self._attempt else ()
        beat = {"type": "beat", "node": self.names[node], "wall": time.time(), "monotonic": time.monotonic()}
        beat |= {"dropped": 0, "spooled": 0, "ranks": [[rank, self._attempt, "step", self.step, 0.1] for rank in ranks]}
        _send(self._writers[node], beat if echo is None else beat | {"echo": echo})
        self.beats += 1

    async def train(self) -> None:
        """Steps, one every STEP_S, told by the last rank; beats, spread over the interval."""
        await self._running.wait()
        await asyncio.gather(self._steps(), *(self._beats(node) for node in range(len(self._writers))))

    async def _beats(self, node: int) -> None:
        await asyncio.sleep(self._beat_s * node / len(self._writers))
        while True:
            self._beat(node)
            await asyncio.sleep(self._beat_s)

    async def _steps(self) -> None:
        last = self.layout.world - 1
        while True:
            self.step += 1
            count = {"samples": self.step * BATCH, "updates": self.step, "skipped": 0, "lr": 0.001}
            batch = [(self.step - 1) * BATCH, BATCH, "0" * 32]
            row = {"step": self.step, "loss": 2.5, "grad_norm": 1.0, "seconds": STEP_S, "batch": batch}
            self._say(self._slots - 1, last, "step", **row, **count)
            self.rows += 1
            if self.step == 1:
                print("running", flush=True)
            await asyncio.sleep(STEP_S)


def _port(run: RunDir) -> int:
    with open(run.path("endpoint.json"), "rb") as file:
        return int(json.load(file)["port"])


def _send(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
    writer.write(json.dumps(message).encode() + b"\n")


async def _main(root: str, slots: int, beat_s: float) -> None:
    crowd = Crowd(RunDir(root), slots, beat_s)
    await crowd.connect()
    print("connected", flush=True)
    work = asyncio.create_task(crowd.train())
    told = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
    done, _ = await asyncio.wait((work, told), return_when=asyncio.FIRST_COMPLETED)
    if work in done:
        work.result()
    work.cancel()
    print(json.dumps({"rows": crowd.rows, "beats": crowd.beats, "step": crowd.step}), flush=True)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
