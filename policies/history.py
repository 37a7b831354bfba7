"""What is remembered: the journal, folded (History), and the words for incidents, attempts, bars and what people have said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from policies.decisions import Decision, Then
from policies.facts import Copied, Counters, FaultClass, Finding, Rejected, Replay, SaveCost, Spans
from policies.reasons import Reason


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
