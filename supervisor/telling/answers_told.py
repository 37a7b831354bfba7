"""What was planned in an incident and what people said to it, with who, when and why: out of the journal's entries. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from policies.decisions import Recover
from policies.history import Choice
from policies.skipping import spans_text
from supervisor.journal.entries import (
    Approved,
    Carried,
    Chosen,
    Decided,
    HaltedEntry,
    IncidentOpened,
    Paused,
    Refused,
    Resumed,
    Stamped,
    Told,
    Unbarred,
    Withdrawn,
)

What = Literal[
    "planned",
    "withdrawn",
    "changed",
    "approved",
    "refused",
    "halted",
    "resumed",
    "paused",
    "unbarred",
    "told",
    "reached",
]
KEPT = 64
"""The newest of one incident; a journal may be of any length."""
INCIDENTS_KEPT = 512


@dataclass(frozen=True, slots=True)
class Said:
    """One word on an incident. `digest`: of the plan; `who` is empty where nobody said it."""

    at: float
    what: What
    digest: str = ""
    who: str = ""
    why: str = ""


Sayings = Mapping[int, tuple[Said, ...]]
"""By the incident's number; 0 is what was said before the first."""


def sayings(entries: Iterable[Stamped], before: Sayings | None = None) -> dict[int, tuple[Said, ...]]:
    """Each word under the newest incident of its time; added to what was known."""
    found = dict(before or {})
    number = max(found, default=0)
    for stamped in entries:
        if isinstance(stamped.entry, IncidentOpened):
            number = stamped.entry.number
            found.setdefault(number, ())
            found = dict(list(found.items())[-INCIDENTS_KEPT:])
        said = _said(stamped)
        if said is not None:
            found[number] = (*found.get(number, ()), said)[-KEPT:]
    return found


def _said(stamped: Stamped) -> Said | None:
    entry, at = stamped.entry, stamped.at
    match entry:
        case Decided() if isinstance(entry.decision, Recover) and entry.digest:
            return Said(at, "planned", entry.digest, why=entry.decision.text)
        case Withdrawn():
            return Said(at, "withdrawn", entry.digest or "", why=entry.why)
        case Chosen():
            return Said(at, "changed", who=entry.who, why=_choice(entry.choice))
        case Approved():
            return Said(at, "approved", entry.digest, entry.who)
        case Refused():
            return Said(at, "refused", entry.digest, entry.who, entry.why)
        case HaltedEntry():
            return Said(at, "halted", why=f"{entry.reason}: {entry.seen}")
        case Resumed():
            return Said(at, "resumed", who=entry.who, why=entry.because)
        case Paused():
            return Said(at, "paused", who=entry.who, why=entry.why)
        case Unbarred():
            why = ", ".join(entry.nodes) + (f": {entry.why}" if entry.why else "")
            return Said(at, "unbarred", who=entry.who, why=why)
        case Told():
            return Said(at, "told", why=entry.title)
        case Carried() if entry.reached:
            return Said(at, "reached", who=", ".join(entry.reached))
        case _:
            return None


def _choice(choice: Choice) -> str:
    parts = [f"checkpoint {choice.checkpoint}"] if choice.checkpoint else []
    parts += [f"spare {node}" for node in choice.spares]
    parts += [f"keep {node}" for node in choice.keep_nodes]
    parts += [f"leave out {spans_text(choice.skip_samples)}"] if choice.skip_samples else []
    return "; ".join(parts)
