"""How long a commit takes: the documents that seal one save, durable, beside the plain file writes that it can't do without.

A commit is a manifest and a mark, each put if absent, then the completed list and the pointer, each put if version.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from supervisor import durable
from supervisor.bench import s3_server
from supervisor.bench.figure import Figure
from supervisor.bench.store_trials import WITHIN_S, Open
from supervisor.checkpoints.objects.opening import open_objects
from supervisor.checkpoints.objects.port import Found, Objects, Written
from supervisor.checkpoints.objects.posix import PosixObjects
from supervisor.errors import UserError

COMMITS = 50
MANIFEST = os.urandom(2_000_000)
"""About what a manifest of 5,120 ranks and as many files has (manifest.MANIFEST_LIMIT)."""
MARK = b"x" * 200
LIST = b"x" * 2_000


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds of one commit: median, and the 95th of 100."""

    median_ms: float
    p95_ms: float


def commit_latency(open_: Open, commits: int = COMMITS) -> Latency:
    """Seal so many saves, one after the other. Raises UserError when the store does not take one."""
    store = open_()
    store.make(within_s=WITHIN_S)
    for key in ("completed", "latest"):
        store.put_if_absent(key, LIST, within_s=WITHIN_S)
    return _latency(partial(_commit, store), commits)


def plain_latency(folder: str, commits: int = COMMITS) -> Latency:
    """The same four documents as plain files: written aside, synced, linked or renamed, the folder synced."""

    def write(number: int) -> None:
        made = os.path.join(folder, str(number))
        os.mkdir(made)
        durable.create_whole(os.path.join(made, "manifest"), MANIFEST)
        durable.create_whole(os.path.join(made, "COMMITTED"), MARK)
        durable.replace_whole(os.path.join(folder, "completed"), LIST)
        durable.replace_whole(os.path.join(folder, "latest"), MARK)

    return _latency(write, commits)


def _commit(store: Objects, number: int) -> None:
    seal = f"seals/a0001-i{number:07d}"
    done = [
        store.put_if_absent(f"{seal}/manifest", MANIFEST, within_s=WITHIN_S),
        store.put_if_absent(f"{seal}/COMMITTED", MARK, within_s=WITHIN_S),
    ]
    for key, data in (("completed", LIST), ("latest", MARK)):
        there = store.get(key, within_s=WITHIN_S)
        if isinstance(there, Found):
            done.append(store.put_if_version(key, data, there.version, within_s=WITHIN_S))
    if len(done) != 4 or not all(isinstance(one, Written) for one in done):
        raise UserError(f"the store did not take a commit: {done}")


def _latency(commit: Callable[[int], None], commits: int) -> Latency:
    took = []
    for number in range(commits):
        began = time.perf_counter()
        commit(number)
        took.append((time.perf_counter() - began) * 1e3)
    return Latency(statistics.median(took), statistics.quantiles(took, n=20)[-1])


def figures(folder: str | None = None) -> list[Figure]:
    """On a file system (below `folder`) beside plain files, and on moto's server where there is one: told, not judged.

    A server in Python on loopback says what our own part costs, not how far away a real one is.
    """
    with tempfile.TemporaryDirectory(dir=folder) as here:
        plain = os.path.join(here, "plain")
        os.mkdir(plain)
        ours = commit_latency(partial(PosixObjects, os.path.join(here, "store"), lag_s=0.0))
        theirs = plain_latency(plain)
    beside = {"p95 ms": ours.p95_ms, "plain files ms": theirs.median_ms, "plain files p95 ms": theirs.p95_ms}
    found = [Figure("commit, POSIX", ours.median_ms, "ms", beside=beside)]
    if s3_server.has_moto():
        with s3_server.s3_server() as server:
            remote = commit_latency(partial(open_objects, server.url("latency"), server.config))
        found.append(Figure("commit, S3 on loopback", remote.median_ms, "ms", beside={"p95 ms": remote.p95_ms}))
    return found
