"""What is open now, by the key of its notice, and who has been told of it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies.decisions import Recover
from supervisor.telling.say import clean, count, names, sentence, stamp

if TYPE_CHECKING:
    from policies.history import Halted, History
    from supervisor.telling.incident_facts import Known

SHOWN = 4


def halt_key(halted: Halted) -> str:
    """The key of a halt's notice."""
    return f"halt:{halted.reason}:{halted.at:.3f}"


def matter(history: History) -> str | None:
    """The key of the notice of what is open now; None when nothing waits for a person."""
    if history.halted is not None:
        return halt_key(history.halted)
    digest = history.decision_digest
    if not isinstance(history.decision, Recover) or digest is None or digest in history.approvals | history.refused:
        return None
    return f"plan:{digest}"


def told_lines(history: History, known: Known) -> list[str]:
    """Who was told of what is open now, and when; and who was not, and why. Empty where nothing waits, or nobody is to be told."""
    key = matter(history) or ""
    about = [t for k, t in history.tellings.items() if t.to and (k == key or k.endswith(f":{key}"))] if key else []
    if not about:
        return []
    first, last = about[0], max(about, key=lambda t: t.at)
    reached = tuple(dict.fromkeys(name for one in about for name in one.reached))
    more = f", {count(len(about) - 1, 'reminder')}, the last {stamp(last.at, known.zone)}" if len(about) > 1 else ""
    lines = [f"Told {stamp(first.at, known.zone)}{more}: {names(reached, 8) if reached else 'nobody has got it yet'}."]
    for name, why in last.failed[:SHOWN]:
        then = "given up" if last.given_up else "it is tried again"
        lines.append(
            f"Not delivered: {clean(name, 64)}: {sentence(why)[:-1]}; {count(last.tries, 'try', 'tries')}, {then}."
        )
    return lines
