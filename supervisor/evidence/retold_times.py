"""All stamps of a log, moved by one amount, in the forms in which they stand there. Pure."""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Iterable, Sequence
from typing import Final

_ISO: Final = re.compile(rb"\b(\d{4})([-/])(\d\d)([-/])(\d\d)([T _,])(\d\d):(\d\d):(\d\d)")
_GLOG: Final = re.compile(rb"(?<![0-9A-Za-z])([IWEF])(\d{3,4}) (\d\d):(\d\d):(\d\d)(?=\.)")
_MONTH: Final = re.compile(
    rb"\b(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)( +)(\d{1,2}) (\d\d):(\d\d):(\d\d)( \d{4})?"
)
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def year_of(texts: Iterable[bytes], unknown: int = 2026) -> int:
    """The year of the first stamp that has one."""
    return next((int(m[1]) for data in texts for m in _ISO.finditer(data)), unknown)


def shift(data: bytes, seconds: int, year: int) -> bytes:
    """All stamps of the text, moved; those that name no year are of `year`."""

    def moved(at_year: int, month: int, day: int, hms: Sequence[bytes]) -> time.struct_time:
        return time.gmtime(calendar.timegm((at_year, month, day, *(int(x) for x in hms))) + seconds)

    def iso(m: re.Match[bytes]) -> bytes:
        if not (1 <= int(m[3]) <= 12 and 1 <= int(m[5]) <= 31):
            return m[0]
        t = moved(int(m[1]), int(m[3]), int(m[5]), m.group(7, 8, 9))
        sep, mid = m[2].decode(), m[6].decode()
        return time.strftime(f"%Y{sep}%m{sep}%d{mid}%H:%M:%S", t).encode()

    def glog(m: re.Match[bytes]) -> bytes:
        month, day = int(m[2][:-2]), int(m[2][-2:])
        if not (1 <= month <= 12 and 1 <= day <= 31):
            return m[0]
        t = moved(year, month, day, m.group(3, 4, 5))
        width = 2 if m[2].startswith(b"0") else 1
        return m[1] + f"{t.tm_mon:0{width}d}{t.tm_mday:02d} {time.strftime('%H:%M:%S', t)}".encode()

    def named(m: re.Match[bytes]) -> bytes:
        t = moved(int(m[7] or year), _MONTHS.index(m[1].decode()) + 1, int(m[3]), m.group(4, 5, 6))
        tail = f" {t.tm_year}" if m[7] else ""
        return f"{_MONTHS[t.tm_mon - 1]} {t.tm_mday:2d} {time.strftime('%H:%M:%S', t)}{tail}".encode()

    return _MONTH.sub(named, _GLOG.sub(glog, _ISO.sub(iso, data)))
