"""The files of an attempt in the run directory: marks, the map, exit records, evidence, step rows."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

import structlog

from policies.facts import StepRow
from supervisor.durable import create_whole, show_whole
from supervisor.rundir import RunDir
from supervisor.step_rows import StepFile, read_rows

TAIL_BYTES = 65_536
"""How much of the end of each rank's log is copied into an incident."""


class RunFiles:
    """`ports.AttemptFiles` in the run directory."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._steps = StepFile(run)

    def mark(self, attempt: int, name: str) -> None:
        """Set FENCED or STOP."""
        os.makedirs(self._run.attempt(attempt), mode=0o700, exist_ok=True)
        create_whole(self._run.attempt(attempt, name), b"")

    def marked(self, attempt: int, name: str) -> bool:
        """Is the mark there?"""
        return os.path.exists(self._run.attempt(attempt, name))

    def write_map(self, attempt: int, launch: Mapping[str, Any], hosts: tuple[str, ...]) -> None:
        """Hostfile first, launch.json last: whoever sees the map sees all of it."""
        folder = self._run.attempt(attempt)
        for name in ("", "exit", "logs", "pids", "evidence"):
            os.makedirs(os.path.join(folder, name), mode=0o700, exist_ok=True)
        create_whole(os.path.join(folder, "hostfile"), "".join(f"{h}\n" for h in hosts).encode())
        create_whole(os.path.join(folder, "launch.json"), json.dumps(dict(launch)).encode())

    def has_exits(self, attempt: int) -> bool:
        """Has any rank left an exit record?"""
        try:
            return any(name.endswith(".json") for name in os.listdir(self._run.attempt(attempt, "exit")))
        except OSError:
            return False

    def keep_evidence(self, incident: int, attempt: int) -> int:
        """Exit records, stacks and the ends of the logs."""
        target = self._run.incident(incident, "evidence")
        os.makedirs(os.path.join(target, "logs"), mode=0o700, exist_ok=True)
        for name in ("exit", "evidence"):
            source = self._run.attempt(attempt, name)
            if os.path.isdir(source):
                shutil.copytree(source, os.path.join(target, name), dirs_exist_ok=True)
        kept = 0
        logs = self._run.attempt(attempt, "logs")
        for name in sorted(os.listdir(logs)) if os.path.isdir(logs) else ():
            with open(os.path.join(logs, name), "rb") as log, open(os.path.join(target, "logs", name), "wb") as copy:
                log.seek(max(0, os.fstat(log.fileno()).st_size - TAIL_BYTES))
                copy.write(log.read(TAIL_BYTES))
                kept += 1
        return kept

    def keep_seen(self, incident: int, document: Mapping[str, Any]) -> None:
        """`incidents/NNNN/seen.json`."""
        try:
            os.makedirs(self._run.incident(incident), mode=0o700, exist_ok=True)
            show_whole(self._run.incident(incident, "seen.json"), json.dumps(document).encode())
        except OSError as error:
            structlog.get_logger().warning("seen.json not written", incident=incident, why=str(error))

    def rows(self, attempt: int, after: int = 0) -> Iterator[StepRow]:
        """The step rows that were written of an attempt."""
        return read_rows(self._run, attempt, after)

    def write_rows(self, rows: list[StepRow]) -> None:
        """Append step rows."""
        self._steps.write(rows)

    def close(self) -> None:
        """Close the open row file."""
        self._steps.close()
