"""One line of a log -> what it means. The table is data: see `table.py`."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from supervisor.evidence.engine import ROWS_AT_MOST, Engine, engine
from supervisor.evidence.table import Blames, Role, Signature, table

LONGEST: Final = 4096
"""Characters of a line that are looked at. A progress bar can put a whole epoch on one line."""

TEXT: Final = 512
"""Characters of a line that are kept."""

WORTH: Final = 2000
"""Lines after which the engine's start (0.6 s) costs less than `re` has (0.1 to 1 ms a line)."""

_ANSI: Final = re.compile(r"\x1b(?:\[[0-9;?]{0,16}[ -/]?[@-~]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)?|[@-Z\\-_])")
_WORDS: Final = ("log", "MESSAGE", "message", "msg")
_HOSTS: Final = ("_HOSTNAME", "hostname", "host", "node", "node_name")
_RANKS: Final = ("global_rank", "rank")
_RAISED: Final = ("exc_info", "exception", "stack_trace", "traceback")
_TIMES: Final = ("time", "timestamp", "ts", "@timestamp", "asctime", "datetime")
_PROGRAM: Final = "kernel: "
"""What stands for the program that spoke, so that the host before it is read as in a kernel's log."""

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Match:
    """A line that means something: our name for it, its part in the story, its category, whom it points at."""

    kind: str
    role: Role
    category: str
    blames: Blames
    text: str
    grade: int = 2
    restart: bool = True
    pid: int | None = None  # the process that the line names, where it names one
    peer: str | None = None  # the node that it speaks of
    seq: int | None = None  # the collective that it waited in
    op: str = ""  # its kind, as NCCL names it: ALLREDUCE


def uncoloured(text: str) -> str:
    """The text without a terminal's escape sequences; its lines stay."""
    return _ANSI.sub("", text) if "\x1b" in text else text


def clean(line: str) -> str:
    """The line without colours and controls. What a carriage return would have overwritten stays, as words apart."""
    return _CONTROL.sub(" ", uncoloured(line))


def unwrapped(line: str) -> str:
    """A line that a collector of logs has put into JSON (docker, journald, fluentd), as it was: time, host, words."""
    if not line.startswith("{") or '"' not in line[:4]:
        return line
    try:
        given = json.loads(line)
    except (ValueError, RecursionError):
        return line
    words = (
        next((given[name] for name in _WORDS if isinstance(given.get(name), str)), None)
        if isinstance(given, dict)
        else None
    )
    if words is None:
        return line
    raised = next((given[name] for name in _RAISED if isinstance(given.get(name), str)), words)
    if "Traceback (most recent call last)" in raised:
        words = raised.rstrip().rsplit("\n", 1)[-1]
    host = next((given[name] for name in _HOSTS if isinstance(given.get(name), str)), "")
    rank = next((given[name] for name in _RANKS if type(given.get(name)) is int), None)
    told = _told_time(given)
    if rank is not None:
        return f"{host and host + ': '}[rank{rank}]: {told and f'[{told.strip()}] '}{words.rstrip()}"
    return f"{told}{host and f'{host} {_PROGRAM}'}{words.rstrip()}"


def _told_time(given: dict[str, object]) -> str:
    since = given.get("__REALTIME_TIMESTAMP")  # journald: microseconds since 1970
    if isinstance(since, str) and since.isdecimal() and len(since) < 18:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ ", time.gmtime(int(since) // 1_000_000))
    return next(
        (f"{given[name]} " for name in _TIMES if isinstance(given.get(name), str)),
        "",
    )


def fit(line: str, rows: Sequence[Signature]) -> tuple[Signature, re.Match[str]] | None:
    """The first of the rows that a cleaned line fits."""
    for row in rows:
        match = row.pattern.search(line)
        if match is not None:
            return row, match
    return None


class Scanner:
    """Lines one by one, as they are written: `re` at first, the engine once it is worth its start (0.6 s, 20 MB)."""

    def __init__(self, rows: Sequence[Signature] | None = None, worth: int = WORTH) -> None:
        self._rows = table() if rows is None else rows
        self._left = worth
        self._engine: Engine | None = None

    def scan(self, line: str) -> Match | None:
        """What this line means, or None. The line that makes the engine worth it waits for its start."""
        if self._engine is None and self._left <= 0:
            self._engine = engine(self._rows)
        self._left -= 1
        line = unwrapped(clean(line[:LONGEST]))
        rows = self._rows
        if self._engine is not None:
            rows = [
                rows[hit % ROWS_AT_MOST] for hit in sorted({h % ROWS_AT_MOST for h in self._engine.scan(line.encode())})
            ]
        return _match(line, rows)


def scan(line: str) -> Match | None:
    """What this line means, or None. Lines are judged alone; a traceback is known by its last line."""
    return _match(unwrapped(clean(line[:LONGEST])), table())


def _match(line: str, rows: Sequence[Signature]) -> Match | None:
    found = fit(line, rows)
    if found is None:
        return None
    row, match = found
    said = {name.rstrip("0123456789"): value for name, value in match.groupdict().items() if value}
    pid, seq = (int(said[name]) if said.get(name, "").isdecimal() else None for name in ("pid", "seq"))
    text = line.strip()[:TEXT]
    return Match(
        row.kind,
        row.role,
        row.category,
        row.blames,
        text,
        row.grade,
        row.restart,
        pid,
        said.get("peer"),
        seq,
        said.get("op", ""),
    )
