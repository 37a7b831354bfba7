"""What the journal may say. Each entry is a change of a fact that policies read, a decision, an intent or a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from policies.decisions import Contain, Finish, Halt, PlannedStop, Recover, Then
from policies.facts import Counters, Replay, SaveCost, Spans
from policies.history import Choice, Diagnosis, Trouble
from policies.reasons import Reason
from supervisor.actions import (
    Abandon,
    Archive,
    AskStop,
    Bar,
    Begin,
    Capture,
    Check,
    Fence,
    Launch,
    MakeView,
    NextJob,
    Release,
    Restore,
    Retain,
    Scrub,
    Seal,
    StartAgent,
    Stop,
    Unbar,
)
from supervisor.looked import Look

AnyAction = Annotated[
    StartAgent
    | Check
    | Capture
    | Fence
    | Stop
    | Begin
    | Seal
    | Abandon
    | Retain
    | Restore
    | Archive
    | Scrub
    | Bar
    | Unbar
    | MakeView
    | Launch
    | AskStop
    | NextJob
    | Release,
    Field(discriminator="kind"),
]
AnyDecision = Annotated[Recover | Contain | PlannedStop | Halt | Finish, Field(discriminator="kind")]
Mark = Literal["confirmed", "evidence", "approved", "stopped", "relaunched", "loaded"]


@dataclass(frozen=True, slots=True)
class EpochBegan:
    """The first entry of a segment. What an older epoch wrote after `follows_hash` is void."""

    epoch: int
    host: str
    pid: int
    follows_epoch: int
    follows_hash: str
    kind: Literal["epoch-began"] = "epoch-began"


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run with this name, layout and mode."""

    run: str
    mode: str
    tp: int
    pp: int
    dp: int
    ranks_per_node: int
    kind: Literal["run-started"] = "run-started"


@dataclass(frozen=True, slots=True)
class ModeSet:
    """The profile in force has this mode."""

    mode: str
    kind: Literal["mode-set"] = "mode-set"


@dataclass(frozen=True, slots=True)
class RulesSet:
    """The profile in force, whole, as JSON with sorted keys."""

    rules: str
    kind: Literal["rules-set"] = "rules-set"


@dataclass(frozen=True, slots=True)
class Looked:
    """What the decision that follows was made from. Policies never read it back; a replay does."""

    look: Look
    kind: Literal["looked"] = "looked"


@dataclass(frozen=True, slots=True)
class NodeReturned:
    """A barred node whose time is over has come through its check: it may be used again, last of all."""

    node: str
    kind: Literal["node-returned"] = "node-returned"


@dataclass(frozen=True, slots=True)
class Unbarred:
    """A person has lifted the bars of these nodes. Each comes back through its check, as one whose time is over."""

    nodes: tuple[str, ...]
    who: str
    why: str = ""
    kind: Literal["unbarred"] = "unbarred"


@dataclass(frozen=True, slots=True)
class DrainRefused:
    """The cluster did not keep a barred node from others: the bar holds in this run alone. Once a run."""

    why: str
    kind: Literal["drain-refused"] = "drain-refused"


@dataclass(frozen=True, slots=True)
class Paused:
    """A person asked for no more effects."""

    who: str
    why: str
    kind: Literal["paused"] = "paused"


@dataclass(frozen=True, slots=True)
class Resumed:
    """A person lifted a pause or a halt."""

    who: str
    because: str
    skip_samples: Spans = ()
    keep_nodes: tuple[str, ...] = ()
    kind: Literal["resumed"] = "resumed"


@dataclass(frozen=True, slots=True)
class IncidentOpened:
    """The run has stopped advancing, or may not go on as it is."""

    number: int
    attempt: int
    trouble: Trouble
    last_good: float | None
    detected: float
    frontier: int
    frontier_samples: int
    follows: int | None
    kind: Literal["incident-opened"] = "incident-opened"


@dataclass(frozen=True, slots=True)
class IncidentMarked:
    """A moment in an incident."""

    number: int
    what: Mark
    text: str = ""
    kind: Literal["incident-marked"] = "incident-marked"


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """The earliest error, sealed. Only earlier evidence may replace it."""

    incident: int
    diagnosis: Diagnosis
    kind: Literal["diagnosed"] = "diagnosed"


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision that stays until it is settled, or contradicted by the world."""

    decision: AnyDecision
    digest: str | None
    kind: Literal["decided"] = "decided"


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The world contradicts the open decision."""

    digest: str | None
    why: str
    kind: Literal["withdrawn"] = "withdrawn"


@dataclass(frozen=True, slots=True)
class Chosen:
    """A person changed the open plan."""

    choice: Choice
    who: str
    kind: Literal["chosen"] = "chosen"


@dataclass(frozen=True, slots=True)
class Approved:
    """A person said yes to the plan of this digest."""

    digest: str
    who: str
    kind: Literal["approved"] = "approved"


@dataclass(frozen=True, slots=True)
class Refused:
    """A person said no to the plan of this digest."""

    digest: str
    who: str
    why: str
    kind: Literal["refused"] = "refused"


@dataclass(frozen=True, slots=True)
class Intended:
    """An effect is about to be asked for."""

    action: AnyAction
    kind: Literal["intended"] = "intended"


@dataclass(frozen=True, slots=True)
class Settled:
    """An effect is seen to be there, or has failed outright."""

    key: str
    outcome: Literal["seen", "failed", "moot"]
    text: str = ""
    kind: Literal["settled"] = "settled"


@dataclass(frozen=True, slots=True)
class AttemptAccepted:
    """Every rank is where it should be, with what it should have loaded, and one new update is done."""

    attempt: int
    limited: bool
    text: str
    kind: Literal["attempt-accepted"] = "attempt-accepted"


@dataclass(frozen=True, slots=True)
class AttemptClosed:
    """No reachable rank of the attempt is left."""

    attempt: int
    ended: Counters
    kind: Literal["attempt-closed"] = "attempt-closed"


@dataclass(frozen=True, slots=True)
class IncidentClosed:
    """The next successful update is done."""

    number: int
    at_step: int
    kind: Literal["incident-closed"] = "incident-closed"


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """The old frontier is passed; probation is over."""

    number: int
    attempt: int
    replay: Replay | None
    kind: Literal["caught-up"] = "caught-up"


@dataclass(frozen=True, slots=True)
class CheckpointCompleted:
    """A save was verified and published."""

    cost: SaveCost
    step: int
    kind: Literal["checkpoint-completed"] = "checkpoint-completed"


@dataclass(frozen=True, slots=True)
class HaltedEntry:
    """No more restarts until a person says so."""

    reason: Reason
    seen: str
    lifts: str
    incident: int | None
    kind: Literal["halted"] = "halted"


@dataclass(frozen=True, slots=True)
class StopAsked:
    """A person, or the end of the job, wants the run to save and stop."""

    who: str
    then: Then = "end"
    after_save: bool = False
    why: str = ""
    kind: Literal["stop-asked"] = "stop-asked"


@dataclass(frozen=True, slots=True)
class Ended:
    """The run is over, or stopped as planned."""

    how: Literal["finished", "stopped", "next-job"]
    kind: Literal["ended"] = "ended"


@dataclass(frozen=True, slots=True)
class JobBegan:
    """Another job, or the same one anew, holds the run's nodes from here on."""

    id: str
    start: str
    kind: Literal["job-began"] = "job-began"


@dataclass(frozen=True, slots=True)
class Reopened:
    """A run that was stopped as planned goes on."""

    who: str
    kind: Literal["reopened"] = "reopened"


@dataclass(frozen=True, slots=True)
class Told:
    """A person was told; the same thing is not told twice."""

    key: str
    title: str
    to: int = 0
    kind: Literal["told"] = "told"


@dataclass(frozen=True, slots=True)
class Carried:
    """How a notice fared: the targets that it has reached so far, those that it has not and why."""

    key: str
    reached: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]
    tries: int
    given_up: bool
    kind: Literal["carried"] = "carried"


@dataclass(frozen=True, slots=True)
class RequestAnswered:
    """What was made of a request."""

    id: str
    what: str
    who: str
    outcome: Literal["done", "refused"]
    text: str
    exit: int = 0
    kind: Literal["request-answered"] = "request-answered"


Entry = (
    EpochBegan
    | RunStarted
    | ModeSet
    | RulesSet
    | Looked
    | NodeReturned
    | Unbarred
    | DrainRefused
    | Paused
    | Resumed
    | IncidentOpened
    | IncidentMarked
    | Diagnosed
    | Decided
    | Withdrawn
    | Chosen
    | Approved
    | Refused
    | Intended
    | Settled
    | AttemptAccepted
    | AttemptClosed
    | IncidentClosed
    | CaughtUp
    | CheckpointCompleted
    | HaltedEntry
    | StopAsked
    | Ended
    | JobBegan
    | Reopened
    | Told
    | Carried
    | RequestAnswered
)
ENTRY: TypeAdapter[Entry] = TypeAdapter(Annotated[Entry, Field(discriminator="kind")])


@dataclass(frozen=True, slots=True)
class Stamped:
    """An entry with its place and wall time in the journal."""

    number: int
    epoch: int
    at: float
    entry: Entry
