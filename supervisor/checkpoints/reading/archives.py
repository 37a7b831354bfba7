"""The archive that torch.save writes for each item: a ZIP with nothing packed, and a check sum for every record.

torch.load does not look at those sums; a walk through the directory at the archive's end is enough to do so. Nothing is
believed: names, sizes and places of the directory are held against the headers that stand before each record.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

Pread = Callable[[int, int], bytes]
"""(offset in the archive, bytes) -> what is there; fewer bytes at the end."""

_END: Final = struct.Struct("<IHHHHIIH")
_END64: Final = struct.Struct("<IQHHIIQQQQ")
_LOCATOR: Final = struct.Struct("<IIQI")
_ENTRY: Final = struct.Struct("<IHHHHHHIIIHHHHHII")
_LOCAL: Final = struct.Struct("<IHHHHHIIIHH")
_DESCRIPTOR: Final = struct.Struct("<IIII")
_DESCRIPTOR64: Final = struct.Struct("<IIQQ")
_FULL: Final = 0xFFFFFFFF
_DESCRIBED: Final = 8
"""The flag of a record whose sum and size stand behind it."""
_PACKED_OR_SECRET: Final = 0x2041
DIRECTORY_MAX: Final = 16 << 20
"""Bytes of a directory: 100,000 records of one item."""
_WINDOW: Final = 4096


class BadArchiveError(Exception):
    """These bytes are no archive as torch writes it."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record: its name, where its bytes begin in the archive, how many there are, and their CRC-32."""

    name: str
    start: int
    size: int
    crc: int

    @property
    def end(self) -> int:
        """Where its bytes end."""
        return self.start + self.size

    @property
    def is_data(self) -> bool:
        """Does it hold the elements of a tensor?"""
        folder, _, last = self.name.rpartition("/")
        return last.isdigit() and folder.rpartition("/")[2] == "data"


@dataclass(frozen=True, slots=True)
class _Entry:
    name: bytes
    flags: int
    size: int
    crc: int
    at: int
    written: tuple[int, ...]  # version that is needed, time, date


def read_records(pread: Pread, length: int) -> tuple[Record, ...]:
    """The records of an archive of `length` bytes, in the order in which they lie. Raises BadArchiveError, OSError."""
    if length < _END.size:
        raise BadArchiveError(f"{length} bytes are no archive")
    tail_at = max(0, length - _WINDOW)
    windows = {tail_at: pread(tail_at, length - tail_at)}
    if tail_at:
        windows[0] = pread(0, min(_WINDOW, tail_at))

    def read(at: int, count: int) -> bytes:
        # Nearly all that is looked at lies near the two ends: two reads an archive instead of twenty.
        for begin, held in windows.items():
            if begin <= at and at + count <= begin + len(held):
                return held[at - begin : at - begin + count]
        return pread(at, count) if 0 <= at <= length else b""

    count, size, at = _directory(read, length)
    entries = _entries(read(at, size), count)
    return _records(read, entries, at)


def _unpack(shape: struct.Struct, data: bytes, what: str) -> tuple[int, ...]:
    if len(data) != shape.size:
        raise BadArchiveError(f"{what} is cut short")
    return shape.unpack(data)


def _directory(read: Pread, length: int) -> tuple[int, int, int]:
    """Entries, bytes, and place of the directory."""
    end_at = length - _END.size
    mark, disk, disk2, here, count, size, at, comment = _unpack(_END, read(end_at, _END.size), "the end of the archive")
    if mark != 0x06054B50 or comment or here != count or disk != disk2 or disk not in {0, 0xFFFF}:
        raise BadArchiveError("it does not end as an archive does")
    short = (count, size, at)
    where = end_at - _LOCATOR.size
    if at + size != end_at and where >= 0:
        # torch writes the long end (ZIP64) also where the short one would do; then both must say the same.
        mark, disk, end64_at, disks = _unpack(_LOCATOR, read(where, _LOCATOR.size), "the locator")
        found = (
            _unpack(_END64, read(end64_at, _END64.size), "the long end of the archive") if mark == 0x07064B50 else ()
        )
        rest = _END64.size - 12  # its size field counts what comes after it
        whole = found[:2] == (0x06064B50, rest) and found[4:6] == (disk, disk) == (0, disks - 1)
        if not whole or end64_at + _END64.size != where or found[6] != found[7]:
            raise BadArchiveError("its directory does not lie where its end says")
        count, size, at, end_at = found[7], found[8], found[9], end64_at
        full = (0xFFFF, _FULL, _FULL)
        if any(s not in {long, most} for s, long, most in zip(short, (count, size, at), full, strict=True)):
            raise BadArchiveError("its two ends do not say the same")
    if at + size != end_at or size > DIRECTORY_MAX:
        raise BadArchiveError("its directory does not lie where its end says")
    return count, size, at


def _entries(directory: bytes, count: int) -> list[_Entry]:
    entries = []
    makers = set()
    at = 0
    while at < len(directory):
        head = _unpack(_ENTRY, directory[at : at + _ENTRY.size], "an entry of the directory")
        mark, made, needed, flags, method, hour, day, crc, packed, size = head[:10]
        name_n, extra_n, comment_n, disk, inner, outer, place = head[10:]
        begin = at + _ENTRY.size
        name, extra = directory[begin : begin + name_n], directory[begin + name_n : begin + name_n + extra_n]
        if mark != 0x02014B50 or method or flags & _PACKED_OR_SECRET or comment_n or disk or inner:
            raise BadArchiveError("an entry of its directory is not as torch writes it")
        makers.add((made, outer))
        size, packed, place = _long(extra, [size, packed, place])
        if packed != size:
            raise BadArchiveError("a record of it is packed")
        entries.append(_Entry(name, flags, size, crc, place, (needed, hour, day)))
        at = begin + name_n + extra_n
    if at > len(directory) or len(makers) > 1:
        raise BadArchiveError("the entries of its directory do not fit together")
    if len(entries) != count:
        raise BadArchiveError(f"its directory has {len(entries)} entries, not {count}")
    return sorted(entries, key=lambda entry: entry.at)


def _long(extra: bytes, fields: list[int]) -> list[int]:
    """Numbers of 64 bits stand in an extra field, for those of 32 bits that are full."""
    if _FULL not in fields:
        return fields
    while len(extra) >= 4:
        kind, size = struct.unpack_from("<HH", extra)
        held, extra = extra[4 : 4 + size], extra[4 + size :]
        if kind == 1:
            numbers = list(struct.unpack(f"<{len(held) // 8}Q", held[: len(held) // 8 * 8]))
            return [numbers.pop(0) if field == _FULL and numbers else field for field in fields]
    return fields


def _records(read: Pread, entries: list[_Entry], end: int) -> tuple[Record, ...]:
    """Hold each entry against the header before its record; records and what stands around them fill the archive."""
    if not entries or entries[0].at:
        raise BadArchiveError("its first record is not at its beginning")
    records = []
    for entry, next_at in zip(entries, [*(entry.at for entry in entries[1:]), end], strict=True):
        head = _unpack(_LOCAL, read(entry.at, _LOCAL.size), "the header of a record")
        mark, needed, flags, method, hour, day, crc, packed, size, name_n, extra_n = head
        start = entry.at + _LOCAL.size + name_n + extra_n
        name = read(entry.at + _LOCAL.size, name_n)
        same = (flags, name, (needed, hour, day)) == (entry.flags, entry.name, entry.written)
        # With a description behind the record its sum and sizes are nought here, or full where they need 64 bits.
        open_ = {0, _FULL} if flags & _DESCRIBED else {_FULL}
        same = (
            same and {packed, size} <= open_ | {entry.size} and crc in ({0, entry.crc} if 0 in open_ else {entry.crc})
        )
        if mark != 0x04034B50 or method or not same or not _is_extra(read(start - extra_n, extra_n)):
            raise BadArchiveError(f"the header of {_text(entry.name)} is not that of the directory")
        behind = next_at - (start + entry.size)
        _check_descriptor(read(start + entry.size, behind) if 0 <= behind <= 24 else b"?", entry)
        records.append(Record(name.decode("utf-8", "replace"), start, entry.size, entry.crc))
    return tuple(records)


def _is_extra(extra: bytes) -> bool:
    """Fields of an id and a length each; torch fills one up with Z, so that the elements begin at a multiple of 64."""
    at = 0
    while at + 4 <= len(extra):
        kind, size = struct.unpack_from("<2sH", extra, at)
        at += 4 + size
        if kind not in {b"FB", b"\x01\x00"} or (kind == b"FB" and extra[at - size : at].strip(b"Z")):
            return False
    return at == len(extra)


def _check_descriptor(behind: bytes, entry: _Entry) -> None:
    """What stands between a record and the next: nothing, or its sum and sizes once more."""
    wanted: tuple[tuple[int, ...], ...] = ((0x08074B50, entry.crc, entry.size, entry.size),)
    if not entry.flags & _DESCRIBED and not behind:
        return
    if len(behind) == _DESCRIPTOR.size and _DESCRIPTOR.unpack(behind) in wanted:
        return
    if len(behind) == _DESCRIPTOR64.size and _DESCRIPTOR64.unpack(behind) in wanted:
        return
    raise BadArchiveError(f"what stands behind {_text(entry.name)} is not its description")


def _text(name: bytes) -> str:
    return name[:80].decode("utf-8", "replace")
