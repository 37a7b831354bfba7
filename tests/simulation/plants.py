"""A fault for each promise, planted between the product and the world. The product's code is as it is; what it is given lies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from policies.facts import CheckpointPhase
from policies.history import Diagnosis, History
from slurm.cluster import ClusterView, NodeCondition, NodeRow
from supervisor import actions
from supervisor.actions import Action
from supervisor.bench.world.archive import SimArchive
from supervisor.bench.world.cluster import SimCluster
from supervisor.bench.world.shell import SimEffects, Witness
from supervisor.bench.world.store import SimStore
from supervisor.bench.world.workers import Workers
from supervisor.bench.world.world import Plant
from supervisor.journal.entries import Approved, AttemptClosed, Diagnosed, Entry, Intended, Resumed, Stamped
from supervisor.perform.effects import Ports


class Changed:
    """A journal into which something else is written than the loop says. `change(entry)` gives what is written instead."""

    def __init__(self, log: Witness, change: Callable[[Entry], list[Entry]]) -> None:
        self._log, self._change = log, change

    @property
    def epoch(self) -> int:
        return self._log.epoch

    def append(self, entries: Iterable[Entry], at: float) -> list[Stamped]:
        return self._log.append([new for one in entries for new in self._change(one)], at)


class LogPlant(Plant):
    def change(self, entry: Entry) -> list[Entry]:
        return [entry]

    def log(self, log: Witness) -> Changed:  # type: ignore[override]
        return Changed(log, self.change)


class PublishesBehindTheFence(Plant):
    """1: savers that do not ask before they publish."""

    def cluster(self, cluster: SimCluster) -> SimCluster:
        cluster.processes.training.heeds_fences = False  # type: ignore[attr-defined]
        return cluster


class AnySave(Plant):
    """2: a store that calls every save completed, those in progress too."""

    def store(self, store: SimStore) -> SimStore:
        class Lenient(SimStore):
            def __init__(self) -> None:
                self.__dict__ = store.__dict__

            def scan(self):
                found = store.scan()
                if not isinstance(found, tuple):
                    return found
                return tuple(
                    replace(
                        one,
                        phase=CheckpointPhase.COMPLETED,
                        completed_at=1.0,
                        manifest_hash="m",
                        counters=store.saves[one.id].counters,
                    )
                    for one in found
                )

            def expected(self, _: str):
                return None

            def make_view(self, attempt: int, checkpoint: str | None) -> str:
                store.views[attempt] = checkpoint
                store._note("view", checkpoint or "")
                return ""

        return Lenient()


@dataclass
class EffectPlant(Plant):
    """Effects that do something else, or something more, than they are asked for."""

    instead: Callable[[SimEffects, Action, History], list[Action]]

    def effects(self, ports: Ports, workers: Workers, looked: Callable[[str], None]) -> SimEffects:
        instead = self.instead

        class Other(SimEffects):
            def perform(self, action: Action, history: History) -> None:
                for one in instead(self, action, history):
                    super().perform(one, history)

        return Other(ports, workers, looked)


def _exchanged(_: SimEffects, action: Action, __: History) -> list[Action]:
    """3: the launch puts two nodes into each other's slots."""
    if isinstance(action, actions.Launch) and action.attempt > 1:
        first, second, *rest = action.slots
        return [replace(action, slots=(second, first, *rest))]
    return [action]


def _believed(effects: SimEffects, action: Action, _: History) -> list[Action]:
    """3: who is asked to look is taken for one that has looked, and has found nothing."""
    if isinstance(action, actions.Check):
        effects._ports.agents.take(Named(action.node), {"type": "checked", **LOOKED, "for": action.incident})  # type: ignore[attr-defined]
        return []
    return [action]


LOOKED = {"ended": 1.0, "took_s": 0.0, "checks": 9}


@dataclass
class Named:
    """As much of a connection as is asked for."""

    node: str
    offset: float = 0.0
    offset_bound: float = 0.0


def _unasked(_: SimEffects, action: Action, __: History) -> list[Action]:
    """4: with each seal something is abandoned that nobody intended."""
    return [action, actions.Abandon((action.checkpoint,))] if isinstance(action, actions.Seal) else [action]


def _deletes(effects: SimEffects, action: Action, history: History) -> list[Action]:
    """11: retention keeps nothing."""
    return [replace(action, keep=0, protect=())] if isinstance(action, actions.Retain) else [action]


class GivesBackAnything(Plant):
    """2: an archive that gives back what it does not look at."""

    def archive(self, archive: SimArchive) -> SimArchive:
        archive.verifies = False
        return archive


class ForgetsItsCopies(Plant):
    """11: an archive whose retention keeps nothing."""

    def archive(self, archive: SimArchive) -> SimArchive:
        class Forgetful(SimArchive):
            def __init__(self) -> None:
                self.__dict__ = archive.__dict__

            def retain(self, keep: int, protect: Collection[str]) -> tuple[str, ...]:  # noqa: ARG002
                return archive.retain(0, ())

        return Forgetful()


class LatestWins(LogPlant):
    """5: a later error takes the place of the earliest when the attempt is closed."""

    def change(self, entry: Entry) -> list[Entry]:
        if isinstance(entry, Diagnosed) and entry.diagnosis.first:
            first = entry.diagnosis.first[0]
            late = Diagnosis((replace(first, wall=(first.wall or 0.0) + 30.0, text="the loudest"),))
            return [entry, Diagnosed(entry.incident, late)]
        return [entry]


class LiftsItself(LogPlant):
    """6: a halt is lifted by nobody."""

    def change(self, entry: Entry) -> list[Entry]:
        return [entry, Resumed("nobody", "")] if entry.kind == "halted" else [entry]


class Amnesia(Plant):
    """7: a new controller forgets the restarts before it."""

    def recall(self, history: History) -> History:
        return replace(history, incidents=tuple(i for i in history.incidents if not i.closed))


class Embezzled(LogPlant):
    """8: an attempt is booked with updates that it has not made."""

    def change(self, entry: Entry) -> list[Entry]:
        if isinstance(entry, AttemptClosed):
            return [replace(entry, ended=replace(entry.ended, updates=entry.ended.updates + 50))]
        return [entry]


class Scapegoat(LogPlant):
    """9: with a guilty node an innocent one is barred."""

    def change(self, entry: Entry) -> list[Entry]:
        if isinstance(entry, Intended) and isinstance(entry.action, actions.Bar):
            return [Intended(replace(entry.action, nodes=("n0001",)))]
        return [entry]


class Overwrites(Plant):
    """10: our bar is set over a drain of somebody else."""

    def cluster(self, cluster: SimCluster) -> SimCluster:
        class Rude(SimCluster):
            def __init__(self) -> None:
                self.__dict__ = cluster.__dict__

            def bar(self, node: str, key: str, why: str = "") -> None:  # noqa: ARG002 - the port's signature
                cluster.nodes[node].drained_by, cluster.nodes[node].reason = "relight", key

        return Rude()


def _greedy(_: SimEffects, action: Action, history: History) -> list[Action]:
    """13: with each launch another job is asked for."""
    held = history.job
    return (
        [action, actions.NextJob(held.id, held.start, ())] if isinstance(action, actions.Launch) and held else [action]
    )


class AlwaysRunning(Plant):
    """13: a cluster that shows its job as it was when it ran."""

    def cluster(self, cluster: SimCluster) -> SimCluster:
        class Proud(SimCluster):
            def __init__(self) -> None:
                self.__dict__ = cluster.__dict__

            def read(self):
                found = cluster.read()
                if not isinstance(found, ClusterView) or found.job is None:
                    return found
                nodes = {name: NodeRow(name, NodeCondition.UP) for name in cluster.job.names}  # type: ignore[union-attr]
                return replace(found, nodes=nodes, job=replace(found.job, phase="running", start="first"))

        return Proud()


class FollowedTwice(Plant):
    """13: a cluster in which a request for the next job goes through once more."""

    def cluster(self, cluster: SimCluster) -> SimCluster:
        job = cluster.job
        assert job is not None
        ask = job.ask_next

        def again(start: str, exclude: Collection[str]) -> None:
            ask(start, exclude)
            job.log.rows.append(job.log.rows[-2])

        job.ask_next = again  # type: ignore[method-assign]
        return cluster


class ApprovesItself(LogPlant):
    """12: a plan counts as approved as soon as it is made."""

    def change(self, entry: Entry) -> list[Entry]:
        if entry.kind == "decided" and entry.digest:
            return [entry, Approved(entry.digest, "li.wei")]
        return [entry]
