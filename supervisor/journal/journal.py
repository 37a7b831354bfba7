"""The journal: hash-chained JSON lines in segments, one segment an epoch.

A line is `{"h":"<32 hex>",` and the rest of a JSON object, where h = blake2b-128(previous h + that rest). An epoch is
claimed exclusively before anything is read: this is the fence. Its segment is then created, whole, with its first entry, which
names the last hash of the epoch before. What an older epoch wrote after that hash is void; it looks for a claim before it
writes, finds it, and ends.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b

from pydantic import ValidationError

from supervisor.journal.entries import ENTRY, Entry, EpochBegan, Stamped
from supervisor.journal.segments import FolderSegments, Segments, name_of

GENESIS = "0" * 32
_HEAD = b'{"h":"'


class JournalDamagedError(Exception):
    """The chain is broken in a place that no crash can explain. Nothing is guessed; a person must look."""


class FencedError(Exception):
    """A newer epoch has begun: this controller may do nothing more."""


@dataclass(frozen=True, slots=True)
class _Line:
    hash: str
    stamped: Stamped


def _hash(previous: str, rest: bytes) -> str:
    return blake2b(previous.encode() + rest, digest_size=16).hexdigest()


def _encode(previous: str, stamped: Stamped) -> tuple[str, bytes]:
    head = json.dumps({"v": 1, "n": stamped.number, "e": stamped.epoch, "at": stamped.at}, separators=(",", ":"))
    rest = head[1:-1].encode() + b',"d":' + ENTRY.dump_json(stamped.entry) + b"}"
    digest = _hash(previous, rest)
    return digest, _HEAD + digest.encode() + b'",' + rest + b"\n"


def _decode(previous: str, line: bytes) -> _Line | None:
    """One line, or None when it is torn or does not follow `previous`."""
    if not (line.startswith(_HEAD) and line.endswith(b"}\n") and line[38:40] == b'",'):
        return None
    digest, rest = line[6:38].decode("ascii", "replace"), line[40:-1]
    if _hash(previous, rest) != digest:
        return None
    try:
        outer = json.loads(b"{" + rest)
        stamped = Stamped(int(outer["n"]), int(outer["e"]), float(outer["at"]), ENTRY.validate_python(outer["d"]))
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise JournalDamagedError(f"an entry that is whole cannot be understood: {error}") from error
    return _Line(digest, stamped)


def segments(folder: str) -> list[tuple[int, str]]:
    """(epoch, path) of every segment of a folder, in order."""
    return [(epoch, os.path.join(folder, name_of(epoch))) for epoch in FolderSegments(folder).epochs()]


def _kept_in(where: str | Segments) -> Segments:
    return FolderSegments(where) if isinstance(where, str) else where


def _chain(kept: Segments, epoch: int, previous: str, until: str | None) -> list[_Line]:
    """The good lines of one segment, to the one with the hash `until` where the next epoch goes on; a torn end is left out.

    Raises JournalDamagedError when more follows a line that is not good (a writer ends at its first failed write), or `until`
    is not there.
    """
    lines: list[_Line] = []
    with kept.open(epoch) as file:
        for raw in file:
            line = _decode(lines[-1].hash if lines else previous, raw)
            if line is None:
                if file.readline():
                    raise JournalDamagedError(
                        f"{name_of(epoch)}:{len(lines) + 1}: not what was written, and more follows it"
                    )
                break
            lines.append(line)
            if line.hash == until:
                return lines
    if until is not None or not lines:
        raise JournalDamagedError(f"{name_of(epoch)} (epoch {epoch}) is not what the epoch after it has seen")
    return lines


def _read(where: Segments) -> list[_Line]:
    """All that is valid. A folder that changes while it is listed may show a segment without the one before: look again."""
    while True:
        known = where.epochs()
        try:
            return _follow(where, known)
        except JournalDamagedError:
            if where.epochs() == known:
                raise


def _follow(where: Segments, epochs: list[int]) -> list[_Line]:
    """From the newest epoch back over those that each says it follows, then forward.

    A segment that none of them names was begun by an epoch that had been fenced before it could write: it is void.
    """
    path: list[tuple[int, str, str | None]] = []  # epoch, the hash before it, the hash at which the next one goes on
    epoch, until = (epochs[-1] if epochs else 0), None
    while epoch:
        follows_epoch, follows_hash = _header(where, epoch)
        if (follows_epoch == 0) != (follows_hash == GENESIS) or follows_epoch >= epoch:
            raise JournalDamagedError(f"{name_of(epoch)} (epoch {epoch}) follows nothing that can be")
        path.append((epoch, follows_hash, until))
        epoch, until = follows_epoch, follows_hash
    return [line for one, previous, end in reversed(path) for line in _chain(where, one, previous, end)]


def _header(where: Segments, epoch: int) -> tuple[int, str]:
    """Which epoch a segment follows, and from which hash."""
    try:
        with where.open(epoch) as file:
            header = json.loads(file.readline())["d"]
        return int(header["follows_epoch"]), str(header["follows_hash"])
    except FileNotFoundError:
        raise JournalDamagedError(f"{name_of(epoch)} (epoch {epoch}) is gone, and a later epoch follows it") from None
    except (ValueError, KeyError, TypeError) as error:
        raise JournalDamagedError(f"{name_of(epoch)}: its first line is no header") from error


def read(where: str | Segments) -> list[Stamped]:
    """Every valid entry in order, of a folder or of what else keeps segments. Raises JournalDamagedError, OSError."""
    return [line.stamped for line in _read(_kept_in(where))]


class Journal:
    """The open segment of this epoch. Not for use from several threads."""

    def __init__(self, kept: Segments, epoch: int, last_hash: str, number: int) -> None:
        self.epoch = epoch
        self._kept = kept
        self._hash = last_hash
        self._number = number
        self._torn = False

    @classmethod
    def begin(
        cls, where: str | Segments, clock: Callable[[], float], host: str, pid: int
    ) -> tuple[Journal, list[Stamped]]:
        """Start the next epoch and give what was written before. Raises JournalDamagedError, OSError.

        The epoch is claimed before anything is read; when another controller claims it first, the next one is tried.
        """
        if isinstance(where, str):
            os.makedirs(where, mode=0o700, exist_ok=True)
        kept = _kept_in(where)
        epoch = kept.claimed() + 1
        while not kept.claim(epoch):
            epoch = kept.claimed() + 1
        # Only now is read: what an older epoch wrote before it could see the claim is in, all else it finds void.
        before = _read(kept)
        follows_epoch, follows_hash = (before[-1].stamped.epoch, before[-1].hash) if before else (0, GENESIS)
        number = before[-1].stamped.number + 1 if before else 1
        header = EpochBegan(epoch, host, pid, follows_epoch, follows_hash)
        stamped = Stamped(number, epoch, clock(), header)
        digest, line = _encode(follows_hash, stamped)
        if not kept.create(epoch, line):
            raise FencedError(f"epoch {epoch} was begun by somebody who had not claimed it")
        return cls(kept, epoch, digest, number + 1), [b.stamped for b in before] + [stamped]

    def append(self, entries: Iterable[Entry], at: float) -> list[Stamped]:
        """Write entries durably, in one piece, with wall time `at`. Raises FencedError when a newer epoch exists, OSError.

        After a write that failed nothing more is taken: what follows a torn line could not be read back.
        """
        stamped: list[Stamped] = []
        pieces: list[bytes] = []
        digest = self._hash
        for entry in entries:
            one = Stamped(self._number + len(stamped), self.epoch, at, entry)
            digest, line = _encode(digest, one)
            stamped.append(one)
            pieces.append(line)
        if not pieces:
            return []
        self.check_fence()
        if self._torn:
            raise OSError(errno.EIO, "a write to this segment has failed before", name_of(self.epoch))
        self._torn = True  # until the whole piece is on disk
        self._kept.append(self.epoch, b"".join(pieces))
        self._torn = False
        self.check_fence()
        self._hash = digest
        self._number += len(stamped)
        return stamped

    def check_fence(self) -> None:
        """Raise FencedError when a newer epoch has begun."""
        if self._kept.taken(self.epoch + 1):
            raise FencedError(f"epoch {self.epoch + 1} has begun; this controller (epoch {self.epoch}) ends")

    def close(self) -> None:
        """Close the segment's file."""
        self._kept.close()
