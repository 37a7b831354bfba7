"""What relight's own work costs: the journal of a long run, a look at 5,120 ranks, a seal, the command's start.

Everything is measured on this machine; the run is that of `long_run.py`.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import xxhash

from policies.facts import CheckpointPhase, FaultClass, RankExit
from policies.history import History
from policies.rules import Rules
from supervisor.bench import fake_saves
from supervisor.bench.long_run import LAYOUT, long_run, view_of
from supervisor.checkpoints.store import PosixStore
from supervisor.fold import fold_all
from supervisor.journal import entries as e
from supervisor.journal.journal import Journal, read
from supervisor.tick import tick


def measure_journal(folder: str, count: int = 20_000, singles: int = 500) -> dict[str, float]:
    """Write the journal of a long run and recover from it.

    Milliseconds of an append with its fsync (p50, p99, over `singles` single entries), seconds to read and fold all
    `count` entries (median of 3), megabytes on disk.
    """
    written = long_run(count)
    journal, _ = Journal.begin(folder, time.time, "bench", os.getpid())
    taken = []
    for at, entry in enumerate(written[:singles]):
        began = time.perf_counter()
        journal.append([entry], float(at))
        taken.append(time.perf_counter() - began)
    for first in range(singles, count, 200):
        journal.append(written[first : first + 200], float(first))
    journal.close()

    def recover() -> None:
        history = fold_all(History(), read(folder))
        if len(history.attempts) < count // 500:
            raise RuntimeError(f"the journal of {count} entries gives {len(history.attempts)} attempts")

    size = sum(entry.stat().st_size for entry in os.scandir(folder))
    return {
        "append_p50_ms": statistics.median(taken) * 1e3,
        "append_p99_ms": sorted(taken)[int(0.99 * len(taken))] * 1e3,
        "recovery_s": statistics.median(_seconds(recover) for _ in range(3)),
        "size_mb": size / 1e6,
        "entries": count,
    }


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def measure_ticks(count: int = 20_000, repeats: int = 5) -> dict[str, float]:
    """Milliseconds of one tick (median) late in a long run: all is well; at acceptance; when every rank has died."""
    entries = long_run(count)
    last = max(i for i, entry in enumerate(entries) if isinstance(entry, e.CaughtUp))
    history = fold_all(History(), (e.Stamped(i, 1, float(i), entry) for i, entry in enumerate(entries[: last + 1])))
    now = float(count)
    view = view_of(history, now)
    rules = Rules(mode="auto", cleared=frozenset(FaultClass))
    waiting = replace(history, attempts=(*history.attempts[:-1], replace(history.attempts[-1], accepted_at=None)))
    shown = view.attempt
    assert shown is not None  # noqa: S101 - made so above
    dead = tuple(
        RankExit(r, shown.loaded[r].node, shown.number, now + r / 5120, signal=9 if r == 3338 else 6)
        for r in range(LAYOUT.world)
    )
    worlds = {
        "calm": (history, view, None),
        "acceptance": (waiting, view, e.AttemptAccepted),
        "cascade": (history, replace(view, attempt=replace(shown, exits=dead)), e.IncidentOpened),
    }
    told = {}
    for name, (past, seen, wanted) in worlds.items():
        turn = tick(past, seen, LAYOUT, rules, now + 1)
        if wanted is not None and not any(isinstance(entry, wanted) for entry in turn.entries):
            raise RuntimeError(f"{name}: the tick notes {[type(entry).__name__ for entry in turn.entries]}")
        once = [_seconds(lambda: tick(past, seen, LAYOUT, rules, now + 1)) for _ in range(repeats)]  # noqa: B023
        told[f"tick_{name}_ms"] = statistics.median(once) * 1e3
    return told


def measure_seal(folder: str, megabytes: int = 256, ranks: int = 8, repeats: int = 3) -> dict[str, float]:
    """MB/s of a seal of one save in shards of `ranks` ranks, beside those of one thread that reads and sums the same files."""
    block = os.urandom(1 << 20)
    sealing, reading = [], []
    for number in range(1, repeats + 1):
        store = PosixStore(os.path.join(folder, str(number)), ranks, lambda: time.time() + 3600, settle_s=0.0)
        store.create()
        path = _write_save(store, block, megabytes // ranks, ranks)
        reading.append(megabytes * 1.048576 / _seconds(lambda: _sum_all(path)))  # noqa: B023
        began = time.perf_counter()
        state = store.seal("a0001-i0000040")
        sealing.append(megabytes * 1.048576 / (time.perf_counter() - began))
        if state.phase is not CheckpointPhase.COMPLETED:
            raise RuntimeError(f"the save of the bench is {state.phase.value}: {'; '.join(state.reasons)}")
        shutil.rmtree(os.path.join(folder, str(number)))
    return {"seal_mb_s": statistics.median(sealing), "read_mb_s": statistics.median(reading), "seal_mb": megabytes}


def _write_save(store: PosixStore, block: bytes, blocks: int, ranks: int) -> str:
    """What `ranks` ranks would leave, each a shard of `blocks` x 1 MiB. The shards differ, so no sum is that of another."""
    path = os.path.join(store.save_dir(1), "iter_0000040")
    size = blocks << 20
    fake_saves.write(
        path,
        [
            fake_saves.Chunk(
                "w", "uint8", (ranks * size,), (r * size,), (size,), f"__{r}_0.distcp", (block[r:] + block[:r]) * blocks
            )
            for r in range(ranks)
        ],
    )
    os.makedirs(os.path.join(path, "relight"))
    for rank in range(ranks):
        name = f"__{rank}_0.distcp"
        file = os.open(os.path.join(path, name), os.O_RDONLY)
        os.fsync(file)  # what is still on its way to the disk would be paid for by whoever reads next
        sidecar: dict[str, object] = {
            "schema": 1,
            "rank": rank,
            "tp": rank,
            "pp": 0,
            "dp": 0,
            "step": 40,
            "samples": 320,
            "updates": 40,
        }
        sidecar |= {"skipped": 0, "lr": 1e-3, "digest": f"{rank:032x}", "next": [320, 8, "abc"], "data_version": "v1"}
        sidecar |= {"attempt": 1, "files": {name: os.fstat(file).st_size}, "wall": 1.0}
        os.close(file)
        with open(os.path.join(path, "relight", f"rank_{rank:05d}.json"), "w", encoding="utf-8") as text:
            json.dump(sidecar, text)
    return path


def _sum_all(path: str) -> None:
    view = memoryview(bytearray(1 << 20))
    for name in sorted(os.listdir(path)):
        if name.endswith(".distcp"):
            digest = xxhash.xxh3_128()
            with open(os.path.join(path, name), "rb", buffering=0) as file:
                while count := file.readinto(view):
                    digest.update(view[:count])


def measure_help(repeats: int = 10) -> dict[str, float]:
    """Seconds of `relight --help`, beside an interpreter that does nothing (medians)."""
    script = os.path.join(os.path.dirname(sys.executable), "relight")
    relight = [script] if os.path.exists(script) else [sys.executable, "-m", "supervisor"]

    def run(command: list[str]) -> float:
        return _seconds(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))

    pairs = [(run([*relight, "--help"]), run([sys.executable, "-c", "pass"])) for _ in range(repeats)]
    return {"help_s": statistics.median(p[0] for p in pairs), "python_s": statistics.median(p[1] for p in pairs)}
