"""Logs of a 5,120-rank job, made up, and how fast the earliest error is found in them: `python -m supervisor.bench.logs`.

Against ripgrep with the same expressions in one alternation, where it is installed. The lines are of the kinds that NCCL,
Megatron-LM and torch print; one rank fails, then the others time out, and that is known, so the answer is checked too.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

RANKS: Final = 5120
PER_NODE: Final = 8
START: Final = datetime(2026, 11, 30, 10, 0, tzinfo=UTC)
MEMORY_LIMIT_MB: Final = 150
"""The project's limit on the peak memory of `relight diagnose`."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How the logs look: bytes in all, files, and the share of lines that are candidates for the engine."""

    size: int
    files: int
    dense: bool
    guilty: int = 3338


def _stamp(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%S.%f")


def _plain(rank: int, step: int, chance: random.Random) -> str:
    """A line that means nothing to a diagnosis."""
    node, local = rank // PER_NODE, rank % PER_NODE
    if chance.random() < 0.2:
        shard = chance.randrange(997)
        what = f"worker {step % 4} of {rank}: fetched /data/shard_{shard:04d}.bin"
        return f"{_stamp(2.0 * step)} [INFO] {what} in {shard / 31:.1f} ms"
    peer = (rank + 1) % RANKS
    place = f"n{node:04d}:{400000 + rank}:{500000 + rank} [{local}]"
    way = f"{rank}[{local}] -> {peer}[{peer % PER_NODE}] via P2P/CUMEM/read"
    return f"{place} NCCL INFO Channel {step % 16:02d}/0 : {way} it={step}"


def _timeout(rank: int, seconds: float) -> str:
    when = (START + timedelta(seconds=seconds)).strftime("E%m%d %H:%M:%S.%f").replace("E0", "E")
    return (
        f"[rank{rank}]:[{when}000 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum=4242, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=600000) "
        f"ran for {600000 + rank % 97} milliseconds before timing out."
    )


def lines(shape: Shape, file: int) -> Iterator[str]:
    """The lines of one file, which holds the ranks of RANKS / files one after the other."""
    chance = random.Random(file)
    each = RANKS // shape.files
    ranks = range(file * each, (file + 1) * each)
    room = shape.size // shape.files
    for rank in ranks:
        yield f"n{rank // PER_NODE:04d}:{400000 + rank}:{400000 + rank} [{rank % PER_NODE}] NCCL INFO cudaDriverVersion 13000"
    written = step = 0
    last = 0.0
    while written < room * (0.8 if shape.dense else 0.98):
        step += 1
        last = 2.0 * step
        if file == 0:
            told = f"consumed samples: {step * 5120:12d} | lm loss: 2.1E+00 | grad norm: 0.2 |"
            yield f" [{_stamp(last)}] iteration {step:8d}/  500000 | {told}"
        for rank in ranks:
            line = _plain(rank, step, chance)
            written += len(line) + 1
            yield line
    if shape.guilty in ranks:
        yield f"[rank{shape.guilty}]: Traceback (most recent call last):"
        yield f'[rank{shape.guilty}]:   File "/app/train.py", line 301, in train_step'
        yield f"[rank{shape.guilty}]: torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"
    again = 0
    while again == 0 or (shape.dense and written < room):
        for rank in ranks:
            if rank != shape.guilty:
                line = _timeout(rank, last + 600 + again)
                written += len(line) + 1
                yield line
        again += 1


def make(folder: str, shape: Shape) -> int:
    """Write the logs; the number of bytes written."""
    total = 0
    for file in range(shape.files):
        path = os.path.join(folder, f"slurm-8123_{file}.out")
        with open(path, "w", encoding="utf-8", buffering=1 << 20) as out:
            out.writelines(line + "\n" for line in lines(shape, file))
            total += out.tell()
    return total


def _read(folder: str) -> dict[str, Any]:
    """One reading in a process of its own, so that its memory is its own."""
    code = "import sys; from supervisor.bench.logs import reading; reading(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def reading(folder: str) -> None:
    """Diagnose the folder and print the figures: seconds of CPU without the engine's start, peak MB, the answer."""
    from supervisor.evidence.folder import as_json, diagnose_folder  # noqa: PLC0415 - measured apart
    from supervisor.evidence.reading import Reader  # noqa: PLC0415

    began = time.process_time()
    reader = Reader()
    compiled = time.process_time()
    found = diagnose_folder(folder, reader=reader)
    ended = time.process_time()
    print(
        json.dumps(
            {
                "start_s": compiled - began,
                "cpu_s": ended - compiled,
                "bytes": found.size,
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                "answer": as_json(found)["first_error"],
            }
        )
    )


def ripgrep(folder: str) -> float | None:
    """Seconds of CPU of ripgrep with all expressions in one alternation, on one thread; None where it is not installed."""
    from supervisor.evidence.table import table  # noqa: PLC0415

    tool = shutil.which("rg")
    if tool is None:
        return None
    pattern = "|".join(f"(?:{row.find})" if row.case else f"(?i:{row.find})" for row in table())
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([tool, "-j1", "-a", "-c", "-e", pattern, folder], stdout=subprocess.DEVNULL, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def contest(size: int, folder: str) -> dict[str, Any]:
    """Both densities: MB/s of a core, beside ripgrep's, peak memory, and whether the answer is right."""
    out: dict[str, Any] = {"schema": 1}
    for name, dense in (("rare", False), ("dense", True)):
        place = tempfile.mkdtemp(dir=folder)
        try:
            shape = Shape(size, 64, dense)
            total = make(place, shape)
            ours = _read(place)
            theirs = ripgrep(place)
        finally:
            shutil.rmtree(place)
        answer = ours["answer"] or {}
        out[name] = {
            "mb": round(total / 1e6, 1),
            "mb_per_s": round(total / 1e6 / ours["cpu_s"], 1),
            "start_s": round(ours["start_s"], 2),
            "peak_mb": round(ours["peak_mb"], 1),
            "right": answer.get("rank") == shape.guilty and answer.get("node") == f"n{shape.guilty // PER_NODE:04d}",
            "ripgrep_mb_per_s": None if theirs is None else round(total / 1e6 / theirs, 1),
            "ratio": None if theirs is None else round(theirs / ours["cpu_s"], 2),
        }
    return out


def main(argv: Sequence[str]) -> int:
    """Print the figures as JSON. Exit code 0 when every answer is right and memory is within its limit, else 1."""
    parser = argparse.ArgumentParser(prog="supervisor.bench.logs", description="How fast the earliest error is found.")
    parser.add_argument("--mb", type=int, default=1000, help="size of each set of logs")
    parser.add_argument("--folder", default="build", help="where the logs are made, and removed again")
    given = parser.parse_args(argv)
    os.makedirs(given.folder, exist_ok=True)
    figures = contest(given.mb * 1_000_000, given.folder)
    print(json.dumps(figures, indent=1))
    good = all(one["right"] and one["peak_mb"] < MEMORY_LIMIT_MB for one in (figures["rare"], figures["dense"]))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
