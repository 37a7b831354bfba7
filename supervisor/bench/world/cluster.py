"""The cluster that shows the machines and touches them: late, sometimes not at all."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from slurm.cluster import ClusterView, LaunchSpec, NodeCondition, NodeRow, StepRow, Unreadable
from supervisor.bench.world.allocation import SimJob
from supervisor.bench.world.machines import Node, Power
from supervisor.bench.world.timeline import Timeline

_AGENT = re.compile(r"\.agents?\.(?:[^.]+\.)?e\d+\.\d+\Z")
_ATTEMPT = re.compile(r"\.a(\d{4,})\.e\d+\Z")
SEEN_S = 5.0
"""Whoever looks at the cluster has seen by then that the job does not run, and what was asked for before has been asked."""


@dataclass(frozen=True, slots=True)
class Delays:
    """Seconds. `show_s`: until a change shows; `silent_s`, `down_s`: until a dead node shows as silent, as gone."""

    launch_s: float = 1.0
    stop_s: float = 0.5
    show_s: float = 0.5
    silent_s: float = 3.0
    down_s: float = 12.0
    agent_s: float = 1.5


class Processes(Protocol):
    """Who runs what is launched (`training.py`, `agents.py`)."""

    def launch(self, attempt: int, spec: LaunchSpec, on: frozenset[str]) -> None:
        """The ranks of an attempt, on these of its nodes."""
        ...

    def kill(self, attempt: int, node: str) -> None:
        """End every rank of an attempt on one node."""
        ...

    def start_agent(self, node: str) -> None:
        """An agent."""
        ...


@dataclass(slots=True)
class Asked:
    """Requests that reached the cluster, for those who check. `taken`: (when, kind, name).

    `outside`: launches that were asked for though the job had shown for a while that it does not run.
    """

    taken: list[tuple[float, str, str]] = field(default_factory=list)
    outside: list[tuple[float, str]] = field(default_factory=list)


class SimCluster:
    """`slurm.cluster.Cluster` over simulated machines."""

    def __init__(
        self,
        time: Timeline,
        nodes: tuple[Node, ...],
        delays: Delays,
        passing: Callable[[str], None],
        changed: Callable[[], None],
    ) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.delays = delays
        self.processes: Processes
        self.away_until = 0.0
        self.unheard_until = 0.0  # it has just started, and has not heard of any node
        self.lose: dict[str, int] = {}  # kind of request -> how many of the next ones are lost
        self.late: dict[str, float] = {}  # kind of request -> seconds that each takes longer
        self.asked = Asked()
        self.released = False
        self.job: SimJob | None = None  # what holds the nodes; None: nothing does, they are ours
        self.may_drain = True
        self.refused = ""  # as a controller that dies forgets it
        self.steps: dict[str, frozenset[str]] = {}  # as shown
        self.version = 0
        self._time = time
        self._passing = passing
        self._changed = changed
        self._taken: dict[str, set[str]] = {}  # step -> the nodes that have heard of it
        self._killed: set[str] = set()
        self._start_of: dict[str, str] = {}  # step -> the start of the job in which it arrived
        self._view: ClusterView | None = None

    # --- the port ---------------------------------------------------------------------------------------------------

    def read(self) -> ClusterView | Unreadable:
        """What is shown now."""
        if self._time.now < self.away_until:
            return Unreadable("slurm_load_jobs: Unable to contact slurm controller")
        if self._view is None:
            held = self.nodes.values() if self.job is None else [self.nodes[name] for name in self.job.shown]
            nodes = {n.name: NodeRow(n.name, self._shown(n), n.reason, n.switch) for n in held}
            steps = {name: self._step(name, shown, nodes) for name, shown in self.steps.items()}
            self._view = ClusterView(nodes, steps, self.refused, self.job.row() if self.job else None)
        return self._view

    def launch(self, spec: LaunchSpec) -> None:
        """Ask for a step; the first of a name stands. The nodes are told in two halves, and who tells them may die between.

        Raises ValueError for a host that is none, OSError while nobody answers.
        """
        unknown = set(spec.hosts) - set(self.nodes)
        if unknown:
            raise ValueError(f"no such node: {', '.join(sorted(unknown))}")
        agent = _AGENT.search(spec.name)
        delay = self._delay("launch", self.delays.agent_s if agent else self.delays.launch_s)
        if delay is None:
            return
        hosts = tuple(dict.fromkeys(spec.hosts))
        start = self._admitted(spec.name, hosts)
        half = -(-len(hosts) // 2)
        self._time.after(delay, lambda: self._arrive(spec, hosts[:half], start))
        if hosts[half:]:
            self._passing("launch half told")
            if self._delay("launch-half", 0.0) is not None:
                self._time.after(delay, lambda: self._arrive(spec, hosts[half:], start))

    def stop(self, name: str, epoch: int) -> None:
        """Kill what can be reached; a step that comes later does not start."""
        delay = self._delay("stop", self.delays.stop_s)
        if delay is not None:
            self._time.after(delay, lambda: self._kill(name, epoch))

    def bar(self, node: str, key: str, why: str = "") -> None:  # noqa: ARG002 - the port's signature
        """Drain a node, unless somebody else has, or it may not."""
        one = self.nodes[node]
        self.asked.taken.append((self._time.now, "bar", node))
        if not self.may_drain:
            self.refused = "scontrol update: slurm_update error: Invalid user id"
            self.note_change()
        elif not one.drained_by:
            one.drained_by, one.reason = "relight", key
            self.note_change()

    def unbar(self, node: str, key: str) -> None:
        """Lift our own bar."""
        one = self.nodes[node]
        if one.drained_by == "relight" and one.reason == key:
            one.drained_by = one.reason = ""
            self.note_change()

    def probe(self, node: str, deadline_s: float) -> bool:  # noqa: ARG002 - the port's signature
        """Does it answer? In a job that does not run nobody is let onto a node."""
        return self.nodes[node].power is Power.UP and (self.job is None or self.job.runs)

    def address(self, node: str) -> str:
        """A node is reached by its name."""
        return node

    def next_job(self, start: str, exclude: Sequence[str], epoch: int) -> None:  # noqa: ARG002 - the port's signature
        """Have the job requeued, without these nodes; where there is none, none follows."""
        job = self.job
        if job is None:
            raise OSError(errno.EOPNOTSUPP, "no job can follow")
        delay = self._delay("next-job", self.delays.stop_s)
        if self._time.now < job.refuses_until:
            raise OSError("scontrol requeue: Requested operation is presently disabled")
        if job.phase == "ending":
            raise OSError(f"job {job.id} was requeued and is not pending: it is {job.word}")
        if delay is not None:
            self._time.after(delay, lambda: job.ask_next(start, exclude))

    def release(self, epoch: int) -> None:  # noqa: ARG002 - the port's signature
        """The run is over, and its job with it."""
        self.released = True
        if self.job is not None:
            self.job.end("CANCELLED")

    def on_change(self, callback: Callable[[], None]) -> None:
        """Slurm gives no hints; it is looked at again and again."""

    # --- what happens to machines -----------------------------------------------------------------------------------

    def note_change(self) -> None:
        """Something that is shown has changed."""
        self.version += 1
        self._view = None
        self._changed()

    def show(self, name: str, on: frozenset[str]) -> None:
        """A step will show on these nodes, after the lag; on none: it has ended."""
        self._time.after(self.delays.show_s, lambda: self._show(name, on))

    def job_changed(self) -> None:
        """The job is in another phase; with the nodes of a start its steps are gone."""
        if self.job is not None and self.job.phase in {"waiting", "ended"}:
            self.steps.clear()
        self.note_change()

    def condition(self, node: str, condition: NodeCondition) -> None:
        """The cluster has noticed."""
        one = self.nodes[node]
        if one.condition is not condition:
            one.condition = condition
            self.note_change()

    def _step(self, name: str, shown: frozenset[str], nodes: Mapping[str, NodeRow]) -> StepRow:
        """What the cluster has dropped holds nothing."""
        on = frozenset(node for node in shown if node in nodes and nodes[node].condition is not NodeCondition.DOWN)
        return StepRow(name, bool(on), on, frozenset(self._taken.get(name, shown)))

    def _show(self, name: str, on: frozenset[str]) -> None:
        job = self.job
        if on and (job is None or (job.phase != "ended" and self._start_of.get(name) == job.start)):
            self.steps[name] = on
        else:
            self.steps.pop(name, None)
        self.note_change()

    def _delay(self, kind: str, usual: float) -> float | None:
        """How long a request takes; None when it is lost. Raises OSError while nobody answers."""
        if self._time.now < self.away_until:
            raise OSError(110, "Unable to contact slurm controller")
        if self.lose.get(kind, 0) > 0:
            self.lose[kind] -= 1
            return None
        return usual + self.late.get(kind, 0.0)

    def _admitted(self, name: str, hosts: tuple[str, ...]) -> str:
        """The start of the job in which a launch is asked for. Raises OSError when it can't be launched there."""
        job = self.job
        if job is None:
            return ""
        if not job.runs:
            if self._time.now - max(job.since, self.away_until) > SEEN_S:
                self.asked.outside.append((self._time.now, name))
            raise OSError(f"job {job.id} is {job.word}")
        gone = sorted(set(hosts) - (set(job.names) - job.left))
        if gone:
            raise OSError(f"job {job.id} is {job.word}, without {', '.join(gone)}")
        return job.start

    def _arrive(self, spec: LaunchSpec, hosts: tuple[str, ...], start: str) -> None:
        job = self.job
        if spec.name in self._killed or (job is not None and (job.start != start or not job.runs)):
            return
        self._start_of.setdefault(spec.name, start)
        if spec.name not in self._taken:
            self.asked.taken.append((self._time.now, "launch", spec.name))
        taken = self._taken.setdefault(spec.name, set())
        agent, attempt = _AGENT.search(spec.name), _ATTEMPT.search(spec.name)
        fresh = [h for h in hosts if h not in taken and self.nodes[h].power is Power.UP and self._hears(h, spec.epoch)]
        taken.update(fresh)
        if agent:
            for host in fresh:
                self.processes.start_agent(host)
        elif attempt and fresh:
            self.processes.launch(int(attempt[1]), spec, frozenset(fresh))

    def _kill(self, name: str, epoch: int) -> None:
        attempt = _ATTEMPT.search(name)
        self._killed.add(name)
        for node in list(self.nodes):
            if attempt and self._hears(node, epoch) and self.nodes[node].power is Power.UP:
                self.processes.kill(int(attempt[1]), node)

    def _hears(self, node: str, epoch: int) -> bool:
        """A machine ignores a controller that is older than one it has heard of."""
        one = self.nodes[node]
        if epoch < one.epoch:
            return False
        one.epoch = epoch
        return True

    def _shown(self, node: Node) -> NodeCondition:
        seen = self._own(node)
        return seen if self.job is None else self.job.condition(node.name, seen)

    def _own(self, node: Node) -> NodeCondition:
        if self._time.now < self.unheard_until:
            return NodeCondition.UNKNOWN
        if node.condition is NodeCondition.UP and node.drained_by not in {"", "relight"}:
            return NodeCondition.DRAINED
        return node.condition
