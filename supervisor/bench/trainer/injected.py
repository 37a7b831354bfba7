"""Faults that a person injects into a run of the trainer (`relight bench inject`). Standard library only.

One file a fault in `RUN/inject/`. A rank looks at the folder's time at each step, and reads it only when that is new. What
fires once leaves a mark beside its file before it fires, so that the next attempt is spared; a poisoned sample stays poisoned.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from dataclasses import replace
from typing import Final

from supervisor.bench.trainer.options import Fail
from supervisor.durable import create_whole

KINDS: Final = ("exception", "nan", "hang", "exit3", "sigkill")
FRESH_S: Final = 2.0
"""A folder changed so short a time ago may change again within the same tick of its file system's clock."""
_MOST: Final = 1000
"""So many files are read; more are none of ours."""


def file(run_dir: str, kind: str, step: int, rank: int, now: float) -> str:
    """Leave a fault for the ranks to find; the file's name. Raises OSError."""
    os.makedirs(os.path.join(run_dir, "inject"), mode=0o700, exist_ok=True)
    name = f"{int(now * 1000):014d}-{secrets.token_hex(4)}.json"
    fault = {"schema": 1, "kind": kind, "step": step, "rank": rank}
    create_whole(os.path.join(run_dir, "inject", name), json.dumps(fault).encode())
    return name


class Inbox:
    """What was injected into the run; `run_dir` is empty outside relight, and then there is never anything."""

    def __init__(self, run_dir: str) -> None:
        self._folder = os.path.join(run_dir, "inject") if run_dir else ""
        self._seen: set[str] = set()
        self._time = -1

    def fresh(self) -> list[Fail]:
        """The faults that have come since the last look and have not fired. A file that makes no sense is left alone."""
        if not self._changed():
            return []
        names = sorted(os.listdir(self._folder))[:_MOST]
        here = set(names)
        wanted = [n for n in names if n.endswith(".json") and n not in self._seen]
        self._seen.update(wanted)
        found = (_read(os.path.join(self._folder, n)) for n in wanted if f"{n}.fired" not in here)
        return [fail for fail in found if fail is not None]

    def _changed(self) -> bool:
        try:
            changed = os.stat(self._folder).st_mtime_ns if self._folder else -1
        except OSError:
            return False
        if changed == self._time:
            return False
        if time.time() - changed / 1e9 > FRESH_S:
            self._time = changed
        return changed != -1


def claim(fail: Fail) -> bool:
    """Mark it as fired; False when it has been. Raises OSError."""
    try:
        os.close(os.open(f"{fail.source}.fired", os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return False
    return True


def _read(path: str) -> Fail | None:
    try:
        with open(path, "rb") as opened:
            raw = json.loads(opened.read(4096))
        kind, step, rank = raw["kind"], raw["step"], raw["rank"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    if kind not in KINDS or type(step) is not int or type(rank) is not int:
        return None
    return replace(Fail(kind, step, rank), source=path)
