"""The time that a line carries, in all the forms in use -> seconds, with what the form leaves out. Pure."""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

MONTHS: Final = {
    m: n for n, m in enumerate(["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1)
}
NO_YEAR: Final = 2000
"""The year of a stamp that has none: a leap year, so that 29 February can be read."""

HEAD: Final = 400
"""Characters of a line in which a stamp is looked for."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """`at`: seconds since 1970 as if the stamp were UTC (its own zone is applied when it has one)."""

    at: float
    year: bool  # the form has a year
    zone: bool  # the form has a zone
    fraction: bool  # finer than a second


def _seconds(year: int, month: int, day: int, hms: str, fraction: str | None) -> float | None:
    hour, minute, second = (int(part) for part in hms.split(":"))
    if not (1970 <= year <= 2199 and 1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 61):
        return None
    whole = calendar.timegm((year, month, day, hour, minute, second))
    return whole + (float("0." + fraction) if fraction else 0.0)


def _zone(text: str | None) -> int | None:
    """Seconds east of Greenwich; None when there is no zone."""
    if not text:
        return None
    if text in ("Z", "z"):
        return 0
    digits = text[1:].replace(":", "")
    shift = int(digits[:2]) * 3600 + int(digits[2:4] or 0) * 60
    return -shift if text[0] == "-" else shift


def _iso(m: re.Match[str]) -> Stamp | None:
    at = _seconds(int(m[1]), int(m[2]), int(m[3]), m[4], m[5])
    zone = _zone(m[6])
    return None if at is None else Stamp(at - (zone or 0), True, zone is not None, bool(m[5]))


def _glog(m: re.Match[str]) -> Stamp | None:
    digits = m[1]  # month without a leading zero (torch C++): 314, 1216; with it (Python, absl): 0314
    at = _seconds(NO_YEAR, int(digits[:-2]), int(digits[-2:]), m[2], m[3])
    return None if at is None else Stamp(at, False, False, bool(m[3]))


def _syslog(m: re.Match[str]) -> Stamp | None:
    at = _seconds(NO_YEAR, MONTHS[m[1].lower()], int(m[2]), m[3], m[4])
    return None if at is None else Stamp(at, False, False, bool(m[4]))


def _ctime(m: re.Match[str]) -> Stamp | None:
    at = _seconds(int(m[5]), MONTHS[m[1].lower()], int(m[2]), m[3], None)
    return None if at is None else Stamp(at + _afternoon(m[3], m[4]), True, False, False)


def _dated(m: re.Match[str]) -> Stamp | None:
    at = _seconds(int(m[3]), MONTHS[m[1].lower()], int(m[2]), m[4], m[5])
    return None if at is None else Stamp(at, True, False, bool(m[5]))


def _slashed(m: re.Match[str]) -> Stamp | None:
    month, day = int(m[1]), int(m[2])  # America writes the month first; where that is no month, it is the day
    at = _seconds(int(m[3]), *((month, day) if month <= 12 else (day, month)), m[4], None)
    return None if at is None else Stamp(at + _afternoon(m[4], m[5]), True, False, False)


def _afternoon(hms: str, half: str | None) -> float:
    """Seconds that a clock of twelve hours leaves out."""
    hour = int(hms[:2])
    if half is None or hour > 12:
        return 0.0
    return 43200.0 * ((half.upper() == "PM") - (hour == 12))


def _epoch(m: re.Match[str]) -> Stamp | None:
    whole, fraction = m[1] or m[3], m[2] or m[4]
    return Stamp(int(whole) + float("0." + (fraction or "0")), True, True, bool(fraction))


_EPOCH: Final = re.compile(
    r"^(?:\[[^\]]{1,40}\]:?|\d{1,6}: |\S{1,40}: ?)?(?:\[|libfabric:\d{1,10}:)(1[5-9]\d{8})(?:\.(\d{3,9})\]|::)"
    r"|^(1[5-9]\d{8})\.(\d{6}) [A-Za-z]"
)
"""Seconds since 1970, as UCX and libfabric write them before their lines, and `journalctl -o short-unix`."""

_CLOCK: Final = re.compile(r"\d\d:\d\d:\d\d")
"""What all forms have in common; looked for first, because most of a line is no time."""

_MONTH: Final = "(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_FORMS: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Stamp | None]], ...]] = (
    (
        re.compile(r"\b(\d{4})[-/](\d\d)[-/](\d\d)[T _,](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?"),
        _iso,
    ),
    (re.compile(r"(?:^|[\s\[:])[IWEF](\d{3,4}) (\d\d:\d\d:\d\d)\.(\d{1,9})\b"), _glog),
    (re.compile(rf"\b\w{{3}} {_MONTH} +(\d{{1,2}}) (\d\d:\d\d:\d\d) (?:([AP]M) )?(?:\w+ )?(\d{{4}})\b"), _ctime),
    (re.compile(rf"\b{_MONTH} +(\d{{1,2}}),? (\d{{4}}) (\d\d:\d\d:\d\d)(?:\.(\d{{1,9}}))?"), _dated),
    (re.compile(r"\b(\d\d)/(\d\d)/(\d{4})[ |,]{1,4}(\d\d:\d\d:\d\d)(?: ([AP]M)\b)?"), _slashed),
    (re.compile(rf"\b{_MONTH} +(\d{{1,2}}) (\d\d:\d\d:\d\d)(?:\.(\d{{1,9}}))?"), _syslog),
)


def read_stamp(line: str) -> Stamp | None:
    """The first time that the line carries, or None. The forms: ISO 8601 and its kin, glog, ctime, syslog, BMCs'."""
    begin = 0
    for _ in range(4):
        clock = _CLOCK.search(line, begin, HEAD)
        if clock is None:
            match = _EPOCH.match(line) if not begin else None
            return None if match is None else _epoch(match)
        begin = clock.end()
        near = line[max(0, clock.start() - 28) : begin + 24]
        for form, value in _FORMS:
            match = form.search(near)
            if match is not None and (stamp := value(match)) is not None:
                return stamp
    return None


def with_year(stamp: Stamp, near: float) -> float:
    """The seconds since 1970 of a stamp; one without a year in the year that brings it nearest to `near`."""
    return stamp.at if stamp.year else stamp.at + _to_year(int(stamp.at // 86400), int(near // 86400))


@cache
def _to_year(day: int, near: int) -> int:
    """Seconds from a day of the year NO_YEAR to the same day of the year that is nearest; both as days since 1970."""
    _, month, date, *_ = time.gmtime(day * 86400)
    year = time.gmtime(near * 86400)[0]
    choices = [calendar.timegm((candidate, month, date, 0, 0, 0)) // 86400 for candidate in (year - 1, year, year + 1)]
    return (min(choices, key=lambda choice: abs(choice - near)) - day) * 86400
