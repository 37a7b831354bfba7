"""The promises of docs/design.md, section 5, held against what really happens in a simulated world, at every step.

Each looks at the journal's entries as they are written, and at the truth that no controller can see. None asks the
product whether it was right. `tests/simulation/test_checkers.py` plants a fault for each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from policies import ledger
from policies.decisions import Recover
from policies.facts import INFRASTRUCTURE, FaultClass
from policies.history import History
from policies.layout import prove_swap
from policies.reasons import Reason
from supervisor import actions
from supervisor.bench.world.training import ROTTEN
from supervisor.bench.world.world import Watch
from supervisor.fold import fold, fold_all
from supervisor.journal.entries import (
    Approved,
    AttemptAccepted,
    AttemptClosed,
    Chosen,
    Diagnosed,
    Entry,
    HaltedEntry,
    Intended,
    Refused,
    Resumed,
    Stamped,
    StopAsked,
    Unbarred,
)

if TYPE_CHECKING:
    from policies.history import Diagnosis
    from supervisor.bench.world.shell import Life
    from supervisor.bench.world.world import SimWorld

LEAVES = 1.5
"""A run may leave its job so many times `job.leave_s` before the end: earlier where saves are slow."""
DRAIN_SEEN_S = 5.0
"""So long ago a drain of somebody else must have been set before a newly chosen node may not have it."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A promise that was not kept: its number and title, what was seen, and when (wall seconds)."""

    number: int
    title: str
    text: str
    at: float


class Promise:
    """One promise. `case.broken(self, text)` says that it was not kept."""

    number = 0
    title = ""

    def entry(self, case: Checkers, stamped: Stamped) -> None:
        """This is written; `case.history` is what was known before."""

    def launched(self, case: Checkers, attempt: int, checkpoint: str) -> None:
        """An attempt has arrived, and has loaded this."""

    def stored(self, case: Checkers, what: str, name: str) -> None:
        """The store has changed."""

    def archived(self, case: Checkers, what: str, name: str) -> None:
        """The archive has changed."""

    def looked(self, case: Checkers) -> None:
        """A turn is over."""


class SameJournal(Promise):
    """What a new controller reads is what the one before had remembered."""

    number = 0
    title = "the journal alone rebuilds what the policies saw"


class OneAttempt(Promise):
    """Truth: living ranks on machines that can be reached, and saves finished after their attempt was fenced."""

    number = 1
    title = "at most one attempt can publish"

    def __init__(self) -> None:
        self._seen = 0

    def looked(self, case: Checkers) -> None:
        """Two at once?"""
        double = case.world.training.truth.double
        for text in double[self._seen :]:
            case.broken(self, text)
        self._seen = len(double)

    def stored(self, case: Checkers, what: str, name: str) -> None:
        """Was it finished behind a fence?"""
        save = case.world.store.saves.get(name)
        if what != "completed" or save is None or save.done_at is None:
            return
        fenced = case.world.files.marked_at.get((save.attempt, "FENCED"))
        if fenced is not None and save.done_at > fenced:
            case.broken(self, f"{name} was finished after attempt {save.attempt} had been fenced, and completed")


class OnlyCompleted(Promise):
    """Truth: what an attempt has really loaded."""

    number = 2
    title = "a start only from a completed, verified checkpoint"

    def entry(self, case: Checkers, stamped: Stamped) -> None:
        """What is accepted has loaded what was sealed."""
        if isinstance(stamped.entry, AttemptAccepted):
            one = case.world.training.attempts.get(stamped.entry.attempt)
            if one is not None and one.state.endswith(ROTTEN):
                case.broken(self, f"attempt {one.number} was accepted, and had loaded other bytes than were sealed")

    def stored(self, case: Checkers, what: str, name: str) -> None:
        """Has anything come back from the archive that was not wholly there, and what was sealed?"""
        copy, save = case.world.archive.copies.get(name), case.world.store.saves.get(name)
        if what == "restored" and not (copy and copy.whole and save and save.sound and save.committed):
            case.broken(self, f"{name} came back from the archive, and is not what was sealed")

    def archived(self, case: Checkers, what: str, name: str) -> None:
        """Was it completed and sound when it was copied?"""
        copy = case.world.archive.copies.get(name)
        if what == "copied" and not (copy and copy.sound and copy.save.committed and name in case.completed):
            case.broken(self, f"{name} was copied into the archive, and is not completed and sound")

    def launched(self, case: Checkers, attempt: int, checkpoint: str) -> None:
        """Was it sealed, and is it still what was sealed?"""
        store = case.world.store
        if case.world.training.attempts[attempt].refused or store.views.get(attempt) in store.vanished:
            return  # nothing was started; or somebody deleted it behind our back, and the ranks find nothing to load
        if not checkpoint:
            if any(what == "completed" for _, what, _ in store.log.changes):
                case.broken(self, f"attempt {attempt} started from nothing, though saves had been completed")
            return
        save = store.saves.get(checkpoint)
        if save is not None and not save.sound and (save.rotten_at or 0.0) > store.viewed_at.get(attempt, 0.0):
            return  # it rotted after it had been read for this launch; what the ranks then load, acceptance must see
        if save is None or not save.committed or not save.sound or save.condemned:
            case.broken(self, f"attempt {attempt} loaded {checkpoint}, which is not completed and sound")


class Slots(Promise):
    """The map of each launch, against the one before and the quarantine."""

    number = 3
    title = "every slot holds one node that is not quarantined, and a spare only after a new look; a swap changes nothing else"

    def entry(self, case: Checkers, stamped: Stamped) -> None:
        """Look at the map of a launch."""
        launch = _new_launch(case, stamped)
        if launch is None:
            return
        barred = case.barred(stamped.at) & set(launch.slots)
        if barred:
            case.broken(self, f"attempt {launch.attempt} uses {', '.join(sorted(barred))}, in quarantine")
        for name in _not_looked(case, launch):
            case.broken(self, f"attempt {launch.attempt} takes {name}, and no look at it says that it is well")
        before = case.history.attempt.slots if case.history.attempt else launch.slots
        proof = prove_swap(case.world.given.layout, before, launch.slots)
        if not proof.good or len(set(launch.slots)) != len(launch.slots):
            case.broken(self, f"attempt {launch.attempt}: {'; '.join(proof.faults) or 'the groups differ'}")

    def launched(self, case: Checkers, attempt: int, checkpoint: str) -> None:  # noqa: ARG002
        """The ranks run where the journal says."""
        known = next((a.slots for a in case.history.attempts if a.number == attempt), None)
        if known is not None and case.world.training.attempts[attempt].slots != known:
            case.broken(self, f"attempt {attempt} runs on other nodes than the journal says")


def _not_looked(case: Checkers, launch: actions.Launch) -> list[str]:
    """Truth: the nodes that come into a slot because of an incident, and have not looked since it began, or are broken."""
    if launch.incident is None or case.history.attempt is None:
        return []
    new = sorted(set(launch.slots) - set(case.history.attempt.slots))
    agents, own = case.world.agents, case.history.incident
    if own is None or own.attempt != case.history.attempt.number:
        return []  # the run begins anew with an old incident open: nobody was asked because of it
    return [name for name in new if agents[name].looked_for < launch.incident or agents[name].found]


class IntentFirst(Promise):
    """Every change of the world against the intents in the journal."""

    number = 4
    title = "no effect without an intent in the journal"

    def __init__(self) -> None:
        self._intended: dict[str, set[str]] = {}
        self._asked = 0
        self._marks: set[tuple[int, str]] = set()

    def entry(self, case: Checkers, stamped: Stamped) -> None:  # noqa: ARG002
        """Note an intent."""
        if isinstance(stamped.entry, Intended):
            kind, _, rest = actions.key(stamped.entry.action).partition(":")
            self._intended.setdefault(kind, set()).add(rest)

    def launched(self, case: Checkers, attempt: int, checkpoint: str) -> None:  # noqa: ARG002
        """A launch."""
        self._wants(case, "launch", str(attempt), f"attempt {attempt} was launched")

    def stored(self, case: Checkers, what: str, name: str) -> None:
        """A change of the store that only we make."""
        kind = {"committed": "seal", "broken": "seal", "abandoned": "abandon", "deleted": "retain", "view": "make-view"}
        kind |= {"restored": "restore", "read": "scrub"}
        if what in kind:
            named = kind[what] not in {"retain", "make-view"}
            self._wants(case, kind[what], name if named else "", f"{name}: {what}")

    def archived(self, case: Checkers, what: str, name: str) -> None:
        """A change of the archive that only we make."""
        if what in {"copied", "deleted"}:
            self._wants(case, "archive", name if what == "copied" else "", f"{name}: {what} in the archive")

    def looked(self, case: Checkers) -> None:
        """Bars and marks."""
        taken = case.world.cluster.asked.taken
        for _, kind, name in taken[self._asked :]:
            if kind == "bar":
                self._wants(case, "bar", name, f"{name} was barred")
        self._asked = len(taken)
        for attempt, mark in set(case.world.files.marked_at) - self._marks:
            self._marks.add((attempt, mark))
            kind = {"FENCED": "fence", "STOP": "ask-stop"}[mark]
            self._wants(case, kind, str(attempt), f"attempt {attempt} was marked {mark}")

    def _wants(self, case: Checkers, kind: str, name: str, what: str) -> None:
        if not any(name in rest for rest in self._intended.get(kind, ())):
            case.broken(self, f"{what}, and no intent says so")


class EarliestError(Promise):
    """Once sealed, only earlier evidence replaces it; and nothing is killed before there is evidence."""

    number = 5
    title = "the earliest error is never lost"

    def entry(self, case: Checkers, stamped: Stamped) -> None:
        """A diagnosis, or a stop."""
        entry = stamped.entry
        if isinstance(entry, Diagnosed):
            old = next((i.diagnosis for i in case.history.incidents if i.number == entry.incident), None)
            if old is not None and _is_later(entry.diagnosis, old):
                case.broken(self, f"incident {entry.incident}: a later error has taken the place of the earliest")
        elif isinstance(entry, Intended) and isinstance(entry.action, actions.Fence | actions.Stop):
            incident = case.history.incident
            ours = incident is not None and incident.attempt == entry.action.attempt
            if ours and incident.times.evidence is None and case.history.halted is None:  # type: ignore[union-attr]
                case.broken(self, f"attempt {entry.action.attempt} is stopped before its evidence is kept")


class HaltStays(Promise):
    """A halt, and what lifts it."""

    number = 6
    title = "halted stays halted until a person acts"

    def __init__(self) -> None:
        self._halted = False

    def entry(self, case: Checkers, stamped: Stamped) -> None:
        """Is anything started?"""
        entry = stamped.entry
        if isinstance(entry, HaltedEntry):
            self._halted = True
        elif isinstance(entry, Resumed):
            filed = case.world.desk.filed
            if self._halted and not any((r.what == "resume" and r.why) or r.next_job for r in filed):
                case.broken(self, "the halt was lifted, and nobody had asked for it")
            self._halted = False
        elif (
            self._halted and isinstance(entry, Intended) and isinstance(entry.action, actions.Launch | actions.MakeView)
        ):
            case.broken(self, f"{actions.key(entry.action)} though the run is halted")


class Budgets(Promise):
    """Restarts counted from the entries themselves, whatever a controller remembers."""

    number = 7
    title = "budgets hold across a crash of the controller"

    def __init__(self) -> None:
        self._restarts: dict[int, tuple[float, FaultClass]] = {}

    def entry(self, case: Checkers, stamped: Stamped) -> None:
        """Count restarts."""
        if isinstance(stamped.entry, Resumed):
            self._restarts.clear()
        launch = _new_launch(case, stamped)
        if launch is None or launch.incident is None:
            return
        ended = next((i for i in reversed(case.history.incidents) if i.number == launch.incident), None)
        lifted = case.history.resumed_at
        if ended is None or (lifted is not None and ended.trouble.at <= lifted):
            return  # what a person has lifted a halt for is their restart, and no budget's
        self._restarts[ended.attempt] = (stamped.at, ended.fault)  # an attempt ends once
        rules = case.world.given.rules.budget
        recent = [f for at, f in self._restarts.values() if stamped.at - at < rules.window_s]
        infrastructure = sum(1 for f in recent if f in INFRASTRUCTURE)
        for what, count, allowed in (
            ("infrastructure", infrastructure, rules.infrastructure),
            ("software", len(recent) - infrastructure, rules.software),
        ):
            if count > allowed:
                case.broken(self, f"{count} restarts after {what} faults; {allowed} are allowed")


class Ledgers(Promise):
    """Both ledgers against each other, against the saves and against what was really computed."""

    number = 8
    title = "the ledgers add up"

    def entry(self, case: Checkers, stamped: Stamped) -> None:
        """At each close and each launch."""
        entry = stamped.entry
        after = fold(case.history, stamped)
        if isinstance(entry, AttemptClosed):
            lineage = ledger.lineage(after.books)
            if lineage != entry.ended.updates:
                case.broken(
                    self, f"the lineage has {lineage} updates, attempt {entry.attempt} ended at {entry.ended.updates}"
                )
            real = sum(case.world.training.truth.computed.values())
            if after.books.computed > real:
                case.broken(self, f"{after.books.computed} updates are booked as computed, {real} were")
        launch = _new_launch(case, stamped)
        save = case.world.store.saves.get(launch.checkpoint or "") if launch else None
        if launch is not None and save is not None and launch.start != save.counters:
            case.broken(self, f"attempt {launch.attempt} is booked from {launch.start}, the save holds {save.counters}")


class Blindness(Promise):
    """Truth: which machines were ever hurt, and what was visible."""

    number = 9
    title = "what can't be seen is not punished"

    def entry(self, case: Checkers, stamped: Stamped) -> None:
        """Whom does it bar?"""
        entry = stamped.entry
        if not (isinstance(entry, Intended) and isinstance(entry.action, actions.Bar)):
            return
        innocent = [n for n in entry.action.nodes if not case.world.cluster.nodes[n].hurt]
        if innocent:
            case.broken(self, f"{', '.join(innocent)} barred, and nothing had ever happened there")

    def stored(self, case: Checkers, what: str, name: str) -> None:
        """Is anything deleted that could not be judged?"""
        if what == "deleted" and name not in case.completed:
            case.broken(self, f"{name} was deleted, and had never been completed")


class OthersDrains(Promise):
    """Drains that somebody else has set."""

    number = 10
    title = "a drain that somebody else set is never lifted, overwritten or ignored"

    def looked(self, case: Checkers) -> None:
        """Do they stand?"""
        for name, (who, reason, _) in case.world.drains.items():
            node = case.world.cluster.nodes[name]
            if (node.drained_by, node.reason) != (who, reason):
                case.broken(
                    self, f"{name} was drained by {who}; now it says {node.drained_by or 'nobody'}: {node.reason}"
                )

    def entry(self, case: Checkers, stamped: Stamped) -> None:
        """Is a drained node taken as a spare?"""
        launch = _new_launch(case, stamped)
        if launch is None or case.history.attempt is None:
            return
        for name in set(launch.slots) - set(case.history.attempt.slots):
            drain = case.world.drains.get(name)
            if drain is not None and stamped.at - drain[2] > DRAIN_SEEN_S:
                case.broken(self, f"attempt {launch.attempt} takes {name}, drained by {drain[0]}")


class LastGood(Promise):
    """What is left after a deletion."""

    number = 11
    title = "the last good checkpoint is never deleted before a newer one is sealed"

    def __init__(self) -> None:
        self._good: set[str] = set()  # by the changes themselves: others may delete too, in the same turn

    def stored(self, case: Checkers, what: str, name: str) -> None:
        """Was it the newest?"""
        if what in {"completed", "restored"}:
            self._good.add(name)
        elif what in {"deleted", "vanished", "rotten", "condemn"}:
            self._good.discard(name)
        if what == "deleted" and name in case.completed:
            left = [case.completed[one] for one in self._good if one in case.completed]
            if not left or max(left) < case.completed[name]:
                case.broken(self, f"{name} was deleted; what is left is older")

    def archived(self, case: Checkers, what: str, name: str) -> None:
        """Was it the newest copy?"""
        if what == "deleted":
            left = [case.completed[c.save.id] for c in case.world.archive.whole() if c.save.id in case.completed]
            if not left or max(left) < case.completed.get(name, (0, 0)):
                case.broken(self, f"the copy of {name} was deleted; what is left in the archive is older")


class Rights(Promise):
    """Every word of a person against what was really filed."""

    number = 12
    title = "without the right nobody changes anything"

    def __init__(self) -> None:
        self._approved: set[str] = set()

    def entry(self, case: Checkers, stamped: Stamped) -> None:
        """Who said so?"""
        entry = stamped.entry
        filed = case.world.desk.filed
        if isinstance(entry, Approved):
            self._approved.add(entry.digest)
            if not any(r.what == "approve" and r.digest and entry.digest.startswith(r.digest) for r in filed):
                case.broken(self, f"plan {entry.digest[:6]} counts as approved, and nobody has approved it")
        wanted = _asked_for(entry)
        if wanted and not any(r.what in wanted for r in filed) and not _job_asks(case, entry):
            case.broken(self, f"the journal has a {wanted[0]}, and nobody has asked for it")
        launch = _new_launch(case, stamped)
        if launch is None or launch.incident is None or case.world.given.rules.mode == "auto":
            return
        decision = case.history.decision
        if not isinstance(decision, Recover) or case.history.decision_digest not in self._approved:
            case.broken(self, f"attempt {launch.attempt} was launched, and nobody had approved its plan")


class OneJob(Promise):
    """Truth: in which start of the job something was asked for, and whether it ran."""

    number = 13
    title = "launches only while the job runs; its next one is asked for once, when the run has left it"

    def __init__(self) -> None:
        self._outside = 0
        self._rows = 0
        self._intended: set[str] = set()
        self._asked: set[str] = set()

    def entry(self, case: Checkers, stamped: Stamped) -> None:
        """Does it say that it leaves, before it asks for another job?"""
        entry = stamped.entry
        if not (isinstance(entry, Intended) and isinstance(entry.action, actions.NextJob)):
            return
        self._intended.add(entry.action.start)
        attempt = case.history.attempt
        if case.history.ended != "next-job" or (attempt is not None and attempt.closed_at is None):
            case.broken(self, f"{actions.key(entry.action)} is asked for, and the run has not left its job")

    def looked(self, case: Checkers) -> None:
        """What has reached the cluster."""
        cluster = case.world.cluster
        for _, name in cluster.asked.outside[self._outside :]:
            case.broken(self, f"{name} was to be launched, and the job had long shown that it does not run")
        self._outside = len(cluster.asked.outside)
        rows = cluster.job.log.rows if cluster.job else []
        for _, what, start in rows[self._rows :]:
            if what == "asked":
                self._judge(case, start)
        self._rows = len(rows)

    def _judge(self, case: Checkers, start: str) -> None:
        if start not in self._intended:
            case.broken(self, f"another job was asked for after the one of {start}, and no intent says so")
        if start in self._asked:
            case.broken(self, f"the job of {start} was followed twice")
        self._asked.add(start)


PROMISES: tuple[type[Promise], ...] = (
    SameJournal,
    OneAttempt,
    OnlyCompleted,
    Slots,
    IntentFirst,
    EarliestError,
    HaltStays,
    Budgets,
    Ledgers,
    Blindness,
    OthersDrains,
    LastGood,
    Rights,
    OneJob,
)


@dataclass(slots=True)
class Checkers(Watch):
    """All promises, looking on. `world` is set once it is there."""

    world: SimWorld = field(init=False)
    history: History = field(default_factory=History)
    found: list[Broken] = field(default_factory=list)
    completed: dict[str, tuple[int, int]] = field(default_factory=dict)  # saves ever completed -> (attempt, step)
    _promises: list[Promise] = field(default_factory=lambda: [one() for one in PROMISES])
    _bars: dict[str, float | None] = field(default_factory=dict)
    _written: int = 0
    _launches: int = 0
    _changes: int = 0
    _copies: int = 0

    def broken(self, promise: Promise, text: str) -> None:
        """A promise is not kept."""
        self.found.append(Broken(promise.number, promise.title, text, self.world.time.now))

    def barred(self, now: float) -> set[str]:
        """In quarantine, by the entries themselves; a bar ends by its time at the earliest."""
        return {name for name, until in self._bars.items() if until is None or until > now}

    def life_began(self, before: list[Stamped]) -> None:
        """Read along with a new controller: what is on the disk and was never shown is taken in; the rest must agree."""
        fresh = [one for one in before if one.number > self._written]
        self.wrote(fresh)
        if fold_all(History(), before) != self.history:
            self.broken(self._promises[0], "the journal tells another story than was written")

    def wrote(self, stamped: list[Stamped]) -> None:
        """Entries, one by one."""
        for one in stamped:
            for promise in self._promises:
                promise.entry(self, one)
            entry = one.entry
            if isinstance(entry, Intended) and isinstance(entry.action, actions.Bar):
                bar_s = entry.action.bar_s
                self._bars.update(dict.fromkeys(entry.action.nodes, None if bar_s is None else one.at + bar_s))
            if isinstance(entry, Unbarred):
                self._bars.update({name: one.at for name in entry.nodes if name in self.barred(one.at)})
            self.history = fold(self.history, one)
            self._written = one.number

    def turned(self, life: Life) -> None:  # noqa: ARG002 - any controller's turn will do
        """What has happened since."""
        launches, changes = self.world.training.truth.launches, self.world.store.log.changes
        for _, attempt, checkpoint, _ in launches[self._launches :]:
            for promise in self._promises:
                promise.launched(self, attempt, checkpoint)
        self._launches = len(launches)
        for _, what, name in changes[self._changes :]:
            save = self.world.store.saves.get(name)
            if what == "completed" and save is not None:
                self.completed[name] = (save.attempt, save.counters.step)
            for promise in self._promises:
                promise.stored(self, what, name)
        self._changes = len(changes)
        copies = self.world.archive.log.changes
        for _, what, name in copies[self._copies :]:
            for promise in self._promises:
                promise.archived(self, what, name)
        self._copies = len(copies)
        for promise in self._promises:
            promise.looked(self)


def _new_launch(case: Checkers, stamped: Stamped) -> actions.Launch | None:
    """The launch that this entry intends for the first time."""
    entry = stamped.entry
    if not (isinstance(entry, Intended) and isinstance(entry.action, actions.Launch)):
        return None
    known = any(a.number == entry.action.attempt for a in case.history.attempts)
    return None if known else entry.action


def _is_later(new: Diagnosis, old: Diagnosis) -> bool:
    """Does its first error lie after the old one's? A lost node comes first whenever it is seen."""
    if new.fault in {FaultClass.NODE_LOST, FaultClass.NODE_SILENT}:
        return False
    walls = [[f.wall - f.offset_bound for f in one.first if f.wall is not None] for one in (new, old)]
    if not walls[0]:
        return bool(old.first) and not new.first
    return bool(walls[1]) and min(walls[0]) > min(f.wall + f.offset_bound for f in old.first if f.wall is not None)


def _asked_for(entry: Entry) -> tuple[str, ...]:
    """The request, one of these, that must be behind an entry; empty for those that need none."""
    match entry:
        case Chosen():
            return ("choose",)
        case Refused():
            return ("refuse",)
        case Resumed():
            return ("resume", "stop")
        case StopAsked():
            return ("stop",)
        case Unbarred():
            return ("unbar",)
        case HaltedEntry(reason=Reason.PERSON_HALTED):
            return ("halt",)
        case _:
            return ()


def _job_asks(case: Checkers, entry: Entry) -> bool:
    """Truth: may automation leave the job? Else is it over, or does it end soon? Then nothing follows by itself."""
    job = case.world.cluster.job
    if not isinstance(entry, StopAsked) or job is None or entry.who not in {"relight", "slurm"}:
        return False
    if case.world.given.rules.mode == "auto":
        return True
    slow = max((c.completed_s or c.written_s or 0.0 for c in case.history.save_costs), default=0.0)
    needs = LEAVES * max(case.world.given.rules.job.leave_s, 2 * slow)
    soon = job.ends_at is not None and job.ends_at - case.world.time.now <= needs
    return entry.then == "end" and (soon or not job.runs)
