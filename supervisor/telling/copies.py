"""What `relight status` and the plan page say of the archive: the last copy, what is on its way, the last reading. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies.facts import CheckpointPhase, Unknown
from policies.retention import by_age
from supervisor import actions
from supervisor.telling.say import clean, clock, count, sentence, size, span

if TYPE_CHECKING:
    from policies.decisions import Restores
    from policies.facts import CheckpointState, View
    from policies.history import History, Intent
    from supervisor.telling.incident_facts import Known


def copies_lines(history: History, view: View, now: float, known: Known) -> list[str]:
    """What comes back, what was copied last, what was read again last; nothing where there is nothing to say."""
    return [*_restoring(history, view, now, known), *_archive(history, view, now, known), *_read(view, now)]


def restore_text(restores: Restores) -> str:
    """7 TB, about 1 h 34 min at the pace of the last copy or drill."""
    about = restores.about_s
    pace = (
        "no copy has shown yet how long that takes"
        if about is None
        else f"about {span(about)} at the pace of the last copy or drill"
    )
    return f"{size(restores.bytes)}, {pace}"


def known_saves(view: View) -> tuple[CheckpointState, ...]:
    """What a page can name: the saves in the store, and before what is of no use there the copies in the archive."""
    saves = () if isinstance(view.checkpoints, Unknown) else view.checkpoints
    copies = () if isinstance(view.archive, Unknown) else view.archive
    here = {c.id for c in saves if c.phase is CheckpointPhase.COMPLETED}
    good, rest = [c for c in saves if c.id in here], [c for c in saves if c.id not in here]
    return (*good, *(c for c in copies if c.id not in here), *rest)


def _open(history: History, kind: type[actions.Restore | actions.Archive | actions.Scrub]) -> list[tuple[str, Intent]]:
    found = ((i.action, i) for i in history.intents.values())
    return [(action.checkpoint, intent) for action, intent in found if isinstance(action, kind)]


def _why(view: View, key: str) -> str:
    """What the last try has said, when it has not done it."""
    said = dict((*view.delays, *view.failures)).get(key, "")
    return f" The last try: {sentence(said)}" if said else ""


def _so_far(view: View, what: str) -> str:
    """How far a copy has come, where that is known."""
    done, total = next(((done, total) for moved, done, total in view.moved if moved == what), (0, 0))
    return f", {done / total:.0%} so far" if total else ""


def _restoring(history: History, view: View, now: float, known: Known) -> list[str]:
    lines = []
    for name, intent in _open(history, actions.Restore):
        restores = getattr(history.decision, "restores", None)
        amount = f" ({restore_text(restores)})" if restores else ""
        since = f"since {clock(intent.at, known.zone, now)}{_so_far(view, f'restoring {name} from the archive')}"
        lines.append(f"Restoring {clean(name, 64)} from the archive{amount}, {since}.{_why(view, intent.key)}")
    return lines


def _archive(history: History, view: View, now: float, known: Known) -> list[str]:
    if not view.has_archive:
        return []
    if isinstance(view.archive, Unknown):
        seen = f"; last seen {span(now - view.archive_as_of)} ago" if view.archive_as_of is not None else ""
        return [f"Archive: unknown; it can't be read ({clean(view.archive_why, 120)}){seen}."]
    copies = by_age(view.archive)
    if not copies:
        text = "Archive: no copy yet."
    elif history.archived and history.archived.id == copies[-1].id:
        text = f"Archive: last copy {copies[-1].id}, {span(now - history.archived.at)} ago; {count(len(copies), 'copy', 'copies')}."
    else:  # by another controller or by hand: the save's own age is what is known
        done = copies[-1].completed_at
        age = f", completed {span(now - done)} ago" if done is not None else ""
        text = f"Archive: last copy {copies[-1].id}{age}; {count(len(copies), 'copy', 'copies')}."
    for name, intent in _open(history, actions.Archive):
        since = f"since {clock(intent.at, known.zone, now)}{_so_far(view, f'copying {name} into the archive')}"
        text += f" Copying {clean(name, 64)} {since}.{_why(view, intent.key)}"
    return [text]


def _read(view: View, now: float) -> list[str]:
    """The reading that lies back the farthest: nothing that is kept has gone unread for longer."""
    if isinstance(view.checkpoints, Unknown):
        return []
    read = [c for c in view.checkpoints if c.phase is CheckpointPhase.COMPLETED and c.read_at is not None]
    if not read:
        return []
    last = max(read, key=lambda c: c.read_at or 0.0)
    return [f"Read again in full: {clean(last.id, 64)}, {span(now - (last.read_at or now))} ago."]
