"""How times, spans, numbers and foreign text are written for people. Pure; the zone is an argument.

Text that came from a log, a node or a person is hostile until `clean` has seen it: a terminal obeys escape sequences,
and a right-to-left mark can make one command look like another.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

LINE_MAX = 240
"""Characters kept of one piece of foreign text: three lines of a terminal, one screen of a phone."""

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC and the other strings: titles, links
    r"|\x1b[ -/]*[0-~]?"
    r"|\x9b[0-?]*[ -/]*[@-~]?"
)
# C0 and C1 controls, line and paragraph separators, and marks that are not seen but change what is: soft hyphen,
# zero-width and direction marks, tag characters, lone surrogates (they cannot be written as UTF-8).
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
_BLANKS = re.compile(r"\s+")


def clean(text: str, limit: int = LINE_MAX) -> str:
    """One printable line of at most about `limit` characters; what was cut is counted at its end."""
    # The escapes of a line of megabytes are of no interest; only its beginning is looked at.
    head = text[: 16 * limit]
    line = _BLANKS.sub(" ", _UNSEEN.sub(" ", _ESCAPES.sub("", head))).strip()
    if len(line) <= limit and len(text) == len(head):
        return line
    return f"{line[:limit].rstrip()}... ({number(len(text))} characters)"


def moment(at: float | None, zone: tzinfo | None = None) -> datetime | None:
    """Wall seconds as a local time; `zone` None is the machine's own. None for unknown, NaN and the year 9e9."""
    if at is None or not math.isfinite(at):
        return None
    try:
        return datetime.fromtimestamp(at, UTC).astimezone(zone)
    except (OverflowError, ValueError, OSError):
        return None


def clock(at: float | None, zone: tzinfo | None = None, near: float | None = None) -> str:
    """10:40:05, or `unknown`; with the date in front where it is another day than that of `near`."""
    seen, beside = moment(at, zone), moment(near, zone)
    if seen is None:
        return "unknown"
    return f"{seen:%H:%M:%S}" if beside is None or seen.date() == beside.date() else f"{seen:%Y-%m-%d %H:%M:%S}"


def stamp(at: float | None, zone: tzinfo | None = None) -> str:
    """2026-11-30 10:40:05 CST, or `unknown`."""
    seen = moment(at, zone)
    return f"{seen:%Y-%m-%d %H:%M:%S} {zone_name(seen)}" if seen else "unknown"


def zone_name(seen: datetime) -> str:
    """CST; the offset where a zone has no letters (+08:00)."""
    name = clean(seen.tzname() or "", 16)
    return name if name and name[0] not in "+-" else seen.isoformat()[-6:]


def span(seconds: float) -> str:
    """11.2 s, 19 min 48 s, 2 h 5 min, 3 days 4 h. Two units are enough to act on."""
    if not math.isfinite(seconds):
        return "unknown"
    if seconds < 0:
        return f"-{span(-seconds)}"
    if seconds < 59.95:
        return f"{seconds:.1f} s" if seconds != int(seconds) else f"{int(seconds)} s"
    whole = round(seconds)
    for size, unit, below, small in ((86_400, "days", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            many, rest = whole // size, whole % size // below
            unit_now = "day" if unit == "days" and many == 1 else unit
            return f"{many} {unit_now} {rest} {small}" if rest else f"{many} {unit_now}"
    raise AssertionError(seconds)


def minutes(seconds: float) -> str:
    """12:08, or 1:02:03 from an hour on: for columns of spans."""
    if not math.isfinite(seconds):
        return "unknown"
    whole = round(abs(seconds))
    sign = "-" if seconds < 0 and whole else ""
    hours, rest = divmod(whole, 3_600)
    return f"{sign}{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{sign}{rest // 60}:{rest % 60:02d}"


def number(value: int) -> str:
    """3,380,838,400."""
    return f"{value:,}"


def amount(value: int) -> str:
    """5.6 M from a million on, 3.4 G from a thousand million on; smaller ones in full."""
    for size, unit in ((10**12, "T"), (10**9, "G"), (10**6, "M")):
        if abs(value) >= size:
            return f"{value / size:.1f} {unit}"
    return number(value)


def size(value: float) -> str:
    """168 TB, 1.9 GB: bytes in decimal units, as disks are sold."""
    power = next((n for n in range(4) if value < 999.5 * 1000**n), 4)
    value /= 1000**power
    return (f"{value:.3g}" if value < 999.5 else f"{value:,.0f}") + " " + ("B", "kB", "MB", "GB", "TB")[power]


def count(value: int, one: str, many: str | None = None) -> str:
    """1 iteration, 68 iterations."""
    return f"{number(value)} {one if value == 1 else many or one + 's'}"


def names(values: Sequence[str], limit: int = 4) -> str:
    """n0417, n0031 and 12 more; `none` when there are none."""
    shown = [clean(v, 64) for v in values[:limit]]
    if len(values) > limit:
        return f"{', '.join(shown)} and {number(len(values) - limit)} more"
    return ", ".join(shown) if shown else "none"


def plan_id(digest: str) -> str:
    """The beginning of a plan's digest, as a person types it."""
    return clean(digest, 64)[:6]


SEEN_MAX = 600
"""What halted a run is told whole: two failures with their places, and what follows from them."""


def sentence(text: str, limit: int = LINE_MAX) -> str:
    """Foreign text, cleaned, ended by one full stop."""
    line = clean(text, limit)
    return line if not line or line.rstrip(")").endswith((".", "!", "?")) else f"{line}."
