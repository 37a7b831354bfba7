"""The files of an attempt that everybody sees, in memory: marks, the map, exit records, step rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from policies.facts import StepRow
from supervisor.bench.world.timeline import Timeline


class SimFiles:
    """`ports.AttemptFiles`; it outlives the controllers."""

    def __init__(self, time: Timeline, world: int) -> None:
        self.marked_at: dict[tuple[int, str], float] = {}
        self._time = time
        self.maps: dict[int, dict[str, Any]] = {}
        self.exits: dict[int, set[int]] = {}
        self.kept: dict[int, int] = {}
        self._rows: dict[int, list[StepRow]] = {}
        self._world = world

    def mark(self, attempt: int, name: str) -> None:
        """Set FENCED or STOP."""
        self.marked_at.setdefault((attempt, name), self._time.now)

    def marked(self, attempt: int, name: str) -> bool:
        """Is the mark there?"""
        return (attempt, name) in self.marked_at

    def write_map(self, attempt: int, launch: Mapping[str, Any], hosts: tuple[str, ...]) -> None:  # noqa: ARG002
        """What stands there already stays."""
        self.maps.setdefault(attempt, dict(launch))

    def has_exits(self, attempt: int) -> bool:
        """Has any rank left a record?"""
        return bool(self.exits.get(attempt))

    def keep_evidence(self, incident: int, attempt: int) -> int:
        """How many ranks have logs."""
        kept = self._world if attempt in self.maps else 0
        self.kept[incident] = kept
        return kept

    def keep_seen(self, incident: int, document: Mapping[str, Any]) -> None:
        """Nobody reads it here."""

    def rows(self, attempt: int, after: int = 0) -> Iterable[StepRow]:
        """The rows that were written."""
        return [row for row in self._rows.get(attempt, ()) if row.step > after]

    def write_rows(self, rows: list[StepRow]) -> None:
        """Append rows."""
        for row in rows:
            self._rows.setdefault(row.attempt, []).append(row)

    def why_refused(self, attempt: int) -> str | None:
        """What the shim of a rank finds before it starts it (docs/contracts.md, section 2)."""
        if self.marked(attempt, "FENCED"):
            return f"attempt {attempt} is fenced"
        newer = max(self.maps, default=0)
        return f"attempt {newer} has been launched" if newer > attempt else None
