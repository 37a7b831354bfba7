"""One line about a save, for people."""

from __future__ import annotations

from datetime import tzinfo

from policies.facts import CheckpointPhase, CheckpointState
from supervisor.telling.say import clean, number, stamp

_STANDS = {
    CheckpointPhase.IN_PROGRESS: "still being written",
    CheckpointPhase.FRAMEWORK_DONE: "written by the framework, not yet sealed",
    CheckpointPhase.BROKEN: "broken",
    CheckpointPhase.NOT_YET: "can't be judged now",
    CheckpointPhase.ABANDONED: "abandoned",
}


def describe(state: CheckpointState, zone: tzinfo | None = None) -> str:
    """Say where a save stands. Times are local, of `zone` or of this machine; sizes in decimal units."""
    parts = []
    if state.saved_at is not None:
        parts.append(f"saved {stamp(state.saved_at, zone)}")
    if state.phase is CheckpointPhase.COMPLETED:
        parts.append(f"completed {stamp(state.completed_at, zone)}")
        parts.append(size(state.bytes))
        if state.limited:
            parts.append("limited: no sidecars, sizes and sums only")
    else:
        parts.append(_STANDS[state.phase])
    if state.location == "archive":
        parts.append("in the archive")
    line = f"iteration {state.step} of attempt {state.attempt}: {', '.join(parts)}"
    if not state.reasons:
        return f"{line}."
    more = f" (and {len(state.reasons) - 1} more)" if len(state.reasons) > 1 else ""
    return f"{line}: {clean(state.reasons[0])}{more}."


def size(count: int) -> str:
    """7.05 TB; bytes below a thousand in full."""
    for unit, scale in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= scale:
            return f"{count / scale:.2f} {unit}"
    return f"{number(count)} bytes"
