"""Completed saves are read again now and then, so that rot is found while there is another one.

A reading of 7 TB takes hours beside training. It gives way to whatever is more urgent, at once, and goes on later where it was.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from supervisor import durable
from supervisor.checkpoints import posix, views
from supervisor.checkpoints.manifest import Committed, Manifest
from supervisor.checkpoints.reading.by_threads import ReadFiles
from supervisor.checkpoints.reading.findings import Finding
from supervisor.checkpoints.reading.throttle import CancelledError, Pace, Throttle
from supervisor.checkpoints.sealing import NotYetError

SLICE: Final = 16 << 30
"""Bytes of files that are read together; so much at most is read twice after a reading had to give way."""
GIVES_WAY_S: Final = 10.0
"""A reading gives way within one block of each of its threads: milliseconds, unless the disk hangs."""
READ: Final = "READ"
_LIMIT: Final = 1 << 12


class ReadMark(BaseModel):
    """READ in the seal's folder: when the save was last read again in full, wall seconds."""

    model_config = ConfigDict(frozen=True, strict=True, populate_by_name=True, allow_inf_nan=False)

    schema_: Literal[1] = Field(alias="schema", default=1)
    at: Annotated[float, Field(ge=0)]


def read_at(path: str) -> float | None:
    """What a READ says; None when there is none, or it can't be read or understood: then the save is only read once more."""
    try:
        return ReadMark.model_validate_json(posix.read_bounded(path, _LIMIT)).at
    except (OSError, ValidationError):
        return None


def note_read(path: str, at: float) -> None:
    """Write it anew. Raises OSError."""
    durable.replace_whole(path, ReadMark(at=at).model_dump_json(by_alias=True).encode() + b"\n")


class Turns:
    """Whose turn it is to read. With a limit of speed (`one`) one save is read at a time, and a seal takes a scrub's turn."""

    def __init__(self, *, one: bool) -> None:
        self._one = one
        self._lock = threading.Lock()
        self._scrub: Throttle | None = None
        self._waiting = 0

    @contextlib.contextmanager
    def seal(self) -> Iterator[None]:
        """Raises NotYetError while another seal reads."""
        if not self._one:
            yield
            return
        if not self._lock.acquire(blocking=False) and not self._take_over():
            raise NotYetError("another save is being read, and the limit of speed is for both")
        try:
            yield
        finally:
            self._lock.release()

    def _take_over(self) -> bool:
        """Take a scrub's turn; False when it is no scrub that reads, or one that hangs."""
        if self._scrub is None:
            return False
        self._waiting += 1  # a scrub that is between two slices leaves the turn to us
        try:
            self.stop_scrub()
            return self._lock.acquire(timeout=GIVES_WAY_S)
        finally:
            self._waiting -= 1

    @contextlib.contextmanager
    def scrub(self, throttle: Throttle) -> Iterator[None]:
        """Raises NotYetError while another save is read; the throttle is cancelled when somebody else wants the turn."""
        if self._waiting or not self._lock.acquire(blocking=False):
            raise NotYetError("another save is being read")
        try:
            self._scrub = throttle
            yield
        except CancelledError:
            raise NotYetError("it has given way to something more urgent") from None
        finally:
            self._scrub = None
            self._lock.release()

    def stop_scrub(self) -> None:
        """Let a scrub that is under way give way now."""
        scrub = self._scrub
        if scrub is not None:
            scrub.cancel()


class Scrubs:
    """Readings of one process: how far each has come."""

    def __init__(self, turns: Turns, reader: ReadFiles, pace: Pace, slice_bytes: int = SLICE) -> None:
        self._turns = turns
        self._slice_bytes = slice_bytes
        self._reader = reader
        self._pace = pace
        self._read: dict[tuple[str, str], set[str]] = {}  # manifest, folder -> the files that were read

    def read(self, committed: Committed) -> tuple[Finding, ...]:
        """Read what is left of a save; what is wrong with it. Raises NotYetError (asked again, it goes on), OSError."""
        manifest, folder = committed.manifest, committed.place.data
        found = views.seen_damage(folder, manifest)
        done = self._read.setdefault((committed.sha256, folder), set())
        while not found and (names := self._slice(manifest, done)):
            throttle = Throttle(self._pace)
            with self._turns.scrub(throttle):
                found = tuple(views.content_damage(folder, names, manifest, self._reader, throttle))
            done.update(names)
        self._read.pop((committed.sha256, folder))
        return found

    def _slice(self, manifest: Manifest, done: set[str]) -> list[str]:
        """The next files that make up a slice; at least one while any is left."""
        chosen: list[str] = []
        size = 0
        for name in (n for n in manifest.files if n not in done):
            size += manifest.files[name].size
            if chosen and size > self._slice_bytes:
                break
            chosen.append(name)
        return chosen
