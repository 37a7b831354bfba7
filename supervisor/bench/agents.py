"""What hearing a whole run costs: the hub under 640 agents, a rank's call, a view of 5,120 ranks.

Each figure is measured on this machine; the limits are those of docs: a hub takes under 10 % of a core and 120 MB, a call
under 20 microseconds (p50) and 100 (p99), a view under 2 ms.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Final

from policies.facts import Phase
from supervisor.observe.hub import Hub
from supervisor.observe.progress import Progress
from supervisor.training import connect

LIMITS: Final = {"cpu_share": 0.10, "rss_mb": 120.0, "call_p50_us": 20.0, "call_p99_us": 100.0, "view_ms": 2.0}

_TICKS: Final = os.sysconf("SC_CLK_TCK")


def measure_agents(n: int = 640, ranks: int = 8, beat_s: float = 2.0, seconds: float = 10.0) -> dict[str, float]:
    """`n` agents of `ranks` ranks each report over TCP to a hub in a process of its own, for `seconds`.

    Every beat shows every rank one step further; the last rank sends rows ten times a second. Returns the hub's share of
    a core (`cpu_share`), its memory (`rss_mb`), the agents that were connected, and the beats and rows that it took.
    Raises RuntimeError when a process of the bench fails.
    """
    token = secrets.token_hex(16)
    command = [sys.executable, "-m", "supervisor.bench.agents"]
    hub = subprocess.Popen(
        [*command, "hub", str(n), str(ranks), str(beat_s), token],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    crowd = None
    try:
        port = _line(hub)
        crowd = subprocess.Popen(
            [*command, "crowd", str(n), str(ranks), str(beat_s), token, port],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        _line(crowd)  # all are connected
        before, began = _cpu_s(hub.pid), time.monotonic()
        time.sleep(seconds)  # the window of the measurement itself
        share = (_cpu_s(hub.pid) - before) / (time.monotonic() - began)
        rss = _rss_mb(hub.pid)
        told = json.loads(hub.communicate("\n", timeout=30)[0])
    finally:
        for child in (hub, crowd):
            if child is not None:
                child.kill()
                child.wait()
                for stream in (child.stdin, child.stdout):
                    if stream is not None:
                        stream.close()
    if told["agents"] != n or not told["rows"]:
        raise RuntimeError(f"the hub heard {told['agents']} of {n} agents and {told['rows']} rows")
    return {"cpu_share": share, "rss_mb": rss, **told}


def measure_calls(n: int = 20_000) -> dict[str, float]:
    """Microseconds that `Run.step` of the reporter takes (p50, p99), with an agent's socket that is read meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "agent.sock")
        reader = subprocess.Popen(
            [sys.executable, "-m", "supervisor.bench.agents", "read", path], stdout=subprocess.PIPE, text=True
        )
        try:
            _line(reader)
            place = {"RANK": "0", "RELIGHT_ATTEMPT": "1", "RELIGHT_RUN_DIR": folder, "RELIGHT_REPORTER": "1"}
            run = connect(environ={**place, "RELIGHT_AGENT_SOCKET": path})
            taken = []
            for step in range(n):
                began = time.perf_counter()
                run.step(
                    step,
                    samples=step * 8,
                    updates=step,
                    loss=2.5,
                    lr=1e-3,
                    grad_norm=1.0,
                    seconds=0.1,
                    batch=(step * 8, 8, "0" * 32),
                )
                taken.append(time.perf_counter() - began)
            dropped = run.dropped
            run.close()
        finally:
            reader.kill()
            reader.wait()
            if reader.stdout is not None:
                reader.stdout.close()
    return {"call_p50_us": _quantile(taken, 0.5) * 1e6, "call_p99_us": _quantile(taken, 0.99) * 1e6, "dropped": dropped}


def measure_views(world: int = 5120, n: int = 50) -> dict[str, float]:
    """Milliseconds for a view of `world` ranks of which one is behind, and microseconds for one rank's update."""
    progress = Progress(1, world)
    began = time.perf_counter()
    for rank in range(world):
        progress.heard(rank, 1.0, speaks=True)
        progress.moved(rank, Phase.STEP, 1, 1.0)
    update = (time.perf_counter() - began) / world
    taken = []
    for step in range(2, n + 2):
        for rank in range(1, world):
            progress.moved(rank, Phase.STEP, step, float(step))
        began = time.perf_counter()
        view = progress.view(running=True)
        taken.append(time.perf_counter() - began)
        if view.behind != (0,):
            raise RuntimeError(f"the view shows {view.behind} behind, not rank 0")
    return {"view_ms": statistics.median(taken) * 1e3, "update_us": update * 1e6}


def _line(child: subprocess.Popen[str]) -> str:
    line = child.stdout.readline().strip() if child.stdout is not None else ""
    if not line:
        raise RuntimeError(f"{child.args!r} ended early")
    return line


def _cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _rss_mb(pid: int) -> float:
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        kilobytes = next(line.split()[1] for line in file if line.startswith("VmRSS:"))
    return int(kilobytes) / 1024


def _quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


# --- the processes of the bench ------------------------------------------------------------------------------------


async def _hub(n: int, ranks: int, beat_s: float, token: str) -> None:
    """Serve until a line comes on stdin; then say what was heard."""
    hub = Hub("", token, time.time, lambda: None, beat_s)
    hub.set_attempt(1, 1, n * ranks, [f"n{i:03d}" for i in range(n)])
    print(await hub.start(), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    view = hub.progress(1, time.time(), running=True)
    print(json.dumps({"agents": len(hub.connected()), "rows": len(hub.drain_rows()), "frontier": view.frontier}))
    await hub.close()


async def _crowd(n: int, ranks: int, beat_s: float, token: str, port: int) -> None:
    """`n` agents, their beats spread over the interval."""
    writers = []
    for i in range(n):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        hello = {
            "type": "hello",
            "token": token,
            "node": f"n{i:03d}",
            "pid": 1,
            "start_ticks": 1,
            "wall": time.time(),
            "monotonic": 0.0,
        }
        writer.write(json.dumps(hello).encode() + b"\n")
        await reader.readline()
        writers.append(writer)
    print("connected", flush=True)

    async def beats(i: int, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(beat_s * i / n)
        step = 0
        while True:
            step += 1
            rows = [[i * ranks + r, 1, "step", step, 0.1] for r in range(ranks)]
            beat = {
                "type": "beat",
                "node": f"n{i:03d}",
                "wall": time.time(),
                "monotonic": 1.0,
                "dropped": 0,
                "spooled": 0,
                "ranks": rows,
            }
            writer.write(json.dumps(beat).encode() + b"\n")
            await asyncio.sleep(beat_s)

    async def rows() -> None:
        step = 0
        while True:
            step += 1
            row = {
                "k": "step",
                "r": n * ranks - 1,
                "a": 1,
                "t": time.time(),
                "m": 1.0,
                "step": step,
                "loss": 2.5,
                "seconds": 0.1,
            }
            writers[-1].write(json.dumps({"type": "rank", "node": "", "m": row}).encode() + b"\n")
            await asyncio.sleep(0.1)

    await asyncio.gather(rows(), *(beats(i, writer) for i, writer in enumerate(writers)))


def _read(path: str) -> None:
    """Read datagrams for ever, as an agent does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(path)
        print("ready", flush=True)
        while True:
            listener.recv(65536)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["hub", n_, ranks_, beat_, token_]:
            asyncio.run(_hub(int(n_), int(ranks_), float(beat_), token_))
        case ["crowd", n_, ranks_, beat_, token_, port_]:
            asyncio.run(_crowd(int(n_), int(ranks_), float(beat_), token_, int(port_)))
        case ["read", path_]:
            _read(path_)
        case _:
            print(json.dumps({**measure_agents(), **measure_calls(), **measure_views(), "limits": LIMITS}))
