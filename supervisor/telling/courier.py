"""Carries notices to everybody who is to be told, in threads of its own: nobody waits for it, and a try that failed is made again.

One thread a notice and target: a gateway that hangs holds up no other, and each is tried again by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from threading import Condition, Event, Lock, Thread

import structlog

from supervisor.journal.entries import Carried
from supervisor.telling import carrying
from supervisor.telling.carrying import Outcome
from supervisor.telling.notices import Notice
from supervisor.telling.targets import Targets

PAUSES_S = (60.0, 300.0, 900.0, 3600.0)
"""Between two tries: a gateway restarts within a minute, an outage lasts an hour. After the last, the guard says it."""
UNDER_WAY_MAX = 64
"""So many notices are carried at a time; each has a thread and a child for each target."""

Carry = Callable[[Notice, str, str], Outcome]
"""(notice, story, URL or "" for the command) -> how it went."""


def by_child(targets: Targets) -> Carry:
    """The real way: the site's command, or a child with apprise in it."""

    def carry(notice: Notice, story: str, url: str) -> Outcome:
        if url:
            return carrying.by_url(url, notice, targets.deadline_s)
        return carrying.by_command(targets.command, notice, story, targets.deadline_s)

    return carry


@dataclass(slots=True)
class _Parcel:
    """One notice on its way. `over`: nobody needs it any more."""

    notice: Notice
    story: str
    waiting: set[str]
    reached: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    tries: dict[str, int] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    over: Event = field(default_factory=Event)

    def carried(self) -> Carried:
        """As it stands."""
        moot = self.over.is_set()
        done = moot or not (self.waiting - self.lost)
        failed = () if moot else tuple(sorted(self.failed.items()))
        key, tries = self.notice.key, max(self.tries.values(), default=0)
        return Carried(key, tuple(self.reached), failed, tries, given_up=done and bool(self.waiting))


class Courier:
    """`targets`: whom to tell. `changed` is called, from any thread, when there is news for `carried`."""

    def __init__(
        self,
        targets: Targets,
        changed: Callable[[], None],
        carry: Carry | None = None,
        pauses_s: tuple[float, ...] = PAUSES_S,
    ) -> None:
        self.targets = targets
        self._changed = changed
        self._carry = carry or by_child(targets)
        self._pauses_s = pauses_s
        self._lock = Lock()
        self._idle = Condition(self._lock)
        self._parcels: dict[str, _Parcel] = {}
        self._news: dict[str, Carried] = {}

    def send(self, notice: Notice, story: str, reached: Collection[str] = ()) -> int:
        """Start to carry a notice to all who have not been reached; how many targets there are for it. Never blocks."""
        named = self.targets.named(escalates=notice.escalates)
        todo = {name: url for name, url in named.items() if name not in reached}
        if not todo:
            return len(named)
        parcel = _Parcel(notice.linked(self.targets.link), story, set(todo))
        with self._lock:
            if len(self._parcels) >= UNDER_WAY_MAX:
                why = f"{UNDER_WAY_MAX} notices are on their way already"
                self._news[notice.key] = Carried(notice.key, (), tuple((name, why) for name in todo), 0, given_up=True)
                return len(named)
            if before := self._parcels.get(notice.key):
                before.over.set()
            self._parcels[notice.key] = parcel
        for name, url in todo.items():
            Thread(target=self._bring, args=(parcel, name, url), name="relight-notice", daemon=True).start()
        return len(named)

    def news(self, matter: str | None = None, *, only: bool = False) -> list[Carried]:
        """How notices fared since the last call, the newest word of each.

        `only`: what is about another plan or halt than `matter` is not tried again; it was answered.
        """
        with self._lock:
            for key, parcel in list(self._parcels.items()) if only else []:
                about = key.split(":", 2)[2] if key.startswith("again:") else key
                if about != matter and parcel.notice.what in {"plan", "halt", "reminder"}:
                    parcel.over.set()
            found, self._news = list(self._news.values()), {}
            return found

    def wait(self, seconds: float) -> bool:
        """Wait until nothing is on its way, at most so long; is it so?"""
        with self._idle:
            return self._idle.wait_for(lambda: not self._parcels, seconds)

    def _bring(self, parcel: _Parcel, name: str, url: str) -> None:
        """Try, wait, and try again, until it is there, was in vain too often, or nobody needs it any more."""
        log = structlog.get_logger()
        for pause in (*self._pauses_s, None):
            outcome = self._carry(parcel.notice, parcel.story, url)
            if not outcome.ok:
                log.error("notice-failed", notice=parcel.notice.key, to=name, why=outcome.why)
            self._note(parcel, name, outcome, last=pause is None)
            if outcome.ok or pause is None:
                return
            if parcel.over.wait(pause):
                break
        self._note(parcel, name, None, last=True)

    def _note(self, parcel: _Parcel, name: str, outcome: Outcome | None, *, last: bool) -> None:
        with self._lock:
            if self._parcels.get(parcel.notice.key) is not parcel:
                return  # the same was told anew meanwhile
            parcel.failed.pop(name, None)
            if outcome is not None:
                parcel.tries[name] = parcel.tries.get(name, 0) + 1
                if outcome.ok:
                    parcel.waiting.discard(name)
                    parcel.reached.append(name)
                else:
                    parcel.failed[name] = outcome.why
            if last and name in parcel.waiting:
                parcel.lost.add(name)
            if not parcel.waiting - parcel.lost:
                self._parcels.pop(parcel.notice.key, None)
                self._idle.notify_all()
            self._news[parcel.notice.key] = parcel.carried()
        self._changed()
