"""A rank of which only the log tells: its last lines come before its end, whatever the agent's pace of reading is."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm.sockets import agent_socket, make_socket_dir, socket_dir
from supervisor.agent.agent import Agent
from supervisor.bench.plain_script import line
from supervisor.observe.hub import Hub

NEVER_S = 600.0
"""The agent's own pace of reading logs: so slow that only a rank's end makes it look."""


@pytest.fixture
def run_dir(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "token").write_text("secret")
    for name in ("logs", "exit"):
        (tmp_path / "attempts" / "0001" / name).mkdir(parents=True)
    launch = {"schema": 1, "slots": ["n000"], "ranks_per_node": 1}
    (tmp_path / "attempts" / "0001" / "launch.json").write_text(json.dumps(launch))
    yield str(tmp_path)
    shutil.rmtree(socket_dir(str(tmp_path)), ignore_errors=True)


def _write(run_dir: str, name: str, text: str) -> None:
    Path(run_dir, name).write_text(text)


async def _told(run_dir: str) -> tuple[int, list[int]]:
    """(the step that was known, the ranks that had ended) at the first moment at which an end was known."""
    seen = asyncio.Event()
    hub = Hub(run_dir, "secret", time.time, seen.set, beat_s=0.05)
    hub.set_attempt(1, 1, 1, ["n000"])
    port = await hub.start()
    _write(run_dir, "endpoint.json", json.dumps({"host": "127.0.0.1", "port": port, "epoch": 1}))
    sockets = make_socket_dir(run_dir)
    agent = asyncio.create_task(Agent(run_dir, "n000", poll_s=NEVER_S).run(sockets))

    async def until(known: object) -> None:
        async with asyncio.timeout(20):
            while not known():  # type: ignore[operator]
                await seen.wait()
                seen.clear()

    try:
        await until(lambda: hub.connected().get("n000") and hub.connected()["n000"].told)
        steps = "".join(f"{line(step, 5, 0.1)}\n" for step in range(1, 6))
        _write(run_dir, "attempts/0001/logs/rank_00000.log", steps)
        ended = {"k": "exit", "r": 0, "a": 1, "t": time.time(), "m": time.monotonic()}
        ended |= {"rank": 0, "node": "n000", "attempt": 1, "pid": 1, "code": 0, "signal": None, "wall": time.time()}
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as shim:
            shim.sendto(json.dumps({**ended, "refused": None, "schema": 1}).encode(), agent_socket(sockets, "n000"))
        await until(lambda: hub.progress(1, time.time()).exits)
        shown = hub.progress(1, time.time())
        return shown.frontier, [one.rank for one in shown.exits]
    finally:
        hub.over()
        await agent
        await hub.close()


def test_the_last_lines_come_before_the_end(run_dir: str) -> None:
    assert asyncio.run(_told(run_dir)) == (5, [0])
    assert not os.path.exists(agent_socket(make_socket_dir(run_dir), "n000"))
