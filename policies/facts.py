"""The vocabulary: what was seen (View), what is remembered (History), and the words that both use.

Everything here is a frozen value. Times are seconds; `at` is wall time as the controller's clock gives it.
A part of the world that could not be read is UNKNOWN, and unknown is never healthy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal

from policies.reasons import Reason

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


# --- what is remembered -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bar:
    """A node in quarantine: barred from use since `at`, because of `incident`."""

    node: str
    at: float
    incident: int
    reason: Reason
    until: float | None = None  # it may come back from here on; None: not before a person lifts it
    returned_at: float | None = None  # when it came back through a check
    lifted_at: float | None = None  # when the cluster was asked to let others have it again
    lifted_by: str = ""  # the person who has lifted it: `until` is that moment


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why an incident is open: what was seen first, and whether anything has died."""

    fault: FaultClass
    reason: Reason
    at: float
    attempt: int
    died: bool
    text: str
    ranks: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The earliest error and whom it points at. Empty suspects: nobody can be named, and that is said."""

    first: tuple[Finding, ...] = ()  # more than one when the clocks cannot order them
    suspects: tuple[str, ...] = ()
    category: str = "hang.unknown"
    data: tuple[int, int] | None = None  # first sample and count of the window being read when it failed
    confidence: float = 0.0
    cascade: str = ""
    fault: FaultClass | None = None  # the class after all evidence is in; the trouble's own when None
    reason: Reason | None = None
    step: int | None = None  # the step that was being done when it failed
    why: str = ""  # in a sentence
    restart_ok: bool | None = None  # may a restart on the same nodes and data help; None: not judged
    inferred: bool = False  # the guilty one wrote no error: it stands apart from those that did


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


@dataclass(frozen=True, slots=True)
class Attempt:
    """One launched step of all ranks."""

    number: int
    slots: tuple[str, ...]
    checkpoint: str | None
    start_step: int
    intended_at: float
    incident: int | None  # the incident that it is to end; None for the first
    limited: bool = False
    accepted_at: float | None = None
    closed_at: float | None = None
    last_step: int = 0  # at its close
    began: Counters | None = None
    ended: Counters | None = None  # at its close
    epoch: int = 0  # of the intent; part of the step's name
    skip_samples: Spans = ()


@dataclass(frozen=True, slots=True)
class Times:
    """The clock of one incident, wall seconds; None is not yet."""

    last_good: float | None = None
    detected: float | None = None
    confirmed: float | None = None
    evidence: float | None = None
    decided: float | None = None
    approved: float | None = None
    stopped: float | None = None
    relaunched: float | None = None
    loaded: float | None = None
    next_good: float | None = None
    caught_up: float | None = None


@dataclass(frozen=True, slots=True)
class Incident:
    """From the last good update to the next one."""

    number: int
    attempt: int
    trouble: Trouble
    times: Times
    frontier: int  # the last step that had been done
    frontier_samples: int
    diagnosis: Diagnosis | None = None
    checkpoint: str | None = None
    checkpoint_step: int | None = None
    checkpoint_samples: int = 0
    rejected: tuple[Rejected, ...] = ()
    barred: tuple[str, ...] = ()
    swaps: tuple[tuple[int, str, str], ...] = ()  # slot, from, to
    follows: int | None = None
    approved_by: str | None = None
    evidence: str = ""
    plan_changed: bool = False  # a person changed the plan before it was approved
    plan_refused: bool = False
    replay: Replay | None = None
    closed: bool = False

    @property
    def fault(self) -> FaultClass:
        """The class of the fault: the diagnosis's word, else what was seen first."""
        sealed = self.diagnosis.fault if self.diagnosis else None
        return sealed or self.trouble.fault

    @property
    def reason(self) -> Reason:
        """Why the run stopped, as a page of the runbook."""
        sealed = self.diagnosis.reason if self.diagnosis else None
        return sealed or self.trouble.reason


@dataclass(frozen=True, slots=True)
class Halted:
    """No more restarts until a person says so."""

    at: float
    reason: Reason
    seen: str
    lifts: str
    incident: int | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """What a person has changed in the open plan."""

    checkpoint: str | None = None
    spares: tuple[str, ...] = ()
    keep_nodes: tuple[str, ...] = ()
    skip_samples: Spans = ()


@dataclass(frozen=True, slots=True)
class Intent:
    """An effect that was announced and is not yet seen to be there."""

    key: str
    at: float
    tries: int
    epoch: int = 0
    action: object = None
    failed: bool = False  # outright, and told; asked for again after its time


@dataclass(frozen=True, slots=True)
class Books:
    """The ledger of the run, in updates. computed = lineage + rolled_back; skipped apart."""

    computed: int = 0
    rolled_back: int = 0
    skipped: int = 0
    samples_read_again: int = 0


@dataclass(frozen=True, slots=True)
class Answered:
    """What a person was told on a request; `exit` is the exit code of the command that filed it."""

    outcome: Literal["done", "refused"]
    text: str
    exit: int


@dataclass(frozen=True, slots=True)
class Telling:
    """One notice: when people were told, and whom it has reached.

    `to`: how many targets were asked; 0 where none is configured. `failed`: target and why, as of the last try.
    """

    key: str
    title: str
    at: float
    to: int = 0
    reached: tuple[str, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    tries: int = 0
    given_up: bool = False  # not tried again: too often in vain, or it was answered meanwhile

    @property
    def under_way(self) -> bool:
        """Is there a target that it has not reached, and may yet?"""
        return len(self.reached) < self.to and not self.given_up


Then = Literal["end", "next-job", "here"]
"""How a run goes on after a planned stop: not by itself, in the next job, or in this one with other nodes."""


@dataclass(frozen=True, slots=True)
class StopWish:
    """A planned stop that was asked for. `after_save`: the next regular save is awaited, and no other is made for it."""

    who: str
    at: float
    then: Then = "end"
    after_save: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class HoldingJob:
    """The job that holds the nodes, since when the journal knows of it. `follows`: there was one before.

    `saves`: how many had been completed when it began; `barren`: so many jobs in a row before it trained, were left for the
    next one, and completed none.
    """

    id: str
    start: str
    at: float
    follows: bool = False
    saves: int = 0
    barren: int = 0


@dataclass(frozen=True, slots=True)
class History:
    """What the journal says, folded. Nothing here comes from anywhere else."""

    run: str = ""
    epoch: int = 0
    mode: str = "auto"
    paused: bool = False
    started_at: float | None = None
    attempts: tuple[Attempt, ...] = ()
    incidents: tuple[Incident, ...] = ()
    bars: tuple[Bar, ...] = ()
    decision: Decision | None = None
    decided_at: float | None = None
    decision_digest: str | None = None
    choice: Choice = Choice()
    approvals: frozenset[str] = frozenset()  # digests
    refused: frozenset[str] = frozenset()
    intents: Mapping[str, Intent] = field(default_factory=dict)
    halted: Halted | None = None
    stop_asked: StopWish | None = None
    ended: str | None = None  # finished, stopped as planned, or waiting for its next job
    job: HoldingJob | None = None
    reopened: int = 0  # the attempt stopped as planned before the run went on: its clean end is no end of the training
    completed: tuple[str, ...] = ()  # saves ever completed, in order
    books: Books = Books()
    told: frozenset[str] = frozenset()  # notices already sent
    tellings: Mapping[str, Telling] = field(default_factory=dict)  # by the notice's key
    save_costs: tuple[SaveCost, ...] = ()
    begun: frozenset[str] = frozenset()  # saves whose in-progress mark was asked for
    unfit: tuple[Rejected, ...] = ()  # completed saves that could not be made ready for a load, and why
    archived: Copied | None = None  # the last copy into the archive
    restored: tuple[Copied, ...] = ()  # saves that came back from the archive, in order
    requests: Mapping[str, Answered] = field(default_factory=dict)  # what was answered, by the request's id
    drain_refused: str = ""  # why the cluster did not keep a barred node from others, the first time
    epoch_began_at: float = 0.0
    resumed_at: float | None = None  # when a person last lifted a halt: budgets count from there
    plans: tuple[tuple[int, str], ...] = ()  # incident -> digest of the plan that was carried out
    asked_to_halt: bool = False  # the halt in force was asked for by a person
    rules: str = ""  # the profile in force, as JSON: what a replay decides by

    @property
    def attempt(self) -> Attempt | None:
        """The newest attempt, open or closed."""
        return self.attempts[-1] if self.attempts else None

    def is_of_earlier_job(self, attempt: Attempt) -> bool:
        """Was it started in a job that holds the nodes no more? Then nothing of it is left, and nobody is to blame for that."""
        return self.job is not None and self.job.follows and attempt.intended_at < self.job.at

    @property
    def listens_since(self) -> float:
        """Since when this controller could hear the nodes that it has: it began then, or their job did (wall seconds)."""
        return max(self.epoch_began_at, self.job.at if self.job else 0.0)

    @property
    def incident(self) -> Incident | None:
        """The open incident, if there is one."""
        return self.incidents[-1] if self.incidents and not self.incidents[-1].closed else None

    def barred(self, now: float) -> frozenset[str]:
        """The nodes in quarantine at `now`. A bar whose time is over still holds until the node has come through its check."""
        return frozenset(b.node for b in self.bars if b.returned_at is None or b.returned_at > now)


# --- decisions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Continue:
    """Nothing to do. `until` is the next moment at which that may change."""

    reason: Reason
    until: float | None = None
    text: str = ""
    kind: Literal["continue"] = "continue"


@dataclass(frozen=True, slots=True)
class Wait:
    """Something must be seen first; look again at `until` at the latest. `tells`: a person must see to it."""

    reason: Reason
    until: float
    text: str = ""
    tells: bool = False
    kind: Literal["wait"] = "wait"


@dataclass(frozen=True, slots=True)
class Contain:
    """Keep the evidence of a dead attempt, fence and stop it. What comes next is decided when it is down."""

    reason: Reason
    incident: int
    attempt: int
    died: bool
    kind: Literal["contain"] = "contain"


@dataclass(frozen=True, slots=True)
class Restores:
    """What a restore from the archive moves, and how long it takes at the pace of the last copy; None: not known."""

    bytes: int
    about_s: float | None = None


@dataclass(frozen=True, slots=True)
class Recover:
    """Start the next attempt. Its effects (and nothing else) make the digest that a person approves."""

    reason: Reason
    incident: int | None
    fault: FaultClass | None
    died: bool
    stops: int | None  # the attempt that must be down first
    attempt: int
    slots: tuple[str, ...]
    bars: tuple[str, ...]
    checkpoint: str | None
    checkpoint_step: int
    manifest_hash: str | None
    rejected: tuple[Rejected, ...] = ()
    swaps: tuple[tuple[int, str, str], ...] = ()
    redo_steps: int = 0
    start: Counters | None = None  # the counters that the checkpoint holds
    asks: bool = False  # a rule wants a person even where automation would act
    text: str = ""
    skip_samples: Spans = ()  # left out from here on
    restores: Restores | None = None  # the checkpoint is only in the archive, and comes into the store first
    kind: Literal["recover"] = "recover"


@dataclass(frozen=True, slots=True)
class PlannedStop:
    """Save, stop, go on later. No fault, no strike. `down`: what has not stopped by itself by now is stopped."""

    reason: Reason
    attempt: int
    then: Then = "end"
    down: bool = False
    text: str = ""
    kind: Literal["planned-stop"] = "planned-stop"


@dataclass(frozen=True, slots=True)
class Halt:
    """No more restarts until a person says so."""

    reason: Reason
    seen: str
    lifts: str
    attempt: int | None
    incident: int | None
    kind: Literal["halt"] = "halt"


@dataclass(frozen=True, slots=True)
class Finish:
    """The training has reached its end: seal what is left and let the nodes go."""

    reason: Reason
    attempt: int
    kind: Literal["finish"] = "finish"


Decision = Continue | Wait | Contain | Recover | PlannedStop | Halt | Finish
