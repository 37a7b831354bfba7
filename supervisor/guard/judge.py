"""What is wrong with a run, as somebody outside of its controller sees it: each matter said once, and when all is well again. Pure.

`now` is the guard's own monotonic clock. That something has changed counts, not what time it says: clocks of hosts differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from policies.history import History, Telling
from supervisor.telling.heart import STILL_S
from supervisor.telling.notices import Notice
from supervisor.telling.say import clean, names, sentence, span
from supervisor.telling.told import matter

LEASE_S = 45.0
"""A lease is renewed every 5 s; from another host, nine missed renewals are the end of its holder."""
GRACE_S: Mapping[str, float] = {
    "run-directory-gone": 30.0,  # a file system that is mounted again
    "run-directory-hangs": 0.0,  # the look has a deadline of its own
    "guard-blind": 10.0,  # two looks
    "journal-damaged": 10.0,  # two looks
    "journal-not-writable": 20.0,
    "controller-gone": 20.0,  # its parent starts another within a second
    "controller-stuck": 0.0,
    "next-job-over": 60.0,  # one that is requeued is over for a moment
    "notice-not-delivered": 0.0,
    "nobody-told": 60.0,
    "notice-under-way": 180.0,  # a first try has a deadline of its own
}
"""So long each must last before it is said."""
SURE_S = max(LEASE_S, STILL_S) + GRACE_S["controller-gone"]
"""So long a guard that has just begun must have looked before it calls well what one before it found wrong."""
NO_LEASE_S = 60.0
"""A run that has just been started has no lease yet."""


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen, once. `lease` and `status` only ever say that they have changed.

    `dead`: the holder's process on this host is gone; None where it runs on another host. `history` None: the journal could not
    be read, and `unread` says why. `fault`: a fault of ours kept us from looking. `waits`: an open plan waits for a person.
    `over`: the run has ended and nobody is needed. `between`: it has left its job, and the next one was asked for; `next_over`:
    why that one will not take the run up, with its state in Slurm's words.
    """

    there: bool = True
    hangs_s: float = 0.0
    fault: str = ""
    lease: str = ""
    dead: bool | None = None
    status: str = ""
    history: History | None = None
    unread: str = ""
    unwritable: str = ""
    waits: bool = False
    over: bool = False
    between: bool = False
    next_over: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """What the guard remembers between two looks. `since`: when each matter began; `said`: those that were told and last."""

    began: float
    lease: tuple[str, float] = ("", 0.0)
    status: tuple[str, float] = ("", 0.0)
    since: Mapping[str, float] = field(default_factory=dict)
    said: frozenset[str] = frozenset()
    again: int = 0


@dataclass(frozen=True, slots=True)
class Matter:
    """One thing that is wrong: what is seen, what it means, and which page to read."""

    key: str
    seen: str
    means: str
    page: str
    escalates: bool = False

    @property
    def kind(self) -> str:
        """Its name in GRACE_S."""
        return self.key.partition(" ")[0]


def judge(run: str, look: Look, memory: Memory, now: float) -> tuple[Memory, tuple[Notice, ...]]:
    """What is to be said now, and what is remembered."""
    memory = _followed(look, memory, now)
    found = {one.key: one for one in matters(run, look, memory, now)}
    since = {key: memory.since.get(key, now) for key in found}
    due = [one for key, one in found.items() if key not in memory.said and now - since[key] >= GRACE_S[one.kind]]
    notices = [_notice(run, one, memory.again) for one in due]
    said = (memory.said & found.keys()) | {one.key for one in due}
    again = memory.again
    # A halted run that nobody holds any more is not looked at any more; that makes nothing well.
    given_up = look.over and look.history is not None and look.history.halted is not None
    sure = look.over or now - memory.began >= SURE_S
    if memory.said and not said and not found and sure and not given_up:
        again += 1
        notices.append(_well(run, memory.said, again, _still(look)))
    elif memory.said and not said:
        said = memory.said  # something else is on its way: it is not well, and not said to be
    return replace(memory, since=since, said=said, again=again), tuple(notices)


def _followed(look: Look, memory: Memory, now: float) -> Memory:
    """When lease and status last changed, by our own clock."""
    lease = memory.lease if look.lease == memory.lease[0] else (look.lease, now)
    status = memory.status if look.status == memory.status[0] else (look.status, now)
    return replace(memory, lease=lease, status=status)


def matters(run: str, look: Look, memory: Memory, now: float) -> list[Matter]:
    """Everything that is wrong at this moment, whether it has lasted or not."""
    if look.over:
        return []
    if look.hangs_s:
        means = f"The file system under it does not answer for {span(look.hangs_s)}. Whether {run} trains is not known."
        return [Matter("run-directory-hangs", "The run directory does not answer.", means, "run-directory-gone")]
    if look.fault:
        means = f"It is a fault of relight's. Whether {run} trains is not known from here."
        return [Matter("guard-blind", f"The guard can't look: {sentence(look.fault)}", means, "controller-dies")]
    if not look.there:
        means = "Without it nothing is recorded, and no controller can start. What runs is left as it is."
        return [Matter("run-directory-gone", "The run directory is not there.", means, "run-directory-gone")]
    found = []
    if look.unread:
        means = "Nothing is guessed from it: a controller that starts now refuses. What runs goes on."
        found.append(
            Matter("journal-damaged", f"The journal can't be read: {sentence(look.unread)}", means, "journal-damaged")
        )
    if look.unwritable:
        means = "What can't be journaled is not done: nothing is recovered until it can be written."
        seen = f"The journal can't be written: {sentence(look.unwritable)}"
        found.append(Matter("journal-not-writable", seen, means, "journal-not-writable"))
    return [*found, *_controller(look, memory, now), *_telling(look)]


def _controller(look: Look, memory: Memory, now: float) -> list[Matter]:
    """Is it at work? While a run waits for its next job there is none, perhaps for days."""
    if look.between and look.next_over:
        means = "Nobody goes on with it. Submit the job script again, once that job is over; relight status says from where."
        seen = f"The next {look.next_over}, and has not taken the run up."
        return [Matter("next-job-over", seen, means, "next-job", escalates=True)]
    if look.between:
        return []
    if not look.lease:
        gone = now - memory.began >= NO_LEASE_S
        seen = "No controller has ever taken the lease."
    else:
        gone = look.dead is True or (look.dead is None and now - memory.lease[1] >= LEASE_S)
        seen = "The controller's process is gone." if look.dead else "The controller's lease is not renewed any more."
    if gone:
        means = "The ranks are not its children and go on, but nobody watches them and nothing is recovered."
        return [Matter("controller-gone", seen, means, "controller-dies")]
    still = now - max(memory.status[1], memory.began)
    if still >= STILL_S:
        means = "It lives, but does not turn: nothing is noticed and nothing is recovered."
        seen = f"The controller has not looked for {span(still)}."
        return [Matter("controller-stuck", seen, means, "controller-stuck")]
    return []


def _telling(look: Look) -> list[Matter]:
    """Does a person who is waited for know of it?"""
    history = look.history
    key = matter(history) if history is not None else None
    if history is None or key is None or not (look.waits or history.halted is not None):
        return []
    what = "The run is halted" if history.halted is not None else "A plan waits for a person"
    tellings = [t for k, t in history.tellings.items() if k == key or k.endswith(f":{key}")]
    if not any(t.to for t in tellings):
        means = "Its controller has nobody to tell. It waits until somebody looks."
        return [
            Matter(f"nobody-told {key}", f"{what}, and nobody was told.", means, "notice-not-delivered", escalates=True)
        ]
    if any(t.reached for t in tellings):
        return [one for t in tellings if t.failed and t.given_up for one in [_undelivered(what, t, key)]]
    failed = next((t for t in tellings if t.failed), None)
    if failed is not None:
        return [_undelivered(what, failed, key)]
    means = "The notice is still on its way, or its carrier hangs."
    return [
        Matter(
            f"notice-under-way {key}",
            f"{what}, and nobody has the notice.",
            means,
            "notice-not-delivered",
            escalates=True,
        )
    ]


def _undelivered(what: str, told: Telling, key: str) -> Matter:
    who = names([name for name, _ in told.failed], 8)
    why = sentence("; ".join(why for _, why in told.failed))
    seen = f"{what}, and this was not delivered to {who}: {why}"
    return Matter(
        f"notice-not-delivered {key}", seen, f"It says: {sentence(told.title)}", "notice-not-delivered", escalates=True
    )


def _notice(run: str, one: Matter, again: int) -> Notice:
    name = clean(run, 64)
    body = f"{one.seen}\n{one.means}\nRead: relight runbook {one.page}     Then: relight status {name}"
    return Notice(
        f"guard:{again}:{one.key}", "guard", run, f"relight {name}: {TITLES[one.kind]}", body, escalates=one.escalates
    )


def _still(look: Look) -> str:
    """What a person has to do all the same, with nothing wrong that a guard says."""
    if look.history is not None and look.history.halted is not None:
        return "the run is halted"
    return "a plan waits for a person" if look.waits else ""


def _well(run: str, over: frozenset[str], again: int, still: str) -> Notice:
    name = clean(run, 64)
    kinds = sorted({TITLES[key.partition(" ")[0]] for key in over})
    body = f"Over: {names(kinds, 8)}.\nrelight status {name}"
    return Notice(
        f"guard:{again}:well",
        "guard",
        run,
        f"relight {name}: {f'that is over; {still}' if still else 'all well again'}",
        body,
    )


TITLES: Mapping[str, str] = {
    "run-directory-gone": "the run directory is gone",
    "run-directory-hangs": "the run directory does not answer",
    "guard-blind": "the guard can't look",
    "journal-damaged": "the journal is damaged",
    "journal-not-writable": "the journal can't be written",
    "controller-gone": "the controller is gone",
    "controller-stuck": "the controller does not turn",
    "next-job-over": "nobody goes on with it in its next job",
    "notice-not-delivered": "a notice was not delivered",
    "nobody-told": "it waits, and nobody was told",
    "notice-under-way": "it waits, and nobody has the notice yet",
}
