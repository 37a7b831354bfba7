"""What was seen (View), and the words that all rules use.

Everything here is a frozen value. Times are seconds; `at` is wall time as the controller's clock gives it.
A part of the world that could not be read is UNKNOWN, and unknown is never healthy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal

EMPTY: Final[Mapping[Any, Any]] = {}
"""The one empty mapping; typed so that nobody writes to it."""


Spans = tuple[tuple[int, int], ...]
"""Samples that are left out, by a person's word: (first, end) with the end not in it, sorted."""


class Unknown(StrEnum):
    """The one value of what could not be seen."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Unknown.UNKNOWN


class Phase(StrEnum):
    """What a rank says it is doing. Each phase has its own stall limit."""

    START_UP = "start-up"
    LOAD = "load"
    STEP = "step"
    SAVE = "save"
    EVALUATION = "evaluation"
    SHUTDOWN = "shutdown"


class NodeState(StrEnum):
    """A node as the cluster and its agent show it together."""

    UP = "up"
    SILENT = "silent"  # does not answer; may be frozen, may be cut off
    DOWN = "down"  # the cluster says that it is gone
    UNKNOWN = "unknown"


class FaultClass(StrEnum):
    """What stopped the run, as far as automation and budgets care."""

    RANK_DIED = "rank-died"  # a rank ended by a signal
    RANK_FAILED = "rank-failed"  # a rank ended with a code or an exception
    NODE_LOST = "node-lost"
    NODE_SILENT = "node-silent"
    STALL = "stall"
    NON_FINITE = "non-finite-loss"
    SAVE_STUCK = "save-stuck"
    LAUNCH_FAILED = "launch-failed"
    ACCEPTANCE = "acceptance-failed"
    PROBATION = "probation-failed"


INFRASTRUCTURE: Final = frozenset(
    {FaultClass.RANK_DIED, FaultClass.NODE_LOST, FaultClass.NODE_SILENT, FaultClass.STALL, FaultClass.SAVE_STUCK}
)
"""Classes counted against the infrastructure budget; the others count against the software budget."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Which samples: position of the first, how many, and a hash over their ids."""

    first: int
    count: int
    hash: str


@dataclass(frozen=True, slots=True)
class Place:
    """A rank's coordinates in the layout."""

    tp: int
    pp: int
    dp: int


@dataclass(frozen=True, slots=True)
class Finding:
    """One piece of evidence about what went wrong, with where and when it was seen."""

    attempt: int
    kind: str
    role: Literal["root", "cascade", "context", "benign"]
    category: str
    text: str
    cycle: int = 0
    rank: int | None = None
    node: str | None = None
    file: str | None = None
    line: int | None = None
    wall: float | None = None
    monotonic: float | None = None
    offset_bound: float = 0.0
    blames: Literal["reporter", "peer", "nobody"] = "reporter"
    grade: int = 2  # how well it names a cause (docs/diagnosis.md)
    restart: bool = True  # may a plain restart help
    peer: str | None = None  # the node that it speaks of, where that is another
    seq: int | None = None  # the collective that it waited in
    op: str = ""  # its kind, as NCCL names it: ALLREDUCE
    source: str = "log"  # log, kernel, or health


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step of the run, as the reporting rank told it."""

    attempt: int
    step: int
    samples: int
    updates: int
    skipped: int
    loss: float | None
    lr: float | None
    grad_norm: float | None
    seconds: float
    at: float
    batch: Batch | None = None


@dataclass(frozen=True, slots=True)
class Counters:
    """Both ledgers and the schedule at one moment. `samples` were read; `updates` were applied; `skipped` were not."""

    step: int
    samples: int
    updates: int
    skipped: int
    lr: float | None


@dataclass(frozen=True, slots=True)
class Loaded:
    """What one rank says it has loaded, before its first step."""

    rank: int
    node: str
    attempt: int
    place: Place | None
    checkpoint: str
    counters: Counters | None
    digest: str | None
    next_batch: Batch | None


@dataclass(frozen=True, slots=True)
class RankExit:
    """How a rank ended; exactly one of code and signal is set. `refused` is a start that the shim refused."""

    rank: int
    node: str
    attempt: int
    wall: float
    code: int | None = None
    signal: int | None = None
    refused: str | None = None

    @property
    def clean(self) -> bool:
        """It ended with 0."""
        return self.code == 0


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node, as seen now. `since` is when this state was first seen.

    `checked_at`: when its agent, connected since `agent_since`, last ended a whole round of checks (None: it has told of
    none yet), of `checks` things; `checked_for`: the newest incident for which it has looked at its node anew.
    """

    name: str
    state: NodeState
    since: float
    agent: bool = False
    checked_at: float | None = None
    drained_by_other: bool = False
    old_ranks_gone: int = 0  # no process of an attempt up to this one is left there, says its agent
    switch: str | None = None
    unhealthy: tuple[str, ...] = ()  # what its checks found to be wrong: such a node is no spare
    unchecked: tuple[str, ...] = ()  # the checks that could not look, and why: unknown, not healthy
    agent_since: float | None = None
    checks: int = 0
    checked_for: int = 0


@dataclass(frozen=True, slots=True)
class SaveView:
    """A save that the ranks have told of and that is not finished yet."""

    step: int
    attempt: int
    began_at: float
    state: Literal["begin", "blocked", "written", "failed"]
    blocked_s: float | None = None  # how long training stood still, on the slowest rank
    written_s: float | None = None  # from the first byte until the framework had published it
    bytes: int | None = None
    steps_beside: int = 0  # ordinary steps while it was written in the background
    step_s_beside: float = 0.0  # their mean time
    host_peak_bytes: int | None = None  # of the ranks of the node that took most meanwhile


@dataclass(frozen=True, slots=True)
class AttemptView:
    """The newest attempt, as seen now. `running` is False once the cluster shows no step of it."""

    number: int
    running: bool | Unknown
    started: frozenset[int] = frozenset()
    exits: tuple[RankExit, ...] = ()
    loaded: Mapping[int, Loaded] = field(default_factory=dict)
    phases: Mapping[Phase, int] = field(default_factory=dict)  # how many ranks are in each phase
    frontier: int = 0  # highest step that the reporter has finished in this attempt
    first_step: StepRow | None = None
    last_step: StepRow | None = None
    last_advance: float | None = None  # when any rank last moved on
    behind: tuple[int, ...] = ()  # ranks that are behind the others (odd ranks out)
    phase: Phase = Phase.START_UP  # the phase that the most ranks are in
    phase_since: float | None = None
    slowest_step_s: float = 0.0  # what this run has shown: the slowest ordinary step
    saves: tuple[SaveView, ...] = ()
    non_finite: StepRow | None = None
    replay: Replay | None = None
    done: int = 0  # ranks that said they are done
    silent_agents: frozenset[str] = frozenset()
    limited: bool = False  # nothing but log lines and exits is known of this attempt

    def ended_well(self, world: int) -> bool:
        """Has every one of `world` ranks ended with 0?"""
        return len({e.rank for e in self.exits if e.clean}) == world


@dataclass(frozen=True, slots=True)
class Replay:
    """Steps of this attempt laid over the same steps before the fault."""

    compared: int
    differing: int
    worst: float  # largest relative difference of the loss
    first_differing: int | None
    data_differing: int | None  # first step whose batch is another one than before
    close: int = 0  # the most that differ within a row of `probation.window` compared steps
    not_finite: int | None = None  # first step whose loss is not finite and was before


class CheckpointPhase(StrEnum):
    """Where a save stands. Only COMPLETED is ever restored from."""

    IN_PROGRESS = "in-progress"
    FRAMEWORK_DONE = "framework-done"  # the framework has finished; our checks are missing
    COMPLETED = "completed"
    BROKEN = "broken"
    NOT_YET = "not-yet"  # can't be judged now; never deleted, never fallen back on
    ABANDONED = "abandoned"  # its attempt was fenced before the framework had finished


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """One save in the store."""

    id: str
    attempt: int
    step: int
    phase: CheckpointPhase
    saved_at: float | None = None
    completed_at: float | None = None
    manifest_hash: str | None = None
    counters: Counters | None = None  # from its manifest
    reasons: tuple[str, ...] = ()
    bytes: int = 0
    limited: bool = False
    location: Literal["store", "archive"] = "store"
    archived: bool = False  # a verified copy of it is in the archive
    read_at: float | None = None  # when it was last read again in full
    pinned: bool = False  # by a person: never deleted, and not among those that are kept by number


@dataclass(frozen=True, slots=True)
class SaveCost:
    """What one completed save cost. Seconds; None where nobody told."""

    id: str
    bytes: int
    blocked_s: float | None = None
    written_s: float | None = None
    completed_s: float | None = None  # from the first byte until it was sealed
    step_s_beside: float | None = None
    host_peak_bytes: int | None = None  # memory of the ranks of the node that took most while it was written


@dataclass(frozen=True, slots=True)
class Expected:
    """What the manifest of the chosen checkpoint says every rank must have loaded."""

    checkpoint: str
    counters: Counters | None
    digests: Mapping[int, str] = field(default_factory=dict)
    next_batches: Mapping[int, Batch] = field(default_factory=dict)
    limited: bool = False


@dataclass(frozen=True, slots=True)
class RankStack:
    """What one rank was doing when its evidence was kept: its innermost calls, and what kind of wait they are.

    `stopped`: its process stood still (SIGSTOP, a debugger).
    """

    rank: int
    node: str
    waits_in: Literal["communication", "data", "storage", "other"]
    top: str
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class CaptureView:
    """How far the evidence of an incident is kept."""

    incident: int
    done: bool
    kept: int
    unknown: int
    stacks: tuple[RankStack, ...] = ()


@dataclass(frozen=True, slots=True)
class Rejected:
    """A checkpoint that was not used, and why."""

    id: str
    why: str
    location: Literal["store", "archive"] = "store"


@dataclass(frozen=True, slots=True)
class Copied:
    """The last copy between store and archive that was seen to be there. `took_s`: None where it took several tries."""

    id: str
    at: float
    bytes: int = 0
    took_s: float | None = None


class JobPhase(StrEnum):
    """Where the job that holds the run's nodes stands."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDING = "ending"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class JobView:
    """The job that holds the run's nodes. One that is requeued keeps its id and gets another `start`.

    `ends_at` (wall seconds): when its nodes are taken back, and `ends_by` what; None where it is not known. `can_follow`: a
    next job can be had without a person. `next`: what has been asked for already; empty when nothing was.
    """

    id: str
    start: str
    phase: JobPhase
    word: str  # the cluster's own, such as CANCELLED
    ends_at: float | None = None
    ends_by: Literal["", "time limit", "preemption", "maintenance"] = ""
    can_follow: bool = False
    next: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """What the world shows now. Each part may be UNKNOWN; a missing part is never read as empty."""

    nodes: Mapping[str, NodeView] | Unknown = UNKNOWN
    attempt: AttemptView | None = None
    checkpoints: tuple[CheckpointState, ...] | Unknown = UNKNOWN
    expected: Expected | None = None  # of the checkpoint that the newest attempt started from
    capture: CaptureView | None = None
    views_made: Mapping[int, str | None] = field(default_factory=dict)  # attempt -> what its load view leads to
    fenced: frozenset[int] = frozenset()
    launched: frozenset[int] = frozenset()  # attempts that the cluster has shown, ever
    untold: frozenset[str] = frozenset()  # nodes of the newest attempt that are up and have not heard of its launch
    steps_running: frozenset[int] = frozenset()
    findings: tuple[Finding, ...] = ()
    unread: frozenset[str] = frozenset()  # "cluster", "store": this controller's first look at it is not back yet
    cluster_as_of: float | None = None
    store_as_of: float | None = None
    store_free_bytes: int | None = None
    has_archive: bool = False  # one is configured
    archive: tuple[CheckpointState, ...] | Unknown = ()  # its copies; none where none is configured
    archive_as_of: float | None = None  # when it last could be read
    archive_why: str = ""  # why it can't be read
    drilled: Copied | None = None  # what the last good drill of the archive has fetched
    failures: tuple[tuple[str, str], ...] = ()  # effects that failed outright: key of the action, why
    delays: tuple[tuple[str, str], ...] = ()  # effects that can't be done yet and are asked for again: key, why
    at_work: frozenset[str] = frozenset()  # keys of the effects that are being done now
    moved: tuple[tuple[str, int, int], ...] = ()  # copies on their way, in words; bytes done, all bytes
    released: bool = False
    stop_asked: frozenset[int] = frozenset()  # attempts whose ranks were asked to save and stop
    drain_refused: str = ""  # why the cluster does not keep a barred node from others
    job: JobView | None = None  # None: the nodes are no job's, or it can't be read
