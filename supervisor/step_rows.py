"""steps/aNNNN.jsonl: one row a step, appended by the controller. Read back after a restart, and to lay a replay over."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import partial
from itertools import takewhile
from math import isfinite
from typing import BinaryIO, Protocol, TypeVar

from policies.facts import Batch, FaultClass, Spans, StepRow
from policies.history import History
from policies.skipping import touches
from supervisor.rundir import RunDir

R = TypeVar("R")


def _path(run: RunDir, attempt: int) -> str:
    return run.path("steps", f"a{attempt:04d}.jsonl")


class StepFile:
    """The open file of the newest attempt. A torn last line (a crash in mid-write) is ended before the next row."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._attempt = 0
        self._file: BinaryIO | None = None

    def write(self, rows: list[StepRow]) -> None:
        """Append rows. Raises OSError."""
        for row in rows:
            if row.attempt != self._attempt or self._file is None:
                self._open(row.attempt)
            assert self._file is not None  # noqa: S101 - opened above
            self._file.write(json.dumps(asdict(row), separators=(",", ":")).encode() + b"\n")
        if rows and self._file is not None:
            self._file.flush()

    def _open(self, attempt: int) -> None:
        self.close()
        path = _path(self._run, attempt)
        self._file = open(path, "ab")  # noqa: SIM115 - closed by close()
        self._attempt = attempt
        if self._file.tell():
            with open(path, "rb") as file:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    self._file.write(b"\n")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def read_rows(run: RunDir, attempt: int, after: int = 0) -> Iterator[StepRow]:
    """The rows of an attempt with a step above `after`. A line that can't be understood is left out."""
    try:
        file = open(_path(run, attempt), "rb")  # noqa: SIM115 - closed below
    except FileNotFoundError:
        return
    with file:
        for line in file:
            try:
                raw = json.loads(line)
                step = int(raw["step"])
                if step <= after:
                    continue
                batch = raw.get("batch")
                yield StepRow(
                    attempt=attempt,
                    step=step,
                    samples=int(raw["samples"]),
                    updates=int(raw["updates"]),
                    skipped=int(raw["skipped"]),
                    loss=_number(raw.get("loss")),
                    lr=_number(raw.get("lr")),
                    grad_norm=_number(raw.get("grad_norm")),
                    seconds=float(raw["seconds"]),
                    at=float(raw["at"]),
                    batch=Batch(int(batch["first"]), int(batch["count"]), str(batch["hash"])) if batch else None,
                )
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
                continue


_NEAR = 65_536
"""Bytes below which reading on is as quick as halving again."""
LINE_MAX = 16_384


def offset_before(file: BinaryIO, step: int, step_of: Callable[[bytes], int | None]) -> int:
    """An offset at the start of a line, at or before the first row of `step`; found by halving, for rows stand in order."""
    low, high = 0, file.seek(0, os.SEEK_END)
    while high - low > _NEAR:
        middle = (low + high) // 2
        file.seek(middle)
        file.readline(LINE_MAX)
        at = file.tell()
        found = step_of(file.readline(LINE_MAX))
        if at >= high or found is None or found >= step:
            high = middle
        else:
            low = at
    return low


def window(
    run: RunDir, attempt: int, begin: int, end: int, row_of: Callable[[bytes], tuple[int, R] | None]
) -> Iterator[tuple[int, R]]:
    """(step, row) of one attempt for the steps begin..end, both included, as `row_of` reads a line; None: it can't be understood.

    The file is never read whole.
    """
    try:
        file = open(_path(run, attempt), "rb")  # noqa: SIM115 - closed below
    except OSError:
        return
    with file:
        file.seek(offset_before(file, begin, lambda line: row[0] if (row := row_of(line)) is not None else None))
        last = begin - 1
        while line := file.readline(LINE_MAX):
            row = row_of(line)
            if row is None or row[0] <= last:
                continue  # not wanted yet, or told twice
            if row[0] > end:
                return
            last = row[0]
            yield row


def losses_of(run: RunDir, attempt: int, begin: int, end: int) -> Iterator[tuple[int, float | None]]:
    """(step, loss) of one attempt for the steps begin..end, both included; None where the loss was no finite number."""
    return window(run, attempt, begin, end, _loss_of)


def _loss_of(line: bytes) -> tuple[int, float | None] | None:
    try:
        raw = json.loads(line)
        step, loss = int(raw["step"]), _number(raw.get("loss"))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return step, loss if loss is not None and isfinite(loss) else None


CONTROL = 0
"""steps/a0000.jsonl: rows of a run that was trusted when the job was accepted. Put there by a person; attempts count from 1."""


class Rows(Protocol):
    """Where step rows are read from."""

    def rows(self, attempt: int, after: int = 0) -> Iterable[StepRow]:
        """The rows of an attempt above `after`."""
        ...


def reference(written: Rows, history: History) -> dict[int, StepRow]:
    """The rows that the newest attempt does again: by step, from accepted attempts before it, the latest word counts.

    Where there are none to trust, those of the control count that was recorded when the job was accepted.
    """
    newest = history.attempt
    if newest is None:
        return {}
    doubtful = {i.attempt for i in history.incidents if i.fault in {FaultClass.ACCEPTANCE, FaultClass.PROBATION}}
    trusted = [
        (a.number, a.skip_samples)
        for a in history.attempts
        if a.number < newest.number and a.accepted_at is not None and a.number not in doubtful
    ]
    rows: dict[int, StepRow] = {}
    for number, skipped in [(CONTROL, ()), *trusted]:
        fresh = tuple(span for span in newest.skip_samples if span not in skipped)
        same = takewhile(partial(_reads_the_same, fresh), written.rows(number, newest.start_step))
        rows.update({row.step: row for row in same})
    return rows


def _reads_the_same(fresh: Spans, row: StepRow) -> bool:
    """From the first batch that samples left out have changed, nothing can be laid over the pass before."""
    if not fresh:
        return True
    return row.batch is not None and not touches(row.batch.first, row.batch.count, fresh)
