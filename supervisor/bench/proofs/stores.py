"""Stores under load, from many processes: no read is torn, of sixteen writers one wins, a killed writer leaves no half."""

from __future__ import annotations

import multiprocessing
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial

from supervisor.bench import store_trials as trials
from supervisor.bench.careless import CheckThenWrite, InPlace, PlainFiles
from supervisor.bench.proofs.work import Work
from supervisor.bench.s3_server import s3_server
from supervisor.checkpoints.objects.opening import open_objects
from supervisor.checkpoints.objects.posix import PosixObjects

READS = 100_000
READS_DISK = 10_000
READS_S3 = 5_000
"""moto answers about 500 requests a second; each read is one."""
READERS = 4
WRITERS = 16
LEAST_REWRITES = 100
ROUNDS = 50
ROUNDS_S3 = 20
KILLS = 20
PLANTED_READS = 20_000


def prove(work: Work) -> None:
    """POSIX with all it takes, S3 on moto's server with less, and careless stores that must be found out."""
    posix = partial(PosixObjects, work.path("posix"), lag_s=0.0)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(READERS, mp_context=context) as pool, _memory(work) as memory:
        _reads(work, "POSIX in memory", partial(PosixObjects, memory, lag_s=0.0), READS, pool)
        _reads(work, "POSIX", posix, READS_DISK, pool)
        _races(work, "POSIX", posix, ROUNDS, pool)
        _kills(work, posix)
        with s3_server() as server:
            remote = partial(open_objects, server.url("proof"), server.config)
            _reads(work, "S3", remote, READS_S3, pool)
            _races(work, "S3", remote, ROUNDS_S3, pool)
        _planted(work, pool)


@contextmanager
def _memory(work: Work) -> Iterator[str]:
    """A folder where a rewrite waits for no disk, so that there are many of them: what is torn does not depend on it."""
    shared = "/dev/shm"  # noqa: S108 - a fresh folder of our own in it
    within = shared if os.access(shared, os.W_OK) else work.folder
    with tempfile.TemporaryDirectory(prefix="relight-", dir=within) as folder:
        yield folder


def _reads(work: Work, name: str, open_: trials.Open, reads: int, pool: ProcessPoolExecutor) -> None:
    seen = trials.reads_during_rewrites(open_, reads, READERS, pool, LEAST_REWRITES)
    work.measured[f"{name} reads"] = {"reads": seen.reads, "rewrites": seen.rewrites, "seen by one reader": seen.seen}
    work.check(
        f"{name}: {seen.reads:,} reads by {READERS} processes during {seen.rewrites:,} rewrites: "
        f"{seen.torn} torn, {seen.unsure} without an answer, {seen.backwards} backwards{': ' if seen.why else ''}{seen.why}",
        ok=seen.good and seen.reads >= reads and seen.rewrites >= LEAST_REWRITES,
    )


def _races(work: Work, name: str, open_: trials.Open, rounds: int, pool: ProcessPoolExecutor) -> None:
    for replace, what in ((False, "put if absent"), (True, "put if version")):
        races = trials.race(open_, rounds, WRITERS, replace=replace, processes=True)
        good = sum(one.good and one.refused == WRITERS - 1 for one in races)
        work.check(f"{name}: {what}: {WRITERS} writers, {rounds} races: one wins, {good} times", ok=good == rounds)
    added, there = trials.count_up(open_, READERS, rounds, pool)
    work.check(
        f"{name}: {READERS} processes count to {added} by compare and swap", ok=added == there == READERS * rounds
    )


def _kills(work: Work, open_: trials.Open) -> None:
    good, last = trials.kill_writers(open_, KILLS, random.Random(work.seed))
    work.measured["generations by killed writers"] = last
    work.check(f"POSIX: {KILLS} writers are killed: what was written is there, whole, {good} times", ok=good == KILLS)


def _planted(work: Work, pool: ProcessPoolExecutor) -> None:
    seen = trials.reads_during_rewrites(partial(InPlace, work.path("in-place")), PLANTED_READS, READERS, pool)
    work.check(f"planted: a store that rewrites in place is found out: {seen.torn} torn reads", ok=seen.torn > 0)
    good, _ = trials.kill_writers(partial(InPlace, work.path("killed")), KILLS, random.Random(work.seed))
    work.check(f"planted: and its half documents after a kill: {KILLS - good} of {KILLS}", ok=good < KILLS)
    kinds: tuple[tuple[Callable[[str], PlainFiles], bool, str], ...] = (
        (CheckThenWrite, False, "a put if absent that looks, then writes"),
        (PlainFiles, True, "a put if version that looks, then replaces"),
    )
    for kind, replace, what in kinds:
        open_ = partial(kind, work.path("looks-first", str(replace)))
        races = trials.race(open_, ROUNDS, WRITERS, replace=replace, processes=True)
        several = sum(len(one.winners) > 1 for one in races)
        work.check(f"planted: {what} is found out: several won in {several} of {ROUNDS} races", ok=several > 0)
