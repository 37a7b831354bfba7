"""The narrow port to a cluster, and the rows it answers with. It is seen and touched here; nothing is decided.

Every effect answers "asked". Whether it happened is read, never taken from a reply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Protocol


class NodeCondition(StrEnum):
    """A node as the cluster's own eyes see it. What is not known is UNKNOWN, never fine."""

    UP = "up"
    SILENT = "silent"
    DOWN = "down"
    DRAINED = "drained"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node of the allocation."""

    name: str
    condition: NodeCondition
    reason: str = ""
    switch: str | None = None


@dataclass(frozen=True, slots=True)
class TaskEnd:
    """How one of `of` tasks ended, as the cluster's launcher says it in `line`. Exactly one of code and signal is set."""

    task: int
    of: int
    node: str
    line: str
    code: int | None = None
    signal: int | None = None


@dataclass(frozen=True, slots=True)
class StepRow:
    """One launched step. `running_on` are the nodes that still show tasks of it, silent nodes included.

    `known_on` are those that have heard of it, whether anything of it is left there or not. Where `whole`, the cluster tells
    of the step as a whole only: nodes on which it has ended are still among `running_on`. `ends`: tasks that ended badly.
    """

    name: str
    running: bool
    running_on: frozenset[str]
    known_on: frozenset[str]
    whole: bool = False
    ends: tuple[TaskEnd, ...] = ()
    complaints: tuple[str, ...] = ()
    """What else the launcher has complained of before it was told to stop, the first first, a few lines at most."""


EndsBy = Literal["", "time limit", "preemption", "maintenance"]
"""What takes the nodes of a job back; policies go by these words."""


@dataclass(frozen=True, slots=True)
class Job:
    """The job that holds the nodes. One that is requeued keeps its id and gets another `start`.

    `phase`: waiting, running, ending or ended; `word` is the cluster's own. `ends_at` (wall seconds): when the nodes are taken
    back, and `ends_by` what. `can_follow`: `next_job` can be asked for; `next`: it was, and which job comes or "requeued".
    """

    id: str
    start: str
    phase: Literal["waiting", "running", "ending", "ended"]
    word: str
    ends_at: float | None = None
    ends_by: EndsBy = ""
    can_follow: bool = False
    next: str = ""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What one read of the cluster gave. A step that is not in `steps` has never been, or has left no task.

    `drain_refused`: why the last node that was to be kept from others is not; our own exclusion holds all the same. `job` is
    None where no job holds the nodes.
    """

    nodes: Mapping[str, NodeRow]
    steps: Mapping[str, StepRow]
    drain_refused: str = ""
    job: Job | None = None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The cluster could not be read; never an empty answer."""

    why: str


class NotKnown(Unreadable):
    """The cluster answers, and knows nothing of what was asked for: not there yet, forgotten, or hidden from who asks."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """One step: task i runs `argv` on `hosts[i]`, with SLURM_PROCID or RELIGHT_PROCID = i in its environment.

    `output` is a file for what the tasks themselves print before they have logs of their own.
    """

    name: str
    epoch: int
    hosts: tuple[str, ...]
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    output: str


class Cluster(Protocol):
    """What relight needs of a cluster. Calls may block; none takes longer than its deadline (seconds)."""

    def read(self) -> ClusterView | Unreadable:
        """Nodes and steps as they are now."""
        ...

    def launch(self, spec: LaunchSpec) -> None:
        """Ask for a step. Asking twice for the same name starts it once, on each of its hosts."""
        ...

    def stop(self, name: str, epoch: int) -> None:
        """Ask that every task of the step be killed, on every node that can be reached."""
        ...

    def bar(self, node: str, key: str, why: str = "") -> None:
        """Bar a node from use by others where rights allow (drain); our own exclusion needs no cluster. `why`: for people."""
        ...

    def unbar(self, node: str, key: str) -> None:
        """Lift our own bar, found by its key; never one that somebody else set."""
        ...

    def probe(self, node: str, deadline_s: float) -> bool:
        """Does the node do a trivial piece of work within the deadline?"""
        ...

    def address(self, node: str) -> str:
        """How other nodes reach this one, as far as it was told by the last look; the name where nothing was. Never blocks."""
        ...

    def next_job(self, start: str, exclude: Sequence[str], epoch: int) -> None:
        """Ask for the job that follows this start of ours, without these nodes; it begins when that has ended. Raises OSError."""
        ...

    def release(self, epoch: int) -> None:
        """Let the nodes go: the run is over."""
        ...

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call back (from any thread) when something may have changed; a hint, never a fact."""
        ...
