"""The words that scenarios are told with: what happens when, and what must be so then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from policies.facts import FaultClass
from policies.history import History, Incident
from policies.layout import prove_swap
from policies.reasons import Reason
from supervisor.bench.world.job import Curse
from supervisor.bench.world.store import SAVE_BYTES
from supervisor.bench.world.timeline import clock
from supervisor.journal.requests import What

if TYPE_CHECKING:
    from supervisor.bench.world.world import SimWorld

Do = Callable[["SimWorld"], None]
Then = Callable[["SimWorld", History], str | None]
"""None when it is so; else what is so instead."""


@dataclass(frozen=True, slots=True)
class When:
    """Something happens at a time of day."""

    time: str
    do: Do

    @property
    def at(self) -> float:
        """Wall seconds."""
        return clock(self.time)


def at(time: str, *what: Do) -> When:
    """At this time of day, one thing after the other."""

    def do(world: SimWorld) -> None:
        for one in what:
            one(world)

    return When(time, do)


# --- what happens ---------------------------------------------------------------------------------------------------


def _node(world: SimWorld, slot: int | None, node: str) -> str:
    """The node that holds a slot now; else the one of this name."""
    newest = world.training.newest
    return newest.slots[slot] if slot is not None and newest is not None else node


def lose(slot: int | None = None, node: str = "") -> Do:
    """A machine is gone."""
    return lambda world: world.lose_node(_node(world, slot, node))


def freeze(slot: int | None = None, node: str = "") -> Do:
    """A machine stands still."""
    return lambda world: world.freeze_node(_node(world, slot, node))


def thaw(node: str) -> Do:
    """It goes on."""
    return lambda world: world.thaw_node(node)


def back(node: str, *, bad: bool = False) -> Do:
    """A machine that was lost is there again; `bad`: what starts on it dies."""
    return lambda world: world.return_node(node, bad=bad)


def drain(node: str, who: str = "admin") -> Do:
    """Somebody else drains it."""
    return lambda world: world.drain_node(node, who)


def falls_ill(node: str, fault: str = "GPU 3 has fallen off the bus") -> Do:
    """Something breaks in a machine that holds no slot; only a look at it finds that."""

    def do(world: SimWorld) -> None:
        world.cluster.nodes[node].fault = fault

    return do


def looks_hang(node: str) -> Do:
    """From now on a look at this machine never ends, though its agent beats."""

    def do(world: SimWorld) -> None:
        world.cluster.nodes[node].hangs = True

    return do


def may_not_drain() -> Do:
    """The user of the run has no right to drain nodes."""

    def do(world: SimWorld) -> None:
        world.cluster.may_drain = False

    return do


def rank_dies(rank: int, *words: str, signal: int = 9) -> Do:
    """A rank is killed; these are its last lines."""
    return lambda world: world.training.rank_dies(rank, signal=signal, words=words)


def rank_raises(rank: int, kind: str, text: str) -> Do:
    """A rank raises an exception."""
    return lambda world: world.training.rank_raises(rank, kind, text)


def rank_sticks(rank: int) -> Do:
    """A rank stands still and says nothing."""
    return lambda world: world.training.rank_sticks(rank)


def all_stick() -> Do:
    """All ranks stand still, and none stands apart."""
    return lambda world: world.training.all_stick()


def curse(what: str, **more: Any) -> Do:
    """From now on: a fault that comes by itself (`world/job.py`)."""
    return lambda world: world.training.curses.append(Curse(what, **more))


def store_away(seconds: float) -> Do:
    """The shared file system does not answer."""
    return lambda world: world.store.away(seconds)


def store_lost() -> Do:
    """Every save in the store is gone; the store itself is there, and empty."""
    return lambda world: world.store.lose_all()


def all_rot() -> Do:
    """The bytes of every completed save in the store are no longer those that were sealed."""

    def do(world: SimWorld) -> None:
        for one in world.store.completed():
            world.store.rot(one.id)

    return do


def archive_away(seconds: float) -> Do:
    """The archive says at once that it can't be read."""
    return lambda world: world.archive.away(seconds)


def archive_hangs(seconds: float) -> Do:
    """The archive does not answer."""
    return lambda world: world.archive.hang(seconds)


def archive_fails(seconds: float) -> Do:
    """The archive can be read, and takes nothing in."""
    return lambda world: world.archive.fail(seconds)


def newest_copy_rots() -> Do:
    """The bytes of the newest copy in the archive are no longer those that were copied."""
    return lambda world: world.archive.rot(world.archive.whole()[-1].save.id)


def room_left(saves: float) -> Do:
    """Room for so many saves is left in the store, whoever has taken the rest."""
    return lambda world: world.store.leaves(int(saves * SAVE_BYTES))


def cluster_away(seconds: float) -> Do:
    """Slurm's controller does not answer."""

    def do(world: SimWorld) -> None:
        world.cluster.away_until = world.time.now + seconds
        world.cluster.note_change()
        world.time.after(seconds, world.cluster.note_change)

    return do


def cluster_restarts(away_s: float, unheard_s: float) -> Do:
    """Slurm's controller is away, then it is back and has not heard of any node for a while."""

    def do(world: SimWorld) -> None:
        cluster_away(away_s)(world)
        world.cluster.unheard_until = world.time.now + away_s + unheard_s
        world.time.after(away_s + unheard_s, world.cluster.note_change)

    return do


def lose_requests(kind: str, count: int = 1) -> Do:
    """The next requests of this kind (launch, stop) never arrive, though they were answered."""
    return lambda world: world.cluster.lose.update({kind: count})


def late_requests(kind: str, seconds: float) -> Do:
    """Requests of this kind take longer."""
    return lambda world: world.cluster.late.update({kind: seconds})


def late_messages(kind: str, seconds: float) -> Do:
    """What agents say of this kind (exit, finding, save, step) comes late."""

    def do(world: SimWorld) -> None:
        for agent in world.agents.values():
            agent.lag_s[kind] = seconds

    return do


def newest_save(world: SimWorld) -> str:
    """The newest completed save, in truth."""
    return world.store.completed()[-1].id


def newest_rots() -> Do:
    """The bytes of the newest completed save are no longer those that were sealed."""
    return lambda world: world.store.rot(newest_save(world))


def newest_vanishes() -> Do:
    """Somebody deletes the newest completed save."""
    return lambda world: world.store.vanish(newest_save(world))


def saves_never_end() -> Do:
    """From now on no save of this attempt is ever finished."""

    def do(world: SimWorld) -> None:
        if world.training.newest is not None:
            world.training.never_written.add(world.training.newest.number)

    return do


def kill_controller() -> Do:
    """The controller is killed; its parent starts another."""
    return lambda world: world.kill_controller()


def second_controller() -> Do:
    """Another controller is started beside it."""
    return lambda world: world.second_controller()


def person(
    what: What, why: str = "", keep: tuple[str, ...] = (), *, next_job: bool = False, nodes: tuple[str, ...] = ()
) -> Do:
    """The person on call asks for something. `keep`: nodes that are not to be barred; `next_job`: and on in the next job;
    `nodes`: those that are to be barred no more.
    """
    return lambda world: world.desk.file(what, why=why, keep_nodes=keep, next_job=next_job, nodes=nodes)


def stranger_speaks() -> Do:
    """Somebody with the wrong token connects as a node and says that its rank has died."""
    return lambda world: world.stranger()


# --- what must be so ------------------------------------------------------------------------------------------------


def _first(history: History) -> Incident | None:
    return history.incidents[0] if history.incidents else None


def incidents(count: int) -> Then:
    """So many incidents, no more."""

    def then(_: SimWorld, history: History) -> str | None:
        have = [(i.number, i.fault.value) for i in history.incidents]
        return None if len(have) == count else f"{len(have)} incidents {have}, not {count}"

    return then


def fault(which: FaultClass, number: int = 1) -> Then:
    """The incident is of this class."""

    def then(_: SimWorld, history: History) -> str | None:
        have = [i.fault.value for i in history.incidents]
        return None if len(have) >= number and have[number - 1] == which.value else f"faults {have}, not {which.value}"

    return then


def barred(*nodes: str) -> Then:
    """These nodes are in quarantine, no others."""

    def then(world: SimWorld, history: History) -> str | None:
        have = sorted(history.barred(world.time.now))
        return None if have == sorted(nodes) else f"barred {have}, not {sorted(nodes)}"

    return then


def drained_by(node: str, who: str) -> Then:
    """The cluster shows this node drained by `who`; "": by nobody."""

    def then(world: SimWorld, _: History) -> str | None:
        have = world.cluster.nodes[node].drained_by
        return None if have == who else f"{node} is drained by {have or 'nobody'}, not {who or 'nobody'}"

    return then


def swapped(slot: int, old: str, new: str) -> Then:
    """The spare holds the slot, and nothing else has moved."""

    def then(world: SimWorld, history: History) -> str | None:
        first, last = history.attempts[0].slots, history.attempts[-1].slots
        proof = prove_swap(world.given.layout, first, last)
        if not proof.good:
            return f"the groups differ: {proof.faults}"
        return None if proof.changed == ((slot, old, new),) else f"changed {proof.changed}"

    return then


def same_slots() -> Then:
    """Nobody has moved."""

    def then(_: SimWorld, history: History) -> str | None:
        slots = {a.slots for a in history.attempts}
        return None if len(slots) == 1 else "slots have changed"

    return then


def from_save_of(time: str, attempt: int = 2) -> Then:
    """This attempt has really loaded the save that was begun at about that time (within a minute and a step)."""

    def then(world: SimWorld, _: History) -> str | None:
        one = world.training.attempts.get(attempt)
        save = world.store.saves.get(one.checkpoint) if one is not None else None
        if save is None:
            return f"attempt {attempt} loaded {one.checkpoint or 'nothing' if one else 'never'}"
        off = abs(save.begun_at - clock(time))
        return None if off <= world.given.job.step_s + 60 else f"attempt {attempt} loaded a save begun {off:.0f} s away"

    return then


def attempts(count: int) -> Then:
    """So many attempts were launched."""

    def then(_: SimWorld, history: History) -> str | None:
        have = len(history.attempts)
        return None if have == count else f"{have} attempts, not {count}"

    return then


def told(reason: str, times: int) -> Then:
    """A person was told of it so often."""

    def then(_: SimWorld, history: History) -> str | None:
        have = sum(f":{reason}:" in key for key in history.told)
        return None if have == times else f"told {have} times of {reason}, not {times}"

    return then


def archived(low: int, high: int | None = None) -> Then:
    """So many whole copies are in the archive."""

    def then(world: SimWorld, _: History) -> str | None:
        have = len(world.archive.whole())
        return None if low <= have <= (low if high is None else high) else f"{have} copies in the archive, not {low}"

    return then


def restored(times: int = 1) -> Then:
    """So many saves came back from the archive."""

    def then(world: SimWorld, history: History) -> str | None:
        really = sum(what == "restored" for _, what, _ in world.store.log.changes)
        have = len(history.restored)
        return (
            None if have == really == times else f"{really} came back from the archive, {have} are booked, not {times}"
        )

    return then


def waited(reason: Reason, low: float, high: float) -> Then:
    """From the stop to the restart of the first incident so many seconds went by; a person was told of it."""

    def then(_: SimWorld, history: History) -> str | None:
        one = _first(history)
        if one is None or one.times.stopped is None or one.times.relaunched is None:
            return "nothing was restarted"
        took = one.times.relaunched - one.times.stopped
        if not any(f":{reason}:" in key for key in history.told):
            return f"nobody was told of {reason}"
        return None if low <= took <= high else f"it waited {took:.0f} s, not {low:.0f} to {high:.0f}"

    return then


def read_again(count: int) -> Then:
    """At least so many saves in the store were read again."""

    def then(world: SimWorld, _: History) -> str | None:
        have = sum(what == "read" for _, what, _ in world.store.log.changes)
        return None if have >= count else f"{have} readings, not {count}"

    return then


def trains() -> Then:
    """The incident is closed, the old frontier is passed, and the run goes on."""

    def then(world: SimWorld, history: History) -> str | None:
        newest = world.training.newest
        if history.halted is not None:
            return f"halted: {history.halted.reason.value}: {history.halted.seen}"
        if history.incident is not None:
            return f"incident {history.incident.number} is open"
        if newest is None or not newest.moving:
            return "nothing trains"
        behind = [i.number for i in history.incidents if i.times.caught_up is None]
        return (
            f"the old frontier of {behind} is not passed"
            if history.incidents[-1:] and behind[-1:] == [history.incidents[-1].number]
            else None
        )

    return then


def advances() -> Then:
    """No incident is open and the run makes steps."""

    def then(world: SimWorld, history: History) -> str | None:
        newest = world.training.newest
        moving = newest is not None and newest.moving and history.incident is None and history.halted is None
        return None if moving else "nothing trains"

    return then


def redone_minutes(low: float, high: float) -> Then:
    """So much work was done again: recomputation, in the ledger."""

    def then(world: SimWorld, history: History) -> str | None:
        minutes = history.books.rolled_back * world.given.job.step_s / 60
        return None if low <= minutes <= high else f"{minutes:.1f} min were rolled back, not {low} to {high}"

    return then


def complete_times() -> Then:
    """Every moment of every incident is known."""

    def then(_: SimWorld, history: History) -> str | None:
        names = ("last_good", "detected", "confirmed", "evidence", "decided", "stopped", "relaunched", "loaded")
        for one in history.incidents:
            lacking = [n for n in (*names, "next_good", "caught_up") if getattr(one.times, n) is None]
            if lacking:
                return f"incident {one.number} has no {', '.join(lacking)}"
        return None

    return then


def plan_within(seconds: float) -> Then:
    """From the confirmation of each incident to a plan that a person can read it takes less than `seconds`."""

    def then(_: SimWorld, history: History) -> str | None:
        for one in history.incidents:
            if one.times.confirmed is None or one.times.decided is None:
                return f"incident {one.number} has no plan"
            took = one.times.decided - one.times.confirmed
            if took >= seconds:
                return f"the plan of incident {one.number} took {took:.1f} s"
        return None

    return then


def earliest(node: str = "", rank: int | None = None, kind: str = "", number: int = 1) -> Then:
    """The earliest error is the one that really came first."""

    def then(_: SimWorld, history: History) -> str | None:
        one = next((i for i in history.incidents if i.number == number), None)
        if one is None or one.diagnosis is None or not one.diagnosis.first:
            return f"incident {number} has no earliest error"
        first = one.diagnosis.first[0]
        wrong = (
            (node and first.node != node) or (rank is not None and first.rank != rank) or (kind and first.kind != kind)
        )
        return f"earliest error {first.kind} on {first.node}, rank {first.rank}" if wrong else None

    return then


def halted(reason: Reason) -> Then:
    """It has halted for this reason, and says what lifts it; the controller has ended with 93 or holds the nodes."""

    def then(world: SimWorld, history: History) -> str | None:
        if history.halted is None:
            return "not halted"
        if history.halted.reason is not reason:
            return f"halted for {history.halted.reason.value}: {history.halted.seen}"
        if not history.halted.lifts or not history.halted.seen:
            return "the halt does not say what was seen, or what lifts it"
        newest = world.training.newest
        return "an attempt still trains" if newest is not None and newest.moving else None

    return then


def asked(times: int = 1) -> Then:
    """A person was asked so often, for a plan; where the controller has died, rather once more than never."""

    def then(world: SimWorld, _: History) -> str | None:
        have = sum(1 for _, notice in world.desk.notices if notice.what == "plan")
        more = len(world.points.hit) if world.points.hit != ["killed by the story"] else 0
        return None if times <= have <= times + more else f"asked {have} times, not {times}"

    return then


def refused_requests() -> Then:
    """A request was turned down. After a death of the controller the notice may come twice, and so the same slip."""

    def then(world: SimWorld, _: History) -> str | None:
        have = sum(1 for a in world.desk.answers.values() if a.outcome == "refused")
        return None if have else "no request was refused"

    return then


def condition_of(name: str, phase: str) -> Then:
    """The newest save of truth that is broken, abandoned ... has this phase in the store."""

    def then(world: SimWorld, _: History) -> str | None:
        found = world.store.scan()
        have = [c.phase.value for c in found if name in c.id] if isinstance(found, tuple) else []
        return None if phase in have else f"saves {name}: {have}, none {phase}"

    return then


def exit_code(code: int) -> Then:
    """How `relight run` has ended."""

    def then(world: SimWorld, _: History) -> str | None:
        return None if world.code == code else f"exit {world.code}, not {code}"

    return then
