"""The View: what cluster, store, agents and files show now, each part with its age. Looks; never acts, never decides."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol

from policies.facts import (
    EMPTY,
    UNKNOWN,
    AttemptView,
    CaptureView,
    CheckpointState,
    Copied,
    Expected,
    JobPhase,
    JobView,
    NodeState,
    NodeView,
    Unknown,
    View,
)
from policies.history import Attempt, History
from policies.layout import Layout
from slurm.cluster import Cluster, ClusterView, Job, NodeCondition, Unreadable
from supervisor.errors import NotRestorable
from supervisor.moves import Moved
from supervisor.observe.launcher_said import LauncherSaid
from supervisor.ports import Agents, Archive, AttemptFiles, NoArchive, Store

_CONDITION = {
    NodeCondition.UP: NodeState.UP,
    NodeCondition.DRAINED: NodeState.UP,
    NodeCondition.SILENT: NodeState.SILENT,
    NodeCondition.DOWN: NodeState.DOWN,
    NodeCondition.UNKNOWN: NodeState.UNKNOWN,
}
BEATS_S = 60.0
"""How old the last beat of a node in the view may be, when nothing else has changed."""
ARCHIVE_DEADLINE_S = 30.0
"""A look at the archive that takes longer shows nothing; the calls of an object store give up on their own before that."""
PROBES_MAX = 4
PROBE_S = 0.5
"""A read of the cluster asks so many silent nodes for a sign of life, and waits so long for each."""
LEFT_PROBE_S = 2.0
"""For a node that the cluster takes for healthy: a step on one takes 0.1 to 0.5 s (Slurm 22.05 to 26.05, a busy machine)."""
_NOT_SILENT = {NodeCondition.UP, NodeCondition.UNKNOWN}
_STEP = re.compile(r"\.a(\d{4,})\.e\d+\Z")


class Done(Protocol):
    """What the effects themselves know of how far they are (`perform/effects.py`)."""

    capture: CaptureView | None
    failures: dict[str, str]
    delays: dict[str, str]
    released: bool

    @property
    def at_work(self) -> frozenset[str]:
        """Keys of what is being done now."""
        ...


class World:
    """Keeps what was seen last of each part. `refresh_*` may block and are called in worker threads, one at a time each."""

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        agents: Agents,
        files: AttemptFiles,
        layout: Layout,
        archive: Archive | None = None,
        moved: Callable[[], tuple[Moved, ...]] = tuple,
        drilled: Callable[[], Copied | None] = lambda: None,
    ) -> None:
        self._layout = layout
        self._moved = moved
        self._read_drilled = drilled
        self._drilled: Copied | None = None
        self._archive = archive or NoArchive()
        self._copies: tuple[CheckpointState, ...] | Unknown = UNKNOWN if archive else ()
        self._archive_as_of: float | None = None
        self._archive_why = "not read yet" if archive else ""
        self._archive_asked: float | None = None
        self._files = files
        self._cluster = cluster
        self._store = store
        self._agents = agents
        self._cluster_view: ClusterView | Unreadable = Unreadable("not read yet")
        self._cluster_as_of: float | None = None
        self._cluster_looked = self._store_looked = False
        self._states: tuple[CheckpointState, ...] | Unknown = UNKNOWN
        self._views: Mapping[int, str | None] = EMPTY
        self._store_as_of: float | None = None
        self._healed = False
        self._free: int | None = None
        self._expected: Expected | None = None
        self._since: dict[str, tuple[NodeState, float]] = {}
        self._nodes_made: tuple[object, ...] = ()
        self._nodes_seen: Mapping[str, NodeView] = EMPTY
        self._said = LauncherSaid(layout.world)

    def refresh_cluster(self, now: float) -> None:
        """Read the cluster. `now` is the moment at which the read began: what it shows is at least as new."""
        seen = self._cluster.read()
        if seen != self._cluster_view:
            self._cluster_view = seen
        if isinstance(seen, ClusterView):
            self._cluster_as_of = now
            for step in seen.steps.values():
                if (match := _STEP.search(step.name)) is not None:
                    self._said.note(int(match[1]), step, now)
            answering, mute = self._probed(seen)
            for name, row in seen.nodes.items():
                state = _CONDITION[row.condition]
                if name in answering or name in mute:
                    state = NodeState.UP if name in answering else NodeState.SILENT
                if self._since.get(name, (None, 0.0))[0] is not state:
                    self._since[name] = (state, now)
                    self._nodes_made = ()
        self._cluster_looked = True

    def _unread(self) -> frozenset[str]:
        """What this controller has not looked at yet; a look that failed is one."""
        looked = {"cluster": self._cluster_looked, "store": self._store_looked}
        return frozenset(name for name, done in looked.items() if not done)

    def _probed(self, seen: ClusterView) -> tuple[frozenset[str], frozenset[str]]:
        """(silent nodes that do answer a probe, nodes that are up or not known as the cluster says and don't).

        A late beat is no silent node, and a node whose agent has just left may be lost long before the cluster says so: Slurm
        takes 30 to 70 s. With many of either the eye is blind, and nobody is probed.
        """
        silent = [n for n, row in seen.nodes.items() if row.condition is NodeCondition.SILENT]
        left = [n for n in sorted(self._agents.away()) if n in seen.nodes and seen.nodes[n].condition in _NOT_SILENT]
        few = left if len(left) <= PROBES_MAX else []
        return self._answering(silent, PROBE_S), frozenset(few) - self._answering(few, LEFT_PROBE_S)

    def _answering(self, nodes: list[str], deadline_s: float) -> frozenset[str]:
        """Those that answer in time; all are asked at once. Of too many nobody is asked."""
        if not nodes or len(nodes) > PROBES_MAX:
            return frozenset()
        with ThreadPoolExecutor(max_workers=len(nodes)) as asking:
            told = asking.map(lambda node: self._cluster.probe(node, deadline_s), nodes)
            return frozenset(node for node, answers in zip(nodes, told, strict=True) if answers)

    def refresh_store(self, now: float, checkpoint: str | None) -> None:
        """Read the store, and the manifest of the checkpoint that the newest attempt started from.

        The first look of a controller brings the store's list up to its marks; a store that is away is only away.
        """
        seen = self._store.scan() if self._is_healed() else Unreadable("away when this controller began")
        if isinstance(seen, tuple):
            views = self._store.view_targets()
            self._views = self._views if isinstance(views, Unreadable) else views
            self._states = seen
            self._free = self._store.free_bytes()
            self._store_as_of = now
        else:
            self._states, self._free = UNKNOWN, None
        self._store_looked = True
        if checkpoint and (self._expected is None or self._expected.checkpoint != checkpoint):
            try:
                self._expected = self._store.expected(checkpoint)
            except NotRestorable:
                self._expected = None

    @property
    def has_archive(self) -> bool:
        """Is one configured?"""
        return not isinstance(self._archive, NoArchive)

    def ask_archive(self, now: float) -> None:
        """A look at the archive begins. One that has not ended after its deadline shows nothing any more."""
        self._archive_asked = now

    def refresh_archive(self, now: float) -> None:
        """Read the archive. It may hang, which nothing else waits for; `now` is the moment at which the look began."""
        self.ask_archive(now)
        self._drilled = self._read_drilled()
        try:
            seen = self._archive.scan()
        except OSError as error:
            seen = Unreadable(str(error))
        if isinstance(seen, tuple):
            self._copies, self._archive_as_of, self._archive_why = seen, now, ""
        else:
            self._copies, self._archive_why = UNKNOWN, seen.why
        self._archive_asked = None

    def _archive_now(self, now: float) -> tuple[tuple[CheckpointState, ...] | Unknown, str]:
        asked = self._archive_asked
        if asked is not None and now - asked >= ARCHIVE_DEADLINE_S:
            return UNKNOWN, f"it has not answered for {now - asked:.0f} s"
        return self._copies, self._archive_why

    def _is_healed(self) -> bool:
        if not self._healed:
            try:
                self._store.create()
            except OSError:
                return False
            self._healed = True
        return True

    def view(self, history: History, now: float, done: Done) -> View:
        """Everything together."""
        number = history.attempt.number if history.attempt else 0
        nodes = self._nodes(now)
        attempt = self._agents.progress(number, now) if number else None
        findings = self._agents.findings(number) if number else ()
        if attempt is not None:
            unasked = self._said.unasked(attempt)
            if unasked and self._agents.scan_exits(number, unasked):
                attempt = self._agents.progress(number, now)
            findings += self._said.findings(attempt)
            attempt = self._said.add_to(attempt)
        running, shown = self._steps(nodes, self._ended(history.attempt, attempt))
        if attempt is not None and (attempt.started or self._files.has_exits(number)):
            shown = shown | {number}
        if attempt is not None and number in shown and not isinstance(nodes, Unknown):
            attempt = replace(attempt, running=number in running)
        copies, archive_why = self._archive_now(now)
        expected = self._expected
        wanted = history.attempt.checkpoint if history.attempt else None
        return View(
            nodes=nodes,
            attempt=attempt,
            checkpoints=self._states,
            expected=expected if expected and expected.checkpoint == wanted else None,
            capture=done.capture,
            views_made=self._views,
            fenced=self._marked("FENCED", history),
            launched=frozenset(shown),
            untold=self._untold(history, nodes, attempt.started if attempt else frozenset()),
            steps_running=running,
            findings=findings,
            unread=self._unread(),
            cluster_as_of=self._cluster_as_of,
            store_as_of=self._store_as_of,
            store_free_bytes=self._free,
            has_archive=self.has_archive,
            archive=copies,
            archive_as_of=self._archive_as_of,
            archive_why=archive_why,
            drilled=self._drilled,
            failures=tuple(done.failures.items()),
            delays=tuple(done.delays.items()),
            at_work=done.at_work,
            moved=self._moved(),
            released=done.released,
            stop_asked=self._marked("STOP", history),
            drain_refused="" if isinstance(self._cluster_view, Unreadable) else self._cluster_view.drain_refused,
            job=None if isinstance(self._cluster_view, Unreadable) else _job(self._cluster_view.job),
        )

    def _nodes(self, now: float) -> Mapping[str, NodeView] | Unknown:
        seen = self._cluster_view
        if isinstance(seen, Unreadable):
            return UNKNOWN
        made = (id(seen), self._agents.changes, now // BEATS_S)
        if made != self._nodes_made:
            self._nodes_seen = self._make_nodes(seen, now)
            self._nodes_made = made
        return self._nodes_seen

    def _make_nodes(self, seen: ClusterView, now: float) -> Mapping[str, NodeView]:
        agents = self._agents.connected()
        nodes = {}
        for name, row in seen.nodes.items():
            state, since = self._since.get(name, (_CONDITION[row.condition], now))
            agent = agents.get(name)
            nodes[name] = NodeView(
                name=name,
                state=state,
                since=since,
                agent=agent is not None and agent.told,
                checked_at=agent.checked.at if agent and agent.checked else None,
                drained_by_other=row.condition is NodeCondition.DRAINED,
                old_ranks_gone=agent.gone_attempt if agent else 0,
                switch=row.switch,
                unhealthy=agent.unhealthy if agent else (),
                unchecked=agent.unchecked if agent else (),
                agent_since=agent.since if agent else None,
                checks=agent.checked.checks if agent and agent.checked else 0,
                checked_for=agent.checked.incident if agent and agent.checked else 0,
            )
        return nodes

    def _ended(self, attempt: Attempt | None, shown: AttemptView | None) -> tuple[int, frozenset[str]]:
        """The newest attempt, and the nodes on which each of its ranks has told how it ended."""
        if attempt is None or shown is None:
            return 0, frozenset()
        ended = {one.rank for one in shown.exits}
        ranks = self._layout.ranks_of_slot
        return attempt.number, frozenset(
            node for slot, node in enumerate(attempt.slots) if ended.issuperset(ranks(slot))
        )

    def _steps(
        self, nodes: Mapping[str, NodeView] | Unknown, ended: tuple[int, frozenset[str]]
    ) -> tuple[frozenset[int], set[int]]:
        """(attempts with a rank on a node that can be reached, attempts that the cluster shows at all)."""
        seen = self._cluster_view
        if isinstance(seen, Unreadable) or isinstance(nodes, Unknown):
            return frozenset(), set()
        running, shown = set(), set()
        for name, row in seen.steps.items():
            match = _STEP.search(name)
            if match is None:
                continue
            number = int(match[1])
            shown.add(number)
            # With a lost node in a step the cluster names the others until it drops that one, which may take minutes.
            on = row.running_on - ended[1] if row.whole and number == ended[0] else row.running_on
            if any(n in nodes and _may_run(nodes[n], number) for n in on):
                running.add(number)
        return frozenset(running), shown

    def _untold(
        self, history: History, nodes: Mapping[str, NodeView] | Unknown, started: frozenset[int]
    ) -> frozenset[str]:
        """A launch is asked for node by node, and whoever asks may die in between. One that is accepted has told them all."""
        attempt, seen = history.attempt, self._cluster_view
        over = attempt is None or attempt.accepted_at is not None
        if over or attempt is None or isinstance(seen, Unreadable) or isinstance(nodes, Unknown):
            return frozenset()
        told = {attempt.slots[self._layout.slot_of(rank)] for rank in started}
        for name, row in seen.steps.items():
            match = _STEP.search(name)
            if match is not None and int(match[1]) == attempt.number:
                told |= row.known_on
        return frozenset(n for n in attempt.slots if n not in told and n in nodes and nodes[n].state is NodeState.UP)

    def _marked(self, name: str, history: History) -> frozenset[int]:
        """Attempts that carry a mark; older ones than the newest three no longer matter."""
        recent = [a.number for a in history.attempts[-3:]]
        return frozenset(n for n in recent if self._files.marked(n, name))


def _may_run(node: NodeView, attempt: int) -> bool:
    """Can the node be reached, and has its agent not said that nothing of the attempt is left? Slurm names a node whose
    slurmstepd is gone for good.
    """
    return node.state is not NodeState.SILENT and not (node.agent and node.old_ranks_gone >= attempt)


def _job(seen: Job | None) -> JobView | None:
    if seen is None:
        return None
    phase = JobPhase(seen.phase)
    return JobView(seen.id, seen.start, phase, seen.word, seen.ends_at, seen.ends_by, seen.can_follow, seen.next)
