"""What is remembered of notices: told once, carried or not, told anew where what is open is no longer the same. Pure."""

from __future__ import annotations

from dataclasses import replace

from policies.history import History, Telling
from supervisor.journal.entries import Carried, Told


def told(history: History, entry: Told, at: float) -> History:
    """A notice went out. One that is told anew by a later epoch keeps its time, and those it had reached."""
    before = history.tellings.get(entry.key)
    telling = Telling(entry.key, entry.title, at, entry.to)
    if before is not None:
        telling = replace(before, title=entry.title, to=entry.to, given_up=False)
    tellings = {**history.tellings, entry.key: telling}
    return replace(history, told=history.told | {entry.key}, tellings=tellings)


def carried(history: History, entry: Carried) -> History:
    """It has reached somebody, or has not."""
    before = history.tellings.get(entry.key)
    if before is None:
        return history  # the plan was withdrawn meanwhile
    reached = tuple(dict.fromkeys((*before.reached, *entry.reached)))
    now = replace(before, reached=reached, failed=entry.failed, tries=entry.tries, given_up=entry.given_up)
    return replace(history, tellings={**history.tellings, entry.key: now})


def forget_plan(history: History, digest: str | None) -> History:
    """A plan is no longer open: should it come back the same, it is told again, and its reminders begin anew."""
    plan = f"plan:{digest}"
    return _without(history, frozenset(k for k in history.told if k == plan or k.endswith(f":{plan}")))


def forget_plans(history: History) -> History:
    """What is open now is told again."""
    return _without(history, frozenset(k for k in history.told if k.startswith("plan:") or ":plan:" in k))


def new_epoch(history: History) -> History:
    """The carrier of the epoch before is gone: what it had not brought to everybody may be told again, if it is still open."""
    return replace(history, told=history.told - {k for k, one in history.tellings.items() if one.under_way})


def _without(history: History, keys: frozenset[str]) -> History:
    tellings = {k: one for k, one in history.tellings.items() if k not in keys}
    return replace(history, told=history.told - keys, tellings=tellings)
