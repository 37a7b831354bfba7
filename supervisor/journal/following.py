"""A reader that follows a journal while it is written: whole at first, then only what was added.

It checks the same chain as `journal.read`. Whatever it cannot explain as an addition (an epoch that makes the end of the one
before void, a segment that shrank, a line that does not follow) makes it read all again, and that reading is the judge.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from supervisor.journal.entries import Stamped
from supervisor.journal.journal import GENESIS, JournalDamagedError, _decode, _header, _kept_in, _Line, _read
from supervisor.journal.segments import Segments


@dataclass(frozen=True, slots=True)
class _Place:
    """Up to where it has read: the newest epoch, the byte behind its last good line, that line's hash."""

    epochs: tuple[int, ...]
    offset: int
    hash: str


class Tail:
    """One journal, read by one reader."""

    def __init__(self, where: str | Segments) -> None:
        self._kept = _kept_in(where)
        self._place: _Place | None = None

    def more(self) -> tuple[bool, list[Stamped]]:
        """(again, entries): what is new; with `again`, all that is valid, and what was given before no longer counts.

        Raises JournalDamagedError, OSError; the next call reads all again then.
        """
        before, self._place = self._place, None
        if before is not None:
            added = self._added(before)
            if added is not None:
                self._place, lines = added
                return False, [line.stamped for line in lines]
        # Listed first: a segment that is begun meanwhile is looked at by the next call.
        epochs = tuple(self._kept.epochs())
        lines = _read(self._kept)
        if lines:
            newest = lines[-1].stamped.epoch
            known = (*(epoch for epoch in epochs if epoch < newest), newest)
            count = sum(1 for _ in itertools.takewhile(lambda one: one.stamped.epoch == newest, reversed(lines)))
            self._place = _Place(known, self._behind(newest, count), lines[-1].hash)
        return True, [line.stamped for line in lines]

    def _behind(self, epoch: int, count: int) -> int:
        """The byte behind so many lines of a segment."""
        with self._kept.open(epoch) as file:
            return sum(len(line) for line in itertools.islice(file, count))

    def _added(self, before: _Place) -> tuple[_Place, list[_Line]] | None:
        """What was added behind a place; None when it is no mere addition."""
        epochs = tuple(self._kept.epochs())
        if epochs[: len(before.epochs)] != before.epochs:
            return None
        lines: list[_Line] = []
        place = before
        for epoch in (before.epochs[-1], *epochs[len(before.epochs) :]):
            if epoch != before.epochs[-1]:
                try:
                    follows = _header(self._kept, epoch)
                except JournalDamagedError:
                    return None
                if follows != (place.epochs[-1], place.hash) or place.hash == GENESIS:
                    return None
                place = _Place((*place.epochs, epoch), 0, place.hash)
            found = self._lines(place)
            if found is None:
                return None
            place, more = found
            lines += more
        return place, lines

    def _lines(self, place: _Place) -> tuple[_Place, list[_Line]] | None:
        """The good lines of the newest segment from a place on; a torn end is left for the next call."""
        lines: list[_Line] = []
        offset, last = place.offset, place.hash
        with self._kept.open(place.epochs[-1]) as file:
            if file.seek(0, 2) < offset:
                return None
            file.seek(offset)
            for raw in file:
                line = _decode(last, raw)
                if line is None:
                    if raw.endswith(b"\n"):
                        return None
                    break
                lines.append(line)
                offset, last = offset + len(raw), line.hash
        return _Place(place.epochs, offset, last), lines
