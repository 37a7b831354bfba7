"""A run's saves as people and programs read them: the list, and one save whole. Pure; the time is an argument."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from policies.decisions import Recover
from policies.facts import CheckpointPhase
from slurm.cluster import Unreadable
from supervisor.checkpoints.tree import SaveId
from supervisor.telling.say import clean, count, names, number, sentence, size, span, stamp

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import tzinfo

    from policies.facts import CheckpointState
    from policies.history import History
    from supervisor.checkpoints.account import Account, Accounts, Deleted
    from supervisor.checkpoints.manifest import Manifest
    from supervisor.checkpoints.pins import Pin

DELETED_SHOWN: Final = 3
_NOT_READABLE: Final = "can't be judged now"


@dataclass(frozen=True, slots=True)
class Roles:
    """What saves are for at this moment. `running`: attempt and the save it was loaded from; `planned`: the plan's."""

    running: tuple[int, str | None] | None = None
    planned: str | None = None


@dataclass(frozen=True, slots=True)
class Archived:
    """What an archive showed; Unreadable: it could not be looked at now."""

    place: str
    saves: tuple[CheckpointState, ...] | Unreadable


@dataclass(frozen=True, slots=True)
class Listing:
    """All that is told of a run's saves. `zone` None: the machine's own."""

    run: str
    accounts: Accounts
    roles: Roles
    now: float
    free_bytes: int | None = None
    archive: Archived | None = None
    zone: tzinfo | None = None


def roles_of(history: History) -> Roles:
    """What the newest attempt was loaded from while it is open, and what the plan starts from that is not carried out yet."""
    attempt, decision = history.attempt, history.decision
    running = (attempt.number, attempt.checkpoint) if attempt is not None and attempt.closed_at is None else None
    ahead = isinstance(decision, Recover) and (attempt is None or decision.attempt > attempt.number)
    return Roles(running, decision.checkpoint if ahead and isinstance(decision, Recover) else None)


def listing_text(told: Listing, *, every: bool) -> str:
    """One line a save, newest first. `every`: deleted ones by name too."""
    rows = [_row(account, told) for account in told.accounts.saves]
    rows += [_archived_row(state, told) for state in _only_archived(told)]
    rows += [_deleted_row(one, told) for one in told.accounts.deleted] if every else []
    rows.sort(key=lambda row: SaveId.parse(row[0]), reverse=True)
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(4)]
    lines = [_head(told)]
    for name, step, when, room, words in rows:
        lines.append(f"{name:{widths[0]}}  {step:>{widths[1]}}  {when:{widths[2]}}  {room:>{widths[3]}}  {words}")
    if not every and told.accounts.deleted:
        newest = names([one.id for one in told.accounts.deleted[:DELETED_SHOWN]], DELETED_SHOWN)
        more = " and older ones" if len(told.accounts.deleted) > DELETED_SHOWN else ""
        lines.append(f"{count(len(told.accounts.deleted), 'save')} deleted: {newest}{more}. All of them: --all")
    return "\n".join(lines + _archive_lines(told)) + "\n"


def _head(told: Listing) -> str:
    phases = [account.state.phase for account in told.accounts.saves]
    counted = [f"{number(phases.count(phase))} {word}" for phase, word in _WORDS.items() if phase in phases]
    latest = f"; latest {told.accounts.latest}" if told.accounts.latest else ""
    free = f"; {size(told.free_bytes)} free" if told.free_bytes is not None else ""
    return f"{clean(told.run, 64)}: {', '.join(counted) or 'no saves'}{latest}{free}"


_WORDS: Final = {
    CheckpointPhase.COMPLETED: "completed",
    CheckpointPhase.FRAMEWORK_DONE: "not sealed yet",
    CheckpointPhase.IN_PROGRESS: "in progress",
    CheckpointPhase.NOT_YET: "not readable now",
    CheckpointPhase.BROKEN: "broken",
    CheckpointPhase.ABANDONED: "abandoned",
}


def state_text(state: CheckpointState, began_at: float | None, now: float) -> str:
    """Where one save stands, with the first reason."""
    why = f": {clean(state.reasons[0])}" if state.reasons else ""
    match state.phase:
        case CheckpointPhase.COMPLETED:
            return f"completed{' without sidecars' if state.limited else ''}{f' ({clean(state.reasons[0])})' if why else ''}"
        case CheckpointPhase.FRAMEWORK_DONE:
            return "written, not sealed yet"
        case CheckpointPhase.IN_PROGRESS:
            return f"in progress{f' for {span(max(0.0, now - began_at))}' if began_at is not None else ''}{why}"
        case CheckpointPhase.NOT_YET:
            return f"{_NOT_READABLE}{why}"
        case CheckpointPhase.BROKEN:
            return f"broken{why}"
        case CheckpointPhase.ABANDONED:
            return f"abandoned{why}"


def _row(account: Account, told: Listing) -> tuple[str, str, str, str, str]:
    state = account.state
    at = state.saved_at if state.saved_at is not None else account.began_at
    words = [state_text(state, account.began_at, told.now), *marks_of(account, told)]
    room = size(state.bytes) if state.bytes else "-"
    return state.id, number(state.step), stamp(at, told.zone) if at is not None else "-", room, "; ".join(words)


def marks_of(account: Account, told: Listing) -> list[str]:
    """What a save is for, and what was done with it."""
    state, roles = account.state, told.roles
    words = ["latest"] if state.id == told.accounts.latest else []
    if roles.running is not None and roles.running[1] == state.id:
        words.append(f"attempt {roles.running[0]} runs from it")
    if roles.planned == state.id:
        words.append("the plan starts from it")
    if account.pin is not None:
        words.append(pin_text(account.pin))
    elif state.pinned:
        words.append("pinned, or pins can't be read")
    if account.archive is not None:
        words.append(f"archived {stamp(account.archived_at, told.zone)}")
    elif any(s.id == state.id and s.phase is CheckpointPhase.COMPLETED for s in _copies(told)):
        words.append("archived")  # by an archive that knows more than the store, which was made anew
    if account.origin == "restored":
        words.append("restored from the archive")
    if account.origin == "adopted":
        words.append(f"adopted: {clean(account.data)}")
    if account.read_at is not None:
        words.append(f"read again {stamp(account.read_at, told.zone)}")
    return words


def pin_text(pin: Pin) -> str:
    """Who wants a save to be kept, and why."""
    by = f" by {clean(pin.who, 64)}" if pin.who else ""
    return f"pinned{by}: {clean(pin.why)}"


def prune_text(states: Iterable[CheckpointState], gone: Collection[str], stay: Mapping[str, str], *, done: bool) -> str:
    """What went, or would go, and why each of the others stays; newest first."""
    found = sorted(states, key=lambda s: (s.attempt, s.step), reverse=True)
    freed = size(sum(state.bytes for state in found if state.id in gone))
    word = "deleted" if done else "would go"
    lines = [f"{s.id}  {word}" if s.id in gone else f"{s.id}  stays: {clean(stay[s.id])}" for s in found]
    lines.append(f"{count(len(gone), 'save')} {word}, {freed}." if gone else "Nothing to delete.")
    return "\n".join(lines) + "\n"


def _archived_row(state: CheckpointState, told: Listing) -> tuple[str, str, str, str, str]:
    words = f"in the archive only: {state_text(state, None, told.now)}"
    at = stamp(state.saved_at, told.zone) if state.saved_at is not None else "-"
    return state.id, number(state.step), at, size(state.bytes) if state.bytes else "-", words


def _deleted_row(one: Deleted, told: Listing) -> tuple[str, str, str, str, str]:
    words = "deleted; its data is still being removed" if one.pending else "deleted"
    return one.id, "", stamp(one.at, told.zone) if one.at is not None else "-", "-", words


def _copies(told: Listing) -> tuple[CheckpointState, ...]:
    """What is in the archive, as far as it can be seen now."""
    return () if told.archive is None or isinstance(told.archive.saves, Unreadable) else told.archive.saves


def _only_archived(told: Listing) -> list[CheckpointState]:
    here = {account.state.id for account in told.accounts.saves}
    return [state for state in _copies(told) if state.id not in here]


def _archive_lines(told: Listing) -> list[str]:
    if told.archive is None:
        return []
    place = clean(told.archive.place)
    if isinstance(told.archive.saves, Unreadable):
        return [f"Archive {place}: it can't be read now: {sentence(told.archive.saves.why)}"]
    whole = [s for s in told.archive.saves if s.phase is CheckpointPhase.COMPLETED]
    newest = max(whole, key=lambda s: (s.attempt, s.step), default=None)
    return [f"Archive {place}: {count(len(whole), 'save')}{f', the newest {newest.id}' if newest else ''}."]


def listing_json(told: Listing) -> dict[str, Any]:
    """The same for programs."""
    roles, archive = told.roles, told.archive
    return {
        "schema": 1,
        "run": told.run,
        "as_of": told.now,
        "latest": told.accounts.latest,
        "running": {"attempt": roles.running[0], "checkpoint": roles.running[1]} if roles.running else None,
        "planned": roles.planned,
        "free_bytes": told.free_bytes,
        "saves": [account_json(account) for account in told.accounts.saves],
        "deleted": [asdict(one) for one in told.accounts.deleted],
        "archive": _archive_json(archive) if archive is not None else None,
    }


def _archive_json(archive: Archived) -> dict[str, Any]:
    if isinstance(archive.saves, Unreadable):
        return {"place": archive.place, "known": False, "why": archive.saves.why, "saves": []}
    saves = [asdict(s) | {"phase": s.phase.value} for s in archive.saves]
    return {"place": archive.place, "known": True, "why": "", "saves": saves}


def account_json(account: Account) -> dict[str, Any]:
    """One save: its state flat, and what stands beside it."""
    beside = asdict(account)
    state = beside.pop("state")
    return {**state, "phase": account.state.phase.value, **beside}


def save_text(told: Listing, account: Account, manifest: Manifest | None) -> str:
    """One save whole: state, marks, what was checked, counters, reasons."""
    state = account.state
    lines = [f"{state.id}: {state_text(state, account.began_at, told.now)}"]
    lines += [f"  {clean(reason)}" for reason in state.reasons[1:]]
    lines += [f"{sentence(word[0].upper() + word[1:])}" for word in marks_of(account, told)]
    lines.append(f"Data: {clean(account.data)}")
    for word, at in (("Begun", account.began_at), ("Saved", state.saved_at), ("Completed", state.completed_at)):
        lines += [f"{word}: {stamp(at, told.zone)}"] if at is not None else []
    if manifest is not None:
        lines += _manifest_lines(manifest)
    copies = [s for s in _copies(told) if s.id == state.id]
    lines += [f"Archive: {state_text(s, None, told.now)}, {size(s.bytes)}" for s in copies]
    lines += _archive_lines(told) if told.archive and isinstance(told.archive.saves, Unreadable) else []
    return "\n".join(lines) + "\n"


def save_json(told: Listing, account: Account, manifest: Manifest | None) -> dict[str, Any]:
    """The same for programs."""
    listed = listing_json(told)
    copies = listed["archive"]
    if copies is not None:
        copies = {**copies, "saves": [one for one in copies["saves"] if one["id"] == account.state.id]}
    shown = manifest.model_dump(mode="json", by_alias=True) if manifest is not None else None
    about = {name: listed[name] for name in ("schema", "run", "as_of", "latest", "running", "planned")}
    return {**about, "save": account_json(account), "manifest": shown, "archive": copies}


def _manifest_lines(manifest: Manifest) -> list[str]:
    lines = [
        f"Manifest: {size(manifest.bytes)} in {count(len(manifest.files), 'file')}, of {count(manifest.world, 'rank')}"
    ]
    kept = manifest.counters
    if kept is not None:
        rate = f", learning rate {kept.lr:g}" if kept.lr is not None else ""
        data = f", data {clean(kept.data_version, 64)}" if kept.data_version else ""
        lines.append(
            f"Counters: iteration {number(kept.step)}, samples {number(kept.samples)}, updates {number(kept.updates)}, "
            f"skipped {number(kept.skipped)}{rate}{data}"
        )
    if manifest.state is not None:
        own = ", ".join(f"{clean(name, 32)} {value:g}" for name, value in manifest.state.counters.items())
        lines.append(f"Its own state ({clean(manifest.state.format, 32)}): {own or 'says nothing'}")
    lines += [f"Check {clean(name, 32)}: {clean(text, 500)}" for name, text in manifest.checks.items()]
    lines += [f"Repaired in the view: {clean(name)}" for name in manifest.repairs]
    return lines
