"""Logs of a 5,120-rank job, made up, with a share of candidate lines that is known: `python -m supervisor.bench.logs FOLDER`.

The lines are of the kinds that NCCL, Megatron-LM and torch print. One rank fails, then others time out, so that what is
found in them can be told right from wrong.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from typing import Final

RANKS: Final = 5120
PER_NODE: Final = 8
START: Final = datetime(2026, 11, 30, 10, 0, tzinfo=UTC)

_PLAIN: Final = 93
_TIMEOUT: Final = 256
"""Bytes of an average line of each kind, to share a size out."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How the logs look: bytes in all, files, and the share of lines that are candidates for the engine.

    With a small share only some ranks say where they run, and only some time out; with a large one they do so again and
    again.
    """

    size: int
    files: int
    share: float
    guilty: int = 3338

    @property
    def node(self) -> str:
        """Where the guilty rank runs."""
        return f"n{self.guilty // PER_NODE:04d}"


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


def _placing(rank: int) -> str:
    """A line that says which rank runs where."""
    place = f"n{rank // PER_NODE:04d}:{400000 + rank}:{600000 + rank} [{rank % PER_NODE}]"
    size = f"nRanks {RANKS} nNodes {RANKS // PER_NODE} localRanks {PER_NODE} localRank {rank % PER_NODE} MNNVL 0"
    return f"{place} NCCL INFO comm 0x55d0c0de0000 rank {rank} {size}"


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
    room = shape.size / shape.files
    wanted = max(2, int(shape.share * room / (_PLAIN + shape.share * (_TIMEOUT - _PLAIN))))
    heads = min(each, wanted // 2)
    placed = set(ranks[:: -(-each // heads)]) | ({shape.guilty} & set(ranks))
    if file == 0:
        yield f"SLURM_JOB_NODELIST=n[0000-{RANKS // PER_NODE - 1:04d}]"
        yield f"SLURM_NTASKS_PER_NODE={PER_NODE} WORLD_SIZE={RANKS}"
    for rank in sorted(placed):
        yield _placing(rank)
    late = wanted - len(placed)
    last = 0.0
    for number in range(max(1, int((room - wanted * _TIMEOUT) / _PLAIN))):
        step = 1 + number // each
        last = 2.0 * step
        if file == 0 and number % each == 0:
            told = f"consumed samples: {step * 5120:12d} | lm loss: 2.1E+00 | grad norm: 0.2 |"
            yield f" [{_stamp(last)}] iteration {step:8d}/  500000 | {told}"
        yield _plain(ranks[number % each], step, chance)
    if shape.guilty in ranks:
        yield f"[rank{shape.guilty}]: Traceback (most recent call last):"
        yield f'[rank{shape.guilty}]:   File "/app/train.py", line 301, in train_step'
        yield f"[rank{shape.guilty}]: torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"
    victims = [rank for rank in ranks[:: max(1, each // max(1, late))] if rank != shape.guilty]
    for number, rank in enumerate(islice(cycle(victims), late)):
        yield _timeout(rank, last + 600 + number // each)


@dataclass(frozen=True, slots=True)
class Made:
    """What was written."""

    bytes: int
    lines: int


def make(folder: str, shape: Shape) -> Made:
    """Write the logs into `folder`, and onto the disk: the system would else write while something is measured."""
    size = count = 0
    for file in range(shape.files):
        with open(os.path.join(folder, f"slurm-8123_{file}.out"), "w", encoding="utf-8", buffering=1 << 20) as out:
            for line in lines(shape, file):
                out.write(line + "\n")
                count += 1
            size += out.tell()
            out.flush()
            os.fsync(out.fileno())
    return Made(size, count)


def main(argv: Sequence[str]) -> int:
    """Write the logs into a new folder, for a look at them or for another tool."""
    parser = argparse.ArgumentParser(prog="supervisor.bench.logs", description="Logs of a job of 5,120 ranks.")
    parser.add_argument("folder", help="where they go; it must not be there")
    parser.add_argument("--mb", type=int, default=400, help="size in all (%(default)s)")
    parser.add_argument("--files", type=int, default=64, help="files (%(default)s); 1: all ranks in one")
    parser.add_argument("--share", type=float, default=0.2, help="of lines that are candidates (%(default)s)")
    given = parser.parse_args(argv)
    os.makedirs(given.folder)
    made = make(given.folder, Shape(given.mb * 1_000_000, given.files, given.share))
    print(f"{made.bytes} bytes, {made.lines} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
