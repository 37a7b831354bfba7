"""A drill in words: how it went, and how long each part took."""

from __future__ import annotations

from supervisor.drill_files import Drill, Kind, newest
from supervisor.telling.say import clean, size, span

WORDS = {
    "choose": "choosing the save",
    "fetch": "fetching it",
    "read": "reading every byte",
    "launch": "launching",
    "load": "loading",
    "update": "to the next update",
}
SOURCES: dict[Kind, str] = {"shared": "the shared store", "archive": "the archive"}


def drill_text(one: Drill) -> str:
    """A few lines; times in seconds by part."""
    source = SOURCES[one.kind]
    head = f"Drill {one.number}, from {source}, level {one.level}: "
    head += f"{clean(one.checkpoint, 64)}, {size(one.bytes)}, " if one.checkpoint else ""
    head += f"good, {span(one.took_s)}." if one.ok else f"failed after {span(one.took_s)}: {clean(one.why, 300)}"
    parts = [f"  {WORDS.get(name, clean(name, 32))}: {span(round(seconds, 2))}" for name, seconds in one.parts.items()]
    return "\n".join([head, *parts]) + "\n"


def drills_line(drills: tuple[Drill, ...], now: float) -> str:
    """The last good drill of each kind with its age, level and time, and the last one that failed since; for status."""
    told = []
    for kind in SOURCES:
        good = newest(drills, kind)
        if good is not None:
            told.append(f"{kind} {span(now - good.ended_at)} ago (level {good.level}, {span(good.took_s)})")
        else:
            told.append(f"{kind} never")
        last = next((one for one in reversed(drills) if one.kind == kind), None)
        if last is not None and not last.ok:
            told[-1] += f", failed {span(now - last.ended_at)} ago: {clean(last.why, 120)}"
    return f"Drills: {'; '.join(told)}."
